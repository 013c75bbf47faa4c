package main

import (
	_ "embed"
	"fmt"
	"log"
	"slices"
	"strconv"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// formulaText lists the formulas; the file explains how they are written.
//
//go:embed formulas.txt
var formulaText string

// formula is one line of formulaText.
type formula struct {
	name, text string
	loads      []string // storage types
	stores     []string
	from       []string // register of each store
	sums       []string // register of each sum
	rows       bool     // the kernel processes rows
	code       []formulaOp
	scalars    int
}

type formulaOp struct {
	dst, op string
	args    []string
}

var storage = map[string]string{"f32": "F32", "f16": "F16", "bf16": "BF16"}

// formulas are the lines of formulaText with T, L and optional words spelled out.
func formulas() (list []formula) {
	for _, line := range strings.Split(formulaText, "\n") {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if short := without(text, func(word string) bool { return strings.HasSuffix(word, "?") }); short != text {
			list = append(list, spell(name, short)...)
			text = strings.ReplaceAll(text, "?", "")
		}
		list = append(list, spell(name, text)...)
	}
	return list
}

func without(text string, drop func(word string) bool) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), drop), " ")
}

// spell returns text once for each type that its letter stands for.
func spell(name, text string) (list []formula) {
	for letter, types := range map[string][]string{":T": {"f32", "f16", "bf16"}, ":L": {"f16", "bf16"}} {
		if !strings.Contains(text, letter) {
			continue
		}
		for _, t := range types {
			list = append(list, parseFormula(name+"_"+t, strings.ReplaceAll(text, letter, ":"+t)))
		}
		return list
	}
	return []formula{parseFormula(name, text)}
}

func parseFormula(name, text string) formula {
	text, rows := strings.CutPrefix(text, "rows ")
	f := formula{name: name, text: text, rows: rows}
	for _, word := range strings.Fields(text) {
		left, right, assigned := strings.Cut(word, "=")
		at, kind, typed := strings.Cut(left, ":")
		switch {
		case typed && !assigned:
			f.loads = append(f.loads, storage[kind])
		case typed:
			f.stores, f.from = append(f.stores, storage[kind]), append(f.from, right)
		case at[0] == 'a':
			f.sums = append(f.sums, right)
		default:
			op, args, ok := strings.Cut(strings.TrimSuffix(right, ")"), "(")
			if !ok {
				log.Fatalf("formula %s: %q", name, word)
			}
			i := formulaOp{at, op, strings.Split(args, ",")}
			for _, a := range i.args {
				if a[0] == 'u' {
					f.scalars = max(f.scalars, number(a)+1)
				}
			}
			f.code = append(f.code, i)
		}
	}
	return f
}

func number(reg string) int {
	n, err := strconv.Atoi(reg[1:])
	if err != nil {
		log.Fatal(err)
	}
	return n
}

// A formula of up to streamedOps primitives, other than unstreamed alone, also gets a kernel with
// streaming (non-temporal) stores: it computes too little to hide memory latency.
const (
	streamedOps = 2
	unstreamed  = "tanh"
)

// streams reports whether f gets such a kernel.
func (f *formula) streams() bool { return !f.rows && len(f.code) <= streamedOps && !f.tanh() }

// tanh reports whether a formula is only a tanh. Its polynomial needs the registers that other
// formulas use for more vectors.
func (f *formula) tanh() bool { return len(f.code) == 1 && f.code[0].op == unstreamed }

// symbol is the name of f's kernel.
func (f *formula) symbol(streaming bool) string {
	if streaming {
		return "fused_" + f.name + "_streaming"
	}
	return "fused_" + f.name
}

// fused emits the kernels of all formulas.
func (v *vm) fused() {
	for _, f := range formulas() {
		if f.rows {
			v.rowFormula(&f)
			continue
		}
		v.formula(&f, false)
		if f.streams() {
			v.formula(&f, true)
		}
	}
	v.text("fence", "", "orders streaming stores before what follows.")
	SFENCE()
	RET()
}

