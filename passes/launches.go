package passes

import (
	"cmp"
	"slices"

	"ampc/ir"
)

// formLaunches marks the clusters and single nodes that run as one step although the values between
// them have their own dtypes: a norm over rows, the elementwise nodes that compute its operand, and
// those that read its result (ir.Caps.Rows); a norm over channels, the nodes that compute its
// operand, and a second norm (ir.Caps.Norms); global norms and the finiteness checks of the tensors
// that they read (ir.Caps.ChecksNorms); a loss and its gradient (ir.Caps.JoinsLosses). It depends on ops, shapes and the target's kernels
// only. It runs before dtypes are chosen, so that the cut knows which values are not stored.
//
// No path may leave a launch and enter it again: a path from one member to another consists of
// values of the launch. Norms are visited by level and name, so the order of nodes does not matter.
func formLaunches(g *ir.Graph, c *Context, uses *ir.Uses, a launchRules) {
	for _, n := range g.Nodes {
		n.Why.Launch, n.Why.Marks = 0, n.Why.Marks&^(ir.MarkReadsSigns|ir.MarkAgain|ir.MarkSpread)
	}
	f := &launchFinder{g: g, caps: c.Caps, uses: uses, launchRules: a}
	norms, channels, global, losses := f.norms(), f.channelNorms(), f.globalNorms(), f.losses()
	if len(norms)+len(channels)+len(global)+len(losses) == 0 {
		return
	}
	f.number()
	f.levels()
	f.withGradients(losses)
	f.sort(norms)
	kept := f.kept()
	for _, n := range norms {
		f.before(n)
		if f.caps.RowsOf(n).Epilogue {
			f.after(n)
		}
		if f.caps.RowsOf(n).Sums {
			f.summed(n, kept)
		}
	}
	f.overChannels(channels)
	f.checked(global)
	c.Count("launches", f.mark())
	f.readSigns()
	if pools := f.poolNorms(); pools > 0 {
		c.Count("pooled_norms", pools)
	}
	if spread := f.spreadImages(); spread > 0 {
		c.Count("spread", spread)
	}
}

// launchRules is what the policy decides about nodes before dtypes are chosen.
type launchRules interface {
	// expands reports whether n runs as the expansion of its row.
	expands(n *ir.Node) bool
	// splits reports whether product n runs as two steps for every choice of dtypes, with the other
	// nodes of step in its epilogue.
	splits(n *ir.Node, step []*ir.Node) bool
	// requiredDType is the dtype in which n needs operand i stored; Invalid: any.
	requiredDType(n *ir.Node, i int) ir.DType
}

// asStated are the rules of a policy that does not change dtypes.
type asStated struct{ ir.Caps }

func (c asStated) expands(n *ir.Node) bool { return c.Expander != nil && c.Expander.Expands(n) }

func (c asStated) splits(n *ir.Node, step []*ir.Node) bool {
	return splitsAlways(c.Caps, n, step, []ir.DType{step[len(step)-1].Out[0].Type.DType}, func(i int) ir.DType { return n.In[i].Type.DType })
}

func (asStated) requiredDType(*ir.Node, int) ir.DType { return ir.Invalid }

func (a *assigner) splits(n *ir.Node, step []*ir.Node) bool {
	results := []ir.DType{a.low, ir.F32}
	if !a.planned { // products store the dtype of their operands
		results = results[:1]
	}
	return splitsAlways(a.c.Caps, n, step, results, func(i int) ir.DType { return a.requiredDType(n, i) })
}

// splitsAlways reports whether product n, with the other nodes of step in its epilogue, runs as two
// steps for each of the given result dtypes. operand is the dtype of an operand, Invalid if it is
// not known.
func splitsAlways(c ir.Caps, n *ir.Node, step []*ir.Node, results []ir.DType, operand func(i int) ir.DType) bool {
	if c.Splits == nil || !n.Def().Is(ir.MatrixProduct) || c.EpilogueOf(n) == ir.NoEpilogue || n.Out[0].Type.Shape.Rank() < 2 {
		return false
	}
	if x := n.In[0].Type.Shape; !x.Static() || x.Elements() == 0 {
		return false
	}
	p := ir.Product{A: operand(0), B: operand(1)}
	if n.Bias() != nil {
		p.Bias = operand(2)
	}
	eachInEpilogue(c, n, step, func(s ir.EpilogueStage, m *ir.Node, _ int) { p.Take(s, m) })
	if !p.Tanh && (p.A == ir.Invalid || p.B == ir.Invalid) {
		return false
	}
	return !slices.ContainsFunc(results, func(d ir.DType) bool {
		q := p
		q.Out = d
		return !c.Splits(q)
	})
}

