package interp

import (
	"math"
	"strings"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// TestApproximationsAreBounded runs every kernel with ex2.approx on a device whose results differ from
// the nearest by as much as is documented, in either direction: results stay within their bounds.
func TestApproximationsAreBounded(t *testing.T) {
	directions := map[string]func(x uint64) int{
		"up":   func(uint64) int { return ptx.Exp2Error },
		"down": func(uint64) int { return -ptx.Exp2Error },
		"both": func(x uint64) int { return ptx.Exp2Error * (1 - 2*int(x&1)) },
	}
	tried := 0
	for _, c := range ptxtest.Cases() {
		l, err := c.Build(ptx.SM80)
		if err != nil {
			t.Fatal(err)
		}
		if !l.Kernel.Approximate() {
			continue
		}
		tried++
		for name, by := range directions {
			p := compile(t, l, ptx.SM80)
			for i := range p.code {
				if op := p.code[i].op; op != nil && strings.HasPrefix(op.Name, "ex2.approx") {
					p.code[i].op = off(op, by)
				}
			}
			bufs := c.Fill(c.Rand())
			before := ptxtest.Snapshot(bufs)
			_, err := runBuffers(p, l, c, 0, bufs, 0)
			if err == nil {
				err = c.Check(before, bufs)
			}
			if err != nil {
				t.Errorf("%s, %s: %v", c.Name, name, err)
			}
		}
	}
	if tried < 4 {
		t.Errorf("only %d kernels tried", tried)
	}
}

// off is an instruction whose results differ by so many units in the last place.
func off(op *ptx.Op, by func(x uint64) int) *ptx.Op {
	changed := *op
	changed.Eval = func(a, b, c, d uint64) uint64 {
		y := op.Eval(a, b, c, d)
		if f := math.Float32frombits(uint32(y)); f == 0 || f != f || math.IsInf(float64(f), 0) {
			return y
		}
		return uint64(int64(y) + int64(by(a)))
	}
	return &changed
}
