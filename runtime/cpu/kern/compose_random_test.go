//go:build amd64 || arm64

package kern

import (
	"math"
	"slices"
	"testing"

	"ampc/internal/philox"
)

// TestComposedWords: kernels make the words of internal/philox, from any word of a counter on, and also when other kernels of the
// same Call draw from other streams in turn.
func TestComposedWords(t *testing.T) {
	for _, p := range Paths() {
		if ok, _ := p.Composes(); !ok {
			continue
		}
		d := newDice(41)
		kernels := []*Fused{}
		for generators := range 3 {
			kernels = append(kernels, compose(t, p, sumOfWords(generators+1)))
		}
		var c Call
		for range 300 {
			generators := 1 + d.IntN(len(kernels))
			x, y := make([]float32, d.IntN(700)), make([]float32, 700)
			for i := range x {
				x[i] = float32(d.IntN(100))
			}
			start, draws := uint64(d.IntN(1000)), make([]philox.Draw, generators)
			if d.IntN(3) == 0 {
				start = 1<<34 - 50 // the counter wraps
			}
			bufs := []Buf{Floats(x)}
			for k := range draws {
				draws[k] = philox.Draw{Seed: int64(d.IntN(3)), Site: d.Uint32(), Micro: d.Uint32(), Attempt: d.Uint32(), First: uint32(d.IntN(2))}
				bufs = append(bufs, Buf{Type: Random})
			}
			at := d.IntN(len(x) + 1)
			for range 2 { // the generators have the streams the second time
				for k, draw := range draws {
					c.Draw(k, draw, start)
				}
				kernels[generators-1].Run(&c, append(slices.Clone(bufs), Floats(y)), nil, at, len(x)-at, false)
				for i := at; i < len(x); i++ {
					want := x[i]
					for _, draw := range draws {
						want += float32(draw.Word(int64(start)+int64(i)) & (1<<24 - 1))
					}
					if math.Float32bits(y[i]) != math.Float32bits(want) {
						t.Fatalf("%s: element %d of %d to %d from word %d of %d streams on is %v, want %v", p.Name(), i, at, len(x), start, generators, y[i], want)
					}
				}
			}
		}
		for _, k := range kernels {
			k.Close()
		}
	}
}

// sumOfWords adds the low bits of random words of so many streams to an operand.
func sumOfWords(generators int) *Formula {
	f := &Formula{Loads: []Type{F32}}
	sum := Operand{Loaded, 0}
	for k := range generators {
		f.Loads = append(f.Loads, Random)
		low := Operand{Computed, len(f.Code)}
		f.Code = append(f.Code, FormulaOp{"low24", []Operand{{Loaded, 1 + k}}}, FormulaOp{"add", []Operand{sum, low}})
		sum = Operand{Computed, len(f.Code) - 1}
	}
	f.Results = []FormulaResult{{F32, sum}}
	return f
}
