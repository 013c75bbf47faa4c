package gpu_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/runtime"
	"ampc/runtime/gpu"
	"ampc/runtime/runtimetest"
)

// wide has an input that goes to the device ahead of its step.
const wide = `graph @wide {
  input %x : f32[512,256]
forward:
  %y = affine %x {scale=2 shift=1} : f32[512,256]
  return %y
}
`

// TestInputsGoAhead: a large input arrives beside the step before, so that steps take as long as the longer
// of the two; the host waits for nothing, and results are those of the input.
func TestInputsGoAhead(t *testing.T) {
	g, err := ir.Parse("wide.ir", []byte(wide))
	if err != nil {
		t.Fatal(err)
	}
	d, err := sim.Open(sim.Options{Major: 9, Slow: []sim.Slow{{What: "kernel", Times: 40}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Bind(); err != nil { // the test's stream
		t.Fatal(err)
	}
	user, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := gpu.OpenOn(d, user)
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, b, g, 1)
	r := rand.New(rand.NewPCG(1, 2))
	took := func(steps int) time.Duration {
		t.Helper()
		feeds := make([]map[string]*eval.Tensor, steps)
		for i := range feeds {
			feeds[i] = feed(g, r)
		}
		var last runtime.Future
		time, err := cuda.TimeOf(d, user, func() error {
			for _, f := range feeds {
				if last, err = l.Exec.Step(context.Background(), runtimetest.Feeds(f)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 512*256*4)
		if err := last.Read(0, got); err != nil {
			t.Fatal(err)
		}
		if want := 2*feeds[steps-1]["x"].F[0] + 1; float(got) != float32(want) {
			t.Errorf("the last result begins with %g, want %g", float(got), want)
		}
		return time
	}
	took(3) // the first steps allocate and capture
	one, many := took(1), took(8)
	if many > 8*one*7/10 {
		t.Errorf("a step takes %v, eight take %v: no copy goes beside a step", one, many)
	}
	l.Close(t)
	if err := errors.Join(b.Close(), d.FreeStream(user), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestReadsAllocateNothing: after the first read of a result, reads use the same page-locked memory.
func TestReadsAllocateNothing(t *testing.T) {
	d, b := device(t, sim.Options{})
	g, err := ir.Parse("reading.ir", []byte(reading))
	if err != nil {
		t.Fatal(err)
	}
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	r := rand.New(rand.NewPCG(3, 4))
	before := 0
	for step := range 6 {
		future, err := l.Exec.Step(context.Background(), runtimetest.Feeds(feed(g, r)))
		if err != nil {
			t.Fatal(err)
		}
		if err := future.Read(0, make([]byte, 128)); err != nil {
			t.Fatal(err)
		}
		if step == 1 {
			before = d.Stats.HostAllocs
		}
	}
	if n := d.Stats.HostAllocs - before; n != 0 {
		t.Errorf("%d allocations of page-locked memory in four steps that read a result", n)
	}
}

// blocks has inputs that go to the device in more than one block, each filled by several goroutines, and reads
// a number of every chunk.
const blocks = `graph @blocks {
  input %x : f32[80,32768]
  input %k : f32[7]
forward:
  %y = slice %x {axes=[1] starts=[32767] ends=[32768]} : f32[80,1]
  %z = affine %k {scale=2 shift=1} : f32[7]
  return %y, %z
}
`

// TestInputsInBlocks: inputs of several blocks arrive whole, in two steps one after the other.
func TestInputsInBlocks(t *testing.T) {
	g, err := ir.Parse("blocks.ir", []byte(blocks))
	if err != nil {
		t.Fatal(err)
	}
	_, b := device(t, sim.Options{})
	l := runtimetest.Load(t, b, g, 1)
	defer l.Close(t)
	r := rand.New(rand.NewPCG(5, 6))
	feeds := []map[string]*eval.Tensor{feed(g, r), feed(g, r)}
	var results []runtime.Future
	for _, f := range feeds {
		got, err := l.Exec.Step(context.Background(), runtimetest.Feeds(f))
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, got)
	}
	for step, f := range feeds {
		rows, k := make([]byte, 80*4), make([]byte, 7*4)
		if err := errors.Join(results[step].Read(0, rows), results[step].Read(1, k)); err != nil {
			t.Fatal(err)
		}
		for i := range 80 {
			if got, want := float(rows[4*i:]), float32(f["x"].F[32768*i+32767]); got != want {
				t.Fatalf("step %d, row %d: %g, want %g", step, i, got, want)
			}
		}
		if got, want := float(k[24:]), float32(2*f["k"].F[6]+1); got != want {
			t.Errorf("step %d: the second input gave %g, want %g", step, got, want)
		}
	}
}
