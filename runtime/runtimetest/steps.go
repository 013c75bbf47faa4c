package runtimetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime"
)

// stepSource is a training step with everything that a backend must keep apart:
// 16-bit copies hoisted to prepare, accumulators over micro-batches, dropout that
// depends on attempt and micro-batch, pending running statistics, a dynamic
// scale, and an update that is skipped where a gradient is not finite. Sums are
// of few short numbers, products by powers of two: every value is exact, so
// backends must agree with the evaluator in all bits.
const stepSource = `graph @step {
  input %x : f32[8,4]
  input %micro : i32[] {role=micro}
  param %w : f32[4,4] = data(1, 2, -1, 0, 3, 1, -2, 1, 0, 1, 2, -1, 1, -1, 1, 2)
  state %m : f32[4,4]
  state %acc : f32[4,4]
  state %stat : f32[4]
  state %scale : f32[] = 8 {role=scale}
  state %good : i32[]
  state %left : i32[] = 1
  state %fwd_run : i32[]
  state %floor_hits : i32[]
  state %seed : i64[] = 42 {role=seed}
  state %attempt : i32[] {role=attempt}
  const %lr : f32[] = 0.0625
  const %zero : i32[] = 0
  const %one : f32[] = 1
prepare:
  %w.l = cast %w {to=f16} : f16[4,4]
  %w.t = transpose %w.l {perm=[1,0]} : f16[4,4]
forward:
  %first = eq %micro, %zero : bool[]
  %x.l = cast %x {to=f16} : f16[8,4]
  %h = matmul %x.l, %w.l : f16[8,4]
  %d = dropout %h {attempt=%attempt micro=%micro p=0.5 rng=3 seed=%seed} : f16[8,4]
  %y = cast %d {to=f32} : f32[8,4]
  %back = matmul %x.l, %w.t {out=f32} : f32[8,4]
  %colsum = reduce_sum %y {axes=[0]} : f32[4]
  %stat' = add %stat, %colsum
  %loss = reduce_sum %y : f32[]
backward:
  %dy = broadcast %scale {shape=[8,4]} : f32[8,4]
  %dy.l = cast %dy {to=f16} : f16[8,4]
  %dh = dropout_grad %dy.l {attempt=%attempt micro=%micro p=0.5 rng=3 seed=%seed} : f16[8,4]
  %dw = matmul %x.l, %dh {ta out=f32} : f32[4,4]
  %acc' = accum %acc, %dw {first=%first}
update:
  %inv = div %one, %scale : f32[]
  %found = any_nonfinite %acc' : bool[]
  %w', %m' = sgd %w, %acc', %m {lr=%lr momentum=0.5 mul=%inv skip=%found}
  %scale', %good', %left', %fwd_run', %floor_hits' = update_scale %scale, %good, %left, %fwd_run, %floor_hits {every=2 found_inf=%found floor=1}
  %attempt' = count %attempt
  return %loss, %found, %y, %back
}
`

// testSteps runs the step with one, two and four micro-batches, with overflow
// in some of them, and wants the evaluator's bits in every result and variable
// after every step.
func testSteps(t *testing.T, open func(t *testing.T, threads int) runtime.Backend) {
	for _, threads := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			g, err := ir.Parse("step.ir", []byte(stepSource))
			if err != nil {
				t.Fatal(err)
			}
			if err := ir.Verify(g, ir.Mixed); err != nil {
				t.Fatal(err)
			}
			l := Load(t, open(t, threads), g, 1)
			defer l.Close(t)
			r := rand.New(rand.NewPCG(5, 6))
			scale, up, down := 8.0, 0, 0
			for step := range 12 {
				feeds := make([]map[string]*eval.Tensor, 1<<(step%3))
				for i := range feeds {
					x := eval.New(ir.T(ir.F32, 8, 4))
					for k := range x.F {
						x.F[k] = float64(r.IntN(3) - 1)
					}
					if step%4 == 2 && i == 0 {
						x.F[0] = 65520 // Inf in f16
					}
					feeds[i] = map[string]*eval.Tensor{"x": x}
				}
				l.same(t, fmt.Sprintf("step %d", step), l.Step(t, feeds...), l.Want(t, feeds...))
				l.same(t, fmt.Sprintf("after step %d", step), l.Variables(t), l.WantVariables())
				if t.Failed() {
					return
				}
				switch now := l.WantVariables()["%scale"].F[0]; {
				case now > scale:
					up++
				case now < scale:
					down++
				}
				scale = l.WantVariables()["%scale"].F[0]
			}
			if got := l.WantVariables()["%attempt"].I[0]; got != 12 {
				t.Errorf("%d attempts, want 12", got)
			}
			if up == 0 || down < 2 {
				t.Errorf("the scale rose %d times and fell %d times: the test skips too little", up, down)
			}
		})
	}
}

// same wants equal bits.
func (l *Loaded) same(t *testing.T, when string, got, want map[string]*eval.Tensor) {
	t.Helper()
	for name, w := range want {
		if diff, _ := differ(got[name], w, nil); diff != "" {
			t.Errorf("%s: %s %s", when, name, diff)
		}
	}
}
