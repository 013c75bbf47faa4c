package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// problem is everything that the choice of an engine depends on, except the device and the library.
func (g *DnnGraph) problem() string {
	var b strings.Builder
	b.WriteString(g.Name)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		fmt.Fprintf(&b, " %d.%d.%d", n.Kind, n.Mode, n.Axis)
		if n.Conv != nil {
			fmt.Fprintf(&b, " pads=%v,%v strides=%v dilations=%v", n.Conv.Pads, n.Conv.EndPads, n.Conv.Strides, n.Conv.Dilations)
		}
	}
	for _, t := range g.Feeds {
		fmt.Fprintf(&b, " %d%v%v", t.Type, t.Dims, t.Strides)
	}
	for _, t := range g.Consts {
		fmt.Fprintf(&b, " %g", t.Value)
	}
	return b.String()
}

// Problem is what the options add to a graph's.
func (o DnnOptions) Problem(g *DnnGraph) string {
	s := g.problem()
	if o.TF32 {
		s += " tf32"
	}
	if o.Deterministic {
		s += " deterministic"
	}
	return s
}

// varyGain is the share of the time of the fastest plan without varying sums that a plan with them must
// stay below.
const varyGain = 0.9

// PickPlan compiles a graph with the fastest of the first engines, timed as Pick does. The graph must
// be able to run over the same operands again and again. With o.Most set, no more engines are tried.
func (t *Tuner) PickPlan(n Dnn, g *DnnGraph, o DnnOptions, s Stream) (DnnPlan, Choice, error) {
	file, err := t.of("cudnn", n.Version())
	if err != nil {
		return nil, Choice{}, err
	}
	c := Choice{Problem: o.Problem(g)}
	if known, ok := file.known(c.Problem); ok {
		o.Engine = known.Name
		p, err := FirstPlan(n, g, o)
		if err == nil || !errors.Is(err, ErrNotSupported) {
			return p, known, err
		}
		o.Engine = "" // the library lists its engines in another order now
	}
	if o.Most == 0 {
		o.Most = engineChoices
	}
	plans, err := n.Plans(g, o)
	if err != nil {
		return nil, c, err
	}
	best := 0
	feeds, workspace, free, err := t.operands(g, plans, s)
	if err == nil {
		best, err = t.fastestPlan(&c, plans, feeds, workspace, s)
		if err == nil {
			file.keep(c)
		}
	} else if errors.Is(err, ErrOutOfMemory) {
		err = nil
	}
	err = errors.Join(err, free())
	for i, p := range plans {
		if i != best || err != nil {
			err = errors.Join(err, p.Close())
		}
	}
	c.Name = plans[best].Engine()
	return plans[best], c, err
}

// fastestPlan times plans and leaves out those that fail to run. One whose sums vary wins only by
// varyGain.
func (t *Tuner) fastestPlan(c *Choice, plans []DnnPlan, feeds []Ptr, workspace Ptr, s Stream) (best int, err error) {
	share := func(i int) float64 { // of its time, in the comparison
		if plans[i].Varies() {
			return 1 / varyGain
		}
		return 1
	}
	times := make([]time.Duration, len(plans))
	err = t.fastest(c, len(plans), s, func(i int) error { return plans[i].Run(feeds, workspace, s) }, func(i int, took time.Duration) bool {
		times[i] = took
		if c.Tried > 1 && float64(took)*share(i) >= float64(times[best])*share(best) {
			return false
		}
		best = i
		return true
	})
	c.Name = plans[best].Engine()
	return best, err
}

// operands allocates the operands of a graph and the largest workspace of its plans. Call free also
// after an error.
func (t *Tuner) operands(g *DnnGraph, plans []DnnPlan, s Stream) (feeds []Ptr, workspace Ptr, free func() error, err error) {
	var owned []Ptr
	free = func() error {
		err := t.d.Synchronize(s)
		for _, p := range owned {
			err = errors.Join(err, t.d.Free(p))
		}
		return err
	}
	fill := func(bytes int64) (Ptr, error) {
		words := (bytes + 3) / 4
		p, err := t.d.Alloc(4 * words)
		if err != nil {
			return 0, err
		}
		owned = append(owned, p)
		return p, t.d.Fill32(p, scratchWord, words, s)
	}
	for _, f := range g.Feeds {
		last := int64(0)
		for i, d := range f.Dims {
			last += (d - 1) * f.Strides[i]
		}
		p, err := fill((last + 1) * 4)
		if err != nil {
			return nil, 0, free, err
		}
		feeds = append(feeds, p)
	}
	most := slices.MaxFunc(plans, func(a, b DnnPlan) int { return int(a.Workspace() - b.Workspace()) }).Workspace()
	workspace, err = fill(max(most, 1))
	return feeds, workspace, free, err
}
