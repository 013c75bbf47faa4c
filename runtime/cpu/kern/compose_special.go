//go:build amd64 || arm64

package kern

import "math"

// interval holds a value that is no NaN. Values that are at least 0 are +0 if they are zero.
type interval struct{ lo, hi float32 }

var everything = interval{float32(math.Inf(-1)), float32(math.Inf(1))}

// intervalOf is that of a primitive's result whose first operand is in x.
func intervalOf(name string, x interval) interval {
	switch {
	case name == "neg":
		return interval{-x.hi, -x.lo}
	case name == "abs" && x.lo < 0:
		return interval{0, max(-x.lo, x.hi)}
	case name == "abs":
		return x
	case name == "exp" && x.hi <= 0:
		return interval{0, 1}
	case name == "exp":
		return interval{0, everything.hi}
	}
	return everything
}

// special replaces a primitive of which an operand is a constant, or the first operand has an interval, by one of fewer
// instructions, or by one that leaves the unit of products alone, which limits most kernels. The result is the same.
func (c *composer) special(name string, args []int, of interval) (string, []int) {
	if name == "log1p" && 0 <= of.lo && of.hi <= 1 {
		return "log1punit", args
	}
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
