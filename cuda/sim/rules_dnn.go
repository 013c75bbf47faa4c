package sim

import (
	"fmt"
	"slices"

	"ampc/cuda"
)

// dnnRule is a requirement of cuDNN for a graph, from its documentation, NVIDIA's frontend and
// PyTorch's use of it, with the status that it returns if it is violated.
type dnnRule struct {
	name   string
	status int
	broken func(g *cuda.DnnGraph, on Options) string // what is wrong, "" where the rule is kept
}

// operands are the two tensors that a convolution reads, and its result.
func operands(n *cuda.DnnNode) (a, b, out *cuda.DnnTensor) {
	switch n.Kind {
	case cuda.DnnConvData:
		return n.Y, n.B, n.X
	case cuda.DnnConvFilter:
		return n.X, n.Y, n.B
	}
	return n.X, n.B, n.Y
}

// stored is the tensor with memory that the last operation of a graph writes.
func stored(g *cuda.DnnGraph) *cuda.DnnTensor {
	last := &g.Nodes[len(g.Nodes)-1]
	if last.Conv == nil {
		return last.Y
	}
	_, _, out := operands(last)
	return out
}

func low(t cuda.DnnType) bool { return t == cuda.DnnHalf || t == cuda.DnnBFloat16 }

// fusedStep is the number that channels must be multiples of in engines compiled for a graph.
const fusedStep = 8

// notFused returns why cuDNN compiles no engine for a convolution, "" if it does. It requires
// 16-bit tensors with channels last, in multiples of step, one group, and sm_80 or later.
func notFused(n *cuda.DnnNode, on Options, step int64) string {
	a, _, _ := operands(n)
	x, w, y := n.X, n.B, n.Y
	switch {
	case on.NoFusion:
		return "injected fault"
	case on.Major < 8:
		return fmt.Sprintf("sm_%d%d", on.Major, on.Minor)
	case !low(a.Type):
		return fmt.Sprintf("operands of type %d", a.Type)
	case x.Strides[1] != 1 || w.Strides[1] != 1 || y.Strides[1] != 1:
		return "channels are not last"
	case x.Dims[1] != w.Dims[1]:
		return "groups"
	case x.Dims[1]%step != 0 || y.Dims[1]%step != 0:
		return fmt.Sprintf("%d and %d channels, want multiples of %d", x.Dims[1], y.Dims[1], step)
	}
	return ""
}

// dense reports whether a tensor has no gaps in memory, with channels second or last.
func dense(t *cuda.DnnTensor) bool {
	n := len(t.Dims)
	second, last := make([]int64, n), make([]int64, n)
	size := int64(1)
	for i := n - 1; i >= 0; i-- {
		second[i] = size
		size *= t.Dims[i]
	}
	size = t.Dims[1]
	last[1] = 1
	for i := n - 1; i >= 0; i-- {
		if i != 1 {
			last[i] = size
			size *= t.Dims[i]
		}
	}
	return slices.Equal(t.Strides, second) || slices.Equal(t.Strides, last)
}

// ofNodes are the tensors that operations of a graph read or write, by id.
func ofNodes(g *cuda.DnnGraph) map[int64]bool {
	ids := map[int64]bool{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, t := range []*cuda.DnnTensor{n.X, n.B, n.T, n.Y} {
			if t != nil {
				ids[t.UID] = true
			}
		}
	}
	return ids
}

// owned is a rule of every graph. cuDNN 9.19 reports a null pointer when such a graph runs.
var owned = dnnRule{"tensors are of operations", 2002, func(g *cuda.DnnGraph, _ Options) string {
	ids := ofNodes(g)
	for _, t := range slices.Concat(g.Feeds, g.Consts) {
		if !ids[t.UID] {
			return fmt.Sprintf("no operation has tensor %d", t.UID)
		}
	}
	return ""
}}

