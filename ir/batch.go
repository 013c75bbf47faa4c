package ir

import (
	"fmt"
	"slices"
)

// Batch is the first size of all inputs of g that have axes, as a number. It is 0 where they differ, and
// where one of them is not a number.
func (g *Graph) Batch() int64 {
	batch := Dim(0)
	for _, v := range g.Vars {
		if v.Kind != Input || v.Type.Shape.Rank() == 0 {
			continue
		}
		d := v.Type.Shape.Dim(0)
		if d <= 0 || batch != 0 && d != batch {
			return 0
		}
		batch = d
	}
	return int64(batch)
}

// BatchDim is the named dimension that is the first of all inputs that have one, "" if there is none.
func (g *Graph) BatchDim() string {
	name := ""
	for _, v := range g.Vars {
		if v.Kind != Input || v.Type.Shape.Rank() == 0 {
			continue
		}
		d := v.Type.Shape.Dim(0)
		if d >= 0 || int(-d) > len(g.Syms) {
			continue
		}
		n := g.Syms[-d-1].Name
		if name != "" && name != n {
			return ""
		}
		name = n
	}
	return name
}

// Rebatch gives a source graph n rows instead of Batch, and infers all types again. The first size of
// an attribute shape grows with the rows of the operand. A value that is computed from the inputs and
// keeps the old number as its first size is an error: the model may have been written for that number.
// It is none where a weight has that size, as the scale of a norm over so many channels has.
func (g *Graph) Rebatch(n int64) error {
	old := g.Batch()
	if old == 0 {
		return fmt.Errorf("graph @%s: the inputs have no common first size", g.Name)
	}
	rows := map[*Value]bool{} // values whose shape depends on the batch
	for _, v := range g.Vars {
		if v.Kind != Input || v.Type.Shape.Rank() == 0 {
			continue
		}
		d := v.Type.Shape.Dims()
		d[0] = Dim(n)
		if err := CheckDims(d); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		v.Type.Shape, rows[v] = MakeShape(d...), true
	}
	for _, node := range g.Nodes {
		if node.readsAny(rows) {
			if err := node.rebatch(old, n, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) readsAny(set map[*Value]bool) bool {
	for _, list := range [...][]*Value{n.In, n.Captured} {
		for _, v := range list {
			if set[v] {
				return true
			}
		}
	}
	return false
}

// rebatch infers the types of n, which reads a value of rows, for another batch, and adds its results to rows.
func (n *Node) rebatch(old, batch int64, rows map[*Value]bool) error {
	if n.Op == OpForeign || len(n.Captured) > 0 {
		return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s = %s: its sizes are not known for another batch", n.Name(), n.Def().Name)}
	}
	before := make([]Shape, len(n.Out))
	for i, v := range n.Out {
		before[i] = v.Type.Shape
	}
	if shape := n.Ints("shape"); len(shape) > 0 && shape[0] > 0 && shape[0]%old == 0 {
		grown := append([]int64{shape[0] / old * batch}, shape[1:]...)
		n.Attrs = n.Attrs.With("shape", grown)
	}
	if err := n.Retype(); err != nil {
		return err
	}
	for i, v := range n.Out {
		switch {
		case v.Type.Shape != before[i]:
			rows[v] = true
		case before[i].Rank() > 0 && before[i].Dim(0) == Dim(old) && !n.constantRows(rows, Dim(old)):
			return &Error{Pos: n.Pos, Msg: fmt.Sprintf("%s is computed from the inputs and has %d rows, whatever their number", v, old)}
		}
	}
	return nil
}

// constantRows reports whether an operand of n that no input determines has so many rows.
func (n *Node) constantRows(rows map[*Value]bool, count Dim) bool {
	return slices.ContainsFunc(n.In, func(v *Value) bool {
		return v != nil && !rows[v] && v.Type.Shape.Rank() > 0 && v.Type.Shape.Dim(0) == count
	})
}
