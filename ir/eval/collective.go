package eval

import (
	"fmt"

	"ampc/ir"
)

// collectiveFns have a meaning here for one rank only: the operand itself.
var collectiveFns = map[ir.Op]fn{ir.OpAllReduce: alone, ir.OpAllGather: alone, ir.OpReduceScatter: alone}

func alone(c *call) error {
	if r := c.Int("ranks"); r != 1 {
		return fmt.Errorf("needs %d ranks", r)
	}
	return same(c)
}
