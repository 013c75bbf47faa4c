// Package a64 encodes the instructions of which loops over elements are composed for arm64 when a
// program is loaded: those of NEON on vectors of 128 bits, their loads and stores, and the few that
// count and jump. The Go assembler cannot be linked into a program; its words are the reference of
// the tests, and for instructions that it lacks those of the GNU assembler.
package a64

// Op is an instruction on vectors, of four 32-bit lanes unless its comment says otherwise.
type Op uint8

// The instructions, in groups by the operands that Inst describes.
const (
	FADD Op = iota
	FSUB
	FMUL
	FDIV
	FMIN // NaN if an operand is, -0 below +0; FMAX is alike
	FMAX
	FMLA // Dst = Dst + A*B
	FMLS // Dst = Dst - A*B
	FCMEQ
	FCMGE
	FCMGT
	CMTST // A and B have a bit in common
	ADD
	SUB
	AND
	BIC // A and not B
	ORR
	EOR
	BSL  // A where Dst has ones, else B
	UZP1 // the even lanes of A, then of B
	UZP1H
	UZP2  // the odd lanes of A, then of B
	TRN2  // the odd lanes of A and B in turn
	UMULL // two lower lanes to 64 bits
	UZP2H // the odd halves of A, then of B
	FADDD // of two 64-bit lanes
	FMULD // the same

	NOT
	FSQRT
	FRINTN
	FRINTM
	FRINTP
	FCVTNS
	SCVTF
	FCVTL   // of the lower four halves
	FCVTLD  // of the lower two lanes, to 64 bits
	FCVTL2D // of the upper two
	FCVTN   // to halves in the lower half of the vector, zeros in the upper
	FCVTN2  // to halves in the upper half of the vector; the lower stays
	FCVTND  // of two 64-bit lanes, to the lower half of the vector, zeros in the upper
	FCVTN2D // the same to the upper half; the lower stays
	SHLL    // the lower four halves, shifted into the upper halves of the lanes
	XTN     // to halves in the lower half of the vector
	XTNS    // the lower halves of two 64-bit lanes to the lower half of the vector
	XTNB    // eight halves to bytes in the lower half of the vector
	UXTL    // of the lower four halves
	UXTLB   // the lower eight bytes to halves
	DUP     // the lowest lane to all
	MOV

	SHL
	USHR
	SSHR

	LDRQ
	LDRD // the lower half, zeros in the upper
	LDRS // the lowest lane, zeros in the others

	STRQ
	STRD
	STRS
	numOps
)

// form says which operands an instruction has.
type form uint8

const (
	three form = iota // Dst, A and B
	two               // Dst and A
	left              // Dst and A by Imm
	right             // the same, encoded as 64 - Imm
	load              // Dst from Mem
	store             // Mem from A
)

type encoding struct {
	form form
	word uint32 // with all operands zero
	adds bool   // Dst is an operand, too
	size int32  // of what is read or written in memory
}

var encodings = [numOps]encoding{
	FADD:  {word: 0x4e20d400},
	FSUB:  {word: 0x4ea0d400},
	FMUL:  {word: 0x6e20dc00},
	FDIV:  {word: 0x6e20fc00},
	FMIN:  {word: 0x4ea0f400},
	FMAX:  {word: 0x4e20f400},
	FMLA:  {word: 0x4e20cc00, adds: true},
	FMLS:  {word: 0x4ea0cc00, adds: true},
	FCMEQ: {word: 0x4e20e400},
	FCMGE: {word: 0x6e20e400},
	FCMGT: {word: 0x6ea0e400},
	CMTST: {word: 0x4ea08c00},
	ADD:   {word: 0x4ea08400},
	SUB:   {word: 0x6ea08400},
	AND:   {word: 0x4e201c00},
	BIC:   {word: 0x4e601c00},
	ORR:   {word: 0x4ea01c00},
	EOR:   {word: 0x6e201c00},
	BSL:   {word: 0x6e601c00, adds: true},
	UZP1:  {word: 0x4e801800},
	UZP1H: {word: 0x4e401800},
	UZP2H: {word: 0x4e405800},
	UZP2:  {word: 0x4e805800},
	TRN2:  {word: 0x4e806800},
	UMULL: {word: 0x2ea0c000},
	FADDD: {word: 0x4e60d400},
	FMULD: {word: 0x6e60dc00},

	NOT:     {form: two, word: 0x6e205800},
	FSQRT:   {form: two, word: 0x6ea1f800},
	FRINTN:  {form: two, word: 0x4e218800},
	FRINTM:  {form: two, word: 0x4e219800},
	FRINTP:  {form: two, word: 0x4ea18800},
	FCVTNS:  {form: two, word: 0x4e21a800},
	SCVTF:   {form: two, word: 0x4e21d800},
	FCVTL:   {form: two, word: 0x0e217800},
	FCVTLD:  {form: two, word: 0x0e617800},
	FCVTL2D: {form: two, word: 0x4e617800},
	FCVTN:   {form: two, word: 0x0e216800},
	FCVTN2:  {form: two, word: 0x4e216800, adds: true},
	FCVTND:  {form: two, word: 0x0e616800},
	FCVTN2D: {form: two, word: 0x4e616800, adds: true},
	SHLL:    {form: two, word: 0x2e613800},
	XTN:     {form: two, word: 0x0e612800},
	XTNS:    {form: two, word: 0x0ea12800},
	XTNB:    {form: two, word: 0x0e212800},
	UXTL:    {form: two, word: 0x2f10a400},
	UXTLB:   {form: two, word: 0x2f08a400},
	DUP:     {form: two, word: 0x4e040400},
	MOV:     {form: two, word: 0x4ea01c00},

	SHL:  {form: left, word: 0x4f205400},
	USHR: {form: right, word: 0x6f000400},
	SSHR: {form: right, word: 0x4f000400},

	LDRQ: {form: load, word: 0x3dc00000, size: 16},
	LDRD: {form: load, word: 0xfd400000, size: 8},
	LDRS: {form: load, word: 0xbd400000, size: 4},

	STRQ: {form: store, word: 0x3d800000, size: 16},
	STRD: {form: store, word: 0xfd000000, size: 8},
	STRS: {form: store, word: 0xbd000000, size: 4},
}

// Adds reports whether Dst is an operand of o, too.
func (o Op) Adds() bool { return encodings[o].adds }
