package ir

import (
	"fmt"
	"math"
)

// Domain is the set of numbers that a constant may be. Only AnyNumber contains NaN.
type Domain uint8

const (
	AnyNumber Domain = iota // infinities and NaN too: every number of a tensor
	NotNaN                  // infinities too
	AnyFinite               // numbers that f32 represents, as in all further domains
	AtLeast0
	Above0
	BelowOne  // a share from 0 to below 1
	ZeroToOne // a share from 0 to 1
)

var domainWords = [...]string{
	AnyNumber: "a number", NotNaN: "a number", AnyFinite: "a finite number", AtLeast0: "a finite number, 0 or more", Above0: "a finite number above 0",
	BelowOne: "a number from 0 to below 1", ZeroToOne: "a number from 0 to 1",
}

// String describes the domain in a message: "a finite number, 0 or more".
func (d Domain) String() string { return domainWords[d] }

// Holds reports whether x is within the domain.
func (d Domain) Holds(x float64) bool {
	switch d {
	case AnyNumber:
		return true
	case NotNaN:
		return x == x
	case AtLeast0:
		return x >= 0 && x <= math.MaxFloat32
	case Above0:
		return x > 0 && x <= math.MaxFloat32
	case BelowOne:
		return x >= 0 && x < 1
	case ZeroToOne:
		return x >= 0 && x <= 1
	}
	return math.Abs(x) <= math.MaxFloat32
}

// Check returns an error such as "decay -Inf: want a finite number, 0 or more" unless x is in the
// domain.
func (d Domain) Check(what string, x float64) error {
	if d.Holds(x) {
		return nil
	}
	return fmt.Errorf("%s %g: want %s", what, x, d)
}
