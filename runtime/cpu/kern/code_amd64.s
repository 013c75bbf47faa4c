#include "textflag.h"

// func callComposed(entry uintptr, n int, args **byte, u *float32, consts uintptr, spill *byte)
// calls code that leaves SP, BP and R14 alone, and that no signal finds in need of a Go frame.
TEXT ·callComposed(SB), NOSPLIT, $0-48
	MOVQ entry+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ args+16(FP), DX
	MOVQ u+24(FP), BX
	MOVQ consts+32(FP), SI
	MOVQ spill+40(FP), DI
	CALL AX
	RET
