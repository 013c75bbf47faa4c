package runtimetest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/runtime"
)

// RunResized runs n cases of the suite with other sizes, drawn from seed on: blocks, strips and tasks begin and end
// elsewhere. It wants what the suite wants. It returns the number of those whose sizes fit together.
func RunResized(t *testing.T, seed uint64, n int, open func(t *testing.T, threads int) runtime.Backend) (ran int) {
	backends := []runtime.Backend{open(t, 1), open(t, 3)}
	dtypes := []ir.DType{ir.F32, ir.F32, ir.F16, ir.BF16}
	outs := []ir.DType{ir.Invalid, ir.Invalid, ir.Invalid, ir.F32, ir.F16, ir.BF16}
	for i := range uint64(n) {
		r := rand.New(rand.NewPCG(seed+i, 5))
		c := resized(cases[r.IntN(len(cases))], r)
		if c == "" {
			continue
		}
		s, err := newSample(c, dtypes[r.IntN(len(dtypes))], outs[r.IntN(len(outs))], false)
		if err != nil || s == nil || s.resultElements() > mostElements {
			continue // sizes that do not fit together or are large, or a dtype that the row does not take
		}
		if _, err := s.exact(); err != nil {
			continue // indices
		}
		ran++
		if s.check(t, backends, false); t.Failed() {
			t.Fatalf("seed %d", seed+i)
		}
	}
	return ran
}

func (s *sample) resultElements() (n int64) {
	for _, v := range s.node.Out {
		n += v.Type.Shape.Elements()
	}
	return n
}

// The most elements of an operand, and of products of sizes, that bound what the evaluator computes.
const (
	mostElements = 1 << 20
	mostProducts = 1 << 24
)

var (
	number    = regexp.MustCompile(`[0-9]+`)
	sizeAttr  = regexp.MustCompile(`\b(size|sizes|rows|shape|k|depth)=[][0-9,]+`)
	byteTop   = regexp.MustCompile(`U[0-9]{3,}\[`)
	recurrent = regexp.MustCompile("^(rnn|lstm|gru)")
)

// resized is case c with other sizes; equal sizes stay equal. It is empty if they are too large.
func resized(c string, r *rand.Rand) string {
	op, operands, _, err := splitCase(c)
	if err != nil {
		return ""
	}
	sizes := drawSizes(op, operands, r)
	if sizes == nil {
		return ""
	}
	renamed := func(text string) string {
		return number.ReplaceAllStringFunc(text, func(n string) string { return cmp.Or(sizes[n], n) })
	}
	shapes, attrs, braced := strings.Cut(strings.TrimPrefix(c, op), "{")
	text := op + byteTop.ReplaceAllString(renamed(shapes), "U200[")
	if braced {
		text += "{" + sizeAttr.ReplaceAllStringFunc(attrs, renamed)
	}
	return text
}

// drawSizes draws another size for each size above 1 of a case, or sometimes the same. It returns nil if they are too large.
func drawSizes(op string, operands []operandSpec, r *rand.Rand) map[string]string {
	least, most := 1.0, 2900.0
	switch {
	case recurrent.MatchString(op):
		most = 40 // states of many elements, with weights around 1, are chaotic
	case strings.Contains(op, "norm"):
		least = 16 // of few elements some are nearly equal, and rounding errors large
	case strings.Contains(op, "entropy"):
		least = 2 // classes
	}
	sizes, drawn, product := map[string]string{}, map[ir.Dim]int{}, 1
	for _, o := range operands {
		elements := 1
		for _, d := range o.dims {
			if _, ok := drawn[d]; !ok && d > 1 && product <= mostProducts {
				if drawn[d] = int(least * math.Pow(most/least, r.Float64())); r.IntN(4) == 0 {
					drawn[d] = int(d)
				}
				sizes[strconv.Itoa(int(d))] = strconv.Itoa(drawn[d])
				product *= drawn[d]
			}
			elements *= max(1, drawn[d])
		}
		if product > mostProducts || elements > mostElements {
			return nil
		}
	}
	return sizes
}
