package ptx

import (
	"errors"
	"fmt"
)

// maxShared is the static shared memory that a kernel may declare on every target, in bytes.
const maxShared = 48 << 10

// maxRegs bounds the registers of one class that a kernel may declare. They are virtual, but each
// takes memory in the interpreter.
const maxRegs = 1 << 16

// maxParamBytes is the size of the parameter space of PTX before 8.1.
const maxParamBytes = 4352

// Verify checks a module: each instruction exists in its flavour and has operands of its types,
// registers are declared and written somewhere, labels and parameters exist, warp-wide
// instructions are unguarded, memory is within limits. The error lists every fault found.
func Verify(m *Module) error {
	var errs []error
	seen := map[string]bool{}
	for _, k := range m.Kernels {
		if seen[k.Name] {
			errs = append(errs, fmt.Errorf("kernel %s is defined twice", k.Name))
		}
		seen[k.Name] = true
		v := verifier{fl: m.Flavour, k: k}
		v.kernel()
		errs = append(errs, v.errs...)
	}
	return errors.Join(errs...)
}

type verifier struct {
	fl     Flavour
	k      *Kernel
	errs   []error
	at     *Inst
	labels map[string]bool
	names  map[string]string // parameters ("param") and shared variables ("shared")
}

func (v *verifier) fail(format string, args ...any) {
	where := "kernel " + v.k.Name
	if v.at != nil {
		where = fmt.Sprintf("%s, `%s`", where, trimTab(v.at.String()))
		if v.at.Line > 0 {
			where = fmt.Sprintf("line %d: %s", v.at.Line, where)
		}
	}
	v.errs = append(v.errs, fmt.Errorf("ptx: %s: %w", where, fmt.Errorf(format, args...)))
}

func trimTab(s string) string {
	if len(s) > 0 && s[0] == '\t' {
		return s[1:]
	}
	return s
}

func (v *verifier) kernel() {
	v.declarations()
	written := v.writes()
	for i := range v.k.Body {
		v.at = &v.k.Body[i]
		if v.at.Op != nil {
			v.instruction(written)
		}
	}
	v.at = nil
	if n := len(v.k.Body); n == 0 || !v.k.Body[n-1].terminates() {
		v.fail("does not end in ret, exit or an unguarded branch")
	}
}

func (in *Inst) terminates() bool {
	return in.Op != nil && in.Guard.Class == NoClass && (in.Op.Kind == Exit || in.Op.Kind == Branch)
}

func (v *verifier) declarations() {
	v.labels, v.names = map[string]bool{}, map[string]string{}
	params := 0
	for _, p := range v.k.Params {
		v.declare(p.Name, "param")
		size := typeInfo[p.Type].bytes
		if size == 0 {
			v.fail("parameter %s has unknown type .%s", p.Name, p.Type)
			continue
		}
		params = (params+size-1)/size*size + size
	}
	if params > maxParamBytes {
		v.fail("%d bytes of parameters, the limit is %d", params, maxParamBytes)
	}
	for c, n := range v.k.Regs {
		if n < 0 || n > maxRegs {
			v.fail("%d registers of class .%s, the limit is %d", n, Class(c), maxRegs)
		}
	}
	for _, s := range v.k.Shared {
		v.declare(s.Name, "shared")
		if s.Bytes < 0 || s.Bytes > maxShared || s.Align > maxShared {
			v.fail("shared variable %s: %d bytes aligned to %d, the limit is %d", s.Name, s.Bytes, s.Align, maxShared)
			return
		}
		if s.Align <= 0 || s.Align&(s.Align-1) != 0 {
			v.fail("shared variable %s: alignment %d is not a power of two", s.Name, s.Align)
			return
		}
	}
	if n := v.k.sharedBytes(); n > maxShared {
		v.fail("%d bytes of shared memory, the limit is %d", n, maxShared)
	}
	if v.k.Threads < 0 || v.k.Threads > 1024 {
		v.fail("block of %d threads, the limit is 1024", v.k.Threads)
	}
	if n, most := v.k.Blocks, v.fl.residentThreads(); n < 0 || n > 0 && (v.k.Threads == 0 || n*v.k.Threads > most) {
		v.fail("%d blocks of %d threads on a multiprocessor, the limit is %d threads", n, v.k.Threads, most)
	}
	for _, in := range v.k.Body {
		if in.Op == nil {
			if v.labels[in.Label] {
				v.fail("label %s is placed twice", in.Label)
			}
			v.labels[in.Label] = true
		}
	}
}

func (v *verifier) declare(name, what string) {
	if v.names[name] != "" {
		v.fail("%s is declared twice", name)
	}
	v.names[name] = what
}

// writes collects the registers that some instruction writes.
func (v *verifier) writes() *registers {
	w := v.k.registers()
	for i := range v.k.Body {
		in := &v.k.Body[i]
		if in.Op == nil || len(in.Op.Slots) == 0 || in.Op.Slots[0].Role != Dst || len(in.Args) == 0 {
			continue
		}
		for _, r := range in.Args[0].registers() {
			if w.has(r) {
				w[r.Class][r.N] = true
			}
		}
	}
	return w
}

