package lower

import "ampc/ir"

// instead is what is stored in place of a value.
type instead struct {
	name string
	typ  ir.Type
}

// findUnstored finds the values that no step stores, as the plan says: images of which readers add up
// outputs of windows (ir.Caps.Spreads), and results of ReLUs that readers compute again
// (ir.Caps.PooledNorm). Of a convolution's gradient, the outputs are stored in place of the images; of
// a max pool, the number of the tap in place of each position. Marks that do not hold here, as in a
// graph that was compiled for another target, have no effect.
func (l *Lowerer) findUnstored() {
	var marked []*ir.Node
	launches := map[int32][]*ir.Node{}
	for s := ir.Forward; s <= ir.Backward && l.joins; s++ {
		for _, n := range l.g.Body[s] {
			if n.Why.Launch > 0 {
				launches[n.Why.Launch] = append(launches[n.Why.Launch], n)
			}
			if n.Why.Marks&(ir.MarkSpread|ir.MarkAgain) != 0 {
				marked = append(marked, n)
			}
		}
	}
	caps := l.p.Target.Caps()
	launch := func(n *ir.Node) []*ir.Node { return launches[n.Why.Launch] }
	kept := func(v *ir.Value) bool { return l.returned[v.ID] }
	for _, n := range marked {
		if n.Why.Has(ir.MarkAgain) {
			if norm := caps.PooledNorm(n, l.uses, launch, kept); norm != nil {
				l.pools[n], l.pooled[norm] = norm, true
			}
			continue
		}
		if w, ok := caps.Spreads(n, l.uses, launch); ok && !kept(n.Out[0]) && (w.Index == nil || !kept(w.Index)) {
			l.spreads(n.Out[0], &w)
		}
	}
}

// spreads notes that no step stores images v.
func (l *Lowerer) spreads(v *ir.Value, w *ir.SumOfWindows) {
	l.images[v] = w
	if i := w.Index; i != nil {
		l.instead[i] = instead{i.Def.Out[0].Name + ".taps", ir.Type{DType: ir.U8, Shape: i.Type.Shape}}
		return
	}
	dims := []ir.Dim{ir.Dim(w.Window.N)}
	for _, k := range w.Window.Out {
		dims = append(dims, ir.Dim(k))
	}
	l.instead[v] = instead{v.Name + ".apart", ir.T(v.Type.DType, append(dims, ir.Dim(w.Window.C))...)}
}

// unstored reports whether v is the result of a ReLU that all readers compute again.
func (l *Lowerer) unstored(v *ir.Value) bool {
	if len(l.pooled) == 0 {
		return false
	}
	norm, _ := l.p.Target.Caps().NormOfRelu(v)
	return l.pooled[norm]
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