// A streaming kernel processes streamBlock elements at a time and reads each operand at several
// positions in turn, visit elements at each. The processor prefetches at each position, so one core
// reads up to half as much again. Prefetch instructions were slower, and so were eight positions.
const (
	streamBlock = 1 << 17
	places      = 4
	visit       = 128
)

func (v *vm) formula(f *formula, streaming bool) {
	what := "n elements, whole vectors: "
	if streaming {
		what = fmt.Sprintf("n elements, a multiple of %d, with streaming stores: ", streamBlock)
	}
	v.text(f.symbol(streaming), "n int, args **byte, u *float32", "computes "+what+f.text)
	n, k := ptrParam("n"), v.startFormula(f, streaming)
	k.constants()
	k.scalars()
	if streaming {
		k.streamBlocks(n)
	} else {
		k.plain(n)
	}
	VZEROUPPER()
	RET()
	v.held = nil
}

// startFormula loads the arguments of f's kernel.
func (v *vm) startFormula(f *formula, streaming bool) *formulaRun {
	args, at := ptrParam("args"), GP64()
	k := &formulaRun{v: v, f: f, streaming: streaming, u: ptrParam("u"), at: at, first: map[int]vec{}}
	for i := range len(f.loads) + len(f.stores) {
		p := GP64()
		MOVQ(Mem{Base: args, Disp: 8 * i}, p)
		k.base = append(k.base, p)
	}
	XORQ(at, at)
	return k
}

// unroll is the number of vectors that a kernel processes at a time.
func (f *formula) unroll() int {
	switch {
	case f.tanh():
		return 1
	case len(f.code) <= 2 && !f.rows:
		return 4
	case len(f.sums) > 0 || len(f.code) <= 9 && slices.ContainsFunc(f.stores, func(t string) bool { return t != "F32" }):
		return 2
	}
	return 1
}

// plain processes operands in ascending order.
func (k *formulaRun) plain(n reg.GPVirtual) {
	v, unroll := k.v, k.f.unroll()
	vectors := func(count int) {
		k.vectors(count)
		ADDQ(imm(count*v.w), k.at)
	}
	SUBQ(imm(unroll*v.w), n)
	if unroll > 1 {
		JL(LabelRef("few"))
		Label("many")
		vectors(unroll)
		SUBQ(imm(unroll*v.w), n)
		JGE(LabelRef("many"))
		Label("few")
		ADDQ(imm((unroll-1)*v.w), n)
	}
	JL(LabelRef("end"))
	Label("single")
	vectors(1)
	SUBQ(imm(v.w), n)
	JGE(LabelRef("single"))
	Label("end")
}

// streamBlocks processes blocks, several positions of each in turn.
func (k *formulaRun) streamBlocks(n reg.GPVirtual) {
	per, left, turns := streamBlock/places, GP64(), GP64()
	Label("block")
	MOVQ(U32(per/visit), left)
	Label("round")
	MOVQ(U32(places), turns)
	loop("place", turns, func() {
		k.vectors(visit / k.v.w)
		ADDQ(imm(per), k.at)
	})
	SUBQ(imm(streamBlock-visit), k.at)
	DECQ(left)
	JNZ(LabelRef("round"))
	ADDQ(imm(streamBlock-per), k.at)
	SUBQ(imm(streamBlock), n)
	JNZ(LabelRef("block"))
}

// formulaRun is the emission of one kernel.
type formulaRun struct {
	v         *vm
	f         *formula
	streaming bool
	u         reg.GPVirtual
	base      []reg.GPVirtual // loads, then stores
	at        reg.GPVirtual   // element
	held      []vec           // scalars in registers
	sums      [][]vec         // partial sums, one list for each of the vectors processed at a time

	first map[int]vec // by result: the first of two vectors that are stored as one of halves
}

// constants loads constants where there are registers for them.
func (k *formulaRun) constants() {
	k.v.holdSome(16-k.f.scalars, func() {
		x := make([]vec, len(k.f.loads))
		for i := range x {
			x[i] = k.v.new()
		}
		k.compute(x)
	})
	if slices.Contains(k.f.stores, "BF16") {
		k.v.loadOdds()
	}
}

