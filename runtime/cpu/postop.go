package cpu

import (
	"math"
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
	if s.Epilogue == nil || k.Residual.Data != nil {
		return to, false
	}
	term, relu, ok := sumWithProduct(s.Epilogue)
	if !ok {
		return to, false
	}
	if relu {
		k.Last = kern.ActRelu
	}
	k.Residual.Buf = e.bufOf(term)
	return e.bufOf(&s.Epilogue.Stores[0]), true
}

// bufOf is the elements that a dense access reads or writes.
func (e *exec) bufOf(a *lower.Access) kern.Buf {
	return kern.Buf{Type: kernTypes[a.DType], Data: e.mem[a.Buffer]}.From(int(a.Offset))
}

// sumWithProduct is the other term of the sum with the product that a cluster computes and stores, dense and in the type of
// that term. relu says that it is the ReLU of the sum.
func sumWithProduct(g *lower.Cluster) (term *lower.Access, relu, ok bool) {
	if len(g.Stores) != 1 {
		return nil, false, false
	}
	to := &g.Stores[0]
	sum := to.Reg
	if x, is := reluOf(g.Code, sum); is {
		sum, relu = x, true
	}
	i := &g.Code[sum]
	if i.Op != ir.PAdd || i.Type != ir.F32 {
		return nil, false, false
	}
	product, other := i.A, i.B
	if !g.IsProduct(product) {
		product, other = other, product
	}
	if !g.IsProduct(product) || g.IsProduct(other) || g.Code[other].Op != ir.PIn {
		return nil, false, false
	}
	term = &g.Loads[g.Code[other].Int]
	dense := func(a *lower.Access) bool { return newAccess(g.Shape, a.Strides, 0).dense }
	_, ok = kernTypes[to.DType]
	ok = ok && to.DType == term.DType && to.Buffer != lower.None && dense(to) && dense(term) && dense(&g.Loads[g.Code[product].Int])
	return term, relu, ok
}

// reluOf is x where register r is the larger one of x and +0. The larger one of -0 and +0 is +0 in either order (ir.PMax).
func reluOf(code []ir.Instr, r ir.Reg) (x ir.Reg, ok bool) {
	zero := func(r ir.Reg) bool { return code[r].Op == ir.PConst && math.Float64bits(code[r].Imm) == 0 }
	i := &code[r]
	switch {
	case i.Op != ir.PMax || i.Type != ir.F32:
		return 0, false
	case zero(i.B):
		return i.A, true
	}
	return i.B, zero(i.A)
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
