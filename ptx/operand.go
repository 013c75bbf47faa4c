package ptx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

func (r Reg) operand() Operand   { return Operand{Kind: KindReg, Reg: r} }
func (i I) operand() Operand     { return Operand{Kind: KindImm, Imm: uint64(i)} }
func (s Sym) operand() Operand   { return Operand{Kind: KindSym, Sym: string(s)} }
func (l label) operand() Operand { return Operand{Kind: KindLabel, Sym: string(l)} }
func (v Vec) operand() Operand   { return Operand{Kind: KindVec, Vec: slices.Clone(v)} } // callers reuse the slice

func (f Fl) operand() Operand {
	return Operand{Kind: KindImm, Imm: uint64(math.Float32bits(float32(f))), Float: F32}
}

func (f Db) operand() Operand {
	return Operand{Kind: KindImm, Imm: math.Float64bits(float64(f)), Float: F64}
}

func (a Addr) operand() Operand {
	return Operand{Kind: KindAddr, Reg: a.Base, Sym: a.Sym, Off: a.Off}
}

// String is the operand's PTX spelling.
func (o Operand) String() string { return string(o.append(nil)) }

func (o *Operand) append(b []byte) []byte {
	switch o.Kind {
	case KindReg:
		return o.Reg.append(b)
	case KindImm:
		return o.appendImm(b)
	case KindAddr:
		return o.appendAddr(b)
	case KindVec:
		b = append(b, '{')
		for i, r := range o.Vec {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = r.append(b)
		}
		return append(b, '}')
	}
	return append(b, o.Sym...)
}

func (o *Operand) appendImm(b []byte) []byte {
	switch o.Float {
	case F32:
		return fmt.Appendf(b, "0f%08X", uint32(o.Imm))
	case F64:
		return fmt.Appendf(b, "0d%016X", o.Imm)
	}
	return strconv.AppendInt(b, int64(o.Imm), 10)
}

func (o *Operand) appendAddr(b []byte) []byte {
	if b = append(b, '['); o.Reg.Class != NoClass {
		b = o.Reg.append(b)
	} else {
		b = append(b, o.Sym...)
	}
	if o.Off != 0 {
		b = strconv.AppendInt(append(b, '+'), o.Off, 10)
	}
	return append(b, ']')
}

// registers lists the registers that the operand names.
func (o *Operand) registers() []Reg {
	switch {
	case o.Kind == KindVec:
		return o.Vec
	case o.Reg.Class != NoClass:
		return []Reg{o.Reg}
	}
	return nil
}

// specials are the special registers of the subset, all 32 bits wide.
var specials = map[string]bool{
	"%tid.x": true, "%tid.y": true, "%tid.z": true, "%ntid.x": true, "%ntid.y": true, "%ntid.z": true,
	"%ctaid.x": true, "%ctaid.y": true, "%ctaid.z": true,
	"%nctaid.x": true, "%nctaid.y": true, "%nctaid.z": true, "%laneid": true, "%warpid": true,
}
