package runtimetest

import (
	"math"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime"
)

// testNonfinite puts +Inf, -Inf and NaN into every float operand of every small
// case, at its first and last element and some between, beside the case's
// numbers and beside zeros, and wants in the results what the row says that it
// hands on. The evaluator's tests go through every element.
func testNonfinite(t *testing.T, b runtime.Backend) {
	injected := 0
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c, "/", "|"), func(t *testing.T) {
			for _, d := range []ir.DType{ir.F32, ir.F16} {
				s, err := newSample(c, d, ir.Invalid, false)
				if err != nil {
					t.Fatal(err)
				}
				if s == nil || s.elements() > 1<<11 || !s.hands() {
					continue
				}
				injected += s.inject(t, b)
			}
		})
	}
	t.Logf("%d steps with an Inf or NaN in an operand", injected)
}

func (s *sample) elements() int {
	n := 0
	for _, x := range s.feed {
		n += x.Len()
	}
	return n
}

// hands reports whether the row claims anything to test.
func (s *sample) hands() bool {
	for i := range s.node.In {
		for _, k := range kinds {
			if s.node.HandsOn(i, k.numbers)&ir.Finite == 0 {
				return true
			}
		}
	}
	return false
}

var kinds = []struct {
	numbers ir.Numbers
	x       float64
}{{ir.PosInf, math.Inf(1)}, {ir.NegInf, math.Inf(-1)}, {ir.NaN, math.NaN()}}

// inject runs the sample with one element after the other replaced, and returns how often.
func (s *sample) inject(t *testing.T, b runtime.Backend) (runs int) {
	t.Helper()
	l, err := s.load(b)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	defer l.close()
	for _, zeros := range []bool{false, true} {
		for i, v := range s.node.In {
			if v == nil || !v.Type.DType.Float() {
				continue
			}
			feed := s.beside(zeros)
			x := feed[v.Name]
			for e := 0; e < x.Len(); e += max(1, (x.Len()-1)/3) {
				for _, k := range kinds {
					claim := s.node.HandsOn(i, k.numbers)
					if claim&ir.Finite != 0 {
						continue
					}
					old := x.F[e]
					x.F[e] = k.x
					out, err := l.step(feed)
					x.F[e] = old
					if err != nil {
						t.Fatalf("%s: %v", s.name, err)
					}
					runs++
					if s.holds(t, out)&claim == 0 {
						t.Errorf("%s: %s at element %d of %d of operand %d, zeros beside it %t: the row says that some element of a result is %s, there is none", s.name, k.numbers, e, x.Len(), i, zeros, claim)
						return runs
					}
				}
			}
		}
	}
	return runs
}

// beside is the sample's feed, or zeros in the place of its floats.
func (s *sample) beside(zeros bool) map[string]*eval.Tensor {
	feed := map[string]*eval.Tensor{}
	for name, x := range s.feed {
		feed[name] = x.Clone()
		if zeros {
			clear(feed[name].F)
		}
	}
	return feed
}

// holds is the set of the numbers in the float results.
func (s *sample) holds(t *testing.T, out [][]byte) ir.Numbers {
	var got ir.Numbers
	for j, b := range out {
		typ := s.g.Return[j].Type
		if !typ.DType.Float() {
			continue
		}
		for _, x := range tensor(t, typ, b).F {
			switch {
			case x != x:
				got |= ir.NaN
			case math.IsInf(x, 1):
				got |= ir.PosInf
			case math.IsInf(x, -1):
				got |= ir.NegInf
			default:
				got |= ir.Finite
			}
		}
	}
	return got
}