// launchFinder combines clusters and nodes into launches.
type launchFinder struct {
	g    *ir.Graph
	caps ir.Caps
	uses *ir.Uses
	launchRules
	step  []int32 // by node ID; elsewhere for views
	steps []launchStep
}

// launchStep is a cluster, a single node, or a launch of several.
type launchStep struct {
	section ir.Section
	nodes   []*ir.Node
	level   int32 // above the levels of all steps of its part that it reads
	into    int32 // step that it became part of, or itself
	joined  bool
}

// elsewhere is the step of views, which run with the step of the viewed value.
const elsewhere = int32(-1)

// levelGap is the initial distance between levels: joining two steps raises others by one.
const levelGap = 8

// sort orders nodes by the levels of their steps, then by name.
func (f *launchFinder) sort(list []*ir.Node) {
	slices.SortFunc(list, func(a, b *ir.Node) int {
		return cmp.Or(cmp.Compare(f.at(a).level, f.at(b).level), cmp.Compare(a.Out[0].Name, b.Out[0].Name))
	})
}

// norms lists the norms over rows, and other nodes that read rows, whose kernels run more than the row.
func (f *launchFinder) norms() (list []*ir.Node) {
	if f.caps.Rows == nil {
		return nil
	}
	for s, n := range f.g.Nodes {
		if (s == ir.Forward || s == ir.Backward) && f.caps.RowsOf(n).Cols > 0 && n.Why.Cluster == 0 && !f.expands(n) {
			list = append(list, n)
		}
	}
	return list
}

// number assigns nodes to steps.
func (f *launchFinder) number() {
	nodes := 0
	steps := map[int64]int32{}
	for range f.g.Nodes {
		nodes++
	}
	f.step = make([]int32, nodes)
	for s, n := range f.g.Nodes {
		if shares(n) && !n.Joins() {
			f.step[n.ID] = elsewhere
			continue
		}
		k, ok := int32(0), false
		if fused := n.Why.Launch > 0 || n.Why.Cluster > 0; fused {
			k, ok = steps[stepOf(n)]
		}
		if !ok {
			k = int32(len(f.steps))
			steps[stepOf(n)] = k
			f.steps = append(f.steps, launchStep{section: s, into: k, joined: n.Why.Launch > 0})
		}
		f.step[n.ID] = k
		f.steps[k].nodes = append(f.steps[k].nodes, n)
	}
}

// of is the step that n is currently part of.
func (f *launchFinder) of(n *ir.Node) int32 {
	k := f.step[n.ID]
	for k != elsewhere && f.steps[k].into != k {
		k = f.steps[k].into
	}
	return k
}

func (f *launchFinder) at(n *ir.Node) *launchStep { return &f.steps[f.of(n)] }

// each calls do for each step of its part that reads a result of step k, also through views.
func (f *launchFinder) each(k int32, do func(reader int32)) {
	var readers func(v *ir.Value)
	readers = func(v *ir.Value) {
		for _, u := range f.uses.Of(v) {
			switch r := f.of(u.Node); {
			case r == elsewhere:
				for _, o := range u.Node.Out {
					readers(o)
				}
			case r != k && samePart(f.steps[r].section, f.steps[k].section):
				do(r)
			}
		}
	}
	for _, n := range f.steps[k].nodes {
		for _, v := range n.Out {
			readers(v)
		}
	}
}

