package passes

import (
	"cmp"
	"fmt"
	"slices"

	"ampc/ir"
)

// A sharded step (ZeRO, stage 1: Rajbhandari et al. 2020) keeps of each weight, of its moments
// and of its running average a part on each rank: a range of the flattened tensor, which is
// filled up until the ranks divide it. Gradients are scattered instead of reduced, each rank
// updates its parts, and the next step gathers what it reads of the weights.

// shard decides which parameters are sharded and declares their parts.
func (t *training) shard(g *ir.Graph, c *Context) error {
	if !c.Parallel.Shard || !c.Parallel.several() {
		return nil
	}
	if err := c.checkShard(); err != nil {
		return err
	}
	b := c.append(g)
	whole := map[string]bool{} // rules that need whole tensors
	for _, p := range t.params {
		switch {
		case p.group.NoUpdate || !p.v.Type.Shape.Static():
		case p.group.Optimizer.Algorithm == UseRule && !p.group.Optimizer.Rule.Elementwise:
			whole[p.group.Optimizer.Rule.Name] = true
		default:
			p.part = c.declarePart(b, p.v.Name, p.v.Type, p.v.Init, p.v.Type.Shape, "")
			c.Count("sharded", 1)
		}
	}
	for _, name := range sortedKeys(whole) {
		c.note("rule %s: it does not say that it is Elementwise, so its update may need whole tensors, and every rank keeps the weights and states that it steps", name)
	}
	return b.Err()
}

// checkShard refuses what sees whole gradients or weights, and what depends on how the ranks
// divide them.
func (c *Context) checkShard() error {
	switch {
	case c.Gradients != nil:
		return fmt.Errorf("parallel: Shard leaves each rank a part of the gradients, and TrainConfig.Gradients wants whole ones: leave one out")
	case c.Policy.NoMasters:
		return fmt.Errorf("parallel: Shard divides f32 weights among the ranks, and policy %s keeps weights in 16 bits alone: choose a policy with f32 weights, such as mixed-f16", c.Policy.Name)
	case c.Parallel.Slices > 0:
		return fmt.Errorf("parallel: Shard and Slices: what each rank has of a tensor depends on the number of ranks: leave one out")
	case c.WeightCopies:
		return fmt.Errorf("parallel: Shard and weight copies that the update writes: no rank updates a whole weight")
	}
	return nil
}

// declarePart declares this rank's part of the variable that is called whole where it is not
// sharded. The session fills it and puts the parts together.
func (c *Context) declarePart(b *ir.Builder, whole string, t ir.Type, init *ir.Init, s ir.Shape, role string) *ir.Value {
	dims := []int64{}
	for _, d := range s.Dims() {
		dims = append(dims, int64(d))
	}
	attrs := ir.A(ir.AttrPart, whole, "whole", dims)
	if role != "" {
		attrs = attrs.With("role", role)
	}
	n := ir.PartOf(s.Elements(), int64(c.Parallel.Ranks))
	return b.Declare(ir.State, private("shard", whole), ir.T(t.DType, ir.Dim(n)), init, attrs)
}

// stepped is what the optimizer steps: the parameter, or this rank's part of it.
func (p *paramPlan) stepped() *ir.Value {
	if p.part != nil {
		return p.part
	}
	return p.v
}

// state declares what an optimizer keeps of each element of a parameter.
func (o *updating) state(p *paramPlan, name string, d ir.DType, role string) *ir.Value {
	if p.part != nil {
		return o.c.declarePart(o.b, name, p.v.Type.With(d), o.zero, p.v.Type.Shape, role)
	}
	a := o.roles[role]
	if a == nil {
		a = ir.A("role", role)
		o.roles[role] = a
	}
	return o.b.Declare(ir.State, name, p.v.Type.With(d), o.zero, a)
}

