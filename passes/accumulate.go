package passes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ampc/ir"
)

// accumulate turns a step of one micro-batch into a step of several micro-batches on several ranks.
// Gradients, losses, counts and requested results are summed in states, which the first micro-batch
// that counts overwrites, and then over the ranks. A pending copy passes running statistics from
// one micro-batch to the next.
func accumulate(g *ir.Graph, c *Context) error {
	t := c.training
	t.results = map[result]*ir.Value{}
	t.findPending(g)
	if len(t.sweeps) == 0 {
		return nil
	}
	if err := cmp.Or(t.planInner(g, c), t.checkSliced(c), t.shard(g, c)); err != nil {
		return err
	}
	b := c.append(g)
	if !c.accumulates() && !c.Parallel.several() {
		for _, s := range t.sweeps {
			for _, l := range s.terms {
				l.final = l.value
			}
		}
		return nil
	}
	a := &accumulator{b: b, g: g, c: c, t: t, sums: map[*ir.Value]*ir.Value{}}
	from := len(g.Body[ir.Forward])
	if c.accumulates() {
		a.flags()
		a.inner()
	}
	a.gradients()
	a.acrossRanks()
	a.losses()
	a.outputs()
	if c.accumulates() {
		a.statistics(from)
	}
	a.statisticsAcrossRanks()
	body := g.Body[ir.Forward]
	g.Body[ir.Forward] = slices.Concat(body[from:], body[:from]) // nodes that any other node may read come first
	c.Count("accumulators", a.made)
	return a.b.Err()
}

// accumulator builds the nodes of the pass.
type accumulator struct {
	b *ir.Builder
	g *ir.Graph
	c *Context
	t *training

	index  *ir.Value // number of this micro-batch
	zeroth *ir.Value // index is 0
	first  *ir.Value // the accumulators are still empty
	ok     *ir.Value // this micro-batch counts; nil: all count
	bad    *ir.Value
	sums   map[*ir.Value]*ir.Value // accumulators, by the value that they sum
	made   int
}

func (a *accumulator) at(name string) *ir.Builder { return a.b.In(ir.Backward).Named(name) }

// flags computes the number of this micro-batch and, where bad ones are dropped, whether this one
// counts. Number 0 starts the counts again, so no state has to be cleared.
func (a *accumulator) flags() {
	index := roleVar(a.g, "micro")
	if index == nil {
		index = a.b.Declare(ir.Input, private("micro", ""), ir.T(ir.I32), nil, ir.A("role", "micro"))
	}
	a.index = index
	a.drawPerMicroBatch(index)
	zero := constantOf(a.b, "zero", ir.I32, 0)
	one := constantOf(a.b, "one", ir.I32, 1)
	a.zeroth = a.b.In(ir.Forward).Named("micro.first").Emit(ir.OpEq, []*ir.Value{index, zero}, nil)[0]
	a.first = a.zeroth
	kept := a.state(private("acc.kept", ""), ir.T(ir.I32), "")
	a.t.micro = &micro{kept: kept}
	if a.c.BadMicro != DropMicro || a.c.NoSkip {
		a.at("").EmitWrite(ir.OpAccum, []*ir.Value{kept, one, a.first, nil}, nil, kept)
		return
	}
	a.bad = a.at("micro.bad").AnyNonfinite(a.observed()...)
	a.ok = a.at("micro.ok").Emit(ir.OpNot, []*ir.Value{a.bad}, nil)[0]
	before := a.at("micro.kept").Emit(ir.OpWhere, []*ir.Value{a.zeroth, zero, kept}, nil)[0]
	a.first = a.at("micro.none").Emit(ir.OpEq, []*ir.Value{before, zero}, nil)[0]
	a.at("").EmitWrite(ir.OpCount, []*ir.Value{before, a.bad}, nil, kept)

	a.t.micro.drops = true
	for _, s := range a.t.sweeps {
		if s.scaler.Mode != DynamicScale {
			continue
		}
		s.lost = a.ever(private(s.label("acc.lost"), ""), a.overflowed(s))
	}
}

