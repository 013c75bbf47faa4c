package lower

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

func (s *Step) verifyGemm(p *Program) error {
	g := s.Gemm
	if len(s.In) < 2 || len(s.Out) < 1 {
		return fmt.Errorf("a product has two operands or more and a result, not %d and %d", len(s.In), len(s.Out))
	}
	if err := s.verifyAux(p); err != nil {
		return err
	}
	for _, i := range []int{g.Epilogue.Bias, g.Epilogue.Residual} {
		if i >= len(s.In) || i == 1 || i > 0 && s.In[i] == None {
			return fmt.Errorf("the epilogue names operand %d", i)
		}
	}
	list := []*Matrix{&g.A, &g.B, &g.C}
	if s.Epilogue != nil {
		list = list[:2]
	}
	for i, m := range list {
		rows, cols := [...]int64{g.M, g.K, g.M}[i], [...]int64{g.K, g.N, g.N}[i]
		id := append(s.In[:2:2], s.Out[0])[i]
		if m.T {
			rows, cols = cols, rows
		}
		a := Access{DType: p.Buffers[id].Type.DType, Strides: append([]int64{m.LD, 1}, m.Strides...)}
		shape := append([]int64{rows, cols}, g.Batch...)
		if err := a.inside(p, shape, id); err != nil {
			return err
		}
		if err := p.verifyMatrix(id, a.Strides, shape); err != nil {
			return err
		}
	}
	if n := g.M * g.N * Count(g.Batch); s.Epilogue != nil && (Count(s.Epilogue.Shape) != n || g.C.LD != g.N) {
		return fmt.Errorf("computes %d elements in rows %d apart, its epilogue %d", n, g.C.LD, Count(s.Epilogue.Shape))
	}
	if n := p.Buffers[s.Out[0]].Type.Shape.Elements(); n != g.M*g.N*Count(g.Batch) {
		return fmt.Errorf("computes %d elements of %s, which has %d", g.M*g.N*Count(g.Batch), p.BufferName(s.Out[0]), n)
	}
	return s.verifyProductTypes(p)
}

// verifyMatrix checks that the rows of a matrix do not overlap and that it stays inside its buffer.
func (p *Program) verifyMatrix(id BufferID, strides, shape []int64) error {
	if shape[0] > 1 && strides[0] < shape[1] {
		return fmt.Errorf("rows of %d elements of %s begin every %d", shape[1], p.BufferName(id), strides[0])
	}
	end := int64(1)
	for i, n := range shape {
		if n == 0 {
			return nil
		}
		end += strides[i] * (n - 1)
	}
	if n := p.Buffers[id].Type.Shape.Elements(); end != n {
		return fmt.Errorf("accesses %s up to element %d of %d", p.BufferName(id), end, n)
	}
	return nil
}

// verifyProductTypes checks dtypes and sizes of the operands of a product besides its factors. A
// GPU's library wants factors of one dtype, and the other operands in the result's.
func (s *Step) verifyProductTypes(p *Program) error {
	e := &s.Gemm.Epilogue
	a, b, d := p.dtype(s.In[0]), p.dtype(s.In[1]), p.dtype(s.Out[0])
	if s.Gemm.TF32 && a != ir.F32 && b != ir.F32 {
		return fmt.Errorf("a tf32 product of %s and %s", a, b)
	}
	if p.called(s) && (a != b || d != a && d != ir.F32 || e.Bias != 0 && p.dtype(s.In[e.Bias]) != d) {
		return fmt.Errorf("no library multiplies %s and %s to %s with such a bias", a, b, d)
	}
	if p.called(s) && (e.Act == Tanh || e.Residual != 0) {
		return errors.New("no library has an epilogue with a tanh or a residual")
	}
	var err error
	if e.Bias != 0 {
		err = p.holds(s.In, e.Bias, s.Gemm.N, "the bias")
	}
	if e.Residual != 0 {
		err = cmp.Or(err, p.holds(s.In, e.Residual, s.Gemm.M*s.Gemm.N*Count(s.Gemm.Batch), "the residual"))
	}
	return err
}

