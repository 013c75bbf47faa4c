package passes

import (
	"ampc/ir"
	"ampc/passes/ranges"
)

// epsilon refuses constants that are lost where dtypes were assigned: one that
// keeps a divisor, a log or a root away from zero and is 0 in the dtype its sum
// is stored in, and a divisor whose reciprocal overflows. The error names the
// value and the fix.
func epsilon(g *ir.Graph, c *Context) error {
	lost := ranges.Lost(g, c.Ranges)
	c.Count("constants_lost", len(lost))
	if len(lost) == 0 {
		return nil
	}
	f := lost[0]
	return &ir.Error{Pos: f.Pos, Msg: string(f.Kind) + ": " + f.Value + " " + f.Text + "; " + f.Fix}
}
