// Package x86 encodes the instructions of which loops over elements are composed when a program is
// loaded: those of AVX-512 on whole vectors, with masks and broadcasts, those of AVX2, and the few
// that count and jump. The Go assembler cannot be linked into a program; its bytes are the reference
// of the tests.
package x86

// Op is an instruction on vectors: of 512 bits in the encoding EVEX, of 256 bits in VEX. Some exist in
// one of them.
type Op uint8

// The instructions, in groups by the operands that Inst describes.
const (
	VADDPS Op = iota
	VSUBPS
	VMULPS
	VDIVPS
	VMINPS
	VMAXPS
	VANDPS
	VANDNPS
	VORPS
	VXORPS
	VPADDD
	VPSUBD
	VPORD
	VSCALEFPS
	VBLENDMPS
	VFMADD213PS  // Dst = A*Dst + B
	VFMADD231PS  // Dst = A*B + Dst
	VFNMADD231PS // Dst = -A*B + Dst
	VPERMT2D     // Dst = words of Dst and B that A chooses
	VPERMT2W     // the same of halves
	VINSERTI64X4 // A with its half Imm replaced by B
	VRANGEPS     // the smaller or larger of A and B, as Imm says
	VCMPPS       // to a mask
	VPTESTMD     // to a mask
	VBLENDVPS    // B where Mask, a vector, holds, else A
	VPCMPGTD
	VSHUFPS
	VPACKUSDW   // to halves, in each half of the vectors apart
	VPACKUSWB   // the same to bytes
	VINSERTI128 // A with its half Imm replaced by B
	VADDPD
	VMULPD
	VPMULUDQ   // of the lower halves of 64-bit lanes
	VPTERNLOGD // a function of bits of Dst, A and B, by the table Imm

	VSQRTPS
	VRNDSCALEPS
	VROUNDPS
	VCVTPS2DQ
	VCVTDQ2PS
	VMOVAPS
	VMOVUPS
	VBROADCASTSS
	VCVTPH2PS // of halves
	VPMOVZXWD // of halves
	VPMOVZXBD // of bytes
	VPMOVD2M  // to a mask
	VPERMQ    // the quarters that Imm chooses
	VCVTPS2PD // of half a vector
	VCVTPD2PS // to half a vector

	VPSLLD
	VPSRLD
	VPSRAD

	storeVMOVUPS
	VMOVNTPS
	VCVTPS2PH // to halves
	VPMOVDW   // to 16 halves
	VPMOVDB   // to 16 bytes
	VMOVDQU   // the lower half of the vector
	VMOVQ     // its lowest eight bytes
	VEXTRACTF64X4
	VEXTRACTF128 // the half Imm
	numOps
)

// Store is the form of an instruction that writes memory.
func (o Op) Store() Op {
	if o == VMOVUPS {
		return storeVMOVUPS
	}
	return o
}

// Streaming is the form of a store that bypasses the caches, where there is one.
func (o Op) Streaming() Op {
	if o == storeVMOVUPS {
		return VMOVNTPS
	}
	return o
}

// form says which operands an instruction has.
type form uint8

const (
	three form = iota // Dst, A and B
	two               // Dst and B
	shift             // Dst and B by Imm
	store             // memory or register B from A
)

// encodings of which an instruction has only one.
type only uint8

const (
	both only = iota
	evex
	vex
)

type encoding struct {
	name   string
	form   form
	only   only
	prefix uint8 // 0: none, 1: 66, 2: F3
	table  uint8 // 1: 0F, 2: 0F38, 3: 0F3A
	code   uint8
	digit  uint8 // of a shift
	bytes  int32 // of the operand in memory, unless it is broadcast; half as many in VEX
	spread bool  // the operand in memory may be one element for all lanes, in VEX a vector of the same
	mask   bool  // Dst is a mask
	imm    bool
	long   bool // W1
	double bool // W1 in EVEX
	small  bool // the vector has 128 bits
}

