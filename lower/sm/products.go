package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// productJoins joins products of micro with the steps that cuBLASLt does while it
// stores them: an activation with what its gradient needs, that gradient, and
// the sums for a bias's gradient. What a joined step would have read as it was
// rounded, the library takes as it was summed.
type productJoins struct {
	*cudaLowerer
	steps []lower.Step
	read  map[lower.BufferID][]int // by root: steps that read it; elsewhere: in another part, or as an output
	gone  []bool                   // steps that a product does
}

// joinProducts joins what it can before micro is lowered. f32 products stay alone,
// and a gelu is joined from sm_90: before, the library runs it as a kernel of
// its own that is slower than ours.
func (c *cudaLowerer) joinProducts() {
	if c.target.Lacks(NoAux) || c.fl.SM < 80 {
		return
	}
	steps := c.p.Parts[lower.Micro]
	e := &productJoins{cudaLowerer: c, steps: steps, read: map[lower.BufferID][]int{}, gone: make([]bool, len(steps))}
	for part := range lower.NumParts {
		for i := range c.p.Parts[part] {
			at := i
			if part != lower.Micro {
				at = elsewhere
			}
			e.reads(at, c.p.Parts[part][i].In...)
		}
	}
	for _, o := range c.p.Outputs {
		e.reads(elsewhere, o.Buffer)
	}
	for i := range steps {
		if s := &steps[i]; s.Kind == lower.KindGemm && e.open(s) {
			e.activation(i)
			e.gradient(i)
			e.biasGrad(i)
			s.Bytes = c.p.Traffic(s)
		}
	}
	c.p.Parts[lower.Micro] = nil
	for i := range steps {
		if !e.gone[i] {
			c.p.Parts[lower.Micro] = append(c.p.Parts[lower.Micro], steps[i])
		}
	}
}

// reads notes that step at reads buffers.
func (e *productJoins) reads(at int, ids ...lower.BufferID) {
	for _, id := range ids {
		if id != lower.None {
			e.read[e.root(id)] = append(e.read[e.root(id)], at)
		}
	}
}

// readers are the steps that read a root and are not joined to a product.
func (e *productJoins) readers(root lower.BufferID) []int {
	return slices.DeleteFunc(slices.Clone(e.read[root]), func(i int) bool { return i != elsewhere && e.gone[i] })
}

// work reports whether a root lies in the work arena, so that it may be written earlier.
func (e *productJoins) work(root lower.BufferID) bool {
	return e.p.Buffers[root].Arena == lower.WorkArena
}

func (e *productJoins) root(id lower.BufferID) lower.BufferID { return e.p.Buffers[id].Root }

// epilogueRow is what rows of a result are a multiple of where a product ends in more.
const epilogueRow = 8

// open reports whether a product can end in more than it does: 16-bit
// operands, one item, a result that lies dense, of a dtype that cuBLASLt has,
// and an inner dimension above 1, which its gradients want.
func (e *productJoins) open(s *lower.Step) bool {
	g := s.Gemm
	a, b, d := e.typeOf(s.In[0]).DType, e.typeOf(s.In[1]).DType, e.typeOf(s.Out[0]).DType
	return a == b && a.Low() && (d == a || d == ir.F32) && g.K > 1 && len(g.Batch) == 0 && g.N%epilogueRow == 0 && g.C.LD == g.N && g.Epilogue.Residual == 0 &&
		g.Epilogue.Act != lower.Tanh && (g.Epilogue.Bias == 0 || e.typeOf(s.In[g.Epilogue.Bias]).DType == d)
}

// runs reports whether step i is a cluster of just this code over the elements of
// a product as they lie, storing the product's dtype.
func (e *productJoins) runs(i int, product *lower.Step, code []ir.Instr) bool {
	if i == elsewhere || e.gone[i] || e.steps[i].Kind != lower.KindCluster {
		return false
	}
	g := e.steps[i].Cluster
	if !slices.Equal(g.Code, code) || len(g.Stores) != 1 || int(g.Stores[0].Reg) != len(code)-1 || lower.Count(g.Shape) != product.Gemm.M*product.Gemm.N {
		return false
	}
	dense := ir.RowMajor(g.Shape)
	d := e.typeOf(product.Out[0]).DType
	for _, a := range append(slices.Clone(g.Loads), g.Stores[0]) {
		if a.DType != d || a.Offset != 0 || !slices.Equal(a.Strides, dense) {
			return false
		}
	}
	return e.work(e.root(g.Stores[0].Buffer))
}

