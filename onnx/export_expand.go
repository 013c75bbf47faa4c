package onnx

import (
	"slices"

	"ampc/ir"
)

// simpler is n in simpler rows: where it has channels last, one that has them second
// between transposes; a padding between elements as one behind them; else the
// row's own expansion. nil: there is none.
func simpler(n *ir.Node) func(b *ir.Builder, n *ir.Node) []*ir.Value {
	switch {
	case !upper(nil, n):
		return channelsSecond
	case n.Op == ir.OpPad && inner(n):
		return padInner
	}
	return n.Def().Expand
}

func inner(n *ir.Node) bool {
	return slices.ContainsFunc(n.Ints("inner"), func(k int64) bool { return k != 0 })
}

// channelsSecond transposes operand 0, and a filter, before n and its results
// of the same rank behind it.
func channelsSecond(b *ir.Builder, n *ir.Node) []*ir.Value {
	rank := n.In[0].Type.Shape.Rank()
	to, from := []int64{0, int64(rank - 1)}, []int64{0}
	for i := 1; i < rank-1; i++ {
		to, from = append(to, int64(i)), append(from, int64(i+1))
	}
	from = append(from, 1)
	in := slices.Clone(n.In)
	in[0] = b.Transpose(in[0], to...)
	if n.Def().Is(ir.Convolves) && len(in) > 1 {
		in[1] = b.Transpose(in[1], to...)
	}
	out := b.Emit(n.Op, in, n.Attrs.Without("layout"))
	for i, v := range out {
		if v != nil && i < len(n.Out) && v.Type.Shape.Rank() == rank {
			out[i] = b.Transpose(v, from...)
		}
	}
	return out
}

// padInner puts zeros behind each element on an axis of their own, which is joined
// with the element's, and drops those behind the last.
func padInner(b *ir.Builder, n *ir.Node) []*ir.Value {
	x, value := n.In[0], n.Float("value")
	for a, k := range n.Ints("inner") {
		d := ir.Sizes(x.Type.Shape)
		if k == 0 || d[a] < 1 {
			continue
		}
		apart := slices.Insert(slices.Clone(d), a+1, 1)
		hi := make([]int64, len(apart))
		hi[a+1] = k
		wide := b.Pad(b.Reshape(x, apart...), make([]int64, len(apart)), hi, value)
		size := d[a] * (k + 1)
		d[a] = size
		x = b.Slice(b.Reshape(wide, d...), []int64{int64(a)}, []int64{0}, []int64{size - k})
	}
	return []*ir.Value{b.Pad(x, n.Ints("lo"), n.Ints("hi"), value)}
}
