package passes

import (
	"slices"

	"ampc/ir"
)

// globalNorms lists the global norms whose kernels also run finiteness checks.
func (f *launchFinder) globalNorms() (list []*ir.Node) {
	for s, n := range f.g.Nodes {
		if s != ir.Prepare && n.Def().Is(ir.TotalNorm) && f.caps.RunsChecks(n) && !f.expands(n) {
			list = append(list, n)
		}
	}
	return list
}

// checked joins each of norms with the finiteness checks that read a tensor of its operands: one
// kernel reads the tensor for all of them. A check may read the norm, too, if another step does.
func (f *launchFinder) checked(norms []*ir.Node) {
	f.sort(norms)
	kept := f.kept()
	for _, n := range norms {
		for _, m := range f.checksOf(n) {
			a, b := f.of(n), f.of(m)
			switch {
			case a == b:
			case !slices.Contains(m.In, n.Out[0]):
				f.beside(b, a)
			case kept[n.Out[0]] || slices.ContainsFunc(f.uses.Of(n.Out[0]), func(u ir.Use) bool { return !u.Node.Def().Is(ir.Checks) }):
				f.join(a, b)
			}
		}
	}
}

// checksOf lists the finiteness checks in the section of norm n that read a tensor of its operands.
func (f *launchFinder) checksOf(n *ir.Node) (checks []*ir.Node) {
	for _, v := range n.In[1:] {
		for _, u := range f.uses.Of(v) {
			if m := u.Node; m.Def().Is(ir.Checks) && u.Section == f.at(n).section && !slices.Contains(checks, m) {
				checks = append(checks, m)
			}
		}
	}
	f.sort(checks)
	return checks
}