// inner records, over all micro-batches, which scales inside the forward pass were too high.
func (a *accumulator) inner() {
	for _, s := range a.t.inner {
		s.over = a.ever(private("acc.over", s.name), s.found(a.at))
	}
}

// overflowed is whether the sweep's gradients are not finite in this micro-batch while its losses
// and statistics are. Only then may a smaller scale help; otherwise the data are the cause.
func (a *accumulator) overflowed(s *sweep) *ir.Value {
	var grads []*ir.Value
	for _, x := range s.grads {
		grads = append(grads, x.d)
	}
	bad := a.at(s.label("micro.found_inf")).AnyNonfinite(grads...)
	failed := a.at(s.label("micro.fwd")).AnyNonfinite(a.forward()...)
	fine := a.at(s.label("micro.fwd_ok")).Emit(ir.OpNot, []*ir.Value{failed}, nil)[0]
	return a.at(s.label("micro.over")).And(bad, fine)
}

// ever is a state that is true if flag was true in any micro-batch of the step.
func (a *accumulator) ever(name string, flag *ir.Value) *ir.Value {
	v := a.state(name, ir.T(ir.Bool), "")
	again := a.at(name+".again").Emit(ir.OpNot, []*ir.Value{a.zeroth}, nil)[0]
	earlier := a.at(name+".earlier").Emit(ir.OpAnd, []*ir.Value{again, v}, nil)[0]
	a.at("").EmitWrite(ir.OpOr, []*ir.Value{earlier, flag}, nil, v)
	return v
}

// drawPerMicroBatch makes random rows read the number of the micro-batch, so that each micro-batch draws
// its own numbers. A slice draws the same numbers on whichever rank it runs.
func (a *accumulator) drawPerMicroBatch(index *ir.Value) {
	key := index
	for _, n := range a.g.Nodes {
		for i, o := range n.Def().In {
			if o.Name != "micro" || !o.Named {
				continue
			}
			for len(n.In) <= i {
				n.In = append(n.In, nil)
			}
			if key == index {
				key = a.slice(index)
			}
			if n.In[i] == nil || n.In[i] == index {
				n.In[i] = key
			}
		}
	}
}

// observed lists the values that are all finite in a micro-batch that counts.
func (a *accumulator) observed() []*ir.Value {
	vs := a.forward()
	for _, s := range a.t.sweeps {
		for _, x := range s.grads {
			vs = append(vs, x.d)
		}
	}
	return vs
}

// forward lists the losses and running statistics of a micro-batch.
func (a *accumulator) forward() []*ir.Value {
	var vs []*ir.Value
	for _, s := range a.t.sweeps {
		for _, l := range s.terms {
			if l.sum != nil { // the mean over no labels is 0/0, which is not an error
				vs = append(vs, l.sum)
			} else {
				vs = append(vs, l.value)
			}
		}
	}
	for _, p := range a.t.pending {
		vs = append(vs, p.next)
	}
	return vs
}

// state declares an accumulator. Its value is not needed between steps, so it is not part of a
// checkpoint.
func (a *accumulator) state(name string, t ir.Type, unit ir.Unit) *ir.Value {
	attrs := ir.A("role", "acc")
	if unit != "" {
		attrs = attrs.With("unit", string(unit))
	}
	a.made++
	return a.b.Declare(ir.State, name, t, &ir.Init{Args: []float64{0}}, attrs)
}

// sum declares an accumulator for v, adds v to it in every micro-batch, and returns the variable,
// which the update reads.
func (a *accumulator) sum(name string, v *ir.Value, unit ir.Unit) *ir.Value {
	if acc := a.sums[v]; acc != nil {
		return acc
	}
	if !a.c.accumulates() {
		a.sums[v] = v
		return v
	}
	t := v.Type
	if t.DType.Float() {
		t.DType = ir.F32
	}
	if a.c.Parallel.Slices > 0 {
		a.sums[v] = a.tree(name, v, t, unit)
		return a.sums[v]
	}
	acc := a.state(name, t, unit)
	a.at("").Accum(acc, acc, v, a.first, a.ok)
	a.sums[v] = acc
	return acc
}

