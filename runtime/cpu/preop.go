package cpu

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// clusterPreOp computes operand 0 of a kernel that reads rows (ir.RowFusion), on blocks: the elementwise
// nodes in front of the kernel are a cluster that stores one of its registers in the block. What others
// read of them it stores in memory, too.
type clusterPreOp struct{ of clusterPostOp }

// preOp compiles the prologue of a kernel.
func (e *exec) preOp(f *lower.NormFusion) *clusterPreOp {
	g := *f.Prologue
	g.Stores = append(slices.Clone(g.Stores), lower.Access{Buffer: lower.None, DType: ir.F32, Strides: ir.RowMajor(g.Shape), Reg: f.Made})
	return &clusterPreOp{clusterPostOp{g: e.cluster(&g, elements(&g))}}
}

// Compute implements kern.PreOp.
func (p *clusterPreOp) Compute(worker, at int, x []float32) { p.of.Apply(worker, at, x) }

// work is what the cluster costs for an element, see kern.Machine.Run.
func (p *clusterPreOp) work() int { return passWork * p.of.g.cost / max(p.of.g.n, 1) }

// kernelWithPreOp binds the kernel of s, of which a cluster computes operand 0.
func (e *exec) kernelWithPreOp(s *lower.Step) (func(), error) {
	n := s.Kernel.Node
	c := e.newCall(s, s.In[:len(n.In)])
	c.in[0] = view{t: n.In[0].Type}
	c.pre = e.preOp(&s.Kernel.Fusion)
	e.groups[s] = c.pre.of.g
	own := *s
	own.Out = s.Out[:len(n.Out)]
	c.results(&own, e)
	return c.bind()
}

// following is a run of kernels over the rows of operand 0, which the pre-op computes if there is one.
func (c *call) following(run func()) func() {
	if c.pre == nil {
		return run
	}
	pre, work := c.pre, c.pre.work()
	return func() {
		pre.of.begin()
		c.m.Following(pre, work, run)
	}
}

// rows reads operand 0 in contiguous rows of n floats: so many rows at a time, or parts of one. It
// returns how many elements that is, and a function that reads as many from element at on.
func (c *call) rows(n int) (block int, read func(worker, at int, x []float32)) {
	if block = max(n, rowBlock/n*n); c.pre != nil {
		return block, c.pre.Compute
	}
	m, x := c.m, c.in[0].buf()
	return block, func(_, at int, to []float32) { m.Load(to, x.From(at)) }
}

// rowBlock is how many elements of a row, or of several, a reduction without a kernel of its own reads at
// a time: they stay in the first-level cache.
const rowBlock = 1 << 12

var _ kern.PreOp = (*clusterPreOp)(nil)
