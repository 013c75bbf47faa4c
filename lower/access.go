package lower

import (
	"cmp"
	"errors"
	"fmt"

	"ampc/ir"
)

// verifyAccess checks that a step has the one description its kind wants and
// that no access leaves its buffer.
func (s *Step) verifyAccess(p *Program) error {
	set := map[StepKind]bool{
		KindGemm: s.Gemm != nil, KindConv: s.Conv != nil, KindAttention: s.Attn != nil, KindGroup: s.Group != nil,
		KindKernel: s.Kernel != nil, KindCopy: s.Moves != nil && len(s.Moves.List) > 0, KindFill: s.Moves != nil,
	}
	if !set[s.Kind] {
		return errors.New("has no description of its kind")
	}
	switch {
	case s.Group != nil:
		for _, g := range s.Groups() {
			if err := g.verify(p); err != nil {
				return err
			}
		}
	case s.Gemm != nil:
		return s.verifyGemm(p)
	case s.Moves != nil:
		return s.verifyMoves(p)
	case s.Conv != nil:
		return s.verifyConv(p)
	case s.Attn != nil:
		return s.verifyAttention(p)
	}
	return nil
}

func (g *Group) verify(p *Program) error {
	for i := range g.Loads {
		if err := g.Loads[i].inside(p, g.Shape, g.Loads[i].Buffer); err != nil {
			return err
		}
	}
	for i := range g.Stores {
		a := &g.Stores[i]
		if int(a.Reg) < 0 || int(a.Reg) >= len(g.Code) {
			return fmt.Errorf("stores register %d of %d", a.Reg, len(g.Code))
		}
		if err := a.inside(p, g.Shape, a.Buffer); err != nil {
			return err
		}
	}
	for r, i := range g.Code {
		for _, a := range []ir.Reg{i.A, i.B, i.C}[:ir.Prims[i.Op].Args] {
			if int(a) >= r {
				return fmt.Errorf("register %d reads register %d, which comes later", r, a)
			}
		}
		if i.Op == ir.PIn && int(i.Int) >= len(g.Loads) {
			return fmt.Errorf("register %d reads load %d of %d", r, i.Int, len(g.Loads))
		}
	}
	return nil
}

// inside checks that walking shape by a stays in the buffer.
func (a *Access) inside(p *Program, shape []int64, id BufferID) error {
	b := &p.Buffers[id]
	if a.DType != b.Type.DType {
		return fmt.Errorf("accesses %%%s as %s, it holds %s", b.Name, a.DType, b.Type.DType)
	}
	if len(a.Strides) != len(shape) {
		return fmt.Errorf("accesses %%%s with %d strides in %d dimensions", b.Name, len(a.Strides), len(shape))
	}
	lo, hi := a.Offset, a.Offset
	for i, n := range shape {
		if n == 0 {
			return nil
		}
		if step := a.Strides[i] * (n - 1); step < 0 {
			lo += step
		} else {
			hi += step
		}
	}
	if n := b.Type.Shape.Elements(); lo < 0 || hi >= n {
		return fmt.Errorf("accesses elements %d to %d of %%%s, which has %d", lo, hi, b.Name, n)
	}
	return nil
}

func (s *Step) verifyMoves(p *Program) error {
	for i := range s.Moves.List {
		m := &s.Moves.List[i]
		if m.From >= len(s.In) || m.To >= len(s.Out) {
			return fmt.Errorf("move %d names an operand the step does not have", i)
		}
		if m.Src.DType != m.Dst.DType {
			return fmt.Errorf("move %d changes the dtype from %s to %s", i, m.Src.DType, m.Dst.DType)
		}
		if err := m.Src.inside(p, m.Shape, s.In[m.From]); err != nil {
			return err
		}
		if err := m.Dst.inside(p, m.Shape, s.Out[m.To]); err != nil {
			return err
		}
	}
	return nil
}

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
	for i, m := range []*Matrix{&g.A, &g.B, &g.C} {
		rows, cols := [...]int64{g.M, g.K, g.M}[i], [...]int64{g.K, g.N, g.N}[i]
		id := append(s.In[:2:2], s.Out[0])[i]
		if m.T {
			rows, cols = cols, rows
		}
		a := Access{DType: p.Buffers[id].Type.DType, Strides: append([]int64{m.LD, 1}, m.Strides...)}
		if err := a.inside(p, append([]int64{rows, cols}, g.Batch...), id); err != nil {
			return err
		}
	}
	return nil
}

