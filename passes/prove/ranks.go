package prove

import "ampc/ir"

// ranks checks a step that sends messages to other ranks. A value is agreed on if it is the same on
// all ranks: a variable other than an accumulator, a result of a message, or a value computed from
// such values alone. The rule requires:
//
//   - All messages are for the same number of ranks, and their numbers rise in the order in which
//     they are sent.
//   - A value that is summed or gathered is not agreed on and not a sum over ranks itself, so that
//     every contribution counts once. Values of the backward pass are summed; no mean or maximum is
//     taken of them.
//   - The backward pass does not divide by the number of this rank's labels.
//   - If the update computes a returned value from losses, counts and other values of the forward
//     pass, it is agreed on.
//   - Every value that is written to a variable that outlives the step is agreed on, and so is its
//     skip predicate.
//   - Where micro-batches of a rank meet or are added up in a tree, all messages of the forward and the
//     backward pass are among all of them, and what outlives the step is written from accumulators and
//     from values that are equal for all micro-batches. That holds for one rank, too, whose accumulators
//     are agreed on.
//   - A sharded variable, of which each rank has a part, is read as a whole only by gathering the
//     parts. A part is written from parts of tensors of the same size, element by element, and from
//     values that are agreed on.
func (p *proof) ranks() {
	var sent []*ir.Node
	for _, n := range p.g.Nodes {
		if n.Def().Is(ir.Collective) {
			sent = append(sent, n)
		}
	}
	if len(sent) == 0 {
		return
	}
	r := &rankRule{p: p, ranks: sent[0].Int("ranks"), next: map[*ir.Value]*ir.Value{}, local: map[*ir.Value]bool{}, summed: map[*ir.Value]bool{}}
	for _, n := range p.g.Nodes {
		for _, v := range n.Out {
			if v.Next != nil {
				r.next[v.Next] = v
			}
		}
	}
	r.shards()
	r.order(sent)
	for _, n := range sent {
		r.message(n)
	}
	r.counts()
	r.writes()
	r.returns()
	r.together(sent)
	if r.ranks > 1 {
		r.predicates()
	}
}

// rankRule is what the rule ranks has found out about values.
type rankRule struct {
	p      *proof
	ranks  int64
	next   map[*ir.Value]*ir.Value // the value that is written to a variable
	local  map[*ir.Value]bool      // not agreed on
	summed map[*ir.Value]bool      // computed from a sum over ranks that the backward pass or the update makes
}

// parts names what values may differ between.
func (r *rankRule) parts() string {
	if r.ranks == 1 {
		return "micro-batches"
	}
	return "ranks"
}

// order compares each message with the one before. The graph lists messages in the order in which
// they are sent.
func (r *rankRule) order(sent []*ir.Node) {
	for i, n := range sent {
		r.p.judged++
		if n.Int("ranks") != sent[0].Int("ranks") {
			r.p.report(n, "is for %d ranks, %s for %d", n.Int("ranks"), sent[0].Name(), sent[0].Int("ranks"))
		}
		if i > 0 && n.Int("seq") <= sent[i-1].Int("seq") {
			r.p.report(n, "is sent as number %d, after %s, which is number %d", n.Int("seq"), sent[i-1].Name(), sent[i-1].Int("seq"))
		}
	}
}

func (r *rankRule) message(n *ir.Node) {
	if r.p.sec[n.ID] == ir.Prepare && !gathersParts(n) {
		r.p.report(n, "is sent before the step has computed anything")
	}
	seen, gathers := map[*ir.Value]bool{}, n.Op == ir.OpAllGather
	for _, v := range n.In {
		r.p.judged++
		switch {
		case v.Type.DType == ir.Bool:
			continue
		case seen[v]:
			r.p.report(n, "sends %s twice", v)
		case gathers && !r.isLocal(v):
			r.p.report(n, "gathers %s, which is equal on all ranks", v)
		case n.Str("op") == "sum" && !r.isLocal(v) && (!r.backward(v) || r.isSum(v)): // a gradient that no data reach is a part all the same
			r.p.report(n, "sums %s, which is equal on all %s", v, r.parts())
		case !gathers && n.Str("op") != "sum" && r.backward(v):
			r.p.report(n, "takes the %s of %s, of which the ranks have parts", n.Str("op"), v)
		case r.p.sec[n.ID] > ir.Forward && r.isSum(v) && !(gathers && r.ofParts(v)):
			r.p.report(n, "sums %s, which is a sum over the %s already", v, r.parts())
		}
		seen[v] = true
	}
}

// source is what v was computed from: the operands of its node or, for an accumulator, what is
// written to it.
func (r *rankRule) source(v *ir.Value) []*ir.Value {
	if v.Def != nil {
		in, _ := v.Def.OperandsOf(v.Idx)
		return in
	}
	if w := r.next[v]; w != nil && v.Attr.Get("role") == "acc" {
		return []*ir.Value{w}
	}
	return nil
}

// isLocal reports whether v may differ between ranks.
func (r *rankRule) isLocal(v *ir.Value) bool {
	if yes, known := r.local[v]; known {
		return yes
	}
	r.local[v] = true // of an accumulator, which depends on itself
	yes := false
	switch {
	case v.Def == nil:
		yes = v.Kind == ir.Input || v.Attr.Get("role") == "acc" && r.ranks > 1 || v.PartOf() != ""
	case v.Def.Def().Is(ir.Collective):
		yes = v.Def.Op == ir.OpReduceScatter
	default:
		for _, x := range operandsOf(v.Def) {
			yes = yes || r.isLocal(x)
		}
	}
	r.local[v] = yes
	return yes
}