// levels computes the level of every step.
func (f *launchFinder) levels() {
	waits := make([]int32, len(f.steps))
	for k := range f.steps {
		f.each(int32(k), func(r int32) { waits[r]++ })
	}
	var ready []int32
	for k, n := range waits {
		if n == 0 {
			ready = append(ready, int32(k))
		}
	}
	for len(ready) > 0 {
		k := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		f.each(k, func(r int32) {
			f.steps[r].level = max(f.steps[r].level, f.steps[k].level+levelGap)
			if waits[r]--; waits[r] == 0 {
				ready = append(ready, r)
			}
		})
	}
}

// join makes a launch of steps a and b, where b reads results of a. It reports whether that is
// possible: no other step is between them.
func (f *launchFinder) join(a, b int32) bool {
	top := f.steps[b].level
	met := map[int32]bool{}
	apart := true
	var walk func(k int32)
	walk = func(k int32) {
		f.each(k, func(r int32) {
			if r == b {
				apart = apart && k == a
			} else if f.steps[r].level < top && !met[r] {
				met[r] = true
				walk(r)
			}
		})
	}
	if walk(a); !apart {
		return false
	}
	x, y := &f.steps[a], &f.steps[b]
	y.nodes = append(slices.Clone(x.nodes), y.nodes...)
	x.into, x.nodes, y.joined = b, nil, true
	f.raise(b)
	return true
}

// beside makes a launch of steps a and b, neither of which reads results of the other. It reports
// whether that is possible: no path leads from one to the other.
func (f *launchFinder) beside(a, b int32) bool {
	if f.reaches(a, b) || f.reaches(b, a) {
		return false
	}
	x, y := &f.steps[a], &f.steps[b]
	y.nodes = append(slices.Clone(x.nodes), y.nodes...)
	y.level = max(x.level, y.level)
	x.into, x.nodes, y.joined = b, nil, true
	f.raise(b)
	return true
}

// reaches reports whether a path leads from step a to step b.
func (f *launchFinder) reaches(a, b int32) bool {
	met, found := map[int32]bool{}, false
	var walk func(k int32)
	walk = func(k int32) {
		f.each(k, func(r int32) {
			found = found || r == b
			if f.steps[r].level < f.steps[b].level && !met[r] && !found {
				met[r] = true
				walk(r)
			}
		})
	}
	walk(a)
	return found
}

// raise gives the readers of step k levels above it.
func (f *launchFinder) raise(k int32) {
	f.each(k, func(r int32) {
		if f.steps[r].level <= f.steps[k].level {
			f.steps[r].level = f.steps[k].level + 1
			f.raise(r)
		}
	})
}

// before joins norm n with the elementwise step that computes its operand.
func (f *launchFinder) before(n *ir.Node) {
	rows := f.caps.RowsOf(n)
	if rows.Operand < 0 || n.In[rows.Operand].Def == nil {
		return
	}
	p := f.of(n.In[rows.Operand].Def)
	if p == elsewhere || !f.inRows(p, n, rows.Cols, true) {
		return
	}
	for i, v := range n.In {
		if v != nil && i != rows.Operand && f.maker(v) == p {
			return // it reads the stored result
		}
	}
	f.join(p, f.of(n))
}

// after joins norm n with the first elementwise step that reads its result.
func (f *launchFinder) after(n *ir.Node) {
	rows, k, y := f.caps.RowsOf(n), f.of(n), n.Out[0]
	var readers []int32
	for _, u := range f.uses.Of(y) {
		if r := f.of(u.Node); r != elsewhere && r != k && !slices.Contains(readers, r) && f.inRows(r, n, rows.Cols, false) && f.readsOnly(r, k, y) {
			readers = append(readers, r)
		}
	}
	slices.SortFunc(readers, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.steps[a].level, f.steps[b].level), cmp.Compare(f.name(a), f.name(b)))
	})
	for _, r := range readers {
		if f.join(k, r) {
			return
		}
	}
}