var encodings = [numOps]encoding{
	VADDPS:       {name: "VADDPS", table: 1, code: 0x58, bytes: 64, spread: true},
	VSUBPS:       {name: "VSUBPS", table: 1, code: 0x5c, bytes: 64, spread: true},
	VMULPS:       {name: "VMULPS", table: 1, code: 0x59, bytes: 64, spread: true},
	VDIVPS:       {name: "VDIVPS", table: 1, code: 0x5e, bytes: 64, spread: true},
	VMINPS:       {name: "VMINPS", table: 1, code: 0x5d, bytes: 64, spread: true},
	VMAXPS:       {name: "VMAXPS", table: 1, code: 0x5f, bytes: 64, spread: true},
	VANDPS:       {name: "VANDPS", table: 1, code: 0x54, bytes: 64, spread: true},
	VANDNPS:      {name: "VANDNPS", table: 1, code: 0x55, bytes: 64, spread: true},
	VORPS:        {name: "VORPS", table: 1, code: 0x56, bytes: 64, spread: true},
	VXORPS:       {name: "VXORPS", table: 1, code: 0x57, bytes: 64, spread: true},
	VPADDD:       {name: "VPADDD", prefix: 1, table: 1, code: 0xfe, bytes: 64, spread: true},
	VPSUBD:       {name: "VPSUBD", prefix: 1, table: 1, code: 0xfa, bytes: 64, spread: true},
	VPORD:        {name: "VPORD", only: evex, prefix: 1, table: 1, code: 0xeb, bytes: 64, spread: true},
	VSCALEFPS:    {name: "VSCALEFPS", only: evex, prefix: 1, table: 2, code: 0x2c, bytes: 64, spread: true},
	VBLENDMPS:    {name: "VBLENDMPS", only: evex, prefix: 1, table: 2, code: 0x65, bytes: 64, spread: true},
	VFMADD213PS:  {name: "VFMADD213PS", prefix: 1, table: 2, code: 0xa8, bytes: 64, spread: true},
	VFMADD231PS:  {name: "VFMADD231PS", prefix: 1, table: 2, code: 0xb8, bytes: 64, spread: true},
	VFNMADD231PS: {name: "VFNMADD231PS", prefix: 1, table: 2, code: 0xbc, bytes: 64, spread: true},
	VPERMT2D:     {name: "VPERMT2D", only: evex, prefix: 1, table: 2, code: 0x7e, bytes: 64, spread: true},
	VPERMT2W:     {name: "VPERMT2W", only: evex, prefix: 1, table: 2, code: 0x7d, bytes: 64, long: true},
	VINSERTI64X4: {name: "VINSERTI64X4", only: evex, prefix: 1, table: 3, code: 0x3a, bytes: 32, imm: true, long: true},
	VRANGEPS:     {name: "VRANGEPS", only: evex, prefix: 1, table: 3, code: 0x50, bytes: 64, spread: true, imm: true},
	VCMPPS:       {name: "VCMPPS", table: 1, code: 0xc2, bytes: 64, spread: true, mask: true, imm: true},
	VPTESTMD:     {name: "VPTESTMD", only: evex, prefix: 1, table: 2, code: 0x27, bytes: 64, spread: true, mask: true},
	VBLENDVPS:    {name: "VBLENDVPS", only: vex, prefix: 1, table: 3, code: 0x4a, bytes: 64, spread: true},
	VPCMPGTD:     {name: "VPCMPGTD", only: vex, prefix: 1, table: 1, code: 0x66, bytes: 64, spread: true},
	VSHUFPS:      {name: "VSHUFPS", table: 1, code: 0xc6, bytes: 64, imm: true},
	VPACKUSDW:    {name: "VPACKUSDW", only: vex, prefix: 1, table: 2, code: 0x2b, bytes: 64},
	VPACKUSWB:    {name: "VPACKUSWB", only: vex, prefix: 1, table: 1, code: 0x67, bytes: 64},
	VINSERTI128:  {name: "VINSERTI128", only: vex, prefix: 1, table: 3, code: 0x38, bytes: 32, imm: true},
	VPMULUDQ:     {name: "VPMULUDQ", prefix: 1, table: 1, code: 0xf4, bytes: 64, double: true},
	VPTERNLOGD:   {name: "VPTERNLOGD", only: evex, prefix: 1, table: 3, code: 0x25, bytes: 64, spread: true, imm: true},
	VADDPD:       {name: "VADDPD", prefix: 1, table: 1, code: 0x58, bytes: 64, double: true},
	VMULPD:       {name: "VMULPD", prefix: 1, table: 1, code: 0x59, bytes: 64, double: true},

	VSQRTPS:      {name: "VSQRTPS", form: two, table: 1, code: 0x51, bytes: 64, spread: true},
	VRNDSCALEPS:  {name: "VRNDSCALEPS", only: evex, form: two, prefix: 1, table: 3, code: 0x08, bytes: 64, spread: true, imm: true},
	VROUNDPS:     {name: "VROUNDPS", only: vex, form: two, prefix: 1, table: 3, code: 0x08, bytes: 64, imm: true},
	VCVTPS2DQ:    {name: "VCVTPS2DQ", form: two, prefix: 1, table: 1, code: 0x5b, bytes: 64, spread: true},
	VCVTDQ2PS:    {name: "VCVTDQ2PS", form: two, table: 1, code: 0x5b, bytes: 64, spread: true},
	VMOVAPS:      {name: "VMOVAPS", form: two, table: 1, code: 0x28, bytes: 64},
	VMOVUPS:      {name: "VMOVUPS", form: two, table: 1, code: 0x10, bytes: 64},
	VBROADCASTSS: {name: "VBROADCASTSS", form: two, prefix: 1, table: 2, code: 0x18, bytes: 4},
	VCVTPH2PS:    {name: "VCVTPH2PS", form: two, prefix: 1, table: 2, code: 0x13, bytes: 32},
	VPMOVZXWD:    {name: "VPMOVZXWD", form: two, prefix: 1, table: 2, code: 0x33, bytes: 32},
	VPMOVZXBD:    {name: "VPMOVZXBD", form: two, prefix: 1, table: 2, code: 0x31, bytes: 16},
	VPMOVD2M:     {name: "VPMOVD2M", only: evex, form: two, prefix: 2, table: 2, code: 0x39, mask: true},
	VPERMQ:       {name: "VPERMQ", only: vex, form: two, prefix: 1, table: 3, code: 0x00, bytes: 64, imm: true, long: true},
	VCVTPS2PD:    {name: "VCVTPS2PD", form: two, table: 1, code: 0x5a, bytes: 32},
	VCVTPD2PS:    {name: "VCVTPD2PS", form: two, prefix: 1, table: 1, code: 0x5a, bytes: 64, double: true},

	VPSLLD: {name: "VPSLLD", form: shift, prefix: 1, table: 1, code: 0x72, digit: 6, bytes: 64, imm: true},
	VPSRLD: {name: "VPSRLD", form: shift, prefix: 1, table: 1, code: 0x72, digit: 2, bytes: 64, imm: true},
	VPSRAD: {name: "VPSRAD", form: shift, prefix: 1, table: 1, code: 0x72, digit: 4, bytes: 64, imm: true},

	storeVMOVUPS: {name: "VMOVUPS", form: store, table: 1, code: 0x11, bytes: 64},
	VMOVNTPS:     {name: "VMOVNTPS", form: store, table: 1, code: 0x2b, bytes: 64},
	VCVTPS2PH:    {name: "VCVTPS2PH", form: store, prefix: 1, table: 3, code: 0x1d, bytes: 32, imm: true},
	VPMOVDW:      {name: "VPMOVDW", only: evex, form: store, prefix: 2, table: 2, code: 0x33, bytes: 32},
	VPMOVDB:      {name: "VPMOVDB", only: evex, form: store, prefix: 2, table: 2, code: 0x31, bytes: 16},
	VMOVDQU:      {name: "VMOVDQU", only: vex, form: store, prefix: 2, table: 1, code: 0x7f, bytes: 32, small: true},
	VMOVQ:        {name: "VMOVQ", only: vex, form: store, prefix: 1, table: 1, code: 0x7e, bytes: 16, long: true, small: true},

	VEXTRACTF64X4: {name: "VEXTRACTF64X4", only: evex, form: store, prefix: 1, table: 3, code: 0x1b, bytes: 32, imm: true, long: true},
	VEXTRACTF128:  {name: "VEXTRACTF128", only: vex, form: store, prefix: 1, table: 3, code: 0x19, bytes: 32, imm: true},
}

func (o Op) String() string { return encodings[o].name }

// Spreads reports whether operand B of o may be one element of memory for all lanes, in VEX a vector of
// memory with the same element in all lanes.
func (o Op) Spreads() bool { return encodings[o].spread }

// ToMask reports whether the result of o is a mask register in EVEX.
func (o Op) ToMask() bool { return encodings[o].mask }

// Writes reports whether o writes operand B.
func (o Op) Writes() bool { return encodings[o].form == store }
