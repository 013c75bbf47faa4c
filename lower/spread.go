package lower

import (
	"slices"

	"ampc/ir"
)

// instead is what is stored in place of a value.
type instead struct {
	name string
	typ  ir.Type
}

// findSpread finds the images that no step stores, as the plan says: their readers add up outputs of
// windows (ir.Caps.Spreads). Of a convolution's gradient, the outputs are stored in place of the
// images; of a max pool, the number of the tap in place of each position. Marks that do not hold here,
// as in a graph that was compiled for another target, have no effect.
func (l *Lowerer) findSpread() {
	marked := func(n *ir.Node) bool { return n.Why.Has(ir.MarkSpread) }
	if !l.joins || !slices.ContainsFunc(l.g.Body[ir.Backward], marked) {
		return
	}
	launches := map[int32][]*ir.Node{}
	for _, n := range l.g.Body[ir.Backward] {
		if n.Why.Launch > 0 {
			launches[n.Why.Launch] = append(launches[n.Why.Launch], n)
		}
	}
	for _, n := range l.g.Body[ir.Backward] {
		if !marked(n) || l.returned[n.Out[0].ID] {
			continue
		}
		w, ok := l.p.Target.Caps().Spreads(n, l.uses, func(m *ir.Node) []*ir.Node { return launches[m.Why.Launch] })
		switch y := n.Out[0]; {
		case !ok || w.Index != nil && l.returned[w.Index.ID]:
		case w.Index != nil:
			l.images[y] = &w
			l.instead[w.Index] = instead{w.Index.Def.Out[0].Name + ".taps", ir.Type{DType: ir.U8, Shape: w.Index.Type.Shape}}
		default:
			l.images[y] = &w
			dims := []ir.Dim{ir.Dim(w.Window.N)}
			for _, k := range w.Window.Out {
				dims = append(dims, ir.Dim(k))
			}
			l.instead[y] = instead{y.Name + ".apart", ir.T(y.Type.DType, append(dims, ir.Dim(w.Window.C))...)}
		}
	}
}

// storedAs is what is stored for v.
func (l *Lowerer) storedAs(v *ir.Value) instead {
	if t, ok := l.instead[v]; ok {
		return t
	}
	return instead{v.Name, v.Type}
}

// spreadOf is how the first result of n follows from outputs of windows, if no step stores it.
func (l *Lowerer) spreadOf(n *ir.Node) *ir.SumOfWindows {
	if len(n.Out) == 0 {
		return nil
	}
	return l.images[n.Out[0]]
}

// loadsOf is how a cluster over shape reads v. Of images that no step stores it loads the outputs that
// they are sums of and, of a max pool, the taps that these come from. The dtype of the first load is
// that of v, to which the sum is rounded.
func (l *Lowerer) loadsOf(v *ir.Value, shape []int64) []Access {
	w := l.images[v]
	if w == nil {
		return []Access{l.access(v, shape)}
	}
	s := &Spread{Window: w.Window, Taps: w.Index != nil}
	first := Access{Buffer: l.in(v), DType: v.Type.DType, Strides: ir.RowMajor(shape), Spread: s}
	if !s.Taps {
		return []Access{first}
	}
	first.Buffer = l.in(w.Outputs)
	return []Access{first, {Buffer: l.in(w.Index), DType: ir.U8, Strides: ir.RowMajor(shape), Spread: s}}
}
