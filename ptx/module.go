package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// Module is one PTX text: a flavour and its kernels.
type Module struct {
	Flavour Flavour
	Kernels []*Kernel
}

// Kernel is one .entry function.
type Kernel struct {
	Name    string
	Params  []Param
	Shared  []Shared
	Threads int             // .maxntid, the block size for which the kernel was written; 0 if not declared
	Blocks  int             // .minnctapersm, the blocks that a multiprocessor must hold: it limits registers; 0 if not declared
	Regs    [numClasses]int // how many registers of each class are declared
	Body    []Inst
}

// Param is a kernel parameter; Type is a PTX type such as u64.
type Param struct{ Name, Type string }

// Shared is a static shared-memory variable.
type Shared struct {
	Name         string
	Align, Bytes int
}

// Inst is one instruction, or a label if Op is nil.
type Inst struct {
	Label string
	Op    *Op
	Guard Reg  // predicate under which the instruction runs, or the zero Reg
	Not   bool // the guard is negated
	Args  []Operand
	Line  int // line in the parsed text; 0 if the kernel was built
}

// Text prints the module. Parsing the text gives the same module back.
func (m *Module) Text() string {
	b := fmt.Appendf(nil, ".version %d.%d\n.target sm_%d\n.address_size 64\n", m.Flavour.Version/10, m.Flavour.Version%10, m.Flavour.SM)
	for _, k := range m.Kernels {
		b = k.append(append(b, '\n'))
	}
	return string(b)
}

// Kernel finds a kernel by name, or nil.
func (m *Module) Kernel(name string) *Kernel {
	for _, k := range m.Kernels {
		if k.Name == name {
			return k
		}
	}
	return nil
}

func (k *Kernel) append(b []byte) []byte {
	b = fmt.Appendf(b, ".visible .entry %s(", k.Name)
	for i, p := range k.Params {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n\t.param .%s %s", p.Type, p.Name)
	}
	b = append(b, ")\n"...)
	if k.Threads > 0 {
		b = fmt.Appendf(b, ".maxntid %d, 1, 1\n", k.Threads)
	}
	if k.Blocks > 0 {
		b = fmt.Appendf(b, ".minnctapersm %d\n", k.Blocks)
	}
	b = append(b, "{\n"...)
	for c := Pred; c < numClasses; c++ {
		if k.Regs[c] > 0 {
			b = fmt.Appendf(b, "\t.reg .%s %s<%d>;\n", classInfo[c].decl, classInfo[c].prefix, k.Regs[c])
		}
	}
	for _, s := range k.Shared {
		b = fmt.Appendf(b, "\t.shared .align %d .b8 %s[%d];\n", s.Align, s.Name, s.Bytes)
	}
	for i := range k.Body {
		b = append(k.Body[i].append(b), '\n')
	}
	return append(b, "}\n"...)
}

// String is the instruction's line of text, without the newline.
func (in *Inst) String() string { return string(in.append(nil)) }

func (in *Inst) append(b []byte) []byte {
	if in.Op == nil {
		return append(append(b, in.Label...), ':')
	}
	b = append(b, '\t')
	if in.Guard.Class != NoClass {
		if b = append(b, '@'); in.Not {
			b = append(b, '!')
		}
		b = append(in.Guard.append(b), ' ')
	}
	b = append(b, in.Op.spelling()...)
	for i := range in.Args {
		if i > 0 {
			b = append(b, ',')
		}
		b = in.Args[i].append(append(b, ' '))
	}
	return append(b, ';')
}

// sharedBytes is the static shared memory of the kernel.
func (k *Kernel) sharedBytes() int {
	n := 0
	for _, s := range k.Shared {
		n = (n+s.Align-1)/s.Align*s.Align + s.Bytes
	}
	return n
}

// Approximate reports whether results may differ between a GPU and the interpreter, by Exp2Error.
func (k *Kernel) Approximate() bool {
	return slices.ContainsFunc(k.Body, func(in Inst) bool { return in.Op != nil && strings.Contains(in.Op.Name, ".approx") })
}

// prune drops instructions without effect: those that only write registers that nothing reads, and
// branches to what follows.
func (k *Kernel) prune() {
	for before := -1; before != len(k.Body); {
		before = len(k.Body)
		read := k.registers()
		for i := range k.Body {
			k.Body[i].reads(func(r Reg) { read[r.Class][r.N] = true })
		}
		k.Body = slices.DeleteFunc(k.Body, func(in Inst) bool { return in.fills() && !in.anyWritten(read) })
		k.dropSteps()
	}
}

// dropSteps drops branches over nothing but labels.
func (k *Kernel) dropSteps() {
	kept := k.Body[:0]
	for i, in := range k.Body {
		if in.Op == nil || in.Op.Kind != Branch || !k.placed(i+1, in.Args[0].Sym) {
			kept = append(kept, in)
		}
	}
	k.Body = kept
}

// placed reports whether the label stands at instruction i.
func (k *Kernel) placed(i int, label string) bool {
	for ; i < len(k.Body) && k.Body[i].Op == nil; i++ {
		if k.Body[i].Label == label {
			return true
		}
	}
	return false
}

// reads calls f for every register that the instruction reads, including its guard.
func (in *Inst) reads(f func(Reg)) {
	if in.Guard.Class != NoClass {
		f(in.Guard)
	}
	for i := range in.Args {
		if in.Op.Slots[i].Role != Dst {
			for _, r := range in.Args[i].registers() {
				f(r)
			}
		}
	}
}

// fills reports whether the instruction's only effect is to write registers.
func (in *Inst) fills() bool {
	if in.Op == nil || len(in.Op.Slots) == 0 || in.Op.Slots[0].Role != Dst {
		return false
	}
	switch in.Op.Kind {
	case Compute, Pack, Unpack, LoadParam, Load, ActiveMask:
		return true
	}
	return false
}

// anyWritten reports whether the instruction writes a register of the set.
func (in *Inst) anyWritten(set *registers) bool {
	return slices.ContainsFunc(in.Args[0].registers(), func(r Reg) bool { return set[r.Class][r.N] })
}

// registers is a set of a kernel's registers.
type registers [numClasses][]bool

// registers is an empty set.
func (k *Kernel) registers() *registers {
	w := &registers{}
	for c, n := range k.Regs {
		w[c] = make([]bool, min(max(n, 0), maxRegs))
	}
	return w
}

// has reports whether the kernel declares r.
func (w *registers) has(r Reg) bool {
	return r.Class < numClasses && r.N >= 0 && r.N < len(w[r.Class])
}