// isSum reports whether v is computed from a sum over ranks in the backward pass or the update.
func (r *rankRule) isSum(v *ir.Value) bool {
	if yes, known := r.summed[v]; known {
		return yes
	}
	r.summed[v] = false
	if n := v.Def; n != nil && r.p.sec[n.ID] <= ir.Forward {
		return false
	}
	if n := v.Def; n != nil && n.Def().Is(ir.Collective) && v.Type.DType != ir.Bool {
		r.summed[v] = !r.adjoint(n)
		return r.summed[v]
	}
	yes := false
	for _, x := range r.source(v) {
		yes = yes || x != nil && x.Type.DType.Float() && r.isSum(x)
	}
	r.summed[v] = yes
	return yes
}

// adjoint reports whether n, in the backward pass, sums the gradients of a sum in the forward pass,
// whose result every rank reads. Each rank has a part of the gradients, and their sum is the
// gradient of its own operand.
func (r *rankRule) adjoint(n *ir.Node) bool {
	return r.p.sec[n.ID] == ir.Backward && n.Of != nil && n.Of.Def().Is(ir.Collective) && r.p.sec[n.Of.ID] == ir.Forward
}

// backward reports whether the backward pass computes or sums v.
func (r *rankRule) backward(v *ir.Value) bool {
	w := v
	if v.Def == nil {
		w = r.next[v]
	}
	switch {
	case w == nil || r.p.sec[w.Def.ID] != ir.Backward:
		return false
	case w.Next == nil:
		return true
	}
	g := w.Def.Operand("g")
	return w.Next.Attr.Get("role") == "acc" && v.Type.DType.Float() && g != nil && r.backward(g)
}

// counts looks for gradients that are divided by the count of a loss row on this rank.
func (r *rankRule) counts() {
	for s, n := range r.p.g.Nodes {
		if s != ir.Backward {
			continue
		}
		for i, v := range n.In {
			if v == nil || n.OperandDef(i).Entry != ir.Divides || v.Type.Shape.Elements() != 1 || v.Def == nil || !r.isLocal(v) {
				continue
			}
			outs := v.Def.Def().Out
			if v.Idx > 0 && outs[min(v.Idx, len(outs)-1)].Name == "count" {
				r.p.report(n, "divides a gradient by %s, which counts the labels of this rank alone", v)
			}
		}
	}
}

// writes requires that variables that outlive the step are equal on all ranks.
func (r *rankRule) writes() {
	for _, n := range r.p.g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil || v.Next.Attr.Get("role") == "acc" {
				continue
			}
			r.p.judged++
			for _, x := range operandsOf(n) {
				if r.isLocal(x) && !r.partLike(x, v.Next) {
					r.p.report(n, "writes %s from %s, which differs between %s", v.Next, x, r.parts())
				}
			}
		}
	}
}

// returns requires that a loss, or another result of the whole step, is over all ranks.
func (r *rankRule) returns() {
	for i, v := range r.p.g.Return {
		n := v.Def
		if n == nil || r.p.sec[n.ID] != ir.Update || !v.Type.DType.Float() {
			continue
		}
		r.p.judged++
		if r.isLocal(v) && r.p.guards().from(v) == fromForward {
			r.p.report(n, "is result %d of the step and differs between %s", i, r.parts())
		}
	}
}

// predicates requires that each skip predicate combines the checks of all ranks.
func (r *rankRule) predicates() {
	p := r.p
	if p.rules.Unchecked {
		return
	}
	p.judged += len(p.guards().skipGroups)
	for _, t := range p.guards().skipGroups {
		f := p.guards().last()
		agreed := false
		for _, i := range f.b.alone(f.truth(t.skip, f.update())) {
			agreed = agreed || f.atoms[i].what == elsewhere
		}
		if !agreed {
			p.report(t.writers[0], "the skip predicate %s is this rank's own", t.skip)
		}
	}
}

// operandsOf lists what n reads, absent operands left out.
func operandsOf(n *ir.Node) []*ir.Value {
	var vs []*ir.Value
	for _, v := range append(n.In[:len(n.In):len(n.In)], n.Captured...) {
		if v != nil {
			vs = append(vs, v)
		}
	}
	return vs
}

// together requires that micro-batches which meet at some message, or are added up in a tree, meet at all
// messages of the forward and the backward pass.
func (r *rankRule) together(sent []*ir.Node) {
	micro := int64(1)
	for _, n := range sent {
		micro = max(micro, n.Together())
	}
	for _, n := range r.p.g.Nodes {
		if n.Op == ir.OpAccumTree && n.Int("level") > 0 {
			micro = max(micro, 2<<n.Int("level"))
		}
	}
	for _, n := range sent {
		r.p.judged++
		want := micro
		if s := r.p.sec[n.ID]; s != ir.Forward && s != ir.Backward {
			want = 1
		}
		if n.Together() != want {
			r.p.report(n, "is among %d micro-batches of each rank, want %d", n.Together(), want)
		}
	}
}
