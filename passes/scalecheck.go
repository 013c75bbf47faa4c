package passes

import (
	"fmt"

	"ampc/ir"
)

// checkScaled refuses an update that reads a scaled gradient unless its skip predicate depends on a
// finiteness check of it: otherwise an overflow would reach the weights. It needs the scale units.
func checkScaled(g *ir.Graph) error {
	for _, n := range g.Body[ir.Update] {
		grad := n.Operand("g")
		if grad == nil || !n.Def().Is(ir.Writer) {
			continue
		}
		skip := n.Operand("skip")
		seen := seenBy(g, skip)
		for _, d := range scaledBehind(grad) {
			switch {
			case seen[d]:
			case skip == nil:
				return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: %s reads the scaled gradient %s, and no skip predicate says whether that is finite: check it with any_nonfinite and give the result as skip", n.Def().Name, n.Name(), placed(d))}
			default:
				return &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s: %s reads the scaled gradient %s, which no finiteness check of its skip predicate %s sees", n.Def().Name, n.Name(), placed(d), placed(skip))}
			}
		}
	}
	return nil
}

func placed(v *ir.Value) string {
	if p := posOf(v).String(); p != "" {
		return v.String() + " (" + p + ")"
	}
	return v.String()
}

// tensors calls f for the float operands of v's node that are at least as large as v. These are the
// tensors that v is computed from, without rates and multipliers.
func tensors(v *ir.Value, f func(*ir.Value)) {
	if v.Def == nil || v.Def.Op == ir.OpForeign {
		return
	}
	for i, o := range v.Def.In {
		if o != nil && o.Type.DType.Float() && !v.Def.OperandDef(i).Named && o.Type.Shape.Rank() >= v.Type.Shape.Rank() {
			f(o)
		}
	}
}

// scaledBehind finds the values with a loss scale that an update reads as its gradient, or from
// which its gradient was unscaled.
func scaledBehind(grad *ir.Value) []*ir.Value {
	var found []*ir.Value
	been := map[*ir.Value]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		switch {
		case been[v]:
			return
		case v.Unit != "":
			found = append(found, v)
		default:
			tensors(v, walk)
		}
		been[v] = true
	}
	walk(grad)
	return found
}

// seenBy collects the values that the finiteness checks of a predicate cover: their operands, and
// values that are not finite only if an operand is not.
func seenBy(g *ir.Graph, skip *ir.Value) map[*ir.Value]bool {
	seen, been := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	var look func(v *ir.Value)
	look = func(v *ir.Value) {
		if !seen[v] {
			seen[v] = true
			if n := v.Def; n != nil && (len(n.Out) == 1 || n.Def().Is(ir.Apart)) {
				in, first := n.OperandsOf(v.Idx)
				for i, o := range in {
					if n.Keeps(first + i) {
						look(o)
					}
				}
			}
		}
	}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || been[v] {
			return
		}
		been[v] = true
		n := v.Def
		switch {
		case n == nil && v.Kind == ir.State:
			if next := g.NextOf(v); next != nil && next.Def.Op != ir.OpUpdateScale {
				walk(next)
			}
		case n == nil:
		case n.Op == ir.OpAnyNonfinite || n.Op == ir.OpIsNaN || n.Op == ir.OpIsInf:
			for _, o := range n.In {
				look(o)
			}
		default:
			for _, o := range n.In {
				walk(o)
			}
		}
	}
	walk(skip)
	return seen
}
