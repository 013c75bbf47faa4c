package cpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/internal/fp"
	"ampc/ir"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// lossGradCase is a gradient of cross entropy over rows of classes, inner elements apart.
type lossGradCase struct {
	rows, cols, inner int
	in, out           ir.DType
	smoothing         float32
	weighted          bool
}

// ignored is the label that does not count.
const ignored = 2

func (c *lossGradCase) text() string {
	shape, labels := fmt.Sprintf("[%d,%d]", c.rows, c.cols), fmt.Sprintf("[%d]", c.rows)
	if c.inner > 1 {
		shape, labels = fmt.Sprintf("[%d,%d,%d]", c.rows, c.cols, c.inner), fmt.Sprintf("[%d,%d]", c.rows, c.inner)
	}
	weights, operand := "", ""
	if c.weighted {
		weights, operand = fmt.Sprintf("  input %%w : f32[%d]\n", c.cols), ", %w"
	}
	return fmt.Sprintf("graph @t {\n  input %%x : %v%s\n  input %%y : i32%s\n  input %%s : f32[]\n%sforward:\n  %%d = cross_entropy_grad %%x, %%y, %%s%s {axis=1 smoothing=%g ignore=%d out=%v} : %v%s\n  return %%d\n}\n",
		c.in, shape, labels, weights, operand, c.smoothing, ignored, c.out, c.out, shape)
}

// numberAs returns x as t has it, and its bytes.
func numberAs(t ir.DType, x float32) (float32, []byte) {
	switch t {
	case ir.F16:
		return fp.F16ToF32(fp.F16(x)), binary.LittleEndian.AppendUint16(nil, fp.F16(x))
	case ir.BF16:
		return fp.BF16ToF32(fp.BF16(x)), binary.LittleEndian.AppendUint16(nil, fp.BF16(x))
	}
	return x, binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
}

// plain is the gradient of one row, element by element. The path's exponential and its order of a sum are those of the
// kernel; all else is a loop, each step of which rounds.
func (c *lossGradCase) plain(p *kern.Path, x, w []float32, label int, scale float32) []float32 {
	d, top, spread := make([]float32, c.cols), float32(math.Inf(-1)), 0.0
	if label == ignored {
		return d
	}
	for i := range x {
		top = max(top, x[i])
		spread += float64(c.smoothing) * float64(w[i]) / float64(c.cols)
	}
	for i := range x {
		d[i] = x[i] - top
	}
	p.Unary(kern.Exp, d, d)
	sum, share, hit := p.Sum(d), c.smoothing/float32(c.cols), 1-c.smoothing
	if c.smoothing != 0 {
		hit = float32(hit * w[label])
	} else {
		scale = float32(scale * w[label])
	}
	for i := range d {
		d[i] /= sum
		if c.smoothing != 0 && c.weighted {
			d[i] = float32(d[i] * (float32((1-c.smoothing)*w[label]) + float32(spread)))
		}
		if c.smoothing != 0 {
			d[i] -= float32(share * w[i])
		}
		if i == label {
			d[i] -= hit
		}
		d[i] = float32(d[i] * scale)
	}
	return d
}

// logit is a number, at times a large one, and at times minus infinity.
func logit(r *rand.Rand) float32 {
	switch r.IntN(40) {
	case 0:
		return float32(math.Inf(-1))
	case 1:
		return float32(100 * r.NormFloat64())
	}
	return float32(3 * r.NormFloat64())
}

// check runs the case on a path and compares bytes.
func (c *lossGradCase) check(t *testing.T, p *kern.Path, b *Backend, r *rand.Rand) {
	t.Helper()
	program, _, e := loaded(t, b, c.text())
	feed := feedFor(program)
	scale, w := float32(r.NormFloat64())*300, make([]float32, c.cols)
	copy(slice[float32](feed["s"].Data), []float32{scale})
	for i := range w {
		if w[i] = 1; c.weighted {
			w[i] = r.Float32()
		}
	}
	copy(slice[float32](feed["w"].Data), w)
	x, want, size := feed["x"].Data, make([]byte, program.Outputs[0].Type.Bytes()), int(c.out.Size())
	for row := range c.rows * c.inner {
		at := func(i int) int { return (row/c.inner*c.cols+i)*c.inner + row%c.inner }
		logits, label := make([]float32, c.cols), r.IntN(c.cols)
		slice[int32](feed["y"].Data)[row] = int32(label)
		for i := range logits {
			var number []byte
			logits[i], number = numberAs(c.in, logit(r))
			copy(x[at(i)*len(number):], number)
		}
		if c.cols == 1 {
			logits[0], _ = numberAs(c.in, 1) // one class of -Inf alone is NaN
			_, number := numberAs(c.in, 1)
			copy(x[at(0)*len(number):], number)
		}
		for i, d := range c.plain(p, logits, w, label, scale) {
			_, number := numberAs(c.out, d)
			copy(want[at(i)*size:], number)
		}
	}
	f, err := e.Step(context.Background(), []runtime.Feed{feed})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := f.Read(0, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s, %d workers: %+v: other bytes than a loop over elements", p.Name(), b.Threads(), *c)
	}
}

// The gradient of cross entropy has the bytes of a loop over its elements, whatever the number of rows and classes, their
// types, and the targets.
func TestLossGradientIsThatOfALoop(t *testing.T) {
	for _, p := range kern.Paths() {
		b := OpenPath(p, 2)
		r := rand.New(rand.NewPCG(3, 4))
		types := []ir.DType{ir.F32, ir.F16, ir.BF16}
		for round, n := range [][3]int{{1, 1, 1}, {5, 1, 1}, {1, 5, 1}, {3, 3, 1}, {9, 7, 1}, {1, 16, 1}, {5, 17, 1}, {2, 33, 1}, {33, 65, 1}, {3, 1031, 1}, {1, 4097, 1}, {2, 7, 3}, {1, 19, 5}} {
			for k := range 12 {
				c := &lossGradCase{n[0], n[1], n[2], types[k%3], types[(k+round)%3], []float32{0, 0.1}[k/3%2], k/6 > 0}
				c.check(t, p, b, r)
			}
		}
		b.Close()
	}
}