// tree sums v over the slices of this rank. Each level of a binary tree holds a sum until that of
// its neighbour is there. tree returns the root.
func (a *accumulator) tree(name string, v *ir.Value, t ir.Type, unit ir.Unit) *ir.Value {
	var acc *ir.Value
	top := a.c.Parallel.levels() - 1
	for level := range top + 1 {
		at := name
		if level < top {
			at = strings.Replace(name, private("acc", ""), private(fmt.Sprintf("acc.level%d", level), ""), 1)
		}
		acc = a.state(at, t, unit)
		v = a.at("").AccumTree(acc, v, a.index, level)
	}
	return acc
}

// checkSliced refuses steps that cannot compute the same bits for every number of ranks.
func (t *training) checkSliced(c *Context) error {
	n := c.Parallel.micro()
	switch {
	case c.Parallel.Slices == 0:
		return nil
	case max(c.Micro, 1) != n:
		return fmt.Errorf("parallel: of %d slices each rank has %d in one step, and Micro is %d: leave Micro out", c.Parallel.Slices, n, c.Micro)
	case c.BadMicro == DropMicro:
		return fmt.Errorf("parallel: slices and micro-batches that are left out: let the step be skipped instead (BadMicro)")
	case c.Parallel.together() && len(t.inner) > 0:
		return fmt.Errorf("parallel: slices, SyncNorms and a scale inside the forward pass: leave one out")
	}
	for _, p := range t.pending {
		if !p.agreed {
			return fmt.Errorf("parallel: slices and the running statistics %s, which depend on the order of micro-batches: set SyncNorms, or leave out slices", p.state)
		}
	}
	return nil
}

func (a *accumulator) gradients() {
	for _, s := range a.t.sweeps {
		var unit ir.Unit
		if s.scaler.scales() {
			unit = ir.Unit(s.state(kindScale))
		}
		for i := range s.grads {
			x := &s.grads[i]
			x.d = a.sum(private(s.label("acc"), x.p.v.Name), x.d, unit)
		}
	}
}

// losses sums the terms of the losses and computes each loss of the step from them.
func (a *accumulator) losses() {
	for _, s := range a.t.sweeps {
		for _, l := range s.terms {
			if l.count == nil {
				l.final = a.mean(l.value)
				continue
			}
			total, count := a.part(l.sum), a.part(l.count)
			l.final = a.b.In(ir.Update).Named(l.value.Name+".mean").Emit(ir.OpDiv, []*ir.Value{total, count}, nil)[0]
		}
		if s.count != nil {
			s.count = a.sums[s.count]
		} else {
			s.count = a.batches()
		}
	}
	for _, l := range a.t.losses {
		final := a.whole(l)
		a.t.results[result{l.value, ByDefault}], a.t.results[result{l.value, Mean}] = final, final
	}
}

// part sums the sum or the count of a loss row over the micro-batches.
func (a *accumulator) part(v *ir.Value) *ir.Value { return a.sum(private("acc", v.Name), v, "") }

// batches is the number of micro-batches in the sums.
func (a *accumulator) batches() *ir.Value {
	if a.t.micro != nil {
		return a.t.micro.kept
	}
	return constantOf(a.b, "ranks", ir.F32, float64(a.c.Parallel.Ranks))
}

// whole is the loss over all micro-batches.
func (a *accumulator) whole(l *loss) *ir.Value {
	b := a.b.In(ir.Update)
	parts := make([]*ir.Value, len(l.terms))
	for i, t := range l.terms {
		parts[i] = t.final
		if t.factor != 1 {
			parts[i] = b.Affine(t.final, t.factor, 0)
		}
	}
	v := parts[0]
	if len(parts) > 1 {
		v = b.Named(l.value.Name+".mean").Emit(ir.OpAddN, parts, nil)[0]
	}
	if l.shift != 0 {
		v = b.Affine(v, 1, l.shift)
	}
	return v
}

