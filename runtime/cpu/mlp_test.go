package cpu

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// mlp is a training step written by hand: two layers, cross entropy, SGD with
// momentum, 16-bit copies of the weights cast once per step.
const mlp = `graph @mlp {
  input %x : f32[16,12]
  input %y : i32[16]
  param %w1 : f32[12,20] = kaiming(12)
  param %b1 : f32[20] = zeros()
  param %w2 : f32[20,10] = kaiming(20)
  state %m1 : f32[12,20]
  state %m2 : f32[20,10]
  const %lr : f32[] = 0.1
  const %one : f32[] = 1
prepare:
  %w1.l = cast %w1 {to=f16} : f16[12,20]
  %b1.l = cast %b1 {to=f16} : f16[20]
  %w2.l = cast %w2 {to=f16} : f16[20,10]
forward:
  %x.l = cast %x {to=f16} : f16[16,12]
  %h = linear %x.l, %w1.l, %b1.l : f16[16,20]
  %a = relu %h : f16[16,20]
  %z = linear %a, %w2.l {out=f32} : f32[16,10]
  %sum, %count = cross_entropy %z, %y : f32[], f32[]
  %loss = div %sum, %count : f32[]
backward:
  %d.sum = div %one, %count : f32[]
  %d.z = cross_entropy_grad %z, %y, %d.sum {out=f16} : f16[16,10]
  %d.w2 = matmul %a, %d.z {ta out=f32} : f32[20,10]
  %d.a = matmul %d.z, %w2.l {tb} : f16[16,20]
  %d.h = relu_grad %h, %d.a : f16[16,20]
  %d.w1 = matmul %x.l, %d.h {ta out=f32} : f32[12,20]
  %d.b1 = reduce_sum %d.h {axes=[0]} : f32[20]
update:
  %w1', %m1' = sgd %w1, %d.w1, %m1 {lr=%lr momentum=0.9}
  %b1' = sgd %b1, %d.b1 {lr=%lr}
  %w2', %m2' = sgd %w2, %d.w2, %m2 {lr=%lr momentum=0.9}
  return %loss, %d.w1
}
`

func TestTrainingStep(t *testing.T) {
	g, err := ir.Parse("mlp.ir", []byte(mlp))
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.Verify(g, ir.Mixed); err != nil {
		t.Fatal(err)
	}
	b, err := Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := runtimetest.Load(t, b, g, 3)
	defer l.Close(t)
	if testing.Verbose() {
		t.Logf("\n%s", l.Program)
	}
	r := rand.New(rand.NewPCG(1, 1))
	first, last := 0.0, 0.0
	x, y := eval.New(ir.T(ir.F32, 16, 12)), eval.New(ir.T(ir.I32, 16))
	for i := range x.F {
		x.F[i] = float64(float32(r.NormFloat64()))
	}
	for i := range y.I {
		y.I[i] = r.Int64N(10)
	}
	for step := range 30 {
		feed := map[string]*eval.Tensor{"x": x, "y": y}
		got, want := l.Step(t, feed), l.Want(t, feed)
		loss := got["%loss"].F[0]
		if math.Abs(loss-want["%loss"].F[0]) > 2e-3*math.Abs(loss) {
			t.Fatalf("step %d: loss %g, the evaluator has %g", step, loss, want["%loss"].F[0])
		}
		if step == 0 {
			first = loss
		}
		last = loss
	}
	if last > first/4 {
		t.Errorf("the loss went from %g to %g", first, last)
	}
}

// TestFeedInPlace: the input that is only cast, or only read by products, is read where it was fed, wherever that is; the
// others are copied.
func TestFeedInPlace(t *testing.T) {
	f32 := regexp.MustCompile("(?m)^prepare:\n|^.* = cast .*\n|\\.l\\b| {out=f(16|32)}| out=f32").ReplaceAllString(mlp, "")
	for name, text := range map[string]string{"cast": mlp, "products": strings.ReplaceAll(f32, "f16", "f32")} {
		t.Run(name, func(t *testing.T) {
			g, err := ir.Parse("mlp.ir", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			b, err := Open(1)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			l := runtimetest.Load(t, b, g, 3)
			defer l.Close(t)
			x := l.Exec.(*program)
			e := x.exclusiveInstance()
			if ok, _ := b.ComposesKernels(); name == "cast" && !ok {
				t.Skip("this path composes no kernel of a cast: inputs are copied")
			}
			if a, b := e.inputs[0], e.inputs[1]; a.name != "x" || a.readers == nil || b.readers != nil {
				t.Fatalf("read in place: %s %t, %s %t", a.name, a.readers != nil, b.name, b.readers != nil)
			}
			feedElsewhere(t, x)
		})
	}
}

// feedElsewhere feeds steps at several places and holds what the readers of x see.
func feedElsewhere(t *testing.T, p *program) {
	e := p.exclusiveInstance()
	x, labels := eval.New(ir.T(ir.F32, 16, 12)), make([]byte, 64)
	var grad []byte
	for _, off := range []int{0, 4, 1} {
		for i := range x.F {
			x.F[i] = float64(i%7+off) / 8
		}
		data := append(make([]byte, off, 4096), x.Bytes()...)[off:]
		p.Trace(runtime.Tracer{Part: func(part lower.Part, _ int) bool {
			if part == lower.Prepare { // nothing is fed yet
				return true
			}
			shown := p.Buffer(e.inputs[0].buffer)
			defer shown.Release()
			seen := shown.Bytes()
			if !bytes.Equal(seen, data) || (&seen[0] == &data[0]) != (off%4 == 0) {
				t.Errorf("offset %d: the step read other memory than it should", off)
			}
			for i, r := range e.inputs[0].readers {
				if &r.Data[0] != &seen[0] {
					t.Errorf("offset %d: reader %d has another feed", off, i)
				}
			}
			return true
		}})
		future, err := p.Step(context.Background(), []runtime.Feed{{"x": {Type: ir.T(ir.F32, 16, 12), Data: data}, "y": {Type: ir.T(ir.I32, 16), Data: labels}}})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range e.inputs[0].readers {
			if &r.Data[0] != &e.inputs[0].mem[0] {
				t.Errorf("offset %d: reader %d holds the feed of a step that is over", off, i)
			}
		}
		now := make([]byte, 4*12*20)
		if err := future.Read(1, now); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(now, grad) {
			t.Errorf("offset %d: the gradient is of another feed", off)
		}
		grad = now
	}
}
