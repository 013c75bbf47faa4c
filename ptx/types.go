// Package ptx builds, prints, parses and verifies NVIDIA PTX text, and generates the
// kernels that no library offers: elementwise code, reductions, softmax, norms, losses,
// embedding, dropout, optimizer and scaler updates, transposes, pooling.
//
// One table (table.go) holds every instruction the package knows: its spelling, the types of
// its operands, the lowest PTX version and target that have it, and what it computes. Builder,
// parser, verifier and the interpreter in ptx/interp all read that table.
//
// Every rounding is explicit (.rn), nothing flushes subnormals, and transcendental functions are
// written out in exact operations, so a kernel gives the same bits in the interpreter and on a GPU.
// The exception is ex2.approx in the fused loss (heldLoss), whose results may differ by Exp2Error.
package ptx

import (
	"fmt"
	"strconv"
)

// Flavour is a PTX dialect: the text's .version (times ten) and the .target.
type Flavour struct{ Version, SM int }

// The three flavours that are emitted; each also runs on every later GPU.
var (
	SM70 = Flavour{70, 70}
	SM80 = Flavour{70, 80}
	SM90 = Flavour{78, 90}
)

// Multiprocessors is their number in the large GPUs of a flavour: V100, A100, H100. A kernel whose blocks
// share work aims at one wave on these.
func (f Flavour) Multiprocessors() int {
	switch f {
	case SM70:
		return 80
	case SM80:
		return 108
	}
	return 132
}

// residentThreads is the number of threads that a multiprocessor of every GPU holds that runs a
// flavour: 1,024 on compute capability 7.5, 1,536 on 8.6, 8.9 and 12.0.
func (f Flavour) residentThreads() int {
	if f.SM < 80 {
		return 1024
	}
	return 1536
}

// FlavourFor picks the best flavour for a device of the given compute capability.
func FlavourFor(major, minor int) (Flavour, error) {
	switch cc := major*10 + minor; {
	case cc >= 90:
		return SM90, nil
	case cc >= 80:
		return SM80, nil
	case cc >= 70:
		return SM70, nil
	default:
		return Flavour{}, fmt.Errorf("ptx: compute capability %d.%d is below 7.0, the oldest supported", major, minor)
	}
}

func (f Flavour) String() string { return fmt.Sprintf("%d.%d/sm_%d", f.Version/10, f.Version%10, f.SM) }

// has reports whether a text of flavour f may use a feature introduced at min.
func (f Flavour) has(min Flavour) bool { return f.Version >= min.Version && f.SM >= min.SM }

// Class is a register file. Signed, unsigned and untyped integers of one width share a class.
type Class uint8

const (
	NoClass Class = iota
	Pred
	B16
	B32
	B64
	F32
	F64
	numClasses
)

// classInfo has the declaration type, register prefix and width of each class.
var classInfo = [numClasses]struct {
	decl, prefix string
	bits         int
}{
	Pred: {"pred", "%p", 1}, B16: {"b16", "%h", 16}, B32: {"b32", "%r", 32},
	B64: {"b64", "%d", 64}, F32: {"f32", "%f", 32}, F64: {"f64", "%g", 64},
}

func (c Class) String() string { return classInfo[c].decl }

// bitCount is the width of the class; a predicate has one.
func (c Class) bitCount() int { return classInfo[c].bits }

// typeInfo has, for every PTX type name, the class that holds it and its size in memory.
var typeInfo = map[string]struct {
	class Class
	bytes int
}{
	"pred": {Pred, 0},
	"b8":   {B16, 1}, "u8": {B16, 1}, "s8": {B16, 1},
	"b16": {B16, 2}, "u16": {B16, 2}, "s16": {B16, 2}, "f16": {B16, 2}, "bf16": {B16, 2},
	"b32": {B32, 4}, "u32": {B32, 4}, "s32": {B32, 4}, "f16x2": {B32, 4}, "bf16x2": {B32, 4},
	"b64": {B64, 8}, "u64": {B64, 8}, "s64": {B64, 8},
	"f32": {F32, 4}, "f64": {F64, 8},
}

// Reg is a virtual register; the zero Reg is not a register.
type Reg struct {
	Class Class
	N     int
}

func (r Reg) String() string { return string(r.append(nil)) }

func (r Reg) append(b []byte) []byte {
	return strconv.AppendInt(append(b, classInfo[r.Class].prefix...), int64(r.N), 10)
}

// OperandKind says which fields of an Operand are used.
type OperandKind uint8

const (
	KindReg   OperandKind = iota // Reg
	KindImm                      // Imm: bits of an integer, or of a float when Float is set
	KindAddr                     // [Reg+Off] or [Sym+Off]
	KindVec                      // {Vec...}
	KindLabel                    // Sym: branch target
	KindSym                      // Sym: a shared variable's address, or a special register such as %tid.x
)

// Operand is one argument of an instruction.
type Operand struct {
	Kind  OperandKind
	Reg   Reg
	Imm   uint64
	Float Class // F32 or F64 if Imm holds the bits of a float
	Sym   string
	Off   int64
	Vec   []Reg
}

// Arg is anything the builder takes as an operand: Reg, I, Fl, Db, Sym, label, Addr, Vec.
type Arg interface{ operand() Operand }

// I is an integer immediate.
type I int64

// Fl is an f32 immediate, printed by its bits.
type Fl float32

// Db is an f64 immediate, printed by its bits.
type Db float64

// Sym names a shared variable (its address) or a special register.
type Sym string

// label is a branch target.
type label string

// Addr is a memory operand: Base, or the variable or parameter Sym, plus Off bytes.
type Addr struct {
	Base Reg
	Sym  string
	Off  int64
}

// Vec is a brace list of registers.
type Vec []Reg
