package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// verifyAccess checks that a step has exactly the description of its kind, and that every access
// stays inside its buffer.
func (s *Step) verifyAccess(p *Program) error {
	set := map[StepKind]bool{
		KindGemm: s.Gemm != nil, KindConv: s.Conv != nil, KindAttention: s.Attn != nil, KindCluster: s.Cluster != nil,
		KindKernel: s.Kernel != nil, KindCopy: s.Moves != nil && len(s.Moves.List) > 0, KindFill: s.Moves != nil,
	}
	if !set[s.Kind] {
		return errors.New("has no description of its kind")
	}
	if s.Kernel == nil && s.Attn == nil && slices.Contains(s.In, None) {
		return errors.New("lists an absent operand")
	}
	if s.Epilogue != nil {
		if err := s.verifyEpilogue(p); err != nil {
			return fmt.Errorf("the epilogue: %w", err)
		}
	}
	switch {
	case s.Cluster != nil:
		for _, g := range s.Clusters() {
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

// verifyEpilogue checks that the epilogue loads the product from its own buffer position, and that
// its other loads and stores are operands and results of the step.
func (s *Step) verifyEpilogue(p *Program) error {
	g := s.Epilogue
	caps := p.Target.Caps()
	kernel := s.Kernel != nil && caps.PostOps[s.Kernel.Node.Op]
	if !kernel && (s.Gemm == nil && s.Conv == nil || caps.SingleStore) || len(g.Stores) != len(s.Out) {
		return fmt.Errorf("%d stores of %d results of a %s for %s", len(g.Stores), len(s.Out), s.Kind, p.Target)
	}
	if kernel && Count(g.Shape) != s.Kernel.Node.Out[0].Type.Shape.Elements() {
		return fmt.Errorf("%d elements, the kernel computes %s", Count(g.Shape), s.Kernel.Node.Out[0].Type)
	}
	dense := ir.RowMajor(g.Shape)
	for _, a := range g.Loads {
		switch {
		case a.Buffer == None && (a.Offset != 0 || a.DType != ir.F32 || !slices.Equal(a.Strides, dense)):
			return errors.New("loads the product at other points than its own")
		case a.Buffer != None && !slices.Contains(s.In, a.Buffer):
			return fmt.Errorf("loads %s, which is not an operand", p.BufferName(a.Buffer))
		}
	}
	for i, a := range g.Stores {
		if a.Buffer != s.Out[i] {
			return fmt.Errorf("stores %s, not result %d", p.BufferName(a.Buffer), i)
		}
	}
	return g.verify(p)
}

func (g *Cluster) verify(p *Program) error {
	for i := range g.Loads {
		if g.Loads[i].Buffer == None { // verifyEpilogue checks these
			continue
		}
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

// inside checks that every element that a reads or writes, at any point of shape, is in the buffer.
func (a *Access) inside(p *Program, shape []int64, id BufferID) error {
	b := &p.Buffers[id]
	if a.DType != b.Type.DType {
		return fmt.Errorf("accesses %%%s as %s, it holds %s", b.Name, a.DType, b.Type.DType)
	}
	if w := a.Spread; w != nil {
		if n := b.Type.Shape.Elements(); n != w.Window.N*w.Window.C*Count(w.Window.Out) {
			return fmt.Errorf("accesses %%%s as the outputs of windows, it has %d elements", b.Name, n)
		}
		return nil
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
	if a.Bits {
		hi /= 8
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
