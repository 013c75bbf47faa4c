package gpu

import (
	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// workspaceBytes is the size of the workspace of a product.
const workspaceBytes = 32 << 20

var dataTypes = map[ir.DType]cuda.DataType{ir.F32: cuda.R32F, ir.F16: cuda.R16F, ir.BF16: cuda.R16BF}

// product plans a Gemm and returns the call that issues it. One cuBLASLt product covers the
// innermost batch level; the call issues one for every item of the outer levels.
func (e *Exec) product(s *lower.Step) (call, error) {
	if err := e.b.startBlas(); err != nil {
		return nil, err
	}
	m, items := e.matmul(s), e.items(s)
	m.Align = alignment(items)
	plan, err := e.b.blas.Plan(m)
	if err != nil {
		return nil, err
	}
	e.plans = append(e.plans, plan)
	if err := e.b.needSpace(int(s.Stream)); err != nil {
		return nil, err
	}
	algo, err := e.b.algorithm(m, plan, int(s.Stream))
	if refused(err) && (s.Gemm.Epilogue.Aux != 0 || s.Gemm.Epilogue.BiasGrad != 0) {
		err = e.refuse(s, sm.NoAux, err)
	}
	if err == nil {
		err = e.split(s, m)
	}
	if err != nil {
		return nil, err
	}
	return func(on workStream) error {
		for _, o := range items {
			o.Workspace = on.space
			if err := plan.Run(algo, 1, 0, o, on.stream); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// alignment is the common alignment in bytes of a product's matrices; 0 means the
// library's default.
func alignment(items []cuda.Operands) int64 {
	const assumed = 256
	align := int64(assumed)
	for _, o := range items {
		for (int64(o.A)|int64(o.B)|int64(o.D))%align != 0 {
			align /= 2
		}
	}
	return align % assumed
}

func (b *Backend) startBlas() (err error) {
	if b.blas != nil {
		return nil
	}
	b.blas, err = b.open()
	return err
}

// needSpace allocates a workspace for a stream. Each stream needs its own, because
// products on different streams may run at the same time.
func (b *Backend) needSpace(k int) (err error) {
	if l := &b.streams[k]; l.space == 0 {
		l.space, err = b.alloc(workspaceBytes, "cuBLASLt's workspace")
	}
	return err
}

// matmul is the problem of one item of the outer batch levels.
func (e *Exec) matmul(s *lower.Step) cuda.Matmul {
	g := s.Gemm
	last := len(g.Batch) - 1
	matrix := func(id lower.BufferID, m *lower.Matrix) cuda.Matrix {
		x := cuda.Matrix{Type: dataTypes[e.p.Buffers[id].Type.DType], Ld: m.LD}
		if last >= 0 {
			x.Stride = m.Strides[last]
		}
		return x
	}
	compute := cuda.Compute32F
	if g.TF32 {
		compute = cuda.ComputeTF32
	}
	m := cuda.RowMajor(g.M, g.N, g.K, g.A.T, g.B.T, matrix(s.In[0], &g.A), matrix(s.In[1], &g.B), matrix(s.Out[0], &g.C), compute)
	if last >= 0 {
		m.Batch = int(g.Batch[last])
	}
	e.epilogue(&m, s)
	return m
}

// blasActs are activations by their cublasLt numbers.
var blasActs = map[lower.Act]cuda.Epilogue{lower.Relu: cuda.EpilogueRelu, lower.Gelu: cuda.EpilogueGelu,
	lower.GeluGrad: cuda.EpilogueDGelu}

// epilogue translates the epilogue. Row-major operands are exchanged, so the
// library's A is operand 1.
func (e *Exec) epilogue(m *cuda.Matmul, s *lower.Step) {
	end := &s.Gemm.Epilogue
	typed := func(id lower.BufferID) cuda.DataType { return dataTypes[e.p.Buffers[id].Type.DType] }
	var code cuda.Epilogue
	if end.Bias != 0 {
		code, m.BiasType = cuda.EpilogueBias, typed(s.In[end.Bias])
	}
	code |= blasActs[end.Act]
	if end.BiasGrad != 0 {
		code, m.BiasType = [2]cuda.Epilogue{cuda.EpilogueBgradB, cuda.EpilogueBgradA}[end.Summed], typed(s.Out[end.BiasGrad])
	}
	if end.Aux != 0 {
		code |= cuda.EpilogueGeluAux &^ cuda.EpilogueGelu
		m.AuxLd, m.AuxType = s.Gemm.N, typed(s.Out[0])
	}
	if code != 0 {
		m.Epilogue = code
	}
}

// items are the operands of every item of the outer batch levels.
func (e *Exec) items(s *lower.Step) []cuda.Operands {
	g := s.Gemm
	outer := max(len(g.Batch)-1, 0)
	var list []cuda.Operands
	var walk func(level int, a, b, c int64)
	walk = func(level int, a, b, c int64) {
		if level < outer {
			for i := range g.Batch[level] {
				walk(level+1, a+i*g.A.Strides[level], b+i*g.B.Strides[level], c+i*g.C.Strides[level])
			}
			return
		}
		y := e.element(s.Out[0], c)
		o := cuda.Operands{A: e.element(s.In[1], b), B: e.element(s.In[0], a), C: y, D: y, WorkspaceBytes: workspaceBytes}
		end := &g.Epilogue
		switch {
		case end.Bias != 0:
			o.Bias = e.at[s.In[end.Bias]]
		case end.BiasGrad != 0:
			o.Bias = e.at[s.Out[end.BiasGrad]]
		}
		switch {
		case end.Act.Gradient():
			o.Aux = e.at[s.In[end.Aux]]
		case end.Aux != 0:
			o.Aux = e.at[s.Out[end.Aux]]
		}
		list = append(list, o)
	}
	walk(0, 0, 0, 0)
	return list
}

// element is the address of element i of a buffer.
func (e *Exec) element(id lower.BufferID, i int64) cuda.Ptr {
	return e.at[id] + cuda.Ptr(i*e.p.Buffers[id].Type.DType.Size())
}
