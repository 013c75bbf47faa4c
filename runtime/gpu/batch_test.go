package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ampc"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// updates trains five tensors of odd sizes whose gradients, two of them f16,
// are inputs: what the update does must have the evaluator's bits.
func updates() string {
	var decl, update strings.Builder
	var grads []string
	for i, n := range []int{1, 5, 33, 257, 8200} {
		d := "f32"
		if i%2 == 1 {
			d = "f16"
		}
		fmt.Fprintf(&decl, "  input %%g%d : %s[%d]\n  param %%w%d : f32[%d] = normal(0, 1)\n  state %%w%d.m : f32[%d]\n  state %%w%d.v : f32[%d]\n", i, d, n, i, n, i, n, i, n)
		fmt.Fprintf(&update, "  %%w%d', %%w%d.m', %%w%d.v' = adamw %%w%d, %%g%d, %%w%d.m, %%w%d.v {lr=%%lr skip=%%found mul=%%inv c1=%%c1 c2=%%c2 decay=0.1}\n", i, i, i, i, i, i, i)
		grads = append(grads, fmt.Sprintf("%%g%d", i))
	}
	return `graph @updates {
` + decl.String() + `  const %lr : f32[] = 0.0625
  const %inv : f32[] = 0.125
  const %c1 : f32[] = 0.5
  const %c2 : f32[] = 0.25
prepare:
  %w2.l = cast %w2 {to=f16} : f16[33]
  %w3.l = cast %w3 {to=f16} : f16[257]
  %w4.l = cast %w4 {to=f16} : f16[8200]
forward:
  %sum = reduce_sum %w3.l {out=f32} : f32[]
  %half = affine %w4.l {scale=2} : f16[8200]
  %third = affine %w2.l {scale=2} : f16[33]
update:
  %norm = global_norm %inv, ` + strings.Join(grads, ", ") + ` {launch=1} : f32[]
  %found = any_nonfinite ` + strings.Join(grads, ", ") + ` {launch=1} : bool[]
` + update.String() + `  return %norm, %found, %half, %third
}
`
}

// TestBatchedUpdate takes one launch for all parameters whose gradients have
// one dtype, one for the norm with the finite check, one for all casts.
func TestBatchedUpdate(t *testing.T) {
	d, b := device(t, sim.Options{})
	g, err := ir.Parse("updates.ir", []byte(updates()))
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	batches := map[lower.Part][]int{}
	for part, steps := range l.Program.Parts {
		for i := range steps {
			if n := len(steps[i].More); n > 0 {
				batches[lower.Part(part)] = append(batches[lower.Part(part)], n+1)
			}
		}
	}
	if got := fmt.Sprint(batches); got != "map[prepare:[3] update:[2 2]]" { // the parameter of one element is by itself
		t.Errorf("tensors in one step: %s\n%s", got, l.Program)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for step := range 4 {
		f := feed(g, r)
		for _, x := range f {
			for i := range x.F {
				x.F[i] = float64(float32(math.Round(64*x.F[i]) / 64)) // as f16 holds it
			}
		}
		if step == 2 {
			f["g3"].F[256] = math.Inf(-1)
		}
		got, want := l.Step(t, f), l.Want(t, f)
		if step != 2 && math.Abs(got["%norm"].F[0]-want["%norm"].F[0]) > 1e-5*want["%norm"].F[0] {
			t.Errorf("step %d: norm %g, want %g", step, got["%norm"].F[0], want["%norm"].F[0])
		}
		delete(want, "%norm")
		equal(t, fmt.Sprintf("step %d", step), got, want)
		equal(t, fmt.Sprintf("after step %d", step), l.Variables(t), l.WantVariables())
		if skipped := want["%found"].I[0] == 1; skipped != (step == 2) {
			t.Errorf("step %d: skipped %t", step, skipped)
		}
	}
	if n := d.Stats.GraphLaunches; n != 3 {
		t.Errorf("%d graph launches in four steps", n)
	}
}

// equal wants the same bits in every tensor.
func equal(t *testing.T, when string, got, want map[string]*eval.Tensor) {
	t.Helper()
	for name, w := range want {
		if g := got[name]; g == nil || string(g.Bytes()) != string(w.Bytes()) {
			t.Errorf("%s: %s differs", when, name)
		}
	}
}

// TestWrittenCopies lets the update write the weights' 16-bit copies: no bit
// changes, and no step begins with casts but the first and those after a
// weight was set from outside.
func TestWrittenCopies(t *testing.T) {
	vars := map[bool]map[string]*eval.Tensor{}
	for _, weightCopies := range []bool{false, true} {
		_, b := device(t, sim.Options{})
		m := ampc.New("weight-copies")
		x, y := m.Input("x", ampc.F32, 4, 8), m.Input("y", ampc.I32, 4)
		loss := m.CrossEntropy(m.Linear("b", m.Relu(m.Linear("a", x, 8)), 3), y)
		c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-2), Policy: ampc.MixedF16(), Compile: ampc.CompileOptions{WeightCopies: weightCopies}}
		g, p, err := m.Source(c, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		p.Caps = sm.Must("sm_90").Caps()
		if err := passes.Run(g, p); err != nil {
			t.Fatal(err)
		}
		l := runtimetest.Load(t, b, g, 1)
		r := rand.New(rand.NewPCG(5, 5))
		for step := range 6 {
			if step == 3 {
				if err := l.Store.Write("a.w", make([]byte, 4*64)); err != nil {
					t.Fatal(err)
				}
			}
			l.Step(t, feed(g, r))
		}
		vars[weightCopies] = l.Variables(t)
		made := l.Exec.(runtime.Counted).Counters().CastsMade
		if want := map[bool]int64{false: 4 * 6, true: 4 * 2}[weightCopies]; made != want {
			t.Errorf("copies written by the update %t: %d casts, want %d", weightCopies, made, want)
		}
		l.Close(t)
	}
	equal(t, "with copies that the update writes", vars[true], vars[false])
}

// TestUpdateOfAnyDepth lowers a GPT of one layer and of three: casts and update
// are as many launches, and every tensor of the group is in the one that updates it.
func TestUpdateOfAnyDepth(t *testing.T) {
	var launches [2]string
	for i, layers := range []string{"1", "3"} {
		g := ready(t, "gpt?batch=1&seq=8&dim=16&heads=2&vocab=12&layers="+layers, "mixed-f16", "sm_90")[0]
		p, err := lower.Lower(g, sm.Must("sm_90"))
		if err != nil {
			t.Fatal(err)
		}
		params, largest := 0, 0
		for _, v := range p.Vars {
			if v.Kind == ir.Param {
				params++
			}
		}
		for k := range p.Parts[lower.Update] {
			largest = max(largest, len(p.Parts[lower.Update][k].Clusters()))
		}
		if largest != params {
			t.Errorf("%s layers: %d of %d parameters in one launch", layers, largest, params)
		}
		launches[i] = fmt.Sprint(len(p.Parts[lower.Prepare]), len(p.Parts[lower.Update]))
	}
	if launches[0] != launches[1] {
		t.Errorf("launches of prepare and update: %s with one layer, %s with three", launches[0], launches[1])
	}
}
