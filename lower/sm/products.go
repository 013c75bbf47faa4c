package sm

import (
	"ampc/ir"
	"ampc/lower"
)

// epilogueRow is what rows of a result are a multiple of where cuBLASLt computes more than a product
// with bias and ReLU.
const epilogueRow = 8

// products is what cuBLASLt does while it stores product n: an activation with what its gradient needs,
// that gradient, and the sums for a bias's gradient. What With reads as it is rounded, the library takes
// as it was summed. The product is one item with an inner dimension above 1, which its gradients want. A
// GELU is fused from sm_90 on: before, the library runs it as a kernel of its own that is slower than
// ours. The gradient of a ReLU stays a kernel: the library keeps a bit of each element for it, set where
// it is exactly zero too, and nothing passes there.
func (t Target) products(n *ir.Node) ir.ProductFusion {
	if t.Lacks(NoAux) || t.fl.SM < 80 || !n.Out[0].Type.Shape.Static() || n.Out[0].Type.Shape.Elements() == 0 {
		return ir.ProductFusion{}
	}
	g := lower.ProductOf(n)
	if g.K <= 1 || len(g.Batch) > 0 || g.N%epilogueRow != 0 {
		return ir.ProductFusion{}
	}
	return ir.ProductFusion{Gelu: t.fl.SM >= 90, Relu: true, Sums: true}
}
