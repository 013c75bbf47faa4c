//go:build amd64 || arm64

package kern

import "math"

// special replaces a primitive of which an operand is a constant by one of fewer instructions, or by one that leaves
// the unit of products alone, which bounds most kernels. The result is the same.
func (c *composer) special(name string, args []int) (string, []int) {
	if len(args) != 2 {
		return name, args
	}
	x, k := args[0], args[1]
	if !c.isConstant(k) {
		x, k = k, x
	}
	if !c.isConstant(k) {
		return name, args
	}
	instead, with := "", []int{x, k}
	switch n := c.pool[-2-k].n; {
	case math.IsNaN(float64(math.Float32frombits(n))):
	case name == "mul" && n == math.Float32bits(2):
		return "add", []int{x, x}
	case name == "max" && n == 0:
		instead, with = "relu", with[:1]
	case name == "max":
		instead = "maxnumber"
	case name == "min" && n != negativeZero:
		instead = "minnumber"
	}
	if _, ok := c.set.bodies[instead]; ok {
		return instead, with
	}
	return name, args
}

const (
	oneBits      = 0x3f800000
	negativeZero = 1 << 31
)

// isNumber reports whether x is a constant of the pool with the given bits.
func (c *composer) isNumber(x int, bits uint32) bool {
	return x < none && c.pool[-2-x] == (pooled{n: bits})
}

// isConstant reports whether x is a constant of the pool.
func (c *composer) isConstant(x int) bool { return x < none && c.pool[-2-x].kind == constant }