// normOfParts is the norm of gradients of which this rank has parts, and of others. Each rank
// computes the norm of its parts, and all compute the norm of these norms.
func (s *scaling) normOfParts(name string, mul *ir.Value, vs []*ir.Value, part func(i int) bool) *ir.Value {
	var own, all []*ir.Value
	for i, v := range vs {
		if part(i) {
			own = append(own, v)
		} else {
			all = append(all, v)
		}
	}
	if len(own) == 0 {
		return s.at(name).GlobalNorm(mul, vs...)
	}
	local := s.at(name+".part").GlobalNorm(mul, own...)
	one := s.at(name+".part.1").Reshape(local, 1)
	s.t.messages++
	norms := s.at(name+".parts").AllGather(ir.A("ranks", int64(s.c.Parallel.Ranks), "axis", int64(0), "seq", s.t.messages), one)
	if len(all) > 0 {
		norms = append(norms, s.at(name+".rest").GlobalNorm(mul, all...))
	}
	return s.at(name).GlobalNorm(nil, norms...)
}

// gathered is the whole of a value of which each rank has a part, in the update.
func (s *scaling) gathered(p *paramPlan, part *ir.Value) *ir.Value {
	s.t.messages++
	attrs := ir.A("ranks", int64(s.c.Parallel.Ranks), "shapes", ir.AppendWhole(nil, p.v.Type.Shape), "seq", s.t.messages)
	return s.at("all."+part.Name).AllGather(attrs, part)[0]
}

// reserve keeps numbers for the messages that gather weights, which come before all others.
func (t *training) reserve(g *ir.Graph, c *Context) {
	if !c.Parallel.Shard || !c.Parallel.several() {
		return
	}
	for _, v := range g.Vars {
		if v.Kind == ir.Param {
			t.messages++
		}
	}
}

// gatherParts makes a sharded step read what it gathers: each weight once, in 16 bits where
// all who read it read that, else in f32. Gathering starts in the order in which the forward
// pass reads the weights, and goes on while it runs.
func gatherParts(g *ir.Graph, c *Context) error {
	gp := &gathering{g: g, c: c, replaced: map[*ir.Value]*ir.Value{}, cast: map[*ir.Node]bool{}, sec: ir.Forward}
	if c.accumulates() {
		gp.sec = ir.Prepare // once for all micro-batches
	}
	for _, p := range c.training.params {
		if p.part != nil {
			gp.reads = append(gp.reads, &weightReads{p: p, first: -1})
		}
	}
	if len(gp.reads) == 0 {
		return nil
	}
	gp.b = ir.Edit(g)
	gp.find()
	from := len(g.Body[gp.sec])
	gp.emit()
	body := g.Body[gp.sec]
	g.Body[gp.sec] = slices.Concat(body[from:], body[:from]) // parts are variables, or cast in prepare
	g.Filter(func(_ ir.Section, n *ir.Node) bool { return !gp.cast[n] })
	g.Replace(gp.replaced)
	gp.move(len(body) - from)
	return gp.b.Err()
}

type gathering struct {
	g        *ir.Graph
	c        *Context
	b        *ir.Builder
	reads    []*weightReads
	sec      ir.Section              // where weights are gathered
	replaced map[*ir.Value]*ir.Value // by what is gathered
	cast     map[*ir.Node]bool       // casts of whole weights that are not needed any more
}

// weightReads is who reads a sharded weight.
type weightReads struct {
	p     *paramPlan
	casts []*ir.Node // to 16 bits, in prepare
	wide  bool       // another node reads it
	first int        // place of the first reader in the forward pass; -1: none
}

// low is the cast that all readers read the weight by, nil where there is none.
func (r *weightReads) low() *ir.Node {
	if r.wide || len(r.casts) != 1 {
		return nil
	}
	return r.casts[0]
}