// tanh is the gelu that cuBLASLt has.
var tanh = ir.A("approx", "tanh")

// activation joins a product with the gelu of its result, which is kept where
// others read it, or with the relu that alone reads it.
func (e *productJoins) activation(i int) {
	s := &e.steps[i]
	h := e.root(s.Out[0])
	if s.Gemm.Epilogue.Act != lower.NoAct || !e.work(h) {
		return
	}
	readers := e.readers(h)
	for _, j := range readers {
		switch {
		case e.fl.SM >= 90 && e.runs(j, s, ownCode(ir.OpGelu, tanh, 1)):
			s.Gemm.Epilogue.Act = lower.Gelu
		case len(readers) == 1 && e.runs(j, s, ownCode(ir.OpRelu, nil, 1)):
			s.Gemm.Epilogue.Act = lower.Relu
		default:
			continue
		}
		out := []lower.BufferID{e.steps[j].Out[0]}
		if len(readers) > 1 {
			s.Gemm.Epilogue.Aux = len(out)
			out = append(out, s.Out[0])
		}
		s.Out, s.Node, e.gone[j] = out, e.steps[j].Node, true
		return
	}
}

// gradient joins a product with the gradient of a gelu that alone reads its
// result: the result times the derivative at what the gelu's product kept. That
// of a relu stays a kernel: the library keeps a bit of each element for it, set
// where it is exactly zero too, and nothing passes there.
func (e *productJoins) gradient(i int) {
	s := &e.steps[i]
	t := e.root(s.Out[0])
	readers := e.readers(t)
	if s.Gemm.Epilogue != (lower.Epilogue{}) || len(readers) != 1 || !e.work(t) {
		return
	}
	j := readers[0]
	if e.fl.SM < 90 || !e.runs(j, s, ownCode(ir.OpGeluGrad, tanh, 2)) {
		return
	}
	loads := e.steps[j].Cluster.Loads
	aux := loads[1].Buffer
	if e.root(loads[0].Buffer) != t || e.root(aux) == t {
		return
	}
	s.Gemm.Epilogue.Act, s.Gemm.Epilogue.Aux = lower.GeluGrad, len(s.In)
	s.In = append(slices.Clone(s.In), aux)
	s.Out, s.Node, e.gone[j] = []lower.BufferID{e.steps[j].Out[0]}, e.steps[j].Node, true
	e.reads(i, aux)
}

// biasGrad joins the gradient of a filter with that of its bias: the column
// sums of the operand that is the gradient of the layer's result.
func (e *productJoins) biasGrad(i int) {
	s := &e.steps[i]
	g := s.Gemm
	if g.Epilogue != (lower.Epilogue{}) || e.typeOf(s.Out[0]).DType != ir.F32 {
		return
	}
	for k, x := range []struct {
		m    *lower.Matrix
		cols int64
		rows bool // it is summed over the inner dimension along its rows
	}{{&g.A, g.M, g.A.T}, {&g.B, g.N, !g.B.T}} {
		if !x.rows || x.m.LD != x.cols {
			continue
		}
		for _, j := range e.readers(e.root(s.In[k])) {
			if j != elsewhere && e.sums(j, x.cols, g.K) && e.unreadUntil(i, e.root(e.steps[j].Out[0])) {
				g.Epilogue.BiasGrad, g.Epilogue.Summed = len(s.Out), k
				s.Out = append(slices.Clone(s.Out), e.steps[j].Out[0])
				e.gone[j] = true
				return
			}
		}
	}
}

// sums reports whether step i adds all rows of a matrix, in f32.
func (e *productJoins) sums(i int, cols, rows int64) bool {
	s := &e.steps[i]
	if s.Kind != lower.KindKernel || s.Kernel.Node.Op != ir.OpReduceSum || e.typeOf(s.Out[0]) != ir.T(ir.F32, ir.Dim(cols)) || !e.work(e.root(s.Out[0])) {
		return false
	}
	x := s.Kernel.Node.In[0].Type.Shape
	axes := s.Kernel.Node.Ints("axes")
	return int64(x.Dim(-1)) == cols && x.Elements() == rows*cols && len(axes) == x.Rank()-1 && !slices.Contains(axes, int64(x.Rank()-1)) && !slices.Contains(axes, -1)
}

// unreadUntil reports whether nothing up to step i reads a root.
func (e *productJoins) unreadUntil(i int, root lower.BufferID) bool {
	return !slices.ContainsFunc(e.readers(root), func(j int) bool { return j != elsewhere && j <= i })
}
