package sm

import (
	"fmt"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// cluster launches elementwise work. The step keeps its description.
func (c *cudaLowerer) cluster(g *lower.Cluster) error {
	if empty(g.Shape) {
		return nil
	}
	pg, err := c.ptxElementwise(g)
	if err != nil {
		return err
	}
	k, err := pg.Build(c.fl)
	if err != nil {
		return err
	}
	var args []lower.BufferID
	for _, list := range [2][]lower.Access{g.Loads, g.Stores} {
		for i := range list {
			args = append(args, list[i].Buffer)
		}
	}
	s, err := c.launched("cluster", k, args)
	if err != nil {
		return err
	}
	s.Kind, s.Cluster = lower.KindCluster, g
	s.Bytes = c.p.Traffic(&s)
	c.out = append(c.out, s)
	return nil
}

func empty(shape []int64) bool {
	for _, n := range shape {
		if n == 0 {
			return true
		}
	}
	return false
}

// ptxElementwise translates g to a ptx.Elementwise.
func (c *cudaLowerer) ptxElementwise(g *lower.Cluster) (ptx.Elementwise, error) {
	pg := ptx.Elementwise{Name: "k", Shape: g.Shape}
	for i := range g.Loads {
		a, err := ptxAccess(&g.Loads[i], fmt.Sprintf("l%d", i))
		if err != nil {
			return pg, err
		}
		pg.Loads = append(pg.Loads, a)
	}
	for i := range g.Stores {
		a, err := ptxAccess(&g.Stores[i], fmt.Sprintf("s%d", i))
		if err != nil {
			return pg, err
		}
		pg.Stores = append(pg.Stores, ptx.Output{Access: a, Value: int(g.Stores[i].Reg)})
	}
	for i := range g.Code {
		pg.Code = append(pg.Code, ptxInstr(&g.Code[i]))
	}
	return pg, nil
}

func ptxAccess(a *lower.Access, name string) (ptx.Access, error) {
	t, ok := ptxType(a.DType)
	if !ok {
		return ptx.Access{}, fmt.Errorf("no kernel reads or writes %s", a.DType)
	}
	x := ptx.Access{Name: name, DType: t, Stride: a.Strides, Offset: a.Offset, Bits: a.Bits}
	if a.Spread != nil {
		x.Spread = &ptx.Spread{Pool: poolOf(&a.Spread.Window), Taps: a.Spread.Taps}
	}
	return x, nil
}

func ptxInstr(i *ir.Instr) ptx.Instr {
	p := ptx.Instr{Op: i.Op.String(), Type: ptx.DType(i.Type.String()), A: int(i.A), B: int(i.B), C: int(i.C), Imm: i.Imm, Int: i.Int}
	if i.Op == ir.PRound {
		p.To = ptx.DType(i.To.String())
	}
	return p
}

// moves launches one kernel for each copy between two strided views. If only parts of the result
// are copied, a kernel that fills it comes first.
func (c *cudaLowerer) moves() error {
	s := c.from
	if m := s.Moves; m.Filled || s.Kind == lower.KindFill {
		out := s.Out[0]
		t := c.typeOf(out)
		code := ir.NewCode(nil)
		r := code.Conv(code.F(m.Value), ir.RegType(t.DType))
		if err := c.fill(out, code.Ins, r); err != nil {
			return err
		}
	}
	for i := range s.Moves.List {
		m := &s.Moves.List[i]
		if empty(m.Shape) {
			continue
		}
		src, dst := m.Src, m.Dst
		src.Buffer, dst.Buffer, dst.Reg = s.In[m.From], s.Out[m.To], 0
		g := &lower.Cluster{Shape: m.Shape, Loads: []lower.Access{src}, Stores: []lower.Access{dst},
			Code: []ir.Instr{{Op: ir.PIn, Type: ir.RegType(src.DType)}}}
		if err := c.cluster(g); err != nil {
			return err
		}
	}
	for _, out := range s.Out {
		if c.elements(out) == 0 { // an output that no step writes
			c.out = append(c.out, lower.Step{Kind: lower.KindFill, Out: []lower.BufferID{out}, Node: s.Node, Moves: &lower.Moves{Filled: true}, Runs: s.Runs})
		}
	}
	return nil
}

func (c *cudaLowerer) fill(out lower.BufferID, code []ir.Instr, r ir.Reg) error {
	n := []int64{c.elements(out)}
	return c.cluster(&lower.Cluster{Shape: n, Code: code, Stores: []lower.Access{{Buffer: out, DType: c.typeOf(out).DType, Strides: []int64{1}, Reg: r}}})
}

// cast emits the rounding of in to out, element by element.
func (c *cudaLowerer) cast(in, out lower.BufferID) error {
	return c.copyBetween(c.walk(in, 0, 1), c.walk(out, 0, 1), []int64{c.elements(out)})
}
