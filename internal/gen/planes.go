package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bytes of a row's scalars, and of one of its sums.
const (
	rowScalars = 8 * 4
	rowSum     = 8 * 8
)

// rowFormula emits a kernel that processes rows. Rows are contiguous and each has its own scalars.
// A row's sums are added to its own sums in memory, eight partial sums in float64 (four under
// AVX2).
func (v *vm) rowFormula(f *formula) {
	v.text(f.symbol(false), "rows, n int, args **byte, u *float32, sums *float64", "computes rows of n elements, whole vectors: "+f.text)
	rows, n, k := ptrParam("rows"), ptrParam("n"), v.startFormula(f, false)
	var sums reg.GPVirtual
	if len(f.sums) > 0 {
		sums = ptrParam("sums")
	}
	k.constants()
	loop("row", rows, func() {
		k.scalars()
		k.zeroSums()
		left := GP64()
		MOVQ(n, left)
		k.plain(left)
		k.addSums(sums)
		ADDQ(imm(rowScalars), k.u)
		if len(f.sums) > 0 {
			ADDQ(imm(rowSum*len(f.sums)), sums)
		}
	})
	VZEROUPPER()
	RET()
	v.held = nil
}

// zeroSums clears the sums of a row, separate ones for each of the vectors processed at a time.
func (k *formulaRun) zeroSums() {
	k.sums = make([][]vec, len(k.f.sums))
	for i := range k.sums {
		for range k.f.unroll() {
			s := k.v.new()
			k.v.zero(s)
			k.sums[i] = append(k.sums[i], s)
		}
	}
}

// addSums adds the sums of a row to those in memory.
func (k *formulaRun) addSums(sums reg.GPVirtual) {
	v := k.v
	for i, parts := range k.sums {
		for len(parts) > 1 {
			h := len(parts) / 2
			for j := range h {
				VADDPS(parts[j+h], parts[j], parts[j])
			}
			parts = parts[:h]
		}
		low, high, to := v.new(), v.new(), Mem{Base: sums, Disp: rowSum * i}
		if v.wide() {
			half := YMM()
			VEXTRACTF64X4(Imm(1), parts[0], half)
			VCVTPS2PD(half, high)
			VCVTPS2PD(parts[0].AsY(), low)
		} else {
			half := XMM()
			VEXTRACTF128(Imm(1), parts[0], half)
			VCVTPS2PD(half, high)
			VCVTPS2PD(parts[0].AsX(), low)
		}
		VADDPD(low, high, high)
		VADDPD(to, high, high)
		VMOVUPD(high, to)
	}
}
