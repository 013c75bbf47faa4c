package sm

import (
	"ampc/ir"
	"ampc/lower"
)

// epilogueRow divides the row length of results for which cuBLASLt computes more than a product
// with bias and ReLU.
const epilogueRow = 8

// products is what cuBLASLt computes while it stores product n: an activation with the value that
// its gradient needs, that gradient, or the sums for a bias's gradient. Where a node With reads the
// product rounded, the library reads the f32 sum. The product is one item with an inner dimension
// above 1, which its gradients require. A GELU is fused from sm_90 on; on older devices the library
// runs it as a separate kernel that is slower than this package's. The gradient of a ReLU stays a
// kernel: the library stores one bit for each element, which is also set where the element is
// exactly zero, and there the gradient must be zero.
func (t Target) products(n *ir.Node) ir.ProductFusion {
	if t.Lacks(NoAux) || t.fl.SM < 80 || !n.Out[0].Type.Shape.Static() || n.Out[0].Type.Shape.Elements() == 0 {
		return ir.ProductFusion{}
	}
	g := lower.ProductOf(n)
	if g.K <= 1 || len(g.Batch) > 0 || g.N%epilogueRow != 0 || t.Refuses(productProblem(n.In[0].Type.DType, g)) {
		return ir.ProductFusion{}
	}
	return ir.ProductFusion{Gelu: t.fl.SM >= 90, Relu: true, Sums: true}
}
