package passes

import (
	"math/rand/v2"
	"slices"

	"ampc/ir"
)

// randomLayers is randomGraph with layers of perceptrons and their gradients.
func randomLayers(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	return growGraph(r, size, pins, 3, layer, without)
}

// layer appends a product of matrices of the pool with a bias and an activation, and perhaps
// gradients: of the activation, of filter and bias, with an operand that several of them share.
func layer(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) (out []*ir.Value) {
	late := map[*ir.Value]bool{}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.Out {
			late[v] = true
		}
	}
	of := func(t ir.Type) *ir.Value {
		list := slices.DeleteFunc(slices.Clone(pool), func(v *ir.Value) bool { return !v.Type.DType.Float() || v.Type.Shape != t.Shape })
		return list[max(r.IntN(len(list)), r.IntN(len(list)))]
	}
	x, w, dy, bias := of(ir.T(ir.F32, 8, 8)), of(ir.T(ir.F32, 8, 8)), of(ir.T(ir.F32, 8, 8)), of(ir.T(ir.F32, 8))
	b := ir.Edit(g).In(ir.Forward)
	if late[x] || late[w] || late[bias] {
		b = b.In(ir.Backward)
	}
	pinned := func(b *ir.Builder) *ir.Builder {
		if pins && r.IntN(12) == 0 {
			return b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
		}
		return b
	}
	var h *ir.Value
	switch r.IntN(4) {
	case 0:
		h = pinned(b).Linear(x, w, nil, r.IntN(2) == 0)
	case 1:
		h = pinned(b).Add(pinned(b).Matmul(x, w, false, false), bias)
	default:
		h = pinned(b).Linear(x, w, bias, false)
	}
	approx := []string{"tanh", "tanh", "tanh", "erf"}[r.IntN(4)]
	y := pinned(b).Gelu(h, approx)
	if r.IntN(6) == 0 {
		y = pinned(b).Relu(h)
	}
	if h == nil || y == nil {
		return nil
	}
	made := []*ir.Value{h, y}
	if r.IntN(3) > 0 {
		d := b.In(ir.Backward)
		dh := pinned(d).GeluGrad(pinned(d).Matmul(dy, w, false, r.IntN(2) == 0), h, approx)
		if dh == nil {
			return nil
		}
		rows, axes := dh, []int64{0}
		if r.IntN(2) == 0 {
			rows, axes = d.Reshape(dh, 2, 4, 8), []int64{0, 1}
		}
		made = append(made, dh.Def.In[0], dh)
		if r.IntN(3) > 0 {
			made = append(made, pinned(d).Matmul(x, dh, true, false))
		}
		if r.IntN(3) > 0 {
			made = append(made, pinned(d).ReduceSum(rows, false, axes...))
		}
		if r.IntN(3) == 0 {
			made = append(made, d.Matmul(y, d.Reshape(rows, 8, 8), true, false))
		}
	}
	for _, v := range made {
		if v == nil {
			return nil
		}
		if v != h && v != y && r.IntN(2) == 0 || r.IntN(4) == 0 {
			out = append(out, v)
		}
	}
	return out
}