func (v *verifier) instruction(written *registers) {
	in := v.at
	err := checkFeature(v.fl, in.Op)
	if err == nil {
		err = checkOperands(in)
	}
	if err != nil {
		v.fail("%w", err)
		return
	}
	if in.Guard.Class != NoClass {
		v.register(in.Guard, written, false)
		if in.Guard.Class != Pred {
			v.fail("guard %s is not a predicate", in.Guard)
		}
		if in.Op.warpWide() {
			v.fail("a guarded %s hangs or reads lanes that are not there; branch around it", in.Op.spelling())
		}
	}
	for i := range in.Args {
		s := &in.Op.Slots[i]
		for _, r := range in.Args[i].registers() {
			v.register(r, written, s.Role == Dst)
		}
		v.name(s, &in.Args[i])
	}
}

// warpWide reports whether lanes must execute the instruction together.
func (o *Op) warpWide() bool {
	switch o.Kind {
	case Barrier, WarpBarrier, Shuffle, Vote, Ballot, Redux, Match:
		return true
	}
	return false
}

func (v *verifier) register(r Reg, written *registers, isDst bool) {
	switch {
	case !written.has(r):
		v.fail("register %s is not declared", r)
	case !isDst && !written[r.Class][r.N]:
		v.fail("register %s is read but never written", r)
	}
}

func (v *verifier) name(s *Slot, o *Operand) {
	switch {
	case o.Kind == KindLabel && !v.labels[o.Sym]:
		v.fail("label %s is not placed", o.Sym)
	case s.Role == ParamMem && v.names[o.Sym] != "param":
		v.fail("%s is not a parameter", o.Sym)
	case s.Role == Mem && o.Sym != "" && v.names[o.Sym] != "shared":
		v.fail("%s is not a shared variable", o.Sym)
	case o.Kind == KindSym && !specials[o.Sym] && v.names[o.Sym] != "shared":
		v.fail("%s is neither a special register nor a shared variable", o.Sym)
	}
}

func checkFeature(fl Flavour, op *Op) error {
	if !fl.has(op.Min) {
		return fmt.Errorf("needs PTX %s, the module is %s", op.Min, fl)
	}
	return nil
}

// checkOperands compares the operands with the instruction's slots.
func checkOperands(in *Inst) error {
	if len(in.Args) != len(in.Op.Slots) {
		return fmt.Errorf("%d operands, %s takes %d", len(in.Args), in.Op.spelling(), len(in.Op.Slots))
	}
	for i := range in.Op.Slots {
		if err := in.Op.Slots[i].check(&in.Args[i]); err != nil {
			return fmt.Errorf("operand %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *Slot) check(o *Operand) error {
	ok, want := false, "want a label, have %s"
	switch s.Role {
	case Target:
		ok = o.Kind == KindLabel
	case ParamMem:
		ok, want = o.Kind == KindAddr && o.Sym != "", "want [parameter], have %s"
	case Mem:
		if ok, want = o.Kind == KindAddr, "want an address, have %s"; ok && o.Sym == "" && o.Reg.Class != B64 && o.Reg.Class != B32 {
			return fmt.Errorf("%s is not an address register", o.Reg)
		}
	case Const:
		ok, want = o.Kind == KindImm && o.Float == NoClass, "want a constant, have %s"
	default:
		return s.checkValue(o)
	}
	if ok {
		return nil
	}
	return fmt.Errorf(want, o)
}

func (s *Slot) checkValue(o *Operand) error {
	switch {
	case s.Vec > 0:
		return s.checkVec(o)
	case o.Kind == KindImm:
		return s.checkImm(o)
	case o.Kind == KindSym && s.Role == Src && s.Type == "u32":
		return nil
	case o.Kind != KindReg:
		return fmt.Errorf("%s does not fit .%s", o, s.Type)
	case !s.accepts(o.Reg.Class):
		return fmt.Errorf("%s is .%s, want .%s", o.Reg, o.Reg.Class, s.Type)
	}
	return nil
}

func (s *Slot) checkVec(o *Operand) error {
	if o.Kind != KindVec || len(o.Vec) != s.Vec {
		return fmt.Errorf("want %d registers in braces, have %s", s.Vec, o)
	}
	for _, r := range o.Vec {
		if !s.accepts(r.Class) {
			return fmt.Errorf("%s is .%s, want .%s", r, r.Class, s.Type)
		}
	}
	return nil
}

func (s *Slot) checkImm(o *Operand) error {
	bits, x := s.class.bitCount(), int64(o.Imm)
	switch {
	case s.Role == Dst:
		return errors.New("a constant cannot be written")
	case s.class == F32 || s.class == F64:
		if o.Float != s.class {
			return fmt.Errorf("want a .%s constant, have %s", s.Type, o)
		}
	case o.Float != NoClass:
		if !(s.Type == "b32" && o.Float == F32 || s.Type == "b64" && o.Float == F64) {
			return fmt.Errorf("float constant %s in .%s", o, s.Type)
		}
	case s.class == Pred:
		return errors.New("want a predicate, have a constant")
	case bits < 64 && (x < -(1<<(bits-1)) || x >= 1<<bits):
		return fmt.Errorf("constant %d does not fit .%s", x, s.Type)
	}
	return nil
}
