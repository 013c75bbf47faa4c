package kern

import (
	"slices"
	"testing"

	"ampc/internal/a64"
)

// TestRegisters holds that composed kernels use no register of the system's or of Go's, and none twice.
func TestRegisters(t *testing.T) {
	common := []a64.Reg{countReg, argsReg, scalarReg, constReg, spillReg}
	for _, used := range [][]a64.Reg{slices.Concat(common, bases[:]), slices.Concat(common, bases[:rowOperands], []a64.Reg{rowsReg, sumsReg})} {
		for i, r := range used {
			if r == 18 || r > 25 || slices.Contains(used[:i], r) {
				t.Errorf("register %d of %d", r, used)
			}
		}
	}
}

// TestSimpler composes truth values that are conditions again: no instruction makes them numbers in between.
func TestSimpler(t *testing.T) {
	p := composing(t)[0]
	text := "l0:f32 l1:f32 r0=lt(l0,l1) r1=not(r0) r2=or(r1,l0) r3=select(r1,l0,l1) r4=select(r2,r3,l1) s0:f32=r4"
	testFormula(t, p, compose(t, p, parseFormula(text)), text, newDice(41), 300)
	c := composer{f: parseFormula("l0:f32 l1:f32 r0=lt(l0,l1) r1=not(r0) r2=select(r1,l0,l1) s0:f32=r2"), set: p.set()}
	seq, ok := c.lanes()
	if !ok || len(seq) != 5 { // two loads, a comparison, a selection and a store
		t.Errorf("%d instructions: %v", len(seq), seq)
	}
}
