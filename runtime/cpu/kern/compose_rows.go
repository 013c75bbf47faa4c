//go:build amd64 || arm64

package kern

import "unsafe"

// Of kernels of rows: operands and results, whose addresses leave the registers of rows alone, and those of kernels of sums.
const (
	rowOperands = 5
	sumOperands = 3
)

// chainVectors is how many vectors of the chains of each sum are in registers: half of the registers have those of two sums, at most.
func (s *instructionSet) chainVectors() int { return min(lanes/s.lanes, s.registers/4) }

// registers is how many registers values and held numbers have. Those behind hold chains.
func (c *composer) registers() int { return c.set.registers - c.set.chainVectors()*len(c.f.Sums) }

// chain is the register of vector v of those of sum i.
func (c *composer) chain(i, v int) register {
	return register(c.registers() + c.set.chainVectors()*i + v)
}

// rows appends a loop over rows around that over elements. A row has scalars and sums of its own.
func (c *composer) rows(e *vectors, elements func() bool, out *machineCode) bool {
	out.Move(longReg, countReg)
	if len(c.f.Sums) > 0 {
		e.field(chainsReg, unsafe.Offsetof(rowSums{}.chains))
	}
	out.Sub(rowsReg, 1)
	row := out.Here()
	for i, p := range c.pool {
		if r, ok := e.held[-2-i]; ok && p.kind == scalar {
			e.broadcast(-2-i, r)
		}
	}
	out.Move(countReg, longReg)
	if !elements() {
		return false
	}
	e.out = out
	out.Add(scalarReg, 4*RowScalars)
	if len(c.f.Sums) > 0 {
		e.skip(unsafe.Offsetof(rowSums{}.back))
		e.nextChains()
	}
	out.Sub(rowsReg, 1)
	out.Back(row)
	return true
}

// runs appends a loop over the runs of a row around that over elements.
func (c *composer) runs(e *vectors, elements func() bool, out *machineCode) bool {
	e.field(runsReg, unsafe.Offsetof(rowSums{}.runs))
	out.Sub(runsReg, 1)
	run := out.Here()
	if !elements() {
		return false
	}
	e.skip(unsafe.Offsetof(rowSums{}.skip))
	out.Move(countReg, longReg)
	out.Sub(runsReg, 1)
	out.Back(run)
	return true
}

// chains appends loops over rows of runs of whole 64 elements, which are added to the chains, some vectors of them after the other.
func (c *composer) chains(e *vectors, out *machineCode) bool {
	e.resident = c.set.chainVectors()
	return c.rows(e, func() bool {
		e.eachChain(false)
		ok := c.runs(e, func() bool {
			out.Sub(countReg, lanes)
			again := out.Here()
			for e.off = 0; e.off < lanes; e.off += e.unroll * c.set.lanes {
				if !e.run(out) {
					return false
				}
			}
			e.advance(lanes)
			out.Sub(countReg, lanes)
			out.Back(again)
			return true
		}, out)
		e.eachChain(true)
		return ok
	}, out)
}

// singles appends code for rows of fewer elements, whole vectors, that are added one by one to the chains from that of the first on.
func (c *composer) singles(seq []lane, l *loop, out *machineCode) bool {
	e, n := newVectors(c, seq, 1, l.held), c.set.lanes
	e.start(out)
	ok := c.rows(e, func() bool {
		return c.runs(e, func() bool {
			out.Sub(countReg, int32(n))
			again := out.Here()
			if !e.run(out) {
				return false
			}
			e.advance(n)
			out.Add(chainsReg, int32(4*n))
			out.Sub(countReg, int32(n))
			out.Back(again)
			return true
		}, out)
	}, out)
	out.Return()
	return ok
}

// eachChain loads or stores the vectors of chains that are in registers, of all sums.
func (e *vectors) eachChain(store bool) {
	for i := range e.c.f.Sums {
		for v := range e.resident {
			e.inMemoryChain(e.c.chain(i, v), i, v, store)
		}
	}
}

// inMemoryChain loads or stores vector v of the chains of a sum.
func (e *vectors) inMemoryChain(r register, sum, v int, store bool) {
	m := &memory{Base: chainsReg, Disp: int32(4 * (lanes*sum + v*e.c.set.lanes))}
	if store {
		e.emit(instruction{Op: storeVector, A: r, Mem: m})
	} else {
		e.emit(instruction{Op: loadVector, Dst: r, Mem: m})
	}
}

// addToSum emits instruction i, which adds a value, or its square, to a vector of chains.
func (e *vectors) addToSum(i int) {
	o := &e.seq[i]
	k, v := o.sum-1, (e.off+o.off)/e.c.set.lanes
	value := e.operand(o.a, i, nil)
	locked, chain := []register{value}, e.c.chain(k, v)
	if v >= e.resident {
		chain = e.take(temporary, i, locked)
		locked = append(locked, chain)
		e.inMemoryChain(chain, k, v, false)
	}
	in := instruction{Op: o.op, Dst: chain, A: chain, B: value}
	if o.op == fmaSum {
		in.A = value
	}
	if e.emit(in); v >= e.resident {
		e.inMemoryChain(chain, k, v, true)
	}
	e.done(i, locked)
}

// field sets r to a field of rowSums.
func (e *vectors) field(r register, at uintptr) {
	e.out.Pointer(r, memory{Base: sumsReg, Disp: int32(at)})
}
