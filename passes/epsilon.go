package passes

import (
	"ampc/ir"
	"ampc/passes/ranges"
)

// epsilon refuses constants that the chosen dtypes make useless: one that keeps a divisor or the
// operand of a log or root away from zero but is 0 in the dtype of its sum, and a divisor whose
// reciprocal overflows. The error names the value and the fix.
func epsilon(g *ir.Graph, c *Context) error {
	lost := ranges.Lost(g, c.Ranges)
	c.Count("constants_lost", len(lost))
	if len(lost) == 0 {
		return nil
	}
	f := lost[0]
	return &ir.Error{Pos: f.Pos, Msg: string(f.Kind) + ": " + f.Value + " " + f.Text + "; " + f.Fix}
}
