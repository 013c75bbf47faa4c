//go:build amd64 || arm64

package kern

// Of kernels of rows: operands and results, whose addresses leave the registers of rows alone, and the vectors over which a row
// is summed in turn.
const (
	rowOperands = 5
	sumVectors  = 2
)

// registers is how many registers values and held numbers have. Those behind hold the sums of the row.
func (c *composer) registers() int { return c.set.registers - sumVectors*len(c.f.Sums) }

// inSum is the register of partial sum i.
func (c *composer) inSum(i int) register { return register(c.registers() + i) }

// rows appends a loop over rows around that over elements. A row has scalars of its own. What it sums is added, in float64, to
// the sums of the row: those of the lanes' upper half to those of the lower.
func (c *composer) rows(e *vectors, elements func() bool, out *machineCode) bool {
	out.Move(longReg, countReg)
	out.Sub(rowsReg, 1)
	row := out.Here()
	for i, p := range c.pool {
		if r, ok := e.held[-2-i]; ok && p.kind == scalar {
			e.broadcast(-2-i, r)
		}
	}
	for i := range sumVectors * len(c.f.Sums) {
		e.zero(c.inSum(i))
	}
	out.Move(countReg, longReg)
	if !elements() {
		return false
	}
	e.out = out
	for i := range c.f.Sums {
		e.fold(i)
	}
	out.Add(scalarReg, 4*RowScalars)
	for range c.f.Sums {
		out.Add(sumsReg, 8*rowLanes)
	}
	out.Sub(rowsReg, 1)
	out.Back(row)
	return true
}

// addToSum emits instruction i, which adds a value to a partial sum.
func (e *vectors) addToSum(i int) {
	o := &e.seq[i]
	value := e.operand(o.a, i, nil)
	e.done(i, []register{value})
	sum := e.c.inSum(o.sum - 1)
	e.emit(instruction{Op: addSum, Dst: sum, A: sum, B: value})
}
