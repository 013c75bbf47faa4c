package doctor

import "ampc/ir"

// Prepare compiles in the background what a diagnosis of a skipped step most likely replays; what
// only a fault in the update takes, where update says that this is likely. Diagnose waits for it.
// c needs no variables. The graph is copied before Prepare returns.
func (k *Kept) Prepare(c *Case, update bool) {
	s, err := k.of(c)
	if err != nil {
		return // a diagnosis fails in the same way
	}
	k.ahead.Go(func() {
		k.one.Lock()
		defer k.one.Unlock()
		defer func() { _ = recover() }() // training goes on; a diagnosis compiles again and fails in the same way
		_ = s.prepare(c, update)         // likewise
	})
}

// Wait waits until what Prepare began is done.
func (k *Kept) Wait() { k.ahead.Wait() }

// Load gives the replays that Prepare compiled for such a case their memory, if they are small enough to
// stay loaded. c needs no feeds.
func (k *Kept) Load(c *Case) error {
	s, err := k.of(c)
	if err != nil || k.small != nil || c.Backend == nil {
		return err
	}
	replays, variants := s.likely(c.NotFinite)
	if size(replays, variants) > smallReplays {
		return nil
	}
	state, err := complete(s.g, c.State, c.Seed)
	if err != nil {
		return err
	}
	l := k.take(c.Backend)
	defer k.give(l)
	l.spares.Touch = true
	defer func() { l.spares.Touch = false }()
	load := func(c *compiled, of func(converted map[string][]byte) map[string][]byte) error {
		m, err := l.take(c, l.b, of)
		if err == nil {
			l.used[c] = m
		}
		return err
	}
	h := newWorkers(l.b)
	for _, c := range replays {
		if err := load(c, func(map[string][]byte) map[string][]byte { return state }); err != nil {
			return err
		}
	}
	for _, t := range variants {
		if err := load(t.compiled, func(converted map[string][]byte) map[string][]byte { return t.state(h, state, converted, nil) }); err != nil {
			return err
		}
	}
	l.spares.Reserve(s.largestNode())
	return nil
}

// largestNode is how many bytes the results of a node take in f32, for the node that runs alone.
func (s *subject) largestNode() int64 {
	most := int64(0)
	for _, n := range s.g.Nodes {
		bytes := int64(0)
		for _, v := range n.Out {
			if v.Type.DType.Float() {
				bytes += v.Type.With(ir.F32).Bytes()
			}
		}
		most = max(most, bytes)
	}
	return most
}

// likely are the replays, of those that are compiled, that a diagnosis most likely takes.
func (s *subject) likely(lossFailed bool) (replays []*compiled, variants []*variant) {
	policy := []*compiled{s.policy, s.gradients}
	if lossFailed {
		policy = []*compiled{s.forward}
	}
	for _, c := range policy {
		if c != nil {
			replays = append(replays, c)
		}
	}
	for k, t := range s.others {
		if lossFailed != (k.lossesOnly || k.update) {
			variants = append(variants, t)
		}
	}
	return replays, variants
}

// size is how many bytes replays take.
func size(replays []*compiled, variants []*variant) int64 {
	n := int64(0)
	for _, c := range replays {
		n += c.bytes()
	}
	for _, t := range variants {
		n += t.bytes()
	}
	return n
}

// prepare compiles the replay under the policy and the variants that it most likely leads to.
func (s *subject) prepare(c *Case, update bool) error {
	if _, _, err := s.underPolicy(c); err != nil {
		return err
	}
	kinds := []kind{{dtype: ir.F32, how: traced}}
	switch comparable := s.chosen16 == ir.F16; {
	case !c.NotFinite:
		kinds[0].lossesOnly = true
		if update {
			kinds = append(kinds, kind{dtype: ir.F32, how: traced, update: true, lossesOnly: !comparable || !s.lowParams()})
		}
	case comparable:
		kinds = append(kinds, kind{dtype: ir.BF16, how: traced})
	}
	for _, k := range kinds {
		if _, err := s.variant(k, nil, c.memory()); err != nil {
			return err
		}
	}
	return nil
}
