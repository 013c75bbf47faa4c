#include "textflag.h"

// func callComposed(entry uintptr, n int, args **byte, u *float32, consts uintptr, spill *float32, rows int, sums *rowSums)
// calls code that leaves SP, BP and R14 alone, and that no signal finds in need of a Go frame.
TEXT ·callComposed(SB), NOSPLIT, $0-64
	MOVQ entry+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ args+16(FP), DX
	MOVQ u+24(FP), BX
	MOVQ consts+32(FP), SI
	MOVQ spill+40(FP), DI
	MOVQ rows+48(FP), R13
	MOVQ sums+56(FP), R15
	CALL AX
	RET
