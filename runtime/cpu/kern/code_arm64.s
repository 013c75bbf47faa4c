#include "textflag.h"

// func callComposed(entry uintptr, n int, args **byte, u *float32, consts uintptr, spill *float32, rows int, sums *rowSums)
// calls code that leaves SP, R18, R28 and R29 alone, and that no signal finds in need of a Go frame. The barrier
// discards what this processor fetched before another one wrote the code.
TEXT ·callComposed(SB), NOSPLIT, $0-64
	MOVD entry+0(FP), R16
	MOVD n+8(FP), R0
	MOVD args+16(FP), R1
	MOVD u+24(FP), R2
	MOVD consts+32(FP), R3
	MOVD spill+40(FP), R4
	MOVD rows+48(FP), R20
	MOVD sums+56(FP), R21
	ISB  $15
	CALL (R16)
	RET

// func flushLines(start, end uintptr)
// takes the sizes of lines from CTR_EL0: 4 << bits 19 to 16 for data, 4 << bits 3 to 0 for instructions.
TEXT ·flushLines(SB), NOSPLIT, $0-16
	MOVD start+0(FP), R0
	MOVD end+8(FP), R1
	MRS  CTR_EL0, R2
	MOVD $4, R3
	UBFX $16, R2, $4, R4
	LSL  R4, R3, R4
	UBFX $0, R2, $4, R5
	LSL  R5, R3, R5
	SUB  $1, R4, R6
	BIC  R6, R0, R6

data:
	DC  CVAU, R6
	ADD R4, R6, R6
	CMP R1, R6
	BLO data
	DSB $11
	SUB $1, R5, R6
	BIC R6, R0, R6

instructions:
	WORD $0xd50b7526 // IC IVAU, R6
	ADD  R5, R6, R6
	CMP  R1, R6
	BLO  instructions
	DSB  $11
	ISB  $15
	RET
