package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

var statsKernels = map[ir.Op]cudaKernel{
	ir.OpAnyNonfinite: {(*cudaCall).anyNonfinite, floatsIn, 0},
	ir.OpGlobalNorm:   {(*cudaCall).globalNorm, floatsIn, 0},
}

// One launch computes norms or finiteness checks of all gradients of one dtype. A norm also counts
// the elements that are not finite if its step runs a check of the same gradients.

// counted is a buffer that holds how many elements of tensors are not finite.
type counted struct {
	tensors []lower.BufferID
	in      lower.BufferID
	at      int64
}

// total is code that adds up numbers in memory.
type total struct {
	c    *cudaCall
	g    lower.Cluster
	code *ir.Code
	sum  ir.Reg
}

func (c *cudaCall) total() *total {
	t := &total{c: c, code: ir.NewCode(nil)}
	t.sum = t.code.F(0)
	return t
}

// load is element at of a buffer.
func (t *total) load(id lower.BufferID, at int64) ir.Reg {
	t.g.Loads = append(t.g.Loads, lower.Access{Buffer: id, DType: t.c.typeOf(id).DType, Offset: at, Strides: []int64{}})
	return t.code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: int64(len(t.g.Loads) - 1)})
}

func (t *total) add(x ir.Reg) { t.sum = t.code.Add(t.sum, x) }

// store ends the cluster with a store of r to out.
func (t *total) store(out lower.BufferID, r ir.Reg) error {
	t.g.Stores = []lower.Access{{Buffer: out, DType: t.c.typeOf(out).DType, Strides: []int64{}, Reg: r}}
	t.g.Code = t.code.Ins
	return t.c.cluster(&t.g)
}

// bad is 1 for a number that is not finite, else 0.
func bad(code *ir.Code, x ir.Reg) ir.Reg {
	return code.Select(code.Not(code.Finite(x)), code.F(1), code.F(0))
}

// whole is a cluster over one tensor, to which code is added later. Repeated operands are read once
// for all elements.
func (c *cudaCall) whole(x lower.BufferID, code []ir.Instr, repeated ...lower.BufferID) *lower.Cluster {
	n := c.elements(x)
	g := &lower.Cluster{Shape: []int64{n}, Code: code, Loads: []lower.Access{{Buffer: x, DType: c.typeOf(x).DType, Strides: []int64{1}}}}
	for _, id := range repeated {
		g.Loads = append(g.Loads, lower.Access{Buffer: id, DType: c.typeOf(id).DType, Strides: []int64{0}})
	}
	return g
}

// anyNonfinite counts the elements of every operand that are not finite.
func (c *cudaCall) anyNonfinite() error {
	return c.check(nil)
}

// check is anyNonfinite, but known counts are not made again.
func (c *cudaCall) check(known []counted) error {
	left := slices.Clone(c.s.In)
	t := c.total()
	for _, k := range known {
		if containsAll(left, k.tensors) {
			left = slices.DeleteFunc(left, func(id lower.BufferID) bool { return slices.Contains(k.tensors, id) })
			t.add(t.load(k.in, k.at))
		}
	}
	if err := c.floats(left...); err != nil {
		return err
	}
	many, order, single := c.byDType(left)
	for _, d := range order {
		code := ir.NewCode(nil)
		r := bad(code, code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32}))
		sum, err := c.sums(many[d], func(x lower.BufferID) *lower.Cluster { return c.whole(x, code.Ins) }, r)
		if err != nil {
			return err
		}
		t.add(t.load(sum, 0))
	}
	for _, x := range single {
		t.add(bad(t.code, t.load(x, 0)))
	}
	return t.store(c.s.Out[0], t.code.Ne(t.sum, t.code.F(0)))
}

func containsAll(list, sub []lower.BufferID) bool {
	return !slices.ContainsFunc(sub, func(id lower.BufferID) bool { return !slices.Contains(list, id) })
}

// globalNorm launches a norm, or the norms and the checks that one kernel step runs.
func (c *cudaCall) globalNorm() error {
	var known []counted
	for _, part := range c.s.Kernel.Parts {
		own := &cudaCall{c.cudaLowerer, part.Step(c.s), part.Node}
		var err error
		if own.n.Op == ir.OpGlobalNorm {
			var counts []counted
			counts, err = own.norm2(c.s)
			known = append(known, counts...)
		} else {
			err = own.check(known)
		}
		if err != nil {
			return err
		}
	}
	if len(c.s.Kernel.Parts) > 0 {
		return nil
	}
	_, err := c.norm2(c.s)
	return err
}

// norm2 adds up the squares of all operands after the first. If the first operand is present, it
// multiplies each element before. It returns the counts that the checks of step whole need.
func (c *cudaCall) norm2(whole *lower.Step) (known []counted, err error) {
	mul, tensors := c.s.In[0], c.s.In[1:]
	if err := c.floats(tensors...); err != nil {
		return nil, err
	}
	t := c.total()
	many, order, single := c.byDType(tensors)
	for _, d := range order {
		checked := checks(whole, many[d])
		sum, err := c.squares(many[d], mul, checked)
		if err != nil {
			return nil, err
		}
		if checked {
			known = append(known, counted{many[d], sum, 1})
		}
		t.add(t.load(sum, 0))
	}
	for _, x := range single {
		v := t.load(x, 0)
		if mul != lower.None {
			v = t.code.Mul(v, t.load(mul, 0))
		}
		t.add(t.code.Mul(v, v))
	}
	return known, t.store(c.s.Out[0], t.code.Sqrt(t.sum))
}

// checks reports whether a check among the parts of s reads all of some tensors.
func checks(s *lower.Step, tensors []lower.BufferID) bool {
	return slices.ContainsFunc(s.Kernel.Parts, func(p *lower.KernelPart) bool {
		return p.Node.Op == ir.OpAnyNonfinite && containsAll(p.Step(s).In, tensors)
	})
}

// squares adds up squares and, if checked, counts the elements that are not finite.
func (c *cudaCall) squares(tensors []lower.BufferID, mul lower.BufferID, checked bool) (lower.BufferID, error) {
	code := ir.NewCode(nil)
	x := code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32})
	v := x
	var repeated []lower.BufferID
	if mul != lower.None {
		v = code.Mul(x, code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: 1}))
		repeated = []lower.BufferID{mul}
	}
	values := []ir.Reg{code.Mul(v, v)}
	if checked {
		values = append(values, bad(code, x))
	}
	return c.sums(tensors, func(x lower.BufferID) *lower.Cluster { return c.whole(x, code.Ins, repeated...) }, values...)
}
