package passes

import (
	"cmp"
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// joinProducts marks the products that run in one launch with a node that reads their result, or
// that sums an operand of theirs, if the target has such kernels (ir.Caps.Products). Whether a
// kernel supports a launch depends on dtypes: the plan prices what two kernels move more than one,
// and settleLaunches keeps the launches whose dtypes are supported.
func (m *planner) joinProducts() {
	if m.c.Caps.Products == nil {
		return
	}
	f := &launchFinder{g: m.g, caps: m.c.Caps, uses: m.uses, launchRules: m.assigner}
	m.joined = f.products(m.mayFit)
	if len(m.joined) > 0 {
		f.mark()
	}
	for _, l := range m.joined {
		m.launched[l.Product] = true
	}
	m.c.Count("product_launches", len(m.joined))
}

// mayFit reports whether the kernel of a launch supports it under some choice of dtypes.
func (m *planner) mayFit(l *ir.ProductLaunch) bool {
	p := l.Product
	if m.low == ir.F32 || m.requiredDType(p, 0) != m.low || m.requiredDType(p, 1) != m.low {
		return false
	}
	of, alike := m.alike(l)
	if slices.ContainsFunc(append(alike, of), func(x plan.Choice) bool { return x == plan.AsStored || x == plan.Other }) {
		return false
	}
	if l.Summed >= 0 {
		return m.v[l.Result.ID] == plan.F32 && m.v[l.With.Out[0].ID] == plan.F32 && of != plan.F32
	}
	list := append(alike, of)
	return !slices.Contains(list, plan.F32) || !slices.Contains(list, plan.Low)
}

// alike returns the choice of the dtype of the tensor between the two kernels of a launch, and the
// choices that must equal it if one kernel runs both. A kernel stores one form of each result.
func (m *planner) alike(l *ir.ProductLaunch) (of plan.Choice, alike []plan.Choice) {
	if l.Summed >= 0 {
		return m.stored(l.With, 0, l.With.In[0]), nil
	}
	y := l.With.Out[0]
	of, alike = m.v[l.Result.ID], []plan.Choice{m.v[y.ID]}
	if l.Bias != nil {
		n, i := l.Product, 2
		if n.Bias() != l.Bias {
			n = l.Result.Def
			i = slices.Index(n.In, l.Bias)
		}
		alike = append(alike, m.stored(n, i, l.Bias))
	}
	for i, v := range l.With.In {
		alike = append(alike, m.stored(l.With, i, v))
	}
	return of, m.formsOf(y, alike)
}

// formsOf appends to forms the choices of the forms in which v is read and returned, also through
// views and casts.
func (m *planner) formsOf(v *ir.Value, forms []plan.Choice) []plan.Choice {
	if m.out[v.ID] {
		forms = append(forms, m.formOfRead(v, m.fixedAs(m.src[v.ID])))
	}
	for _, u := range m.uses.Of(v) {
		if !m.sharesTensor(u.Node) {
			forms = append(forms, m.stored(u.Node, u.Arg(), v))
			continue
		}
		for _, o := range u.Node.Out {
			forms = m.formsOf(o, forms)
		}
	}
	return forms
}

// joins adds the cost of launches of products whose dtypes require two kernels: the tensor between
// them is read in the form that its reader takes, and also written if no other node reads it.
func (m *planner) joins() {
	for _, l := range m.joined {
		of, alike := m.alike(&l)
		if l.Summed >= 0 {
			continue // two forms are two reads, which the ports count
		}
		size := m.bytes(l.Result) * m.times(m.sec[l.Product.ID])
		j := plan.Join{Of: of, Alike: alike, F32: 2 * size, Low: size}
		switch m.stored(l.With, slices.Index(l.With.In, l.Result), l.Result) {
		case plan.F32:
			j.Low = 2 * size
		case plan.Low:
			j.F32 = size
		}
		if len(m.uses.Of(l.Result)) == 1 && !m.out[l.Result.ID] {
			j.F32, j.Low = j.F32+2*size, j.Low+size
		}
		m.plan.Joins = append(m.plan.Joins, j)
	}
}

// products joins each product, in sections that run in every micro-batch, with the first node that
// its kernel can also run and that may allows.
func (f *launchFinder) products(may func(*ir.ProductLaunch) bool) (list []ir.ProductLaunch) {
	var found []*ir.Node
	for s, n := range f.g.Nodes {
		if (s == ir.Forward || s == ir.Backward) && f.caps.ProductsOf(n) != (ir.ProductFusion{}) && !f.expands(n) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil
	}
	f.number()
	f.levels()
	f.sort(found)
	kept := f.kept()
	for _, n := range found {
		if f.at(n).joined {
			continue
		}
		for _, r := range f.followers(n) {
			nodes := append(slices.Clone(f.at(n).nodes), f.steps[r].nodes...)
			l, ok := f.caps.ProductLaunch(nodes)
			if !ok || !l.Stores() && (kept[l.Result] || len(f.uses.Of(l.Result)) != 1) || !may(&l) {
				continue
			}
			if l.Summed < 0 && f.join(f.of(n), r) || l.Summed >= 0 && f.beside(f.of(n), r) {
				list = append(list, l)
				break
			}
		}
	}
	return list
}

// kept lists the values that nested graphs read or that the graph returns.
func (f *launchFinder) kept() map[*ir.Value]bool {
	kept := map[*ir.Value]bool{}
	for _, v := range f.g.Return {
		kept[v] = true
	}
	for _, n := range f.g.Nodes {
		for _, v := range n.Captured {
			kept[v] = true
		}
	}
	return kept
}

// followers lists single nodes that are steps of their own in the section of product n: those that
// read the result of its step, then those that read its operands, each by name.
func (f *launchFinder) followers(n *ir.Node) (list []int32) {
	section := f.at(n).section
	var add func(v *ir.Value)
	add = func(v *ir.Value) {
		for _, u := range f.uses.Of(v) {
			switch r := f.of(u.Node); {
			case r == elsewhere:
				for _, o := range u.Node.Out {
					add(o)
				}
			case r != f.of(n) && len(f.steps[r].nodes) == 1 && !f.steps[r].joined && f.steps[r].section == section && !slices.Contains(list, r):
				list = append(list, r)
			}
		}
	}
	byName := func(a, b int32) int { return cmp.Compare(f.name(a), f.name(b)) }
	for _, m := range f.at(n).nodes {
		for _, v := range m.Out {
			add(v)
		}
	}
	slices.SortFunc(list, byName)
	results := len(list)
	for _, v := range n.In[:2] {
		for v.Def != nil && isView(v.Def) {
			v = v.Def.In[0]
		}
		add(v)
	}
	slices.SortFunc(list[results:], byName)
	return list
}

// settleLaunches keeps the launches of products whose dtypes the target's kernels support. The
// nodes of other launches run alone. If no plan has chosen dtypes, it forms the launches that the
// dtypes allow.
func settleLaunches(g *ir.Graph, c *Context) error {
	c.keep()
	if c.Caps.Products == nil {
		return nil
	}
	launches := map[int32][]*ir.Node{}
	for _, n := range g.Nodes {
		if n.Why.Launch > 0 {
			launches[n.Why.Launch] = append(launches[n.Why.Launch], n)
		}
	}
	for _, nodes := range launches {
		if slices.ContainsFunc(nodes, func(n *ir.Node) bool { return n.Def().Norm != nil || c.Caps.RunsChecks(n) || c.Caps.RunsLoss(n) }) {
			continue
		}
		if l, ok := c.Caps.ProductLaunch(nodes); !ok || !l.Fits() {
			for _, n := range nodes {
				n.Why.Launch = 0
			}
			c.Count("launches_left_apart", 1)
		}
	}
	if p := c.Policy.decided(); p.Manual || p.Algorithm != "mincut" {
		g.Number()
		f := &launchFinder{g: g, caps: c.Caps, uses: g.Uses(), launchRules: asStated{c.Caps}}
		if list := f.products((*ir.ProductLaunch).Fits); len(list) > 0 {
			f.mark()
			c.Count("product_launches", len(list))
		}
	}
	renumberLaunches(g)
	return nil
}
