package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"ampc/ir"
)

// tryWrite appends a row that writes variables, with variables of its own, or nothing: in
// the update, or where micro-batches are added up in backward.
func tryWrite(g *ir.Graph, r *rand.Rand, op ir.Op, pool []*ir.Value) {
	d := op.Def()
	n := len(d.In)
	for n > 0 && d.In[n-1].Optional && r.IntN(2) == 0 {
		n--
	}
	in := make([]*ir.Value, n)
	for i := range in {
		in[i] = draw(r, d, i, pool)
	}
	section := ir.Update
	if op == ir.OpAccum || op == ir.OpAccumTree {
		section = ir.Backward
	}
	b := ir.Edit(g).In(section)
	next := make([]*ir.Value, len(d.Out))
	for k, o := range d.Out { // the operand of that name, else the first
		i := max(0, slices.IndexFunc(d.In, func(p ir.Operand) bool { return p.Name == o.Name }))
		if i >= n || in[i] == nil {
			continue
		}
		next[k] = b.Declare(ir.State, fmt.Sprintf("s%d", len(g.Vars)), in[i].Type, &ir.Init{Func: "zeros"}, nil)
		in[i] = next[k]
	}
	var a ir.Attrs
	if list := fuzzAttrs[d.Name]; list != nil {
		a = list[r.IntN(len(list))]
	}
	before := len(g.Vars)
	if b.EmitWrite(op, in, a, next...); b.Err() != nil {
		g.Vars = g.Vars[:before-len(slices.DeleteFunc(next, func(v *ir.Value) bool { return v == nil }))]
	}
}

// recurrence appends a recurrent row over matrices of the pool, reshaped, and
// perhaps its gradient, or nothing.
func recurrence(g *ir.Graph, r *rand.Rand, pool []*ir.Value, pins bool) []*ir.Value {
	late := map[*ir.Value]bool{}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.Out {
			late[v] = true
		}
	}
	pick := func() *ir.Value { return pool[max(r.IntN(len(pool)), r.IntN(len(pool)))] }
	x, w, dy := pick(), pick(), pick()
	for _, v := range []*ir.Value{x, w, dy} {
		if !v.Type.DType.Float() || v.Type.Shape != ir.T(ir.F32, 8, 8).Shape {
			return nil
		}
	}
	b := ir.Edit(g).In(ir.Forward)
	if late[x] || late[w] {
		b = b.In(ir.Backward)
	}
	if pins && r.IntN(6) == 0 {
		b = b.Pinned([]ir.Pin{ir.PinF32, ir.PinLow, ir.PinTF32}[r.IntN(3)])
	}
	back := b.In(ir.Backward)
	emit := func(op ir.Op, in ...*ir.Value) []*ir.Value { return b.Emit(op, in, nil) }
	var out []*ir.Value
	switch flow := back.Reshape(dy, 4, 2, 1, 8); r.IntN(3) {
	case 0:
		s := emit(ir.OpLSTM, b.Reshape(x, 4, 2, 1, 8), b.Reshape(b.Slice(w, []int64{0}, []int64{0}, []int64{2}), 1, 2, 8))
		if b.Err() == nil {
			d := back.Emit(ir.OpLSTMGrad, []*ir.Value{s[0].Def.In[1], s[2], s[1], nil, s[0]}, nil)
			out = []*ir.Value{b.Reshape(s[2], 8, 8), b.Reshape(s[0], 2, 8), back.Reshape(d[0], 8, 8)}
		}
	case 1:
		s := emit(ir.OpRNN, b.Reshape(x, 4, 2, 1, 8), b.Reshape(w, 1, 8, 8))
		if b.Err() == nil {
			d := back.Emit(ir.OpRNNGrad, []*ir.Value{s[0].Def.In[1], s[0], flow}, nil)
			out = []*ir.Value{b.Reshape(s[0], 8, 8), back.Reshape(d[0], 8, 8)}
		}
	case 2:
		six := func(v *ir.Value, rows int64) *ir.Value {
			return b.Slice(v, []int64{0, 1}, []int64{0, 0}, []int64{rows, 6})
		}
		s := emit(ir.OpGRU, b.Reshape(six(x, 8), 4, 2, 1, 6), b.Reshape(six(w, 2), 1, 2, 6))
		if b.Err() == nil {
			out = []*ir.Value{b.Reshape(s[0], 2, 8), b.Reshape(s[1], 8, 8)}
		}
	}
	if b.Err() != nil || back.Err() != nil {
		return nil
	}
	return slices.DeleteFunc(out, func(v *ir.Value) bool { return v == nil })
}

// caching appends what goes on with the sequences of a call: keys or values that join a
// cache, or attention to one, or nothing.
func caching(g *ir.Graph, r *rand.Rand, pool []*ir.Value, _ bool) []*ir.Value {
	x := pool[max(r.IntN(len(pool)), r.IntN(len(pool)))]
	if x.Type.DType == ir.F64 || x.Type.Shape != ir.T(ir.F32, 8, 8).Shape || slices.ContainsFunc(g.Body[ir.Backward], func(n *ir.Node) bool { return slices.Contains(n.Out, x) }) {
		return nil
	}
	b := ir.Edit(g).In(ir.Forward)
	cache := func(d ir.DType) *ir.Value {
		return b.Declare(ir.State, fmt.Sprintf("cache%d", len(g.Vars)), ir.T(d, 2, 1, 8, 8), nil, ir.A("role", ir.RoleCache))
	}
	stored := []ir.DType{ir.F32, ir.F16, ir.BF16}[r.IntN(3)]
	pos := b.Declare(ir.Input, fmt.Sprintf("pos%d", len(g.Vars)), ir.T(ir.I32, 2), nil, nil)
	k, v := cache(stored), cache(stored)
	four := b.Reshape(x, 2, 1, 4, 8)
	k = b.EmitWrite(ir.OpCacheAppend, []*ir.Value{k, four, pos}, nil, k)[0]
	v = b.EmitWrite(ir.OpCacheAppend, []*ir.Value{v, four, pos}, nil, v)[0]
	y := b.Emit(ir.OpCachedAttention, []*ir.Value{four, k, v, pos}, nil)[0]
	if y == nil {
		return nil
	}
	return []*ir.Value{b.Reshape(y, 8, 8)}
}
