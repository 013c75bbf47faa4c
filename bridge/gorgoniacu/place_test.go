package gorgoniacu

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"ampc"
	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/internal/trial"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
)

// owner stands for a program that holds a device, a stream and memory; the
// simulated device takes gorgonia.org/cu's place.
type owner struct {
	t *testing.T
	d *sim.Device
	s cuda.Stream
}

func newOwner(t *testing.T) *owner {
	d, err := sim.Open(sim.Options{Major: 8})
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{t: t, d: d}
	o.ok(d.Bind())
	o.s, err = d.NewStream()
	o.ok(err)
	return o
}

func (o *owner) ok(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// read copies n floats from p, in the owner's stream.
func (o *owner) read(p cuda.Ptr, n int) []float32 {
	mem, err := o.d.HostAlloc(int64(4 * n))
	o.ok(err)
	o.ok(errors.Join(o.d.CopyToHost(mem, p, o.s), o.d.Synchronize(o.s)))
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(mem[4*i:]))
	}
	o.ok(o.d.HostFree(mem))
	return x
}

// regression is a step of y = x·w with its weights [4,1] called "fc.w".
func regression(t *testing.T, b runtime.Backend, policy ampc.Policy) (*ampc.Model, *ampc.Step) {
	m := ampc.New("regression", ampc.On(b))
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: policy}
	step, err := m.Train(c, ampc.Loss{Value: m.MSE(m.Linear("fc", x, 1), y)})
	if err != nil {
		t.Fatal(err)
	}
	return m, step
}

func batch(k int) ampc.Feed {
	x, y := make([]float32, 32), make([]float32, 8)
	for i := range x {
		x[i] = float32((i*7+k*3)%11)/11 - 0.5
	}
	for i := range y {
		y[i] = x[4*i] - 2*x[4*i+1]
	}
	return ampc.Feed{"x": x, "y": y}
}

func run(t *testing.T, s *ampc.Step, k int) float64 {
	t.Helper()
	r, err := s.Run(context.Background(), batch(k))
	if err != nil {
		t.Fatal(err)
	}
	return trial.Metrics(t, r).Loss
}

// A model trains as on the CPU while its weights lie in the owner's memory,
// where the owner reads them, and overwrites them.
func TestWeightsInGivenMemory(t *testing.T) {
	o := newOwner(t)
	w, err := o.d.Alloc(16)
	o.ok(err)
	inner, err := gpu.OpenOn(o.d, o.s)
	o.ok(err)
	b := &Backend{Backend: inner, memory: map[string]cuda.Ptr{"fc.w": w, "unknown": w}}
	c, err := cpu.Open(1)
	o.ok(err)
	defer c.Close()
	policy := ampc.MixedF16()
	m, ours := regression(t, b, policy)
	m2, theirs := regression(t, c, policy)
	for k := range 5 {
		if got, want := run(t, ours, k), run(t, theirs, k); math.Abs(got-want) > 1e-3*math.Abs(want) {
			t.Errorf("step %d: loss %g, on the CPU %g", k, got, want)
		}
	}
	same(t, "trained", o.read(w, 4), m)
	o.ok(o.d.Fill32(w, math.Float32bits(-1), 4, o.s))
	o.ok(b.Touch())
	o.ok(m2.SetVariable("fc.w", []float32{-1, -1, -1, -1}))
	same(t, "overwritten", []float32{-1, -1, -1, -1}, m)
	if got, want := run(t, ours, 9), run(t, theirs, 9); math.Abs(got-want) > 1e-3*math.Abs(want) {
		t.Errorf("loss of overwritten weights is %g, on the CPU %g", got, want)
	}
	o.ok(errors.Join(m.Close(), m2.Close(), b.Close()))
	if x := o.read(w, 4); x[0] == -1 {
		t.Errorf("the last step left the weights at %v", x)
	}
	o.ok(errors.Join(o.d.Free(w), o.d.Close()))
}

func same(t *testing.T, what string, want []float32, m *ampc.Model) {
	t.Helper()
	h, err := m.Variable("fc.w")
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range h.Floats() {
		if v != want[i] {
			t.Errorf("%s: element %d is %g in the owner's memory, %g in the model", what, i, want[i], v)
		}
	}
}

func TestBadMemory(t *testing.T) {
	o := newOwner(t)
	inner, err := gpu.OpenOn(o.d, o.s)
	o.ok(err)
	b := &Backend{Backend: inner, memory: map[string]cuda.Ptr{"fc.w": 4}}
	m := ampc.New("m", ampc.On(b))
	x := m.Input("x", ampc.F32, 8, 4)
	if _, err := m.Infer(ampc.InferConfig{}, m.Linear("fc", x, 1)); err == nil {
		t.Error("weights at address 4 were accepted")
	}
	c, err := cpu.Open(1)
	o.ok(err)
	defer c.Close()
	s, err := c.NewStore(nil)
	o.ok(err)
	if _, err := b.Load(nil, s); err == nil {
		t.Error("a program was loaded over the store of another backend")
	}
}
