package ir

import (
	"fmt"
	"slices"
)

// Helpers shared by the rows' inference functions.

// in builds a list of operands.
func in(ops ...Operand) []Operand { return ops }

// out builds a result list.
func out(rs ...Result) []Result { return rs }

// x is a float operand of the row's class.
func x(name string) Operand { return Operand{Name: name} }

// outDType is the stored dtype of result 0: the out attribute, or def.
func (n *Node) outDType(def DType) DType {
	if d := n.DT("out"); d != Invalid {
		return d
	}
	return def
}

// checkOut says whether the out attribute names a dtype the row can store.
func (n *Node) checkOut() error {
	d := n.DT("out")
	if d == Invalid {
		return nil
	}
	if !d.Float() || d == F64 || d == E4M3 || d == E5M2 {
		return fmt.Errorf("cannot store %s", d)
	}
	return nil
}

// Broadcast returns the common shape of two operands, aligned at the last dimension: sizes must be
// equal, or one of them 1. ok is false if they are not.
func Broadcast(a, b Shape) (Shape, bool) {
	if a == b {
		return a, true
	}
	if !a.Known() || !b.Known() {
		return Shape{}, true
	}
	da, db := a.Dims(), b.Dims()
	if len(da) < len(db) {
		da, db = db, da
	}
	off := len(da) - len(db)
	for i, y := range db {
		switch x := da[off+i]; {
		case x == y || y == 1:
		case x == 1:
			da[off+i] = y
		case x == UnknownDim || y == UnknownDim:
			da[off+i] = max(x, y) // the known one: sizes and symbols are greater than UnknownDim
		default:
			return Shape{}, false
		}
	}
	return MakeShape(da...), true
}

// axisOf normalizes an axis attribute for rank r; -1 is the last.
func axisOf(a int64, r int) (int, error) {
	if a < int64(-r) || a >= int64(r) {
		return 0, fmt.Errorf("axis %d is outside rank %d", a, r)
	}
	if a < 0 {
		a += int64(r)
	}
	return int(a), nil
}

// storedByCustom returns the stored types of the custom op n for the types that its row infers. A
// result of class Keep is f32, even if the row infers the 16 bits of an operand. Result 0 has the
// dtype of the out attribute.
func (n *Node) storedByCustom(types []Type) []Type {
	out := slices.Clone(types)
	for i, t := range out {
		if t.DType.Low() && n.ResultClass(i) == Keep {
			t = t.With(F32)
		}
		if i == 0 && t.DType.Float() {
			t = t.With(n.outDType(t.DType))
		}
		out[i] = t
	}
	return out
}