// verifyAux checks what an epilogue stores for a gradient, what a gradient reads, and the sums of a
// bias.
func (s *Step) verifyAux(p *Program) error {
	g, e := s.Gemm, &s.Gemm.Epilogue
	results := 1
	if s.Epilogue != nil {
		results = len(s.Out)
	}
	var err error
	if e.Aux != 0 {
		list := s.Out
		if e.Act.Gradient() {
			list = s.In
		} else {
			results++
		}
		err = p.holds(list, e.Aux, g.M*g.N, "the auxiliary")
	}
	if e.Act.Gradient() && e.Aux == 0 || e.Act != Gelu && !e.Act.Gradient() && e.Aux != 0 {
		return fmt.Errorf("the epilogue %s with the auxiliary %d", e.Act, e.Aux)
	}
	if e.BiasGrad != 0 && (e.Act != NoAct || e.Bias != 0) {
		return fmt.Errorf("the epilogue %s beside a bias gradient", e.Act)
	}
	if e.BiasGrad != 0 {
		results++
		if e.Summed < 0 || e.Summed > 1 {
			return fmt.Errorf("the epilogue sums operand %d", e.Summed)
		}
		if e.Summed == 0 && !g.A.T || e.Summed == 1 && g.B.T {
			return fmt.Errorf("the epilogue sums operand %d along its rows", e.Summed)
		}
		err = cmp.Or(err, p.holds(s.Out, e.BiasGrad, [2]int64{g.M, g.N}[e.Summed], "the bias gradient"))
	}
	if err == nil && len(s.Out) != results {
		err = fmt.Errorf("a product with %d results, its epilogue has %d", len(s.Out), results)
	}
	return err
}

// holds checks that list[i] has as many elements as the description wants.
func (p *Program) holds(list []BufferID, i int, want int64, what string) error {
	if i >= len(list) || list[i] == None {
		return fmt.Errorf("has no %s", what)
	}
	if n := p.Buffers[list[i]].Type.Shape.Elements(); n != want {
		return fmt.Errorf("%s is %s of %d elements, the description wants %d", what, p.BufferName(list[i]), n, want)
	}
	return nil
}

func (s *Step) verifyConv(p *Program) error {
	c, w := s.Conv, &s.Conv.Window
	if w.Groups < 1 || w.C%w.Groups != 0 || w.O%w.Groups != 0 {
		return fmt.Errorf("%d and %d channels in %d groups", w.C, w.O, w.Groups)
	}
	x, filter, y := w.N*w.C*Count(w.In), w.O*(w.C/w.Groups)*Count(w.Kernel), w.N*w.O*Count(w.Out)
	want := map[ConvDir][3]int64{ConvForward: {x, filter, y}, ConvGradX: {y, filter, x}, ConvGradW: {x, y, filter}}[c.Dir]
	if n := want[2]; s.Epilogue != nil && (c.Dir == ConvGradW || Count(s.Epilogue.Shape) != n) {
		return fmt.Errorf("computes %d elements, its epilogue %d", n, Count(s.Epilogue.Shape))
	}
	err := cmp.Or(p.holds(s.In, 0, want[0], "operand 0"), p.holds(s.In, 1, want[1], "operand 1"), p.holds(s.Out, 0, want[2], "the result"))
	if i := c.Epilogue.Bias; err == nil && i != 0 {
		err = p.holds(s.In, i, map[bool]int64{true: w.C, false: w.O}[c.Dir == ConvGradX], "the bias")
	}
	for i := range w.Kernel {
		room := w.In[i] + w.Begin[i] + w.End[i] - w.Dilation[i]*(w.Kernel[i]-1) - 1
		fits := w.Stride[i] > 0 && (w.N*w.O == 0 || room/w.Stride[i]+1 == w.Out[i])
		if c.Dir == ConvGradX && w.Stride[i] > 0 && room/w.Stride[i]+1 > w.Out[i] {
			fits = true // output_padding: windows that no tap reaches; they stay zero
		}
		if err == nil && !fits {
			err = fmt.Errorf("windows of %v over %v do not give %v", w.Kernel, w.In, w.Out)
		}
	}
	if err != nil {
		return err
	}
	return p.verifyGraphTypes(s, c.TF32, c.Dir == ConvGradW, append(s.In[:2:2], s.Out[0]))
}

