package interp

import (
	"fmt"
	"slices"

	"ampc/ptx"
)

// Program is a kernel made ready to run.
type Program struct {
	Kernel  *ptx.Kernel
	code    []inst
	regs    int
	shared  map[string]uint64 // offset of each shared variable
	nshared int
	params  map[string]int
}

// inst is an instruction whose registers and labels are resolved to numbers.
type inst struct {
	op     *ptx.Op
	src    *ptx.Inst
	guard  int // register, or -1
	not    bool
	dst    []int
	arg    [4]source
	nargs  int
	list   []int  // registers of a vector source
	target int    // branch
	base   int    // address register, or -1
	off    uint64 // added to the base
	width  int    // bytes that one lane moves
}

// source is the origin of a lane's operand: a register, a constant or a special register.
type source struct {
	reg       int // -1: a constant or special register
	immediate *lanes
	special   int // index in the warp's special registers, if immediate is nil
}

// specials are the special registers in the order in which a warp stores them.
var specials = []string{"%ctaid.x", "%ctaid.y", "%ctaid.z", "%tid.x", "%tid.y", "%tid.z", "%laneid", "%warpid",
	"%ntid.x", "%ntid.y", "%ntid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"}

const warpSize = 32

type lanes [warpSize]uint64

// Compile resolves a verified kernel.
func Compile(k *ptx.Kernel) (*Program, error) {
	p := &Program{Kernel: k, shared: map[string]uint64{}, params: map[string]int{}}
	for i, prm := range k.Params {
		p.params[prm.Name] = i
	}
	for _, s := range k.Shared {
		p.nshared = (p.nshared + s.Align - 1) / s.Align * s.Align
		p.shared[s.Name] = uint64(p.nshared)
		p.nshared += s.Bytes
	}
	var first [ptx.F64 + 1]int
	for c := ptx.Pred; c <= ptx.F64; c++ {
		first[c] = p.regs
		p.regs += k.Regs[c]
	}
	number := func(r ptx.Reg) int { return first[r.Class] + r.N }
	labels := map[string]int{}
	n := 0
	for _, in := range k.Body {
		if in.Op == nil {
			labels[in.Label] = n
		} else {
			n++
		}
	}
	for i := range k.Body {
		if k.Body[i].Op != nil {
			c := p.compile(&k.Body[i], number, labels)
			p.code = append(p.code, c)
		}
	}
	if len(p.code) == 0 {
		return nil, fmt.Errorf("interp: kernel %s is empty", k.Name)
	}
	return p, nil
}

func (p *Program) compile(src *ptx.Inst, number func(ptx.Reg) int, labels map[string]int) inst {
	in := inst{op: src.Op, src: src, guard: -1, not: src.Not, base: -1}
	if src.Guard.Class != ptx.NoClass {
		in.guard = number(src.Guard)
	}
	elems := 1
	for i, a := range src.Args {
		slot := src.Op.Slots[i]
		switch {
		case slot.Role == ptx.Target:
			in.target = labels[a.Sym]
		case slot.Role == ptx.ParamMem:
			in.off = uint64(p.params[a.Sym])
		case slot.Role == ptx.Mem:
			in.off = uint64(a.Off) + p.shared[a.Sym]
			if a.Reg.Class != ptx.NoClass {
				in.base = number(a.Reg)
			}
		case slot.Role == ptx.Dst && a.Kind == ptx.KindVec:
			for _, r := range a.Vec {
				in.dst = append(in.dst, number(r))
			}
			elems = len(a.Vec)
		case slot.Role == ptx.Dst:
			in.dst = []int{number(a.Reg)}
		case a.Kind == ptx.KindVec:
			for _, r := range a.Vec {
				in.list = append(in.list, number(r))
			}
			elems = len(a.Vec)
		default:
			in.arg[in.nargs] = p.source(a, slot, number)
			in.nargs++
		}
	}
	in.width = src.Op.Bytes * elems
	return in
}

// source resolves a scalar operand; constants are truncated to the slot's width.
func (p *Program) source(a ptx.Operand, slot ptx.Slot, number func(ptx.Reg) int) source {
	switch {
	case a.Kind == ptx.KindReg:
		return source{reg: number(a.Reg)}
	case a.Kind == ptx.KindImm:
		return source{reg: -1, immediate: splat(slot.Trim(a.Imm))}
	}
	if off, ok := p.shared[a.Sym]; ok {
		return source{reg: -1, immediate: splat(off)}
	}
	return source{reg: -1, special: slices.Index(specials, a.Sym)}
}

func (l *lanes) fill(v uint64) {
	for i := range l {
		l[i] = v
	}
}

func splat(v uint64) *lanes {
	l := &lanes{}
	l.fill(v)
	return l
}