// scalars loads scalars where there are registers for them.
func (k *formulaRun) scalars() {
	if k.held = nil; !k.v.wide() {
		return
	}
	for i := range k.f.scalars {
		r := k.v.new()
		k.v.splat(Mem{Base: k.u, Disp: 4 * i}, r)
		k.held = append(k.held, r)
	}
}

// vectors emits the code of count vectors; halves of two, if there are two, are stored together.
func (k *formulaRun) vectors(count int) {
	for i := range count {
		k.vector(i*k.v.w, count > 1)
	}
}

// vector emits the code of one vector, at off elements.
func (k *formulaRun) vector(off int, paired bool) {
	v, f := k.v, k.f
	place := func(i int, t string) Mem {
		return Mem{Base: k.base[i], Index: k.at, Scale: uint8(typeSize(t)), Disp: off * typeSize(t)}
	}
	x := make([]vec, len(f.loads))
	for j, t := range f.loads {
		x[j] = v.new()
		v.load(t, place(j, t), x[j])
	}
	regs := k.compute(x)
	for j, from := range f.sums {
		s := k.sums[j][off/v.w]
		VADDPS(regs[from], s, s)
	}
	for j, t := range f.stores {
		to := place(len(f.loads)+j, t)
		switch x := regs[f.from[j]]; {
		case paired && t != "F32":
			k.pair(j, t, x, to)
		case k.streaming:
			VMOVNTPS(x, to)
		default:
			v.putWhole(t, x, to)
		}
	}
}

// pair stores the halves of two vectors as one vector when it gets the second.
func (k *formulaRun) pair(store int, t string, x vec, to Mem) {
	first, ok := k.first[store]
	if !ok {
		k.first[store] = x
		return
	}
	delete(k.first, store)
	both := k.v.twoHalves(t, first, x)
	to.Disp -= k.v.size() / 2
	switch {
	case k.streaming:
		VMOVNTDQ(both, to)
	case k.v.wide():
		VMOVDQU64(both, to)
	default:
		VMOVDQU(both, to)
	}
}

// compute emits the instructions for one vector of each operand.
func (k *formulaRun) compute(x []vec) map[string]vec {
	v, regs := k.v, map[string]vec{}
	for i := range x {
		regs[fmt.Sprint("l", i)] = x[i]
	}
	operand := func(name string) vec {
		if name[0] != 'u' {
			return regs[name]
		}
		if k.held != nil {
			return k.held[number(name)]
		}
		r := v.new()
		v.splat(Mem{Base: k.u, Disp: 4 * number(name)}, r)
		return r
	}
	for _, i := range k.f.code {
		var args []vec
		for _, a := range i.args {
			args = append(args, operand(a))
		}
		regs[i.dst] = bodyOf(i.op)(v, args, nil)
	}
	if v.dry != nil {
		for _, t := range k.f.stores {
			if t == "BF16" {
				v.bfloat(v.new())
			}
		}
	}
	return regs
}

// bodyOf finds an elementwise kernel by its name in formulas.
func bodyOf(name string) body {
	for _, k := range kernels {
		if k.scalars == "" && k.symbol() == name {
			return k.body
		}
	}
	log.Fatalf("no kernel %q", name)
	return nil
}

// fusedTable enters the kernels of formulas into a Path.
func (v *vm) fusedTable(b *strings.Builder) {
	fmt.Fprintln(b, "p.fused = map[string]*Fused{")
	for _, f := range formulas() {
		streaming := "nil"
		if f.streams() {
			streaming = f.symbol(true) + v.suffix()
		}
		types := ""
		for _, t := range append(f.loads[:len(f.loads):len(f.loads)], f.stores...) {
			types += t + ", "
		}
		run, rows := f.symbol(false)+v.suffix(), "nil"
		if f.rows {
			run, rows = "nil", run
		}
		fmt.Fprintf(b, "%q: {%q, %d, []Type{%s}, %d, %s, %s, %s, %d, nil},\n", f.text, f.name, len(f.loads), types, v.w, run, streaming, rows, len(f.sums))
	}
	fmt.Fprintf(b, "}\np.fence = fence%s\n", v.suffix())
}
