package passes

import (
	"math/rand/v2"
	"slices"

	"ampc/ir"
)

// randomInference is a random graph of forward alone, with concatenations.
func randomInference(r *rand.Rand, size int, pins bool, without ...ir.Op) *ir.Graph {
	g := growGraph(r, size, pins, 3, concatenation, without)
	late := map[*ir.Node]bool{}
	for _, s := range []ir.Section{ir.Backward, ir.Update} {
		for _, n := range g.Body[s] {
			late[n] = true
		}
		g.Body[s] = nil
	}
	g.Return = slices.DeleteFunc(g.Return, func(v *ir.Value) bool { return late[v.Def] })
	if body := g.Body[ir.Forward]; len(body) > 0 {
		ir.Edit(g).Return(body[len(body)-1].Out[0])
	}
	return g
}

// concatenation appends a concatenation of values, some of which nothing else reads.
func concatenation(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) []*ir.Value {
	var list []*ir.Value
	for _, v := range pool {
		if v.Type.DType.Float() && v.Type.DType != ir.F64 && v.Type.Shape == ir.T(ir.F32, 8, 8).Shape && (v.Def == nil || slices.Contains(g.Body[ir.Forward], v.Def)) {
			list = append(list, v)
		}
	}
	b := ir.Edit(g).In(ir.Forward)
	if pins && r.IntN(6) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
	}
	var parts []*ir.Value
	for range 2 {
		x, y := list[r.IntN(len(list))], list[r.IntN(len(list))]
		switch r.IntN(6) {
		case 0:
			parts = append(parts, x)
		case 1:
			parts = append(parts, b.Softmax(x, -1))
		case 2:
			parts = append(parts, b.Relu(b.Matmul(x, y, false, false)))
		case 3:
			parts = append(parts, b.Reshape(b.Matmul(x, y, false, false), 4, 16))
		default:
			parts = append(parts, b.Mul(x, y))
		}
	}
	for i, v := range parts {
		if v != nil && v.Type.Shape.Dim(0) == 4 {
			parts[i] = b.Reshape(v, 8, 8)
		}
	}
	out := b.Concat(r.Int64N(2), parts...)
	if out == nil {
		return nil
	}
	return []*ir.Value{out, b.Gelu(out, "tanh"), b.Matmul(out, out, true, false)}
}
