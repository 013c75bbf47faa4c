package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

var epilogueOps = map[Act]ir.Op{Relu: ir.OpRelu, Tanh: ir.OpTanh, Gelu: ir.OpGelu, GeluGrad: ir.OpGeluGrad}

// activation applies the activation of s, a product or convolution over shape, to x. Its node may
// read x rounded, while the kernel reads x before that rounding (ir.Caps.Products). The value that
// the kernel stores for the gradient is rounded.
func (b *body) activation(s *Step, x expr, shape []int64) (expr, error) {
	e := s.epilogue()
	i := slices.IndexFunc(b.nodes.list, func(n *ir.Node) bool { return n.Op == epilogueOps[e.Act] })
	if i < 0 {
		return x, fmt.Errorf("no node of its cluster is a %s", e.Act)
	}
	if e.Act == Gelu && e.Aux > 0 {
		id := s.Out[e.Aux]
		if err := b.stored(id, 0, b.p.dtype(id), x, shape, b.bufferStrides(id, shape)); err != nil {
			return x, err
		}
	}
	n := b.nodes.list[i]
	in := []expr{b.round(x, n.In[0].Type.DType)}
	if e.Act.Gradient() {
		in = append(in, b.buffer(s.In[e.Aux], shape))
	}
	return b.node(n, func(i int) expr { return in[i] })[0], nil
}

// biasGrad checks the column sums that product s stores besides its result.
func (b *body) biasGrad(s *Step) error {
	e, sum := s.epilogue(), b.head
	if sum == nil || sum.Op != ir.OpReduceSum || slices.Contains(sum.Axes(), sum.In[0].Type.Shape.Rank()-1) || !b.shows(s.Out[e.BiasGrad], sum.Out[0]) {
		return errors.New("no node of its cluster adds the rows that its epilogue adds")
	}
	from := &b.p.Buffers[s.In[e.Summed]]
	if t, ok := b.tensor(sum.In[0]); !ok || t.root != from.Root || t.at != from.At || t.strides != nil || t.value.Type.DType != from.Type.DType {
		return errors.New("its epilogue adds the rows of another tensor than its node")
	}
	return nil
}
