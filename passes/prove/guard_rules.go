package prove

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
)

// skips requires that every skip predicate is the OR of finiteness checks and of the condition that
// no micro-batch counts, for every number of micro-batches.
func (p *proof) skips() {
	if p.rules.Unchecked {
		return
	}
	g := p.guards()
	g.accumulated()
	p.judged = len(g.skipGroups)
	for _, t := range g.skipGroups {
		for k := range g.flows {
			if text := g.wrongSkip(t, k); text != "" {
				at := t.writers[0]
				if t.skip.Def != nil {
					at = t.skip.Def
				}
				p.report(at, "skips %s and %s", t.writers[0].Name(), text)
				break
			}
		}
	}
}

// wrongSkip says what is wrong with a skip predicate, "" if nothing is.
func (g *guard) wrongSkip(t *skipGroup, k int) string {
	f, skip := g.flows[k], t.preds[k]
	alone := f.b.alone(skip)
	switch {
	case skip == never:
		return "never holds"
	case f.b.at(skip, func(int32) bool { return false }):
		return "holds where everything is finite" + f.inMicro()
	}
	for _, i := range f.b.support(skip) {
		switch a := f.atoms[i]; {
		case a.what == elsewhere || a.what == nowhere:
		case a.what == held || a.what == opaque:
			return fmt.Sprintf("depends on %s, which is not a finiteness check", a.v)
		case g.from(a.v) == 0:
			return fmt.Sprintf("looks at %s, which no gradient and no loss goes into", a.v)
		}
	}
	if v := f.half(alone); v != nil {
		return fmt.Sprintf("asks of %s only whether it is NaN, or only whether it is infinite", v)
	}
	lost := never
	if kept := g.kept[k]; kept != nil {
		lost = always
		for _, x := range kept {
			lost = f.b.and(lost, f.b.not(x))
		}
		for _, i := range f.b.support(skip) { // and no other rank has a micro-batch that counts
			if f.atoms[i].what == nowhere {
				lost = f.b.and(lost, f.b.atom(i))
			}
		}
	}
	if want := f.b.or(f.b.any(alone), lost); skip != want {
		for _, i := range f.b.support(skip) {
			a := f.atoms[i]
			if a.at == f.update() && !f.b.at(skip, func(x int32) bool { return x == i }) {
				return fmt.Sprintf("does not hold where %s alone is not finite%s", a.v, f.inMicro())
			}
		}
		return "is not the OR of its finiteness checks" + f.inMicro()
	}
	return ""
}

func (f *flow) inMicro() string {
	if f.micros == 1 {
		return ""
	}
	return fmt.Sprintf(", in a step of %d micro-batches", f.micros)
}

// accumulated checks what the micro-batches sum: it contains nothing of an earlier step, drops
// nothing that is finite, and all accumulators drop the same micro-batches, each because of an Inf
// or NaN.
func (g *guard) accumulated() {
	g.micro(func(n *ir.Node, w *ir.Value) {
		switch {
		case !w.Type.DType.Float() || readsOf(n, w) < 0 || n.Def().Elem == nil:
		case n.Op == ir.OpAccumTree:
			g.level(n, w)
		default:
			g.sum(n, w)
		}
	})
	g.micro(func(n *ir.Node, w *ir.Value) {
		if !w.Type.DType.Float() && w.Type.DType != ir.Bool {
			g.tally(n, w)
		}
	})
}

// micro calls f for every write of a micro-batch.
func (g *guard) micro(f func(n *ir.Node, w *ir.Value)) {
	for _, s := range [...]ir.Section{ir.Forward, ir.Backward} {
		for _, n := range g.p.g.Body[s] {
			for _, v := range n.Out {
				if v.Next != nil {
					f(n, v.Next)
				}
			}
		}
	}
}

// readsOf is the index of operand v of n, -1 if there is none.
func readsOf(n *ir.Node, v *ir.Value) int {
	for i, x := range n.In {
		if x == v {
			return i
		}
	}
	return -1
}

