package cpu

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// clusterPostOp runs a cluster as the post-op of a product or kernel, on blocks of its result. A
// nil clusterPostOp does nothing.
type clusterPostOp struct {
	g    *clusterStep
	base int // element of the whole result at which the product's own result begins
}

// postOp compiles the epilogue cluster of a step. c is the memory for the product itself: its own
// result, a result of the cluster, or none.
func (e *exec) postOp(s *lower.Step) (n *clusterPostOp, c kern.Buf) {
	if s.Epilogue == nil {
		return nil, e.buf(s.Out[0])
	}
	g, c := e.withoutProductStore(s.Epilogue)
	return &clusterPostOp{g: e.cluster(g, elements(g))}, c
}

// intoEpilogue has the epilogue k of a product's kernel compute the cluster of step s, if that is a sum with the product, or
// the ReLU of one, dense and stored in the type of the other term, and returns where the result is stored. The results are
// the same, bit for bit, and the tile is not read again.
func (e *exec) intoEpilogue(s *lower.Step, k *kern.Epilogue) (to kern.Buf, ok bool) {
	g := s.Epilogue
	if g == nil || k.Residual.Data != nil || e.productStore(g) >= 0 {
		return to, false
	}
	f := &formula{block: -1}
	if !e.compiler(g, elements(g)).formula(f) || f.block < 0 || len(f.code.Loads) != 2 || len(f.rows) > 0 {
		return to, false
	}
	term := f.bufs[1-f.block].Type.String()
	loads := [2]string{term, term}
	loads[f.block] = kern.F32.String()
	sum := fmt.Sprintf("l0:%s l1:%s r0=add(l0,l1) ", loads[0], loads[1])
	switch f.code.String() {
	case sum + "s0:" + term + "=r0":
	case sum + "r1=max(r0,c0) s0:" + term + "=r1":
		k.Last = kern.ActRelu
	default:
		return to, false
	}
	k.Residual.Buf = f.bufs[1-f.block]
	return f.bufs[2], true
}

// withoutProductStore returns the epilogue cluster without the store that the product's own kernel
// performs, to c.
func (e *exec) withoutProductStore(g *lower.Cluster) (rest *lower.Cluster, c kern.Buf) {
	left := *g
	if i := e.productStore(g); i >= 0 {
		c = e.buf(g.Stores[i].Buffer)
		left.Stores = slices.Delete(slices.Clone(g.Stores), i, i+1)
	}
	return &left, c
}

// productStore returns the index of the store that holds the product unchanged, in memory that
// nothing else in the cluster reads. It is -1 if there is none.
func (e *exec) productStore(g *lower.Cluster) int {
	return slices.IndexFunc(g.Stores, func(a lower.Access) bool {
		mem := e.mem[a.Buffer]
		return g.IsProduct(a.Reg) && a.DType == ir.F32 && a.Offset == 0 && newAccess(g.Shape, a.Strides, 0).dense && !slices.ContainsFunc(g.Loads, func(l lower.Access) bool {
			return l.Buffer != lower.None && shareBytes(e.mem[l.Buffer], mem)
		})
	})
}

// kern converts n to package kern's interface; a nil n becomes a nil interface.
func (n *clusterPostOp) kern() kern.PostOp {
	if n == nil {
		return nil
	}
	return n
}

// begin computes the values that are the same for all elements.
func (n *clusterPostOp) begin() {
	if n != nil {
		n.g.begin()
	}
}

// from sets the element of the whole result at which the next product begins.
func (n *clusterPostOp) from(base int) {
	if n != nil {
		n.base = base
	}
}

// Apply implements kern.PostOp.
func (n *clusterPostOp) Apply(worker, at int, c []float32) {
	g, start := n.g, n.base+at
	if f := g.formula; f != nil {
		f.over(worker, start, c)
		return
	}
	l := &g.work[worker]
	l.product, l.at = c, start
	g.span(l, start, len(c))
}
