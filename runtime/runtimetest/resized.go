package runtimetest

import (
	"fmt"
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

var sizeAttr = regexp.MustCompile(`\b(size|sizes|rows|shape|k|depth)=(\[[0-9,]*\]|[0-9]+)`)

var recurrent = regexp.MustCompile("^(rnn|lstm|gru)")

// resized is case c with other sizes; equal sizes stay equal. It is empty if they are too large.
func resized(c string, r *rand.Rand) string {
	op, operands, _, err := splitCase(c)
	if err != nil {
		return ""
	}
	sizes, product, least, most := map[string]string{}, 1.0, 1.0, 2900.0
	switch {
	case recurrent.MatchString(op):
		most = 40 // states of many elements, with weights around 1, are chaotic
	case strings.Contains(op, "norm"):
		least = 16 // of few elements some are nearly equal, and rounding errors large
	case strings.Contains(op, "entropy"):
		least = 2 // classes
	}
	for _, o := range operands {
		for _, d := range o.dims {
			old := strconv.Itoa(int(d))
			if _, drawn := sizes[old]; d > 1 && !drawn {
				size := int(least * math.Pow(most/least, r.Float64()))
				if r.IntN(4) == 0 {
					size = int(d)
				}
				sizes[old] = strconv.Itoa(size)
				product *= float64(size)
			}
		}
	}
	if product > mostProducts {
		return ""
	}
	renamed := func(list string) string {
		parts := strings.Split(strings.Trim(list, "[]"), ",")
		for i, d := range parts {
			if size, ok := sizes[d]; ok {
				parts[i] = size
			}
		}
		if list[0] == '[' {
			return "[" + strings.Join(parts, ",") + "]"
		}
		return parts[0]
	}
	attrs := ""
	if i := strings.IndexByte(c, '{'); i >= 0 {
		attrs = " " + sizeAttr.ReplaceAllStringFunc(c[i:], func(a string) string {
			name, value, _ := strings.Cut(a, "=")
			return name + "=" + renamed(value)
		})
	}
	text := op
	for _, o := range operands {
		if text += " _"; o.kind == '_' {
			continue
		}
		elements := 1
		dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(o.dims), " ", ","), "[]")
		dims = renamed("[" + dims + "]")
		for _, d := range strings.Split(strings.Trim(dims, "[]"), ",") {
			n, _ := strconv.Atoi(d)
			elements *= max(1, n)
		}
		if elements > mostElements {
			return ""
		}
		top := ""
		if strings.IndexByte("kKU", o.kind) >= 0 {
			if top = renamed(strconv.FormatInt(o.top, 10)); o.kind == 'U' && len(top) > 2 {
				top = "200" // bytes
			}
		}
		text = text[:len(text)-1] + string(o.kind) + top + dims
	}
	return text + attrs
}