// sum checks one accumulator.
func (g *guard) sum(n *ir.Node, acc *ir.Value) {
	self, added := readsOf(n, acc), -1
	for i, x := range n.In {
		if i != self && x != nil && x.Type.DType.Float() {
			added = i
		}
	}
	if added < 0 {
		g.p.report(n, "adds nothing to %s", acc)
		return
	}
	for k, f := range g.flows {
		takes, stays := f.passing(n, added), f.passing(n, self)
		if text := f.wrongSum(takes, stays); text != "" {
			g.p.report(n, "%s %s%s", acc, text, f.inMicro())
			return
		}
		if m := g.takesUnseen(f, n.In[added], takes); m >= 0 {
			g.p.report(n, "%s takes micro-batch %d although no check that leaves micro-batches out is certain to see an Inf or NaN in %s%s", acc, m, n.In[added], f.inMicro())
			return
		}
		if g.kept[k] == nil {
			g.kept[k] = takes
		}
		if !slices.Equal(takes, g.kept[k]) {
			g.p.report(n, "%s leaves out other micro-batches than the accumulators before it", acc)
			return
		}
	}
}

// level checks one level of a tree over micro-batches. Level 0 reads what a micro-batch computes,
// each other level only the level below it, and the step reads no level that another one reads. A
// tree contains every micro-batch, so no check may drop one.
func (g *guard) level(n *ir.Node, acc *ir.Value) {
	added, micro := n.In[1], n.Operand("micro")
	below := added.Def != nil && added.Next != nil && added.Def.Op == ir.OpAccumTree
	switch {
	case n.In[0] != acc:
		g.p.report(n, "writes %s and adds to %s", acc, n.In[0])
	case micro.Kind != ir.Input || micro.Attr.Get("role") != "micro":
		g.p.report(n, "counts %s, which is not the number of the micro-batch", micro)
	case n.Int("level") > 0 && (!below || added.Def.Int("level") != n.Int("level")-1 || added.Def.Operand("micro") != micro):
		g.p.report(n, "takes %s, which is not level %d of its tree", added, n.Int("level")-1)
	case n.Int("level") == 0 && added.Next != nil:
		g.p.report(n, "takes %s, which is no leaf", added)
	}
	if g.partial(n) && (len(g.p.uses.Of(acc)) > 1 || len(g.p.uses.Of(n.Out[0])) > 1) {
		g.p.report(n, "%s holds a part of the micro-batches and is read", acc)
	}
	for k, f := range g.flows {
		takes := slices.Repeat([]pred{always}, f.micros)
		if g.kept[k] == nil {
			g.kept[k] = takes
		}
		if !slices.Equal(takes, g.kept[k]) {
			g.p.report(n, "%s takes every micro-batch, and the accumulators before it leave some out", acc)
			return
		}
	}
}

// partial reports whether another level reads what this one writes.
func (g *guard) partial(n *ir.Node) bool {
	return slices.ContainsFunc(g.p.uses.Of(n.Out[0]), func(u ir.Use) bool { return u.Arg() >= 0 && u.Node.Op == ir.OpAccumTree })
}

// takesUnseen is a micro-batch that some Inf or NaN drops, but not one in v, which is summed; -1 if
// there is none.
func (g *guard) takesUnseen(f *flow, v *ir.Value, takes []pred) int {
	for m, x := range takes {
		if x == always || g.bounded(v) {
			continue
		}
		checks := f.dropping(x)
		if !ofViewed(v, func(y *ir.Value) bool { return g.showsIn(checks, y, checks.has) }) {
			return m
		}
	}
	return -1
}

// dropping lists the values that drop a micro-batch which counts where x is true.
func (f *flow) dropping(x pred) values {
	checks := f.drops[x]
	if checks == nil {
		checks = f.finite(f.b.alone(f.b.not(x)))
		f.drops[x] = checks
	}
	return checks
}

