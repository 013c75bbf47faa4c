package passes

import "ampc/ir"

// castfold drops the casts that a kernel makes when it loads or stores, as far as the target's
// kernels can (Caps): a widening cast whose reader computes in f32, and a narrowing cast that is
// the only reader of an f32 result. The kernel rounds exactly where the cast did, so no bit
// changes. After a plan there is nothing to do (unlessPlanned).
func castfold(g *ir.Graph, c *Context) error { return unlessPlanned(foldCasts, g, c) }

func foldCasts(g *ir.Graph, c *Context) error {
	reads := readCounts(g)
	dead := map[*ir.Node]bool{}
	same := map[*ir.Value]*ir.Value{}
	for _, n := range g.Nodes {
		c.At(n)
		if err := foldLoads(n, c, reads, dead); err != nil {
			return err
		}
		if n.Op == ir.OpCast && !dead[n] && c.Policy.stores(n.Out[0].Type.DType) {
			if err := foldStore(n, c, reads, dead, same); err != nil {
				return err
			}
		}
	}
	replace(g, same)
	g.Filter(func(_ ir.Section, n *ir.Node) bool { return !dead[n] })
	return nil
}

// readCounts counts the readers of each value. Returned and captured values count one more, so that
// no pass removes them.
func readCounts(g *ir.Graph) map[*ir.Value]int {
	reads := make(map[*ir.Value]int, g.NumNodes())
	for _, n := range g.Nodes {
		for _, v := range n.In {
			reads[v]++
		}
		for _, v := range n.Captured {
			reads[v] += 2
		}
	}
	for _, v := range g.Return {
		reads[v] += 2
	}
	return reads
}

// foldLoads makes n read the operand of a widening cast if its kernel widens.
func foldLoads(n *ir.Node, c *Context, reads map[*ir.Value]int, dead map[*ir.Node]bool) error {
	for i, v := range n.In {
		if v == nil || v.Def == nil || v.Def.Op != ir.OpCast || v.Next != nil || n.OperandClass(i) == ir.Low || !c.Caps.Loads(n, i) {
			continue
		}
		x := v.Def.In[0]
		if !x.Type.DType.Float() || v.Type.DType != ir.F32 || !x.Type.DType.Low() {
			continue
		}
		if ok, err := readInstead(n, i, x); !ok {
			if err != nil {
				return err
			}
			continue
		}
		c.Count("casts_folded_load", 1)
		n.Why.Marks |= ir.MarkReadsLow
		reads[x]++
		if reads[v]--; reads[v] == 0 {
			dead[v.Def] = true
			reads[x]--
		}
	}
	return nil
}

// readInstead makes x operand i of n without changing the stored dtypes of its results. It returns
// false if the row cannot do that.
func readInstead(n *ir.Node, i int, x *ir.Value) (bool, error) {
	old, attrs := n.In[i], n.Attrs
	types := make([]ir.Type, len(n.Out))
	for k, v := range n.Out {
		types[k] = v.Type
	}
	n.In[i] = x
	err := n.Retype()
	if err == nil && len(n.Out) > 0 && n.Out[0].Type != types[0] && n.Out[0].Next == nil {
		n.Attrs = attrs.With("out", types[0].DType)
		err = n.Retype()
	}
	ok := err == nil
	for k, v := range n.Out {
		ok = ok && v.Type == types[k]
	}
	if ok {
		return true, nil
	}
	n.In[i], n.Attrs = old, attrs
	return false, n.Retype()
}

// foldStore makes the node of an f32 value that only cast n reads store the dtype of n. The value
// keeps its name.
func foldStore(n *ir.Node, c *Context, reads map[*ir.Value]int, dead map[*ir.Node]bool, same map[*ir.Value]*ir.Value) error {
	v, out := n.In[0], n.Out[0]
	p := v.Def
	d := out.Type.DType
	if p == nil || v.Idx != 0 || v.Next != nil || out.Next != nil || reads[v] != 1 || v.Type.DType != ir.F32 || !d.Low() || p.Def().Class == ir.Fixed || storedByRule(p) {
		return nil
	}
	attrs := p.Attrs
	types := make([]ir.Type, len(p.Out))
	for k, o := range p.Out {
		types[k] = o.Type
	}
	types[0] = types[0].With(d)
	if ok, err := storeInstead(p, d, types, c); !ok {
		if err != nil {
			return err
		}
		p.Attrs = attrs
		return p.Retype()
	}
	same[out] = v
	dead[n] = true
	reads[v] = reads[out]
	c.Count("casts_folded_store", 1)
	if p.Why.Class == ir.Keep {
		p.Why.Marks |= ir.MarkStoresLow
	}
	p.Why.Marks &^= ir.MarkStoresF32
	p.Why.AddCasts(n.Why.Casts)
	return nil
}

// storedByRule reports whether a rule of the policy makes p, which stores 16 bits, store f32.
func storedByRule(p *ir.Node) bool {
	return p.Why.Class == ir.Low && p.Why.Marks&ir.MarkStoresF32 != 0 && (p.Why.Cause == ir.ByPattern || p.Why.Cause == ir.ByGuard)
}

// storeInstead makes p store its first result as d, if that does not change its other results.
func storeInstead(p *ir.Node, d ir.DType, types []ir.Type, c *Context) (bool, error) {
	if p.Def().Class == ir.Low { // by default low rows store their operands' dtype
		p.Attrs = p.Attrs.Without("out")
	} else if c.Caps.StoresLow(p) {
		p.Attrs = p.Attrs.With("out", d)
	} else {
		return false, nil
	}
	if err := p.Retype(); err != nil {
		return false, nil //nolint:nilerr // the row cannot; the caller restores it
	}
	for k, o := range p.Out {
		if o.Type != types[k] {
			return false, nil
		}
	}
	return true, nil
}