// called reports whether a GPU's library runs a step, which must have something to store.
func (p *Program) called(s *Step) bool {
	return p.library(s) != "" && slices.ContainsFunc(s.Out, func(id BufferID) bool { return p.Buffers[id].Size > 0 })
}

// verifyGraphTypes checks that the operands and results of a cuDNN graph have one dtype. If wide,
// the last of ids is a sum that may be f32.
func (p *Program) verifyGraphTypes(s *Step, tf32, wide bool, ids []BufferID) error {
	if !p.called(s) {
		return nil
	}
	d := p.dtype(ids[0])
	for i, id := range ids {
		if x := p.dtype(id); x != d && (x != ir.F32 || !wide || i < len(ids)-1) {
			return fmt.Errorf("no library computes with %s of %s beside %s", p.BufferName(id), x, d)
		}
	}
	if tf32 && d != ir.F32 {
		return fmt.Errorf("asks for tf32 of %s", d)
	}
	return nil
}

func (s *Step) verifyAttention(p *Program) error {
	a := s.Attn
	if err := s.verifyAttentionSizes(p); err != nil {
		return err
	}
	lse := s.Out[1:2]
	if a.Backward {
		lse = s.In[5:6]
	}
	if p.called(s) && p.dtype(lse[0]) != ir.F32 {
		return fmt.Errorf("keeps the logarithms of its sums in %s", p.BufferName(lse[0]))
	}
	if a.Backward {
		return p.verifyGraphTypes(s, a.TF32, false, append(s.In[:5:5], s.Out[:3]...))
	}
	return p.verifyGraphTypes(s, a.TF32, false, append(s.In[:3:3], s.Out[0]))
}

// verifyAttentionSizes checks operands and results of attention, with the sums that the gradient of
// a GPU stores.
func (s *Step) verifyAttentionSizes(p *Program) error {
	a := s.Attn
	if err := s.verifyHeads(p); err != nil {
		return err
	}
	if a.KVHeads < 1 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("%d heads share %d", a.Heads, a.KVHeads)
	}
	q, k, v := a.Batch*a.Heads*a.Queries, a.Batch*a.KVHeads*a.Keys*a.Width, a.Batch*a.KVHeads*a.Keys*a.VWidth
	err := cmp.Or(p.holds(s.In, 0, q*a.Width, "q"), p.holds(s.In, 1, k, "k"), p.holds(s.In, 2, v, "v"))
	if !a.Backward {
		return cmp.Or(err, p.holds(s.Out, 0, q*a.VWidth, "y"), p.holds(s.Out, 1, q, "lse"))
	}
	return cmp.Or(err, p.holds(s.In, 3, q*a.VWidth, "y"), p.holds(s.In, 4, q*a.VWidth, "dy"), p.holds(s.In, 5, q, "lse"),
		p.holds(s.Out, 0, q*a.Width, "dq"), p.holds(s.Out, 1, k, "dk"), p.holds(s.Out, 2, v, "dv"), s.verifySums(p, q))
}

// verifySums checks the f32 buffers in which cuDNN's gradient of attention keeps its sums.
func (s *Step) verifySums(p *Program, rows int64) error {
	if !p.called(s) {
		return nil
	}
	if len(s.Out) != 5 || p.dtype(s.Out[3]) != ir.F32 || p.dtype(s.Out[4]) != ir.F32 {
		return fmt.Errorf("writes %d tensors, want dq, dk, dv and two of f32 sums", len(s.Out))
	}
	return cmp.Or(p.holds(s.Out, 3, rows, "the sums of rows"), p.holds(s.Out, 4, rows*s.Attn.Width, "the sums of dq"))
}
