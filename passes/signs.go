package passes

import "ampc/ir"

// readSigns marks the nodes of launches that read only the signs of a ReLU's result, which the norm
// in front of the ReLU stores as bits (ir.Caps.Signs). The bits are those of one form of the result:
// of the one that most readers require, which is 16 bits if a product reads it, too. Other readers
// read the result.
func (f *launchFinder) readSigns() {
	launches := f.launches()
	rounded := map[*ir.Value]bool{} // the bits are those of the form that is required
	each := func(do func(n *ir.Node, v *ir.Value, required bool)) {
		for _, n := range f.g.Body[ir.Backward] {
			for i, v := range n.In {
				if n.Why.Launch > 0 && v != nil && n.OperandDef(i).Sign && f.caps.Signs(launches[n.Why.Launch], n, i) {
					do(n, v, f.requiredDType(n, i) != ir.Invalid)
				}
			}
		}
	}
	each(func(_ *ir.Node, v *ir.Value, required bool) { rounded[v] = rounded[v] || required })
	each(func(n *ir.Node, v *ir.Value, required bool) {
		if required == rounded[v] && (!required || fusible(v.Def)) {
			n.Why.Marks |= ir.MarkReadsSigns
		}
	})
}

// poolNorms marks the max pools that compute the ReLU of a norm in front of them (ir.Caps.PooledNorm).
func (f *launchFinder) poolNorms() (count int) {
	launches, kept := f.launches(), f.kept()
	for _, n := range f.g.Body[ir.Forward] {
		if len(n.In) > 0 && !f.expands(n) && f.caps.PooledNorm(n, f.uses, func(m *ir.Node) []*ir.Node { return launches[m.Why.Launch] }, func(v *ir.Value) bool { return kept[v] }) != nil {
			n.Why.Marks |= ir.MarkAgain
			count++
		}
	}
	return count
}
