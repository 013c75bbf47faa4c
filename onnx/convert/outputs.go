package convert

import (
	"slices"

	"ampc/onnx"
)

// tailShare is the part of all bytes moved that f32 in front of outputs may add.
const tailShare = 1.0 / 100

// tail is the last product before an output and what follows it.
type tail struct {
	nodes []int
	bytes int64 // that its nodes read and write more in f32, with the cast in front of them
}

// widenOutputs keeps f32 the last product before an f32 output, and the nodes that follow it, where
// that takes no further cast and all such products add at most tailShare to the bytes moved. In 16
// bits the product's result would be rounded, only to be cast to f32 again, and often this makes
// most of the output's error. Bytes that the output's cast saves do not count, so that a large
// product is not kept in f32 because it has a larger result.
func (p *convertPlan) widenOutputs() {
	if p.u.up != nil || p.u.fn != nil {
		return
	}
	readers := map[string]int{}
	left := 0.0
	for _, n := range p.m.Graph.Nodes {
		for _, x := range n.In {
			readers[x]++
		}
		for _, x := range slices.Concat(n.In, n.Out) {
			left += tailShare * float64(2*p.floatElements(x))
		}
	}
	for x := range p.captures { // graphs of nodes read it
		readers[x]++
	}
	for _, y := range p.m.Graph.Outputs {
		t := p.tail(y.Name, readers)
		if t == nil || p.asked[y.Name] || float64(t.bytes) > left {
			continue
		}
		left -= float64(t.bytes)
		for _, i := range t.nodes {
			p.half[i], p.free[i], p.last[i] = false, false, true
			p.why[i] = "before an f32 output it takes no more casts and few more bytes"
		}
	}
}

// tail follows an output back to its last product. It returns nil if another node reads a value or
// a weight on the way, if a node of it reads more than one value that is not a weight, because f32
// then takes more casts than the one of the output, which it saves, or if the product is f32 already.
func (p *convertPlan) tail(output string, readers map[string]int) *tail {
	t := &tail{}
	for y, most := output, 0; ; most = 1 {
		i, made := p.from[y]
		if !made || !p.float(y) || readers[y] > most || p.u.calls[i] != nil {
			return nil
		}
		n := p.m.Graph.Nodes[i]
		x, ok := p.operandOf(n, readers)
		low := p.half[i] || p.free[i]
		if !ok || p.products[i] && !low {
			return nil
		}
		if low {
			t.nodes = append(t.nodes, i)
			t.bytes += p.weightBytes(n)
		}
		if p.products[i] {
			t.bytes += 8 * p.floatElements(x) // its cast reads and writes 6, the product reads 2 more
			return t
		}
		t.bytes += 4 * p.floatElements(x) // x is written and read
		y = x
	}
}

// operandOf is the one value of f32 that n reads and a node or the caller gives. ok is false if
// there are several or none, if a cast of the model's gives it, or if other nodes read its weights.
func (p *convertPlan) operandOf(n *onnx.Node, readers map[string]int) (operand string, ok bool) {
	for _, x := range n.In {
		switch {
		case !p.float(x):
		case p.inits[x] != nil && readers[x] == 1:
		case p.inits[x] != nil, p.before(x) != "", operand != "" && operand != x:
			return "", false
		default:
			operand = x
		}
	}
	return operand, operand != ""
}

// weightBytes are the bytes that the weights of n take more in f32.
func (p *convertPlan) weightBytes(n *onnx.Node) (bytes int64) {
	for _, x := range n.In {
		if p.inits[x] != nil {
			bytes += 2 * p.floatElements(x)
		}
	}
	return bytes
}

// floatElements is the number of elements of a value of f32, 0 for others and for unknown sizes.
func (p *convertPlan) floatElements(name string) int64 {
	if t := p.x.Types[name]; p.float(name) && t.Shape.Known() {
		return t.Shape.Elements()
	}
	return 0
}
