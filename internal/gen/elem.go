package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// body computes one vector of a kernel from its operands and broadcast scalars.
type body func(v *vm, x, s []vec) vec

// kernel is an elementwise kernel: operands by name, scalars by name, and how often the loop is unrolled.
type kernel struct {
	name     string
	operands string
	scalars  string
	unroll   int
	body     body
}

// symbol is the stem of the kernel's name in assembly.
func (k kernel) symbol() string {
	if k.scalars == "" {
		return strings.ToLower(k.name)
	}
	return k.name
}

func (v *vm) elementwise() {
	for _, k := range kernels {
		v.kernel(k)
	}
}

// kernel emits k for any n. The last partial vector is copied to the stack, computed there as a whole one and copied
// back, so that the body is emitted only for whole vectors.
func (v *vm) kernel(k kernel) {
	names := strings.Fields(k.operands)
	params := "n int, dst, " + strings.Join(names, ", ") + " *float32"
	if k.scalars != "" {
		params += ", " + strings.Join(strings.Fields(k.scalars), ", ") + " float32"
	}
	v.text(k.symbol(), params, "computes n elements.")
	n, dst := ptrParam("n"), ptrParam("dst")
	ptrs := []reg.GPVirtual{dst}
	for _, p := range names {
		ptrs = append(ptrs, ptrParam(p))
	}
	var scalars []vec
	for _, s := range strings.Fields(k.scalars) {
		r := v.new()
		v.splat(paramMem(s), r)
		scalars = append(scalars, r)
	}
	v.hold(func() {
		x := make([]vec, len(names))
		for i := range x {
			x[i] = v.new()
		}
		k.body(v, x, scalars)
	})
	rest := GP64()
	XORQ(rest, rest)
	v.wholes(k, n, ptrs, scalars)
	v.partial(n, rest, ptrs)
	VZEROUPPER()
	RET()
	v.held = nil
}

// wholes loops over whole vectors; it ends, at "last", with n what remains less one vector.
func (v *vm) wholes(k kernel, n reg.GPVirtual, ptrs []reg.GPVirtual, scalars []vec) {
	one := func(i int) {
		x := make([]vec, len(ptrs)-1)
		for j := range x {
			x[j] = v.new()
			VMOVUPS(Mem{Base: ptrs[j+1], Disp: i * v.size()}, x[j])
		}
		VMOVUPS(k.body(v, x, scalars), Mem{Base: ptrs[0], Disp: i * v.size()})
	}
	step := func(times int) {
		for _, p := range ptrs {
			ADDQ(imm(times*v.size()), p)
		}
		SUBQ(imm(times*v.w), n)
	}
	SUBQ(imm(k.unroll*v.w), n)
	if k.unroll > 1 {
		JL(LabelRef("few"))
		Label("many")
		for i := range k.unroll {
			one(i)
		}
		step(k.unroll)
		JGE(LabelRef("many"))
		Label("few")
		ADDQ(imm((k.unroll-1)*v.w), n)
	}
	JL(LabelRef("last"))
	Label("single")
	one(0)
	step(1)
	JGE(LabelRef("single"))
	Label("last")
}

// partial stages the remaining elements on the stack, has "single" compute them and writes them back.
func (v *vm) partial(n, rest reg.GPVirtual, ptrs []reg.GPVirtual) {
	slot := make([]Mem, len(ptrs))
	for i := range slot {
		slot[i] = AllocLocal(v.size())
	}
	to := GP64()
	ADDQ(imm(v.w), n)
	JZ(LabelRef("end"))
	MOVQ(n, rest)
	MOVQ(ptrs[0], to)
	mask := v.lanes(n)
	for i, p := range ptrs[1:] {
		x := v.new()
		v.loadPart(Mem{Base: p}, mask, x)
		VMOVUPS(x, slot[i+1])
		LEAQ(slot[i+1], p)
	}
	LEAQ(slot[0], ptrs[0])
	XORQ(n, n)
	JMP(LabelRef("single"))
	Label("end")
	TESTQ(rest, rest)
	JZ(LabelRef("return"))
	x := v.new()
	VMOVUPS(slot[0], x)
	v.storePart(x, v.lanes(rest), Mem{Base: to})
	Label("return")
}

// probe emits the multiply-add loop that measures the peak: 24 (AVX-512) or 12 independent sums.
func (v *vm) probe() {
	sums := 24
	if !v.wide() {
		sums = 12
	}
	v.text("probe", "iters int", fmt.Sprintf("runs iters times 4*%d multiply-adds of vectors in registers.", sums))
	n := ptrParam("iters")
	s := make([]vec, sums)
	for i := range s {
		s[i] = v.new()
		v.zero(s[i])
	}
	a, b := v.new(), v.new()
	v.zero(a)
	v.zero(b)
	loop("loop", n, func() {
		for range 4 {
			for _, x := range s {
				VFMADD231PS(a, b, x)
			}
		}
	})
	VZEROUPPER()
	RET()
}

func cpuid() {
	TEXT("cpuid", NOSPLIT, "func(leaf, sub uint32) (eax, ebx, ecx, edx uint32)")
	Doc("cpuid executes CPUID.")
	Load(Param("leaf"), reg.EAX)
	Load(Param("sub"), reg.ECX)
	CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		Store(r, ReturnIndex(i))
	}
	RET()
	TEXT("xgetbv", NOSPLIT, "func() (eax, edx uint32)")
	Doc("xgetbv reads extended control register 0.")
	XORL(reg.ECX, reg.ECX)
	XGETBV()
	Store(reg.EAX, ReturnIndex(0))
	Store(reg.EDX, ReturnIndex(1))
	RET()
}

// fence emits what orders the streaming stores of composed kernels.
func (v *vm) fence() {
	v.text("fence", "", "orders streaming stores before what follows.")
	SFENCE()
	RET()
}
