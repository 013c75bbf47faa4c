package ptx

import (
	"fmt"
	"strings"
)

// OpKind says how an instruction executes. Compute is arithmetic of each lane alone.
type OpKind uint8

const (
	Compute OpKind = iota
	Pack           // {lo, hi} into one register
	Unpack         // one register into {lo, hi}
	LoadParam
	Load
	Store
	Atomic    // read, combine, write; returns the old value
	Reduction // Atomic without a result
	Branch
	Exit
	Barrier     // all threads of the block
	WarpBarrier // the lanes of a mask
	Fence
	Shuffle
	Vote
	Ballot
	Redux
	ActiveMask
	Match // the mask of the lanes with the same value
)

// Role is what an operand slot accepts.
type Role uint8

const (
	Dst Role = iota
	Src
	Mem      // [reg+off] or [variable+off]
	ParamMem // [param]
	Target   // label
	Const    // integer immediate only
)

// Slot is one operand position of an instruction.
type Slot struct {
	Role Role
	Type string // PTX type
	Vec  int    // 0, or the length of a brace list
	Wide bool   // a wider integer register is allowed (narrow loads, stores and conversions)

	class   Class // of Type
	bits    int   // of Type in memory
	untyped bool  // Type is .bNN
}

// Eval computes one lane. Operands and result are register bits, zero-extended.
type Eval func(a, b, c, d uint64) uint64

// Op is one instruction of the table.
type Op struct {
	Name  string // full mnemonic; the part after '#' distinguishes forms with the same spelling
	Slots []Slot
	Kind  OpKind
	Min   Flavour // lowest version and target that have it
	Mode  string  // global, shared; bfly, up, down, idx; any, all, uni: depending on Kind
	Bytes int     // memory and redux: size of one element
	Eval  Eval    // Compute, Atomic, Reduction, Redux
}

// spelling is the mnemonic as written in text.
func (o *Op) spelling() string { name, _, _ := strings.Cut(o.Name, "#"); return name }

// result reports the class of the result, or NoClass.
func (o *Op) result() Class {
	if len(o.Slots) > 0 && o.Slots[0].Role == Dst {
		return o.Slots[0].class
	}
	return NoClass
}

// accepts reports whether a register of class c fits the slot: the same class, any class of the
// same width if the slot's type is untyped (.bNN), or a wider one if the slot allows it.
func (s Slot) accepts(c Class) bool {
	switch {
	case c == s.class:
		return true
	case s.Wide && (c == B16 || c == B32 || c == B64):
		return c.bitCount() >= s.bits
	case s.untyped:
		return c != Pred && s.class != Pred && c.bitCount() == s.class.bitCount()
	}
	return false
}

// typed looks up the meaning of the slot's type.
func (s Slot) typed() Slot {
	t := typeInfo[s.Type]
	s.class, s.bits, s.untyped = t.class, t.bytes*8, s.Type[0] == 'b' && s.Type[1] != 'f'
	return s
}

// row is a family of instructions. Braces in name list alternatives; $1, $2… in args, mode and eval
// stand for the alternative chosen in each pair of braces.
type row struct {
	name string
	args string
	kind OpKind
	mode string
	min  Flavour
	eval func(alt []string) Eval
}

// ops maps every mnemonic to its row; it is built once and never changes.
var ops = expand(instructions)

// lookup finds the instruction spelled name; pack and unpack forms of mov are chosen by shape.
func lookup(name string, args []Operand) (*Op, error) {
	if strings.HasPrefix(name, "mov.b") && len(args) == 2 {
		if args[0].Kind == KindVec {
			name += "#unpack"
		} else if args[1].Kind == KindVec {
			name += "#pack"
		}
	}
	if op := ops[name]; op != nil {
		return op, nil
	}
	return nil, fmt.Errorf("unknown instruction %q", name)
}

func expand(rows []row) map[string]*Op {
	out := map[string]*Op{}
	for _, r := range rows {
		for _, v := range alternatives(r.name) {
			op := &Op{Name: v.name, Kind: r.kind, Min: r.min, Mode: substitute(r.mode, v.alt)}
			for _, a := range strings.Fields(r.args) {
				op.Slots = append(op.Slots, slotOf(substitute(a, v.alt), v.alt).typed())
			}
			if r.eval != nil {
				op.Eval = r.eval(v.alt)
			}
			op.Bytes = elementBytes(op)
			out[v.name] = op
		}
	}
	return out
}

func elementBytes(op *Op) int {
	last := op.spelling()
	last = last[strings.LastIndexByte(last, '.')+1:]
	return typeInfo[last].bytes
}

type variant struct {
	name string
	alt  []string
}

// alternatives expands "a{.x,.y}.{u,v}" into its four spellings with the choices made.
func alternatives(pattern string) []variant {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []variant{{name: pattern}}
	}
	end := strings.IndexByte(pattern, '}')
	var out []variant
	for _, choice := range strings.Split(pattern[open+1:end], ",") {
		for _, rest := range alternatives(pattern[end+1:]) {
			out = append(out, variant{pattern[:open] + choice + rest.name, append([]string{choice}, rest.alt...)})
		}
	}
	return out
}

// substitute replaces $1…$9 by the chosen alternatives.
func substitute(s string, alt []string) string {
	for i, a := range alt {
		s = strings.ReplaceAll(s, fmt.Sprintf("$%d", i+1), a)
	}
	return s
}

// slotOf parses one argument of a row: "=t" destination, "t" source, "t~" wider allowed, "2*t" a
// vector, "v*t" a vector as the mnemonic's .v2/.v4 says, "[]" memory, "[p]" parameter, "L" label,
// "#" constant, "t2" the type of twice the width.
func slotOf(a string, alt []string) Slot {
	switch a {
	case "[]":
		return Slot{Role: Mem, Type: "u64"}
	case "[p]":
		return Slot{Role: ParamMem, Type: "u64"}
	case "L":
		return Slot{Role: Target, Type: "u32"}
	case "#":
		return Slot{Role: Const, Type: "u32"}
	}
	s := Slot{Role: Src}
	if strings.HasPrefix(a, "=") {
		s.Role, a = Dst, a[1:]
	}
	if strings.HasSuffix(a, "~") {
		s.Wide, a = true, a[:len(a)-1]
	}
	if n, t, ok := strings.Cut(a, "*"); ok {
		s.Vec, a = vecLen(n, alt), t
	}
	if strings.HasPrefix(a, "wide:") {
		a = widened[a[5:]]
	}
	s.Type = a
	return s
}

func vecLen(n string, alt []string) int {
	if n != "v" {
		return int(n[0] - '0')
	}
	for _, a := range alt {
		if a == ".v2" || a == ".v4" {
			return int(a[2] - '0')
		}
	}
	return 0
}

var widened = map[string]string{"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}

// Trim cuts the bits of a constant to the slot's width.
func (s Slot) Trim(x uint64) uint64 { return trim(x, uint(max(s.bits, 8))) }
