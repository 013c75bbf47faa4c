package prove

import "ampc/ir"

// register is the value of a register of a scalar node's code, as a function of atoms: a truth
// value or a whole number. If followed is false, or number is nil, it is not known.
type register struct {
	followed bool
	truth    pred
	number   *whole
}

func truthOf(p pred) register     { return register{followed: true, truth: p} }
func numberOf(w *whole) register  { return register{followed: w != nil, number: w} }
func (r register) isNumber() bool { return r.number != nil }
func (f *flow) zeroOne(p pred) *whole {
	var w whole
	w.add(f.b, 1, p)
	w.add(f.b, 0, f.b.not(p))
	return &w
}

// run evaluates result idx of a scalar elementwise node by its row's code. So the row's semantics
// decide, not its name, and all ops on truth values, comparisons of counts, counters, accumulators
// and choices are followed.
func (f *flow) run(n *ir.Node, idx, at int) register {
	code, results := ir.NodeCode(n)
	regs := make([]register, len(code.Ins))
	for k := range code.Ins {
		i := &code.Ins[k]
		switch i.Op {
		case ir.PIn:
			if v := n.In[i.Int]; v.Type.DType == ir.Bool {
				regs[k] = truthOf(f.truth(v, at))
			} else {
				regs[k] = numberOf(f.integer(v, at))
			}
		case ir.PConst:
			switch {
			case i.Type == ir.Bool && i.Int != 0:
				regs[k] = truthOf(always)
			case i.Type == ir.Bool:
				regs[k] = truthOf(never)
			case !i.Type.Float():
				regs[k] = numberOf(fixed(i.Int))
			case i.Imm == float64(int64(i.Imm)):
				regs[k] = numberOf(fixed(int64(i.Imm)))
			}
		default:
			regs[k] = f.step(i, regs)
		}
	}
	return regs[results[idx]]
}

// step evaluates one instruction.
func (f *flow) step(i *ir.Instr, regs []register) register {
	a, b := regs[i.A], regs[i.B]
	switch i.Op {
	case ir.PSelect:
		return f.selected(a, b, regs[i.C])
	case ir.PConv:
		switch {
		case !a.followed:
		case i.Type == ir.Bool || a.isNumber():
			return a
		default:
			return numberOf(f.zeroOne(a.truth))
		}
		return register{}
	}
	if args := ir.Prims[i.Op].Args; !a.followed || args > 1 && !b.followed {
		return register{}
	}
	if a.isNumber() {
		return f.counted(i.Op, a.number, b.number)
	}
	switch i.Op {
	case ir.PAnd:
		return truthOf(f.b.and(a.truth, b.truth))
	case ir.POr:
		return truthOf(f.b.or(a.truth, b.truth))
	case ir.PXor, ir.PNe:
		return truthOf(f.b.xor(a.truth, b.truth))
	case ir.PEq:
		return truthOf(f.b.not(f.b.xor(a.truth, b.truth)))
	case ir.PNot:
		return truthOf(f.b.not(a.truth))
	}
	return register{}
}

// selected is x if c is true, otherwise y. An operand that is never selected need not be known.
func (f *flow) selected(c, x, y register) register {
	switch {
	case !c.followed:
		return register{}
	case c.truth == always:
		return x
	case c.truth == never:
		return y
	case !x.followed || !y.followed:
		return register{}
	case x.isNumber():
		return numberOf(f.either(c.truth, x.number, y.number))
	}
	return truthOf(f.b.choose(c.truth, x.truth, y.truth))
}

// counted evaluates an instruction on whole numbers.
func (f *flow) counted(op ir.Prim, x, y *whole) register {
	if y == nil {
		return register{}
	}
	var number whole
	truth := never
	for _, a := range x.cases {
		for _, b := range y.cases {
			when := f.b.and(a.when, b.when)
			yes := false
			switch op {
			case ir.PAdd:
				number.add(f.b, a.n+b.n, when)
			case ir.PSub:
				number.add(f.b, a.n-b.n, when)
			case ir.PEq:
				yes = a.n == b.n
			case ir.PNe:
				yes = a.n != b.n
			case ir.PLt:
				yes = a.n < b.n
			case ir.PLe:
				yes = a.n <= b.n
			default:
				return register{}
			}
			if yes {
				truth = f.b.or(truth, when)
			}
		}
	}
	if op == ir.PAdd || op == ir.PSub {
		return numberOf(&number)
	}
	return truthOf(truth)
}
