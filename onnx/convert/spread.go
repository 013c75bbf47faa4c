package convert

import (
	"ampc/ir"
	"ampc/onnx"
)

// bounded are operators whose results stay in range whatever they read.
var bounded = map[string]bool{
	"Tanh": true, "Sigmoid": true, "HardSigmoid": true, "Erf": true, "Softsign": true, "Softmax": true, "Sign": true, "Sin": true, "Cos": true,
	"LayerNormalization": true, "RMSNormalization": true, "InstanceNormalization": true, "GroupNormalization": true,
}

// spread keeps f32 what is computed from numbers that f16 may not hold: the
// results of kept ops (exp, powers, sums) and squares, up to a product or an
// operator that is bounded. A norm or a softmax that is written out stays f32 as
// a whole so, and a mask of the lowest f32 does not become −Inf.
func (p *convertPlan) spread() {
	if p.low != ir.F16 {
		return // bf16 has the range of f32
	}
	for i, n := range p.m.Graph.Nodes {
		if n.Op == "Mul" && repeats(n) && p.free[i] {
			p.half[i], p.free[i], p.exceeds[i], p.why[i] = false, false, true, "a square may leave the range of f16"
		}
	}
	for again := true; again; {
		again = false
		for i, n := range p.m.Graph.Nodes {
			if !p.free[i] || !p.readsExceeding(n) {
				continue
			}
			p.half[i], p.free[i], p.why[i] = false, false, "reads what may leave the range of f16"
			p.exceeds[i] = !bounded[n.Op]
			again = true
		}
	}
}

// widenSums keeps f32 the products that add up squares: an Einsum of a value with itself, and a
// product by what is known to be a square.
func (p *convertPlan) widenSums() {
	if p.low != ir.F16 {
		return
	}
	for i, n := range p.m.Graph.Nodes {
		sums := n.Op == "Einsum" && repeats(n)
		for _, name := range n.In {
			sums = sums || p.products[i] && p.squared(name)
		}
		if sums && p.half[i] {
			p.half[i], p.free[i], p.exceeds[i], p.why[i] = false, false, true, "a sum of squares may leave the range of f16"
		}
	}
}

// moves are operators whose results are elements of their first operand.
var moves = map[string]bool{"Identity": true, "Reshape": true, "Flatten": true, "Squeeze": true, "Unsqueeze": true, "Transpose": true, "Slice": true, "Gather": true, "Expand": true}

// squared reports whether a value is of squares, moved or not.
func (p *convertPlan) squared(name string) bool {
	for {
		i, made := p.from[name]
		if !made {
			return false
		}
		n := p.m.Graph.Nodes[i]
		if squares(n) {
			return true
		}
		if n.Domain != "" || !moves[n.Op] {
			return false
		}
		name = n.In[0]
	}
}

// squares reports whether n makes squares of a value.
func squares(n *onnx.Node) bool {
	return n.Domain == "" && (n.Op == "Mul" && repeats(n) || n.Op == "Pow")
}

// repeats reports whether n reads one value twice.
func repeats(n *onnx.Node) bool {
	return len(n.In) == 2 && n.In[0] == n.In[1]
}

func (p *convertPlan) readsExceeding(n *onnx.Node) bool {
	for _, name := range n.In {
		if p.exceedsRange(name) {
			return true
		}
	}
	return false
}

// exceedsRange reports whether a value may leave the range of 16 bits.
func (p *convertPlan) exceedsRange(name string) bool {
	i, made := p.from[name]
	if !made {
		return p.wideOperands[name] || p.up != nil && p.up.exceedsRange(name)
	}
	return p.exceeds[i] && p.float(name)
}