// passage is the conditions under which an operand of an accumulator goes into the result.
type passage struct {
	op      ir.Op
	operand int
	dtype   ir.DType
	empty   bool
	flags   [4]*ir.Value
}

// passing returns, for each micro-batch, when operand i of n goes into the result.
func (f *flow) passing(n *ir.Node, i int) []pred {
	key := passage{op: n.Op, operand: i, dtype: n.In[i].Type.DType, empty: n.In[i].Type.Shape.Elements() == 0}
	var flags []int
	for k, x := range n.In {
		if x != nil && x.Type.DType == ir.Bool {
			if len(flags) < len(key.flags) {
				key.flags[len(flags)] = x
			}
			flags = append(flags, k)
		}
	}
	plain := len(flags) <= len(key.flags) && len(n.Attrs) == 0 && n.Op != ir.OpCustom
	if got := f.passes[key]; got != nil && plain {
		return got
	}
	got := make([]pred, f.micros)
	for row := range 1 << len(flags) {
		f.passRow(n, i, row, flags, got)
	}
	if plain {
		f.passes[key] = got
	}
	return got
}

// passRow adds to got the condition that the flags are those of row, if operand i goes into the
// result then.
func (f *flow) passRow(n *ir.Node, i, row int, flags []int, got []pred) {
	passes := n.HandsOnWhere(i, ir.Nonfinite, func(operand int) (bool, bool) {
		b := slices.Index(flags, operand)
		return b >= 0 && row>>b&1 != 0, b >= 0
	})
	if passes&ir.Finite != 0 {
		return
	}
	for m := range got {
		when := always
		for b, k := range flags {
			x := f.truth(n.In[k], m+1)
			if row>>b&1 == 0 {
				x = f.b.not(x)
			}
			when = f.b.and(when, x)
		}
		got[m] = f.b.or(got[m], when)
	}
}

// wrongSum says what is wrong with an accumulator that adds its operand under takes and keeps its
// value under stays.
func (f *flow) wrongSum(takes, stays []pred) string {
	old, finite := always, func(int32) bool { return false }
	for m, x := range takes {
		if !f.b.at(x, finite) {
			return fmt.Sprintf("leaves out micro-batch %d, in which everything is finite", m)
		}
		dropped := f.b.not(x)
		if dropped != f.b.any(f.b.alone(dropped)) {
			return fmt.Sprintf("does not leave micro-batch %d out exactly where a check finds an Inf or NaN in it", m)
		}
		for later := m + 1; later < len(stays); later++ {
			if !f.b.implies(x, stays[later]) {
				return fmt.Sprintf("forgets micro-batch %d in micro-batch %d", m, later)
			}
		}
		old = f.b.and(old, stays[m])
	}
	if f.b.at(old, finite) {
		return "keeps what an earlier step left in it"
	}
	for _, x := range takes {
		if f.b.and(old, x) != never {
			return "may keep what an earlier step left in it"
		}
	}
	return ""
}

// tally checks a count of micro-batches: it must be the number of those that count. Counts of other
// things are not followed.
func (g *guard) tally(n *ir.Node, acc *ir.Value) {
	for k, f := range g.flows {
		got := f.integer(acc, f.update())
		if got == nil || g.kept[k] == nil {
			continue
		}
		want := fixed(0)
		for _, x := range g.kept[k] {
			want = f.counted(ir.PAdd, want, f.zeroOne(x)).number
		}
		if !f.same(got, want) {
			g.p.report(n, "%s is not the number of micro-batches that are in the accumulators%s", acc, f.inMicro())
			return
		}
	}
}

func (f *flow) same(x, y *whole) bool {
	when := func(w *whole, n int64) pred {
		for _, c := range w.cases {
			if c.n == n {
				return c.when
			}
		}
		return never
	}
	for _, c := range append(x.cases[:len(x.cases):len(x.cases)], y.cases...) {
		if when(x, c.n) != when(y, c.n) {
			return false
		}
	}
	return true
}

