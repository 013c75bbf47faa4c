package gputest

import (
	"fmt"
	"math"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// num is a number and how far from it a device's may be. The distance follows from the number of terms
// of each sum and from what is rounded, not from how another implementation adds.
type num struct{ v, e float64 }

// unit bounds the relative error of an addition in f32. Tensor cores cut off in place of rounding.
const unit = 0x1p-23

func exact(v float64) num { return num{v: v} }

// most is the largest magnitude.
func (x num) most() float64 { return math.Abs(x.v) + x.e }

// times is the product, rounded to f32.
func (x num) times(y num) num {
	v := x.v * y.v
	return num{v, x.most()*y.most() - math.Abs(v) + unit*x.most()*y.most()}
}

// plus is the sum, rounded to f32.
func (x num) plus(y num) num {
	return num{x.v + y.v, x.e + y.e + unit*(x.most()+y.most())}
}

// stored is the number rounded to a type.
func (x num) stored(d ptx.DType) num {
	return num{x.v, x.e + ptxtest.Ulp(d, x.most())/2}
}

// exp is e^x by an approximation of 2 units in the last place, with the rounding of x·log2(e).
func (x num) exp() num {
	v := math.Exp(x.v)
	return num{v, v * (math.Expm1(x.e) + (4+2*x.most())*unit)}
}

// gelu is the tanh form, with a tanh whose relative error is 2^-10.
func (x num) gelu() num {
	v := 0.5 * x.v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x.v+0.044715*x.v*x.v*x.v)))
	return num{v, 1.13*x.e + 0.5*x.most()*0x1p-10} // its derivative is below 1.13
}

// dot adds up n products in f32, in any order and in any number of parts: each of n additions, and each
// product, is off by a unit of what the sum of magnitudes can be.
func dot(n int, at func(i int) (a, b num)) num {
	var s num
	mass := 0.0
	for i := range n {
		a, b := at(i)
		p := a.v * b.v
		s.v += p
		s.e += a.most()*b.most() - math.Abs(p)
		mass += a.most() * b.most()
	}
	s.e += float64(n+1) * unit * mass
	return s
}

// within checks elements of a tensor against numbers, rounded to the tensor's type.
func within(t *testing.T, name string, got ptxtest.Tensor, at []int, want []num) {
	t.Helper()
	worst := 0.0
	for i, w := range want {
		limit := w.stored(got.DType).e
		off := math.Abs(got.At(at[i]) - w.v)
		if !(off <= limit) {
			t.Errorf("%s: element %d is %g, want %g within %g", name, i, got.At(at[i]), w.v, limit)
			return
		}
		worst = math.Max(worst, off/limit)
	}
	fmt.Printf("%s: the largest error is %.2f of its bound\n", name, worst)
}
