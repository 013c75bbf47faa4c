package ir

import (
	"fmt"
	"math"
)

// Domain says which numbers a constant may be. NaN is within none but
// AnyNumber: comparisons that name what is refused let it through.
type Domain uint8

const (
	AnyNumber Domain = iota // infinities and NaN, too: what a tensor may hold
	NotNaN                  // infinities too
	AnyFinite               // what f32 holds, as all further domains
	AtLeast0
	Above0
	BelowOne  // a share from 0 to below 1
	ZeroToOne // a share from 0 to 1
)

var domainWords = [...]string{
	AnyNumber: "a number", NotNaN: "a number", AnyFinite: "a finite number", AtLeast0: "a finite number, 0 or more", Above0: "a finite number above 0",
	BelowOne: "a number from 0 to below 1", ZeroToOne: "a number from 0 to 1",
}

// String is what a message wants: "a finite number, 0 or more".
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

// Check is an error such as "decay -Inf: want a finite number, 0 or more"
// unless x is within the domain.
func (d Domain) Check(what string, x float64) error {
	if d.Holds(x) {
		return nil
	}
	return fmt.Errorf("%s %g: want %s", what, x, d)
}