// find lists the readers of the sharded weights.
func (gp *gathering) find() {
	of := map[*ir.Value]*weightReads{}
	for _, r := range gp.reads {
		of[r.p.v] = r
	}
	at := 0
	for s, n := range gp.g.Nodes {
		if n.Op == ir.OpCast && s == ir.Prepare && of[n.In[0]] != nil && n.Out[0].Type.DType.Low() {
			r := of[n.In[0]]
			r.casts, of[n.Out[0]] = append(r.casts, n), r
			continue
		}
		at++
		for _, v := range operands(n) {
			if r := of[v]; r != nil {
				r.wide = r.wide || v == r.p.v
				if r.first < 0 {
					r.first = at
				}
			}
		}
	}
	for _, v := range gp.g.Return {
		if r := of[v]; r != nil {
			r.wide = r.wide || v == r.p.v
		}
	}
	slices.SortStableFunc(gp.reads, func(x, y *weightReads) int { return cmp.Compare(uint(x.first), uint(y.first)) })
}

// emit gathers the weights in buckets.
func (gp *gathering) emit() {
	p, reads := gp.c.Parallel, gp.reads
	for seq := int64(1); len(reads) > 0; seq++ {
		n, bytes := 0, int64(0)
		var parts []*ir.Value
		var shapes []int64
		for n < len(reads) && bytes < p.bucket() {
			sec := ir.Prepare
			if seq > 1 { // while the first message is on its way
				sec = gp.sec
			}
			part := gp.part(reads[n], sec)
			parts, shapes = append(parts, part), ir.AppendWhole(shapes, reads[n].p.v.Type.Shape)
			bytes += gp.g.Elements(reads[n].p.v.Type) * part.Type.DType.Size()
			n++
		}
		if gp.b.Err() != nil {
			return
		}
		whole := gp.b.In(gp.sec).AllGather(ir.A("ranks", int64(p.Ranks), "shapes", shapes, "seq", seq), parts...)
		for i, v := range whole {
			r := reads[i]
			v.Def.Why = ir.Reason{Class: ir.Fixed, Cause: ir.ByClass}
			gp.replaced[r.p.v] = gp.b.Rename(v, "all."+r.p.v.Name)
			if low := r.low(); low != nil {
				gp.replaced[low.Out[0]], gp.cast[low] = v, true
			}
		}
		gp.c.Count("gathers", 1)
		reads = reads[n:]
	}
}

// part is what this rank sends of a weight: its part, or the part in 16 bits, which is cast in the
// given section.
func (gp *gathering) part(r *weightReads, sec ir.Section) *ir.Value {
	low := r.low()
	if low == nil {
		gp.c.Count("gathered_wide", 1)
		return r.p.part
	}
	d := low.Out[0].Type.DType
	cast := gp.b.In(sec).Named(castName(r.p.part, d)).Emit(ir.OpCast, []*ir.Value{r.p.part}, ir.A("to", d))[0]
	if cast == nil {
		return r.p.part
	}
	cast.Def.Why, cast.Def.Pos = low.Why, low.Pos
	cast.Def.Why.From = r.p.part
	gp.c.Count("gathered_low", 1)
	return cast
}

// move takes what reads gathered weights before the step begins to where they are there,
// behind the messages at the head of the forward pass.
func (gp *gathering) move(messages int) {
	if gp.sec == ir.Prepare {
		return
	}
	late := map[*ir.Value]bool{}
	for _, v := range gp.replaced {
		late[v] = true
	}
	var moved []*ir.Node
	gp.g.Filter(func(s ir.Section, n *ir.Node) bool {
		if s != ir.Prepare || !slices.ContainsFunc(operands(n), func(v *ir.Value) bool { return late[v] }) {
			return true
		}
		for _, v := range n.Out {
			late[v] = true
		}
		n.Why.Marks &^= ir.MarkHoisted
		moved = append(moved, n)
		return false
	})
	body := gp.g.Body[ir.Forward]
	gp.g.Body[ir.Forward] = slices.Concat(body[:messages], moved, body[messages:])
}