// summed joins norm n with the first node that adds up the rows of its result or of a value of its
// epilogue that is read elsewhere, too. kept are values that the graph keeps.
func (f *launchFinder) summed(n *ir.Node, kept map[*ir.Value]bool) {
	cols, k := f.caps.RowsOf(n).Cols, f.of(n)
	var sums []int32
	for _, m := range f.steps[k].nodes {
		if m != n && (m.Def().Elem == nil || !f.behind(m, n)) {
			continue
		}
		uses := f.uses.Of(m.Out[0])
		if len(uses) < 2 && !kept[m.Out[0]] {
			continue
		}
		for _, u := range uses {
			if r := f.of(u.Node); f.addsRows(u.Node, cols) && r != elsewhere && !f.steps[r].joined && len(f.steps[r].nodes) == 1 && f.steps[r].section == f.steps[k].section {
				sums = append(sums, r)
			}
		}
	}
	slices.SortFunc(sums, func(a, b int32) int { return cmp.Compare(f.name(a), f.name(b)) })
	for _, r := range sums {
		if f.join(k, r) {
			return
		}
	}
}

// addsRows reports whether m is a sum over rows that the kernel of a norm may compute.
func (f *launchFinder) addsRows(m *ir.Node, cols int64) bool {
	return m.SumsRows(cols) && m.Out[0].Next == nil && !f.placed(m.Out[0]) && !f.expands(m)
}

// behind reports whether m, of the step of norm n, depends on the result of n.
func (f *launchFinder) behind(m, n *ir.Node) bool {
	return slices.ContainsFunc(m.In, func(v *ir.Value) bool {
		return v != nil && v.Def != nil && (v.Def == n || f.step[v.Def.ID] != elsewhere && f.of(v.Def) == f.of(n) && f.behind(v.Def, n))
	})
}

// name is the alphabetically first name of a step's nodes.
func (f *launchFinder) name(k int32) string {
	list := f.steps[k].nodes
	return slices.MinFunc(list, func(a, b *ir.Node) int { return cmp.Compare(a.Out[0].Name, b.Out[0].Name) }).Out[0].Name
}

// maker is the step that computes v, or the value that v views.
func (f *launchFinder) maker(v *ir.Value) int32 {
	for v.Def != nil && f.step[v.Def.ID] == elsewhere {
		v = v.Def.In[0]
	}
	if v.Def == nil {
		return elsewhere
	}
	return f.of(v.Def)
}

// readsOnly reports whether step r reads of step k only y, and not through a view.
func (f *launchFinder) readsOnly(r, k int32, y *ir.Value) bool {
	for _, n := range f.steps[r].nodes {
		for _, v := range n.In {
			if v != nil && f.maker(v) == k && (v != y || n.Out[0].Type.Shape != y.Type.Shape) {
				return false
			}
		}
	}
	return true
}

// inRows reports whether step k is elementwise work over the rows of norm n, of cols columns each,
// is in no launch and stores dense tensors. If product is set, it may also be the second step of a
// product that always runs as two.
func (f *launchFinder) inRows(k int32, n *ir.Node, cols int64, product bool) bool {
	s := &f.steps[k]
	if s.joined || s.section != f.at(n).section || len(s.nodes[0].Out) == 0 {
		return false
	}
	shape := s.nodes[0].Out[0].Type.Shape
	if !shape.Static() || shape.Elements() != n.In[0].Type.Shape.Elements() || !haveRows(ir.Sizes(shape), cols) {
		return false
	}
	for _, m := range s.nodes {
		if !fusible(m) && !(product && f.splits(m, s.nodes)) || m.Out[0].Type.Shape != shape || f.expands(m) {
			return false
		}
		if slices.ContainsFunc(m.Out, f.placed) {
			return false
		}
	}
	return true
}

// haveRows reports whether the last dimensions of a shape are a row of that many columns.
func haveRows(shape []int64, cols int64) bool {
	n := int64(1)
	for k := len(shape); n < cols && k > 0; k-- {
		n *= shape[k-1]
	}
	return n == cols
}

// mark writes the launches to the graph and counts them.
func (f *launchFinder) mark() int {
	id := map[int32]int32{}
	for _, n := range f.g.Nodes {
		k := f.of(n)
		if k == elsewhere || !f.steps[k].joined {
			continue
		}
		if id[k] == 0 {
			id[k] = int32(len(id) + 1)
		}
		n.Why.Launch = id[k]
	}
	return len(id)
}