var convRules = []dnnRule{
	owned,
	{"injected fault", 3000, func(_ *cuda.DnnGraph, on Options) string {
		return wrong(on.NoAlgorithm || on.NoConv, "no convolutions")
	}},
	{"two or three dimensions", 3002, func(g *cuda.DnnGraph, _ Options) string {
		n := len(g.Nodes[0].X.Dims)
		return wrong(n < 4 || n > 5, "tensors of %d", n)
	}},
	{"operands of one type", 3003, func(g *cuda.DnnGraph, _ Options) string {
		a, b, _ := operands(&g.Nodes[0])
		return wrong(a.Type != b.Type, "types %d and %d", a.Type, b.Type)
	}},
	{"bf16 from sm_80", 3007, func(g *cuda.DnnGraph, on Options) string {
		a, _, _ := operands(&g.Nodes[0])
		return wrong(a.Type == cuda.DnnBFloat16 && on.Major < 8, "sm_%d%d", on.Major, on.Minor)
	}},
	{"channels of a filter", 3002, func(g *cuda.DnnGraph, _ Options) string {
		x, w, y := g.Nodes[0].X.Dims[1], g.Nodes[0].B.Dims, g.Nodes[0].Y.Dims[1]
		return wrong(w[1] < 1 || x%w[1] != 0 || w[0] != y || y%(x/w[1]) != 0, "%d channels to %d by filters %v", x, y, w)
	}},
	{"tensors lie dense, in one order", 3004, func(g *cuda.DnnGraph, _ Options) string {
		n := &g.Nodes[0]
		for _, t := range []*cuda.DnnTensor{n.X, n.B, n.Y} {
			if !dense(t) {
				return fmt.Sprintf("%v with strides %v", t.Dims, t.Strides)
			}
		}
		return ""
	}},
	{"paddings at both ends", 3001, func(g *cuda.DnnGraph, _ Options) string {
		c := g.Nodes[0].Conv
		return wrong(!slices.Equal(c.Pads, c.EndPads), "%v and %v, want the same", c.Pads, c.EndPads)
	}},
	{"a result of another type is a filter's gradient in f32", 3003, func(g *cuda.DnnGraph, on Options) string {
		a, _, _ := operands(&g.Nodes[0])
		switch out := stored(g); {
		case out.Type == a.Type:
			return ""
		case g.Nodes[0].Kind == cuda.DnnConvFilter && out.Type == cuda.DnnFloat:
			return notFused(&g.Nodes[0], on, 1)
		default:
			return fmt.Sprintf("type %d from %d", out.Type, a.Type)
		}
	}},
	{"what follows a convolution", 3001, func(g *cuda.DnnGraph, on Options) string {
		if len(g.Nodes) == 1 {
			return ""
		}
		if n := &g.Nodes[1]; len(g.Nodes) > 2 || n.Kind != cuda.DnnPointwise || n.Mode != cuda.PwAdd || g.Nodes[0].Kind != cuda.DnnConv {
			return "no pattern"
		}
		return notFused(&g.Nodes[0], on, fusedStep)
	}},
}

// heads are q, k, v and, of a gradient too, o: those whose memory layout is free.
func heads(g *cuda.DnnGraph) []*cuda.DnnTensor {
	var list []*cuda.DnnTensor
	for _, t := range g.Feeds {
		if low(t.Type) {
			list = append(list, t)
		}
	}
	return list
}

var attentionRules = []dnnRule{
	owned,
	{"injected fault", 3000, func(_ *cuda.DnnGraph, on Options) string {
		return wrong(on.NoAlgorithm || on.NoAttention, "no attention")
	}},
	{"from sm_80", 3007, func(_ *cuda.DnnGraph, on Options) string {
		return wrong(on.Major < 8, "sm_%d%d", on.Major, on.Minor)
	}},
	{"16-bit tensors of one type", 3003, func(g *cuda.DnnGraph, _ Options) string {
		for _, t := range g.Feeds[:4] {
			if !low(t.Type) || t.Type != g.Feeds[0].Type {
				return fmt.Sprintf("type %d beside %d", t.Type, g.Feeds[0].Type)
			}
		}
		return ""
	}},
	{"head size", 3002, func(g *cuda.DnnGraph, on Options) string {
		longest := int64(128)
		if on.Major >= 9 {
			longest = 256
		}
		size := g.Feeds[0].Dims[3]
		return wrong(size%8 != 0 || size > longest, "%d, want a multiple of 8 up to %d", size, longest)
	}},
	{"more than one key", 3002, func(g *cuda.DnnGraph, _ Options) string {
		return wrong(g.Feeds[1].Dims[3] < 2, "%d", g.Feeds[1].Dims[3]) // k is described transposed
	}},
	{"a gradient wants whole tiles of keys", 3002, func(g *cuda.DnnGraph, _ Options) string {
		return wrong(len(g.Feeds) > 5 && g.Feeds[1].Dims[3]%128 != 0, "%d keys, want a multiple of 128", g.Feeds[1].Dims[3])
	}},
	{"heads lie dense, everything else 16 bytes apart", 3004, func(g *cuda.DnnGraph, _ Options) string {
		for _, t := range heads(g) {
			inner, rest := 0, 0
			for _, s := range t.Strides {
				if s == 1 {
					inner++
				} else if s%8 != 0 {
					rest++
				}
			}
			if inner < 1 || rest > 0 {
				return fmt.Sprintf("%v with strides %v", t.Dims, t.Strides)
			}
		}
		return ""
	}},
}
