package sim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ampc/cuda"
)

// took is what run takes on the device, by events.
func (b *bench) took(run func()) time.Duration {
	b.t.Helper()
	var ev [2]cuda.Event
	for i := range ev {
		e, err := b.NewEvent(true)
		b.ok(err)
		defer b.FreeEvent(e)
		ev[i] = e
	}
	b.ok(b.Synchronize(b.s))
	b.ok(b.Record(ev[0], b.s))
	run()
	b.ok(b.Record(ev[1], b.s))
	b.ok(b.WaitHost(ev[1]))
	d, err := b.Elapsed(ev[0], ev[1])
	b.ok(err)
	return d
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// TestElapsed: time passes as the model has it. Twice the bytes take twice as long, another stream hides
// what is not work, copies from the host go beside work, and a slow operation is slow and right.
func TestElapsed(t *testing.T) {
	b := newBench(t, Options{NoHazards: true, Slow: []Slow{{What: "cuMemsetD32", Times: 7}}})
	const big = 64 << 20
	p, err := b.Alloc(big)
	b.ok(err)
	half := b.took(func() { b.ok(b.Fill8(p, 1, big/2, b.s)) })
	whole := b.took(func() { b.ok(b.Fill8(p, 1, big, b.s)) })
	work := whole - half // twice, without what every operation takes
	if ideal := seconds(big / 2 / memoryRate); work < ideal*99/100 || work > ideal*101/100 {
		t.Errorf("half takes %v, all takes %v: the difference is not %v", half, whole, ideal)
	}
	if slow := b.took(func() { b.ok(b.Fill32(p, 1, big/4, b.s)) }); slow < 5*whole || slow > 7*whole {
		t.Errorf("a fill that is seven times slower takes %v, another %v", slow, whole)
	}
	one := b.took(func() {
		for range 4 {
			b.ok(b.Fill8(p, 1, 64, b.s))
		}
	})
	e, err := b.NewEvent(false)
	b.ok(err)
	two := b.took(func() {
		b.ok(errors.Join(b.Record(e, b.s), b.Wait(b.u, e)))
		for range 2 {
			b.ok(errors.Join(b.Fill8(p, 1, 64, b.s), b.Fill8(p, 1, 64, b.u)))
		}
		b.ok(errors.Join(b.Record(e, b.u), b.Wait(b.s, e)))
	})
	if two > one {
		t.Errorf("small fills on two streams take %v, on one %v", two, one)
	}
	mem, err := b.HostAlloc(8 << 20)
	b.ok(err)
	alone := b.took(func() { b.ok(b.CopyToDevice(p, mem, b.s)) })
	beside := b.took(func() {
		b.ok(errors.Join(b.Record(e, b.s), b.Wait(b.u, e), b.CopyToDevice(p, mem, b.u)))
		for range 3 {
			b.ok(b.Fill8(p, 1, big, b.s))
		}
		b.ok(errors.Join(b.Record(e, b.u), b.Wait(b.s, e)))
	})
	if alone < 160*time.Microsecond || beside > alone+20*time.Microsecond {
		t.Errorf("a copy from the host takes %v, with fills beside it %v", alone, beside)
	}
}

// TestCallsFail: a call fails with the code that it is told to, and an error of its class.
func TestCallsFail(t *testing.T) {
	b := newBench(t, Options{Faults: []Fault{{Call: "cublasLtMatmulAlgoGetHeuristic", At: 2, Code: 14}, {Call: "cuMemHostAlloc", Code: cuda.CodeOutOfMemory}}})
	mat := cuda.Matrix{Type: cuda.R16F, Ld: 8}
	p, err := b.Blas().Plan(cuda.Matmul{M: 8, N: 8, K: 8, A: mat, B: mat, C: mat, D: mat, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueNone})
	b.ok(err)
	for at, want := range []error{nil, cuda.ErrInternal, nil} {
		if _, err := p.Algos(0, 1); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", at+1, err, want)
		}
	}
	if _, err := b.HostAlloc(8); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Errorf("memory of the host: %v", err)
	}
}

// TestEngines: what engines say of themselves decides which is taken; what is missing or wrong is said.
func TestEngines(t *testing.T) {
	shape := cuda.ConvShape{Pads: []int64{0, 0}, EndPads: []int64{0, 0}, Strides: []int64{1, 1}, Dilations: []int64{1, 1}}
	conv := cuda.Conv{Type: cuda.DnnHalf, Out: cuda.DnnHalf, X: []int64{1, 8, 2, 2}, W: []int64{8, 8, 1, 1}, Y: []int64{1, 8, 2, 2}, Shape: shape}
	wide := conv
	wide.Type, wide.Out = cuda.DnnFloat, cuda.DnnFloat
	names := func(c cuda.Conv, o cuda.DnnOptions) string {
		o.Workspace, o.Most = 1<<20, 8
		b := newBench(t, Options{})
		plans, err := b.Dnn().Plans(c.Graph(), o)
		b.ok(err)
		var list []string
		for _, p := range plans {
			list = append(list, p.Engine())
		}
		return strings.Join(list, " ")
	}
	for _, c := range []struct {
		c    cuda.Conv
		o    cuda.DnnOptions
		want string
	}{
		{conv, cuda.DnnOptions{}, "a1:12 a2:13 a3:14 a4:15"}, {conv, cuda.DnnOptions{Deterministic: true}, "a1:12 a2:13 a3:14"},
		{wide, cuda.DnnOptions{}, "a1:12 a3:14"}, {wide, cuda.DnnOptions{TF32: true, Deterministic: true}, "a1:12 a2:13 a3:14"},
		{conv, cuda.DnnOptions{Engine: "a3:14"}, "a3:14"},
	} {
		if got := names(c.c, c.o); got != c.want {
			t.Errorf("%+v: engines %s, want %s", c.o, got, c.want)
		}
	}
	a := cuda.Attention{Type: cuda.DnnHalf, B: 1, H: 1, Sq: 128, Skv: 128, D: 64, Scale: 1}
	for _, c := range []struct {
		opt  Options
		want error
		says string
	}{
		{Options{LacksParts: []string{"engines_runtime_compiled"}}, cuda.ErrBroken, "libcudnn_engines_runtime_compiled is missing"},
		{Options{DnnVersion: 91001}, cuda.ErrNotSupported, "cuDNN 9.10.1: attention"},
		{Options{Faults: []Fault{{Call: "cudnnBackendFinalize", Code: 4000}}}, cuda.ErrInternal, "CUDNN_STATUS_INTERNAL_ERROR"},
		{Options{Faults: []Fault{{Call: "cudnnBackendFinalize", Code: 4004}}}, cuda.ErrOutOfMemory, "DEVICE_ALLOCATION_FAILED"},
		{Options{Engines: []Engine{{Index: 1, Notes: []int32{cuda.NoteShortSums}}}}, cuda.ErrNotSupported, "no engine"},
	} {
		_, err := cuda.FirstPlan(newBench(t, c.opt).Dnn(), a.Forward(), cuda.DnnOptions{Workspace: 1 << 20})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.opt, err)
		}
	}
	if _, err := newBench(t, Options{LacksParts: []string{"cnn"}}).OpenDnn(); !errors.Is(err, cuda.ErrBroken) {
		t.Errorf("a part is missing: %v", err)
	}
}