// checked requires that an Inf or NaN in any value of the micro-batches that a guarded write reads
// makes its skip true, and that no node in between makes a new one from finite numbers unnoticed.
func (p *proof) checked() {
	if p.rules.Unchecked {
		return
	}
	g := p.guards()
	for _, t := range g.skipGroups {
		grads, losses := false, false
		for _, n := range t.writers {
			p.judged++
			for i, v := range n.In {
				if v != nil && v.Type.DType.Float() {
					g.requireCheck(t, n, v, n.OperandDef(i).Named)
					grads = grads || n.OperandDef(i).Name == "g" && g.from(v)&fromBackward != 0
				}
			}
		}
		for _, i := range t.alone {
			v := g.last().atoms[i].v
			losses = losses || t.checks.has(v) && g.from(v) == fromForward
		}
		if grads && !losses {
			p.report(t.writers[0], "no check of its skip predicate %s looks at a loss", t.skip)
		}
	}
}

// ofBlocks reports whether v, in the backward section, is computed as a scalar of scalars from the
// sum of a loss row that stands there, too: that of a block of rows.
func (g *guard) ofBlocks(v *ir.Value) bool {
	n := v.Def
	if n == nil || g.p.sec[n.ID] != ir.Backward {
		return false
	}
	if sumAndCount(n) {
		return v.Idx == 0
	}
	for _, x := range operandsOf(n) {
		if x.Type.Shape.Rank() == 0 && g.ofBlocks(x) {
			return true
		}
	}
	return false
}

// requireCheck follows v, which writer reads, back to the values of the micro-batches. scales says
// that writer reads v as a factor, such as one that clips by a norm. A row that divides or takes a
// root must not lose a NaN. It may limit an infinite quotient, as clipping by hand does.
func (g *guard) requireCheck(t *skipGroup, writer *ir.Node, v *ir.Value, scales bool) {
	if v == nil || t.walked[v.ID] || !v.Type.DType.Float() || g.from(v) == 0 {
		return
	}
	t.walked[v.ID] = true
	n := v.Def
	if n == nil && g.next[v.ID] == nil {
		return // no micro-batch writes it, as for a loss scale
	}
	if n == nil || g.p.sec[n.ID] != ir.Update || v.Next != nil && g.next[v.Next.ID] == v {
		g.leaf(t, writer, v)
		return
	}
	if v.Next != nil { // its own write is guarded
		return
	}
	if !g.shows(t, v) && !g.users(n) {
		switch wide := widest(n); {
		case v.Type.DType.Low() && wide > v.Type.DType.Size() && !limits(n):
			g.p.report(n, "is read by %s and rounded to %s after the check: no check of %s sees what overflows there", writer.Name(), v.Type.DType, t.skip)
		case n.Def().Poles != "" && !g.showsNaN(t, v):
			g.p.report(n, "is read by %s and %s: no check of %s is certain to see a NaN in it", writer.Name(), n.Def().Poles, t.skip)
		case scales && n.Def().Elem == nil && !n.Def().Is(ir.Moves) && !g.bounded(v):
			g.p.report(n, "is read by %s and may overflow: no check of %s sees it", writer.Name(), t.skip)
		}
	}
	in, first := n.OperandsOf(v.Idx)
	for i, x := range in {
		g.requireCheck(t, writer, x, scales || n.OperandDef(first+i).Named)
	}
}

// limits reports whether the results of n are in the range of their dtype for all operands, so that
// rounding creates no Inf: n clips.
func limits(n *ir.Node) bool {
	if n.Def().Range == nil {
		return false
	}
	in := make([]ir.Interval, len(n.In))
	for i := range in {
		in[i] = ir.Interval{Lo: math.Inf(-1), Hi: math.Inf(1), NaN: true}
	}
	out, most := n.Def().Range(n, in), n.Out[0].Type.DType.Max()
	return len(out) == 1 && out[0].Lo >= -most && out[0].Hi <= most
}

