package ptx

import (
	"errors"
	"fmt"
)

// builder writes one kernel. Registers carry the types of operands. Kernel returns the first
// mistake (an unknown instruction, an operand of the wrong class, an instruction newer than the
// flavour); calls after it have no effect.
type builder struct {
	fl     Flavour
	k      Kernel
	err    error
	labels int
	guard  Reg
	not    bool
	free   []Operand // memory for operands, a block for several instructions
	args   []Arg     // see after
}

// newBuilder starts a kernel whose blocks have the given number of threads.
func newBuilder(fl Flavour, name string, threads int) *builder {
	return &builder{fl: fl, k: Kernel{Name: name, Threads: threads}}
}

// kernel ends the kernel with a return instruction, removes instructions whose results nothing
// reads, verifies the kernel and returns it.
func (b *builder) kernel() (*Kernel, error) {
	b.Do("ret")
	if b.err != nil {
		return nil, b.err
	}
	b.k.prune()
	m := Module{Flavour: b.fl, Kernels: []*Kernel{&b.k}}
	if err := Verify(&m); err != nil {
		return nil, err
	}
	return &b.k, nil
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("ptx: kernel %s, instruction %d: %w", b.k.Name, len(b.k.Body), fmt.Errorf(format, args...))
	}
}

// reg makes a fresh register.
func (b *builder) reg(c Class) Reg {
	r := Reg{c, b.k.Regs[c]}
	b.k.Regs[c]++
	return r
}

// param declares the next parameter, a 64-bit pointer, and returns it as a global address.
func (b *builder) param(name string) Reg {
	b.k.Params = append(b.k.Params, Param{name, "u64"})
	return b.Do("cvta.to.global.u64", b.Do("ld.param.u64", Addr{Sym: name}))
}

// shared declares a shared variable and returns its address.
func (b *builder) shared(name string, align, bytes int) Reg {
	b.k.Shared = append(b.k.Shared, Shared{name, align, bytes})
	return b.Do("mov.u32", Sym(name))
}

// Do emits an instruction. An instruction with a scalar result gets a fresh register, which is
// returned; pass only the sources.
func (b *builder) Do(name string, args ...Arg) Reg {
	var dst Reg
	if op := ops[name]; op != nil && op.result() != NoClass && op.Slots[0].Vec == 0 {
		dst = b.reg(op.result())
		args = b.after(dst, args)
	}
	b.emit(name, args)
	return dst
}

// To emits an instruction that writes dst, an existing register or a Vec.
func (b *builder) To(dst Arg, name string, args ...Arg) {
	b.emit(name, b.after(dst, args))
}

// When emits the instructions of body, all guarded by p (or by not p).
func (b *builder) When(p Reg, holds bool, body func()) {
	if b.guard.Class != NoClass {
		b.fail("nested guards")
	}
	b.guard, b.not = p, !holds
	body()
	b.guard, b.not = Reg{}, false
}

// after gives dst and args as one list, until the next call.
func (b *builder) after(dst Arg, args []Arg) []Arg {
	b.args = append(append(b.args[:0], dst), args...)
	return b.args
}

func (b *builder) emit(name string, args []Arg) {
	if b.err != nil {
		return
	}
	in := Inst{Guard: b.guard, Not: b.not, Args: b.operands(len(args))}
	for i, a := range args {
		in.Args[i] = a.operand()
	}
	op, err := lookup(name, in.Args)
	if err == nil {
		in.Op = op
		err = errors.Join(checkFeature(b.fl, op), checkOperands(&in))
	}
	if err != nil {
		b.fail("%s: %w", name, err)
		return
	}
	b.k.Body = append(b.k.Body, in)
}

// operands gives memory for n operands.
func (b *builder) operands(n int) []Operand {
	if len(b.free) < n {
		b.free = make([]Operand, max(n, 64))
	}
	list := b.free[:n:n]
	b.free = b.free[n:]
	return list
}

// newLabel makes a label; place sets its position.
func (b *builder) newLabel() label {
	b.labels++
	return label(fmt.Sprintf("L%d", b.labels-1))
}

// place sets the label's position to the next instruction.
func (b *builder) place(l label) { b.k.Body = append(b.k.Body, Inst{Label: string(l)}) }

// when runs body in the threads where p is true; the others branch over it.
func (b *builder) when(p Reg, body func()) { b.branchOver(p, true, body) }

// unless runs body in the threads where p is false.
func (b *builder) unless(p Reg, body func()) { b.branchOver(p, false, body) }

func (b *builder) branchOver(p Reg, holds bool, body func()) {
	end, at := b.newLabel(), len(b.k.Body)
	b.When(p, !holds, func() { b.Do("bra", end) })
	body()
	if len(b.k.Body) == at+1 { // a branch to the next instruction is not needed
		b.k.Body = b.k.Body[:at]
		return
	}
	b.place(end)
}

// loop runs body with i = from, from+step, … while i < limit. All three are u32 or u64, by from's
// class. body must not write i. If the bounds are constants that allow at most one iteration, no
// backward branch is emitted.
func (b *builder) loop(from, limit, step Arg, c Class, body func(i Reg)) {
	t := unsignedType(c)
	if s, ok := step.(I); ok && b.oneRound(from, limit, s, t, body) {
		return
	}
	i := b.reg(c)
	b.To(i, "mov."+t, from)
	head, end := b.newLabel(), b.newLabel()
	b.place(head)
	done := b.Do("setp.ge."+t, i, limit)
	b.When(done, true, func() { b.Do("bra", end) })
	body(i)
	b.To(i, "add."+t, i, step)
	b.Do("bra", head)
	b.place(end)
}

// below returns the predicate i < n, or the zero Reg if it is always true.
func (b *builder) below(i Reg, n int, always bool) Reg {
	if always {
		return Reg{}
	}
	return b.Do("setp.lt.u32", i, I(n))
}

// both returns the predicate p and q; the zero Reg means true.
func (b *builder) both(p, q Reg) Reg {
	switch {
	case p.Class == NoClass:
		return q
	case q.Class == NoClass:
		return p
	}
	return b.Do("and.pred", p, q)
}

// where runs body in the threads where p is true; the zero Reg means all.
func (b *builder) where(p Reg, body func()) {
	if p.Class == NoClass {
		body()
		return
	}
	b.when(p, body)
}

// oneRound emits a loop whose constant bounds allow at most one iteration.
func (b *builder) oneRound(from, limit Arg, step I, t string, body func(i Reg)) bool {
	n, ok := limit.(I)
	if !ok || n > step {
		return false
	}
	switch i := from.(type) {
	case Reg:
		if n > 0 {
			b.when(b.Do("setp.lt."+t, i, n), func() { body(i) })
		}
	case I:
		if i < n {
			body(b.Do("mov."+t, i))
		}
	}
	return true
}

// strided runs body for i = lane, lane+team, … below n, where lane is below team.
func (b *builder) strided(lane Reg, team, n int, body func(i Reg)) {
	if n == team {
		body(lane)
		return
	}
	b.loop(lane, I(n), I(team), lane.Class, body)
}
