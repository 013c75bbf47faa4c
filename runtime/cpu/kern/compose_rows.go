//go:build amd64 || arm64

package kern

// Of kernels of rows: operands and results, whose addresses leave the registers of rows alone, those of kernels of sums, and the
// vectors of chains, of each sum, that are in registers at a time.
const (
	rowOperands  = 5
	sumOperands  = 3
	chainVectors = 4
)

// registers is how many registers values and held numbers have. Those behind hold chains.
func (c *composer) registers() int { return c.set.registers - chainVectors*len(c.f.Sums) }

// chain is the register of vector v of those of sum i.
func (c *composer) chain(i, v int) register { return register(c.registers() + chainVectors*i + v) }

// rows appends a loop over rows around that over elements. A row has scalars and sums of its own.
func (c *composer) rows(e *vectors, elements func() bool, out *machineCode) bool {
	out.Move(longReg, countReg)
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
		e.skip(gapReg)
		e.nextSums()
	}
	out.Sub(rowsReg, 1)
	out.Back(row)
	return true
}

// chains appends loops that add the elements of a row, whole runs of 64, to its chains, some vectors of them after the other.
func (c *composer) chains(e *vectors, out *machineCode) bool {
	width := chainVectors * c.set.lanes
	for e.off = 0; e.off < lanes; e.off += width {
		if e.off > 0 {
			e.rewind(longReg)
			out.Move(countReg, longReg)
		}
		e.eachChain(chainVectors, e.off, false)
		out.Sub(countReg, lanes)
		again := out.Here()
		if !e.run(out) {
			return false
		}
		e.advance(lanes)
		out.Sub(countReg, lanes)
		out.Back(again)
		e.eachChain(chainVectors, e.off, true)
	}
	return true
}

// singles appends code for rows of fewer elements, whole vectors, that are added one by one to the chains from that of the first on.
func (c *composer) singles(seq []lane, l *loop, out *machineCode) bool {
	e, n := newVectors(c, seq, 1, l.held), c.set.lanes
	e.start(out)
	ok := c.rows(e, func() bool {
		out.Sub(countReg, int32(n))
		again := out.Here()
		e.eachChain(1, 0, false)
		if !e.run(out) {
			return false
		}
		e.eachChain(1, 0, true)
		e.advance(n)
		out.Add(sumsReg, int32(4*n))
		out.Sub(countReg, int32(n))
		out.Back(again)
		return true
	}, out)
	out.Return()
	return ok
}

// eachChain loads or stores vectors of the chains of all sums, from chain off on.
func (e *vectors) eachChain(vectors, off int, store bool) {
	for i := range e.c.f.Sums {
		for v := range vectors {
			e.inMemoryChain(e.c.chain(i, v), int32(4*(lanes*i+off+v*e.c.set.lanes)), store)
		}
	}
}

// addToSum emits instruction i, which adds a value, or its square, to a chain.
func (e *vectors) addToSum(i int) {
	o := &e.seq[i]
	value := e.operand(o.a, i, nil)
	e.done(i, []register{value})
	sum := register(e.c.registers() + o.sum - 1)
	in := instruction{Op: o.op, Dst: sum, A: sum, B: value}
	if o.op == fmaSum {
		in.A = value
	}
	e.emit(in)
}
