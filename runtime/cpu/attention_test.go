package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// oneKey is attention to a single key, whose result is the value of that key.
const oneKey = `graph @one {
  input %q : f32[1,1,20,1]
  input %k : f32[1,1,1,1]
  input %v : f32[1,1,1,1]
forward:
  %y, %lse = attention %q, %k, %v {scale=1} : f32[1,1,20,1], f32[1,1,20]
  return %y
}
`

// Scores of a magnitude up to 2^30 give probabilities that sum to one, which docs/accuracy.md states.
func TestLargeScores(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, path := range kern.Paths() {
		b := cpu.OpenPath(path, 1)
		defer b.Close()
		g, err := ir.Parse("one.ir", []byte(oneKey))
		if err != nil {
			t.Fatal(err)
		}
		l := runtimetest.Load(t, b, g, 1)
		scalar := func(x float64) *eval.Tensor { return eval.Floats(ir.F32, []ir.Dim{1, 1, 1, 1}, x) }
		for range 50 {
			q := eval.New(ir.T(ir.F32, 1, 1, 20, 1))
			for i := range q.F {
				q.F[i] = float64(float32(math.Ldexp(1+r.Float64(), r.IntN(30)) * float64(1-2*r.IntN(2))))
			}
			y := l.Step(t, map[string]*eval.Tensor{"q": q, "k": scalar(1), "v": scalar(3)})["%y"]
			for i, x := range y.F {
				if math.Abs(x-3) > 1e-6 {
					t.Fatalf("%s: a score of %g gives %g, want the key's value, 3", path.Name(), q.F[i], x)
				}
			}
		}
		l.Close(t)
	}
}
