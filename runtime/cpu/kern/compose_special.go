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
	switch {
	case name != "pow":
	case c.isNumber(k, math.Float32bits(2)):
		return "mul", []int{x, x}
	case c.isNumber(k, math.Float32bits(3)):
		return "cube", []int{x}
	default:
		return name, args
	}
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

// body is what a primitive does, also one by which special has replaced another.
func (s *instructionSet) body(name string) (b body, ok bool) {
	if name == "cube" {
		return s.cube, true
	}
	b, ok = s.bodies[name]
	return b, ok
}

// checks are the bodies that say, by the sign of a lane, whether the operands of a primitive are outside what its body covers.
// Go code computes these elements, see Path.ranges.
var checks = map[string]string{"pow": "outside pow", "sin": "outside sin", "cos": "outside sin"}

// Checks reports whether kernels do not cover all operands of the primitive of a name.
func Checks(name string) bool { return checks[name] != "" }

// checked is the kind of the result that a kernel with checks stores behind those of its formula, see composer.outside.
const checked OperandKind = 'o'

// check adds the check of a primitive, if it has one, to those of the formula.
func (c *composer) check(name string, args []int) {
	check := checks[name]
	switch {
	case check == "":
		return
	case name == "pow" && c.isConstant(args[1]) && math.Abs(float64(c.number(args[1]))) <= math.MaxFloat32: // and neither 2 nor 3
		check, args = "outside base", args[:1]
	}
	b := c.set.bodies[check]
	if v := c.expand(&b, args, c.add); c.outside != none && c.outside != v {
		c.outside = c.add(lane{op: orSigns, old: none, a: c.outside, b: v, mask: none})
	} else {
		c.outside = v
	}
}

// number is constant x of the pool.
func (c *composer) number(x int) float32 { return math.Float32frombits(c.pool[-2-x].n) }