// mean is the mean of v over the micro-batches that count.
func (a *accumulator) mean(v *ir.Value) *ir.Value {
	total := a.sum(sized(v), v, "")
	share := a.b.In(ir.Update).Named(v.Name+".share").Multiplier(nil, a.batches(), nil, 0, 0)
	return a.b.In(ir.Update).Named(v.Name+".mean").Mul(total, share)
}

// sized names the accumulator of a result. The same result of another size has another accumulator.
func sized(v *ir.Value) string {
	kind := "acc"
	for i, d := range v.Type.Shape.Dims() {
		sep := "x"
		if i == 0 {
			sep = "."
		}
		kind += sep + strconv.FormatInt(int64(d), 10)
	}
	return private(kind, v.Name)
}

// outputs replaces the results that are a mean or a sum by accumulators.
func (a *accumulator) outputs() {
	for i, o := range a.c.Outputs {
		if o.Kind != OfValue {
			continue
		}
		v := a.g.Return[a.t.outputs[i]]
		if v.IsVar() || !v.Type.DType.Float() || a.t.results[result{v, o.Reduce}] != nil {
			continue
		}
		switch o.Reduce {
		case Mean:
			a.t.results[result{v, Mean}] = a.mean(v)
		case Sum:
			// The returned value of a variable is its value before the step, so the sum is returned
			// as a separate value.
			a.t.results[result{v, Sum}] = a.b.In(ir.Update).Named(v.Name+".total").Affine(a.sum(sized(v), v, ""), 1, 0)
		}
	}
}

// statistics chains running statistics through the micro-batches. Each micro-batch reads the
// pending copy of the previous one; a dropped one does not change it. The first count nodes of the
// forward section are those of the micro-batch itself.
func (a *accumulator) statistics(count int) {
	if a.c.Parallel.together() { // each has the statistics of all
		return
	}
	starts := map[*ir.Value]*ir.Value{}
	for i := range a.t.pending {
		p := &a.t.pending[i]
		copied := a.state(private("acc.pending", p.state.Name), p.state.Type, "")
		start := a.b.In(ir.Forward).Named(p.state.Name+".before").Emit(ir.OpWhere, []*ir.Value{a.zeroth, p.state, copied}, nil)[0]
		skip := a.bad
		if skip == nil {
			skip = constantOf(a.b, "never", ir.Bool, 0)
		}
		a.at("").EmitWrite(ir.OpCommit, []*ir.Value{start, p.next, skip}, nil, copied)
		p.next, starts[p.state] = copied, start
	}
	if len(starts) == 0 || a.b.Err() != nil {
		return
	}
	for _, n := range a.g.Body[ir.Forward][:count] {
		for k, v := range n.In {
			if s := starts[v]; s != nil {
				n.In[k] = s
			}
		}
	}
}

func roleVar(g *ir.Graph, role string) *ir.Value {
	for _, v := range g.Vars {
		if v.Attr.Get("role") == role {
			return v
		}
	}
	return nil
}

// findPending lists the running statistics that rows update: a result new_x next to an operand
// running_x that is a state. Where several nodes update one state, each reads the result of the
// previous one.
func (t *training) findPending(g *ir.Graph) {
	at := map[*ir.Value]int{}
	for i, p := range t.pending {
		at[p.state] = i
	}
	for _, n := range g.Body[ir.Forward] {
		for k, o := range n.Out {
			name, isNew := strings.CutPrefix(n.Def().Out[min(k, len(n.Def().Out)-1)].Name, "new_")
			if !isNew {
				continue
			}
			for i, v := range n.In {
				if v == nil || n.OperandDef(i).Name != "running_"+name || v.Kind != ir.State {
					continue
				}
				if j, again := at[v]; again {
					n.In[i] = t.pending[j].next
					t.pending[j].next = o
					continue
				}
				at[v] = len(t.pending)
				t.pending = append(t.pending, pendingStat{state: v, next: o})
			}
		}
	}
	slices.SortFunc(t.pending, func(x, y pendingStat) int { return strings.Compare(x.state.Name, y.state.Name) })
}