// users reports whether the user wrote node n of the update, to edit gradients. The user is
// responsible for what it computes from finite values. Another rule checks roundings next to it.
func (g *guard) users(n *ir.Node) bool {
	if g.p.t == nil {
		return false
	}
	if carries(n) {
		return true
	}
	m := g.p.matched()
	e := m.f.entity[n.ID]
	return e >= 0 && m.image[e] != nil && m.image[e].Pos.File != ""
}

// showsNaN reports whether a NaN in v surely makes the skip of group t true.
func (g *guard) showsNaN(t *skipGroup, v *ir.Value) bool {
	if t.checks.has(v) || g.shows(t, v) {
		return true
	}
	for _, u := range g.p.uses.Of(v) {
		if u.Arg() >= 0 && !u.Node.Def().Is(ir.Writer) && len(u.Node.ResultsOf(u.Arg())) == 1 && u.Node.HandsOn(u.Arg(), ir.NaN) == ir.NaN && g.showsNaN(t, u.Node.ResultsOf(u.Arg())[0]) {
			return true
		}
	}
	return false
}

// widest is the size in bytes of the largest float operand.
func widest(n *ir.Node) int64 {
	var size int64
	for _, v := range n.In {
		if v != nil && v.Type.DType.Float() {
			size = max(size, v.Type.DType.Size())
		}
	}
	return size
}

// leaf requires that the skip of group t covers what a micro-batch left in v.
func (g *guard) leaf(t *skipGroup, writer *ir.Node, v *ir.Value) {
	t.leaves = append(t.leaves, v)
	if g.bounded(v) || ofViewed(v, func(x *ir.Value) bool { return g.shows(t, x) }) {
		return
	}
	what := "gradient"
	if g.from(v) == fromForward {
		what = "value"
	}
	g.p.report(writer, "reads the %s %s, and no check of its skip predicate %s is certain to see an Inf or NaN in it", what, v, t.skip)
}

// ofViewed reports whether v, or a value that it is a view of, is so: they have the same elements, and
// a check of a cast of one is a check of all.
func ofViewed(v *ir.Value, is func(v *ir.Value) bool) bool {
	for !is(v) {
		if v.Def == nil || v.Next != nil || !v.Def.Def().Is(ir.View) {
			return false
		}
		v = v.Def.In[0]
	}
	return true
}

// bounded reports whether v is finite because of its row, or a sum of such values, or a count.
func (g *guard) bounded(v *ir.Value) bool {
	n := v.Def
	if n != nil && v.Next != nil && n.Op == ir.OpAccumTree {
		return g.bounded(v.Next)
	}
	if n == nil && g.next[v.ID] != nil {
		n = g.next[v.ID].Def
		for _, x := range n.In {
			if x != nil && x != v && x.Type.DType.Float() && (x.Def == nil || !g.bounded(x)) {
				return false
			}
		}
		return true
	}
	if n == nil {
		return false
	}
	if n.Op == ir.OpCast && !v.Type.DType.Low() {
		return n.In[0].Type.DType == ir.Bool || n.In[0].Def != nil && g.bounded(n.In[0])
	}
	if n.Op == ir.OpReduceSum && v.Type.DType == ir.F32 { // how many flags are set
		x := n.In[0].Def
		return x != nil && x.Op == ir.OpCast && x.In[0].Type.DType == ir.Bool && x.Out[0].Type.DType == ir.F32
	}
	if n.Def().Is(ir.Collective|ir.Apart) && n.DT("msg") == ir.F32 {
		return g.bounded(n.In[v.Idx])
	}
	outs := n.Def().Out
	return v.Idx < len(outs) && outs[v.Idx].Finite
}