// auxBits is what rows of a relu's bits are padded to.
const auxBits = 128

// maskRow is the bytes of a row of bits.
func maskRow(n int64) int64 { return (n + auxBits - 1) / auxBits * auxBits / 8 }

// verifyAux checks what an epilogue keeps for a gradient, reads for one, and sums.
func (s *Step) verifyAux(p *Program) error {
	g, e := s.Gemm, &s.Gemm.Epilogue
	results := 1
	var err error
	if e.Aux != 0 {
		list, size := s.Out, g.M*g.N
		if e.Act.Gradient() {
			list = s.In
		} else {
			results++
		}
		if e.Act == Relu || e.Act == ReluGrad {
			size = g.M * maskRow(g.N)
		}
		err = p.holds(list, e.Aux, size, "the auxiliary")
	}
	if e.Act.Gradient() && e.Aux == 0 {
		return fmt.Errorf("the epilogue %s reads nothing", e.Act)
	}
	if e.BiasGrad != 0 {
		results++
		if e.Summed < 0 || e.Summed > 1 {
			return fmt.Errorf("the epilogue sums operand %d", e.Summed)
		}
		err = cmp.Or(err, p.holds(s.Out, e.BiasGrad, [2]int64{g.M, g.N}[e.Summed], "the bias gradient"))
	}
	if err == nil && len(s.Out) != results {
		err = fmt.Errorf("a product with %d results, its epilogue has %d", len(s.Out), results)
	}
	return err
}

// holds checks that operand or result i of list has as many elements as its
// description wants.
func (p *Program) holds(list []BufferID, i int, want int64, what string) error {
	if i >= len(list) || list[i] == None {
		return fmt.Errorf("has no %s", what)
	}
	if n := p.Buffers[list[i]].Type.Shape.Elements(); n != want {
		return fmt.Errorf("%s is %s of %d elements, the description wants %d", what, p.name(list[i]), n, want)
	}
	return nil
}

func (s *Step) verifyConv(p *Program) error {
	c, w := s.Conv, &s.Conv.Window
	if w.Groups < 1 || w.C%w.Groups != 0 || w.O%w.Groups != 0 {
		return fmt.Errorf("%d and %d channels in %d groups", w.C, w.O, w.Groups)
	}
	x, filter, y := w.N*w.C*count(w.In), w.O*(w.C/w.Groups)*count(w.Kernel), w.N*w.O*count(w.Out)
	want := map[ConvDir][3]int64{ConvForward: {x, filter, y}, ConvGradX: {y, filter, x}, ConvGradW: {x, y, filter}}[c.Dir]
	err := cmp.Or(p.holds(s.In, 0, want[0], "operand 0"), p.holds(s.In, 1, want[1], "operand 1"), p.holds(s.Out, 0, want[2], "the result"))
	if i := c.Epilogue.Bias; err == nil && i != 0 {
		err = p.holds(s.In, i, map[bool]int64{true: w.C, false: w.O}[c.Dir == ConvGradX], "the bias")
	}
	for i := range w.Kernel {
		room := w.In[i] + w.Begin[i] + w.End[i] - w.Dilation[i]*(w.Kernel[i]-1) - 1
		if err == nil && (w.Stride[i] < 1 || w.N*w.O > 0 && room/w.Stride[i]+1 != w.Out[i]) {
			err = fmt.Errorf("windows of %v over %v do not give %v", w.Kernel, w.In, w.Out)
		}
	}
	return err
}

func (s *Step) verifyAttention(p *Program) error {
	a := s.Attn
	q, k, v := a.Batch*a.Heads*a.Queries, a.Batch*a.KVHeads*a.Keys*a.Width, a.Batch*a.KVHeads*a.Keys*a.VWidth
	err := cmp.Or(p.holds(s.In, 0, q*a.Width, "q"), p.holds(s.In, 1, k, "k"), p.holds(s.In, 2, v, "v"))
	if !a.Backward {
		return cmp.Or(err, p.holds(s.Out, 0, q*a.VWidth, "y"), p.holds(s.Out, 1, q, "lse"))
	}
	return cmp.Or(err, p.holds(s.In, 3, q*a.VWidth, "y"), p.holds(s.In, 4, q*a.VWidth, "dy"), p.holds(s.In, 5, q, "lse"),
		p.holds(s.Out, 0, q*a.Width, "dq"), p.holds(s.Out, 1, k, "dk"), p.holds(s.Out, 2, v, "dv"))
}
