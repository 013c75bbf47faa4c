package sim

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
)

// bench is a device with two streams, a kernel y = x + 1 over n words, and buffers.
type bench struct {
	*Device
	t    *testing.T
	s, u cuda.Stream
	inc  func(s cuda.Stream, from, to cuda.Ptr) error
	mod  cuda.Module
}

const words = 128 // two pages

func newBench(t *testing.T, opt Options) *bench {
	t.Helper()
	opt.Major = 9
	d, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Device: d, t: t}
	b.s, b.u = b.stream(), b.stream()
	g := ptx.Elementwise{
		Name: "inc", Shape: []int64{words}, Loads: []ptx.Access{{Name: "x", DType: ptx.Float32}},
		Code:   []ptx.Instr{{Op: "in", Type: ptx.Float32}, {Op: "const", Type: ptx.Float32, Imm: 1}, {Op: "add", Type: ptx.Float32, A: 0, B: 1}},
		Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float32}, Value: 2}},
	}
	l, err := g.Build(ptx.SM90)
	b.ok(err)
	b.mod, err = d.Load((&ptx.Module{Flavour: ptx.SM90, Kernels: []*ptx.Kernel{l.Kernel}}).Text())
	b.ok(err)
	f, err := d.Function(b.mod, "inc")
	b.ok(err)
	b.inc = func(s cuda.Stream, from, to cuda.Ptr) error {
		return d.Launch(f, l.Grid, l.Block, 0, s, []cuda.Ptr{from, to})
	}
	return b
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// code expects an error of the driver's with this code and text.
func (b *bench) code(err error, code int, text string) {
	b.t.Helper()
	var e *cuda.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Text, text) {
		b.t.Fatalf("error %v, want code %d with %q", err, code, text)
	}
}

func (b *bench) stream() cuda.Stream {
	s, err := b.NewStream()
	b.ok(err)
	return s
}

func (b *bench) event() cuda.Event {
	e, err := b.NewEvent(false)
	b.ok(err)
	return e
}

// buffer is a zeroed buffer the host knows to be ready.
func (b *bench) buffer() cuda.Ptr {
	p, err := b.Alloc(4 * words)
	b.ok(err)
	b.ok(b.Fill32(p, 0, words, b.s))
	b.ok(b.Synchronize(b.s))
	return p
}

func (b *bench) value(p cuda.Ptr) float32 {
	b.ok(b.Synchronize(b.s))
	b.ok(b.Synchronize(b.u))
	mem, err := b.HostAlloc(4)
	b.ok(err)
	b.ok(b.CopyToHost(mem, p, b.s))
	b.ok(b.Synchronize(b.s))
	b.ok(b.HostFree(mem))
	return math.Float32frombits(binary.LittleEndian.Uint32(mem))
}

func TestStreamsAndHazards(t *testing.T) {
	b := newBench(t, Options{})
	x, y := b.buffer(), b.buffer()
	b.ok(b.inc(b.s, x, x))
	b.ok(b.inc(b.s, x, y)) // the same stream orders
	e := b.event()
	b.ok(b.Record(e, b.s))
	b.ok(b.Wait(b.u, e)) // so does an event
	b.ok(b.inc(b.u, y, y))
	b.ok(b.inc(b.s, x, x)) // other memory: no order needed
	if v := b.value(y); v != 3 {
		t.Errorf("y = %g", v)
	}
	b.ok(b.inc(b.s, x, x))
	b.code(b.inc(b.u, x, y), cuda.CodeLaunchFailed, "nothing to order them")
	b.code(b.Synchronize(b.s), cuda.CodeLaunchFailed, "") // the context is lost
}

func TestHazardsOfEveryKind(t *testing.T) {
	for name, act := range map[string]func(b *bench, x, y cuda.Ptr) error{
		"write after read": func(b *bench, x, y cuda.Ptr) error {
			b.ok(b.inc(b.s, x, y))
			return b.Fill32(x, 0, words, b.u)
		},
		"write after write": func(b *bench, x, y cuda.Ptr) error {
			b.ok(b.Fill8(y, 0, 4*words, b.u))
			return b.inc(b.s, x, y)
		},
		"copy of what is written": func(b *bench, x, y cuda.Ptr) error {
			b.ok(b.inc(b.s, x, x))
			return b.Copy(y, x, 4*words, b.u)
		},
		"event recorded too early": func(b *bench, x, y cuda.Ptr) error {
			e := b.event()
			b.ok(b.Record(e, b.s))
			b.ok(b.inc(b.s, x, x))
			b.ok(b.Wait(b.u, e))
			return b.inc(b.u, x, y)
		},
		"freed while in use": func(b *bench, x, y cuda.Ptr) error {
			b.ok(b.inc(b.s, x, x))
			return b.Free(x)
		},
	} {
		b := newBench(t, Options{})
		x, y := b.buffer(), b.buffer()
		var e *cuda.Error
		if err := act(b, x, y); !errors.As(err, &e) || !e.Sticky() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCaptureAndReplay(t *testing.T) {
	b := newBench(t, Options{})
	x, y := b.buffer(), b.buffer()
	fork, join := b.event(), b.event()
	b.ok(b.BeginCapture(b.s))
	b.ok(b.inc(b.s, x, x))
	b.ok(b.Record(fork, b.s))
	b.ok(b.Wait(b.u, fork))
	b.ok(b.inc(b.u, y, y))
	b.ok(b.Record(join, b.u))
	b.ok(b.inc(b.s, x, x))
	b.ok(b.Wait(b.s, join))
	b.ok(b.inc(b.s, y, x)) // x = y + 1
	g, err := b.EndCapture(b.s)
	b.ok(err)
	if n, err := b.Nodes(g); n != 4 || err != nil {
		t.Errorf("%d nodes, %v", n, err)
	}
	if v := b.value(x); v != 0 {
		t.Errorf("capture ran the kernels: %g", v)
	}
	e, err := b.Instantiate(g)
	b.ok(err)
	before := b.Syncs()
	for range 3 {
		b.ok(b.LaunchGraph(e, b.s))
	}
	if b.Syncs() != before {
		t.Error("a replay synchronized")
	}
	if v := b.value(y); v != 3 {
		t.Errorf("y = %g after three replays", v)
	}
	if v := b.value(x); v != 4 || b.Stats.GraphLaunches != 3 {
		t.Errorf("x = %g after three replays", v)
	}
}

func TestCaptureRules(t *testing.T) {
	for name, act := range map[string]struct {
		code int
		do   func(b *bench, x cuda.Ptr) error
	}{
		"synchronize":   {codeCaptureUnsupported, func(b *bench, _ cuda.Ptr) error { return b.Synchronize(b.s) }},
		"allocate":      {codeCaptureUnsupported, func(b *bench, _ cuda.Ptr) error { _, err := b.Alloc(4); return err }},
		"free":          {codeCaptureUnsupported, func(b *bench, x cuda.Ptr) error { return b.Free(x) }},
		"load":          {codeCaptureUnsupported, func(b *bench, _ cuda.Ptr) error { _, err := b.Load(""); return err }},
		"begin twice":   {cuda.CodeCaptureInvalid, func(b *bench, _ cuda.Ptr) error { return b.BeginCapture(b.s) }},
		"end elsewhere": {cuda.CodeCaptureInvalid, func(b *bench, _ cuda.Ptr) error { _, err := b.EndCapture(b.u); return err }},
		"query": {codeCapturedEvent, func(b *bench, _ cuda.Ptr) error {
			e := b.event()
			b.ok(b.Record(e, b.s))
			_, err := b.Done(e)
			return err
		}},
		"event from outside": {codeCaptureIsolation, func(b *bench, _ cuda.Ptr) error {
			e := b.event()
			b.ok(b.Record(e, b.u))
			return b.Wait(b.s, e)
		}},
		"not joined": {cuda.CodeCaptureUnjoined, func(b *bench, x cuda.Ptr) error {
			e := b.event()
			b.ok(b.Record(e, b.s))
			b.ok(b.Wait(b.u, e))
			b.ok(b.inc(b.u, x, x))
			_, err := b.EndCapture(b.s)
			return err
		}},
	} {
		b := newBench(t, Options{})
		x := b.buffer()
		b.ok(b.BeginCapture(b.s))
		var e *cuda.Error
		if err := act.do(b, x); !errors.As(err, &e) || e.Code != act.code {
			t.Errorf("%s: %v, want code %d", name, err, act.code)
		}
		_, err := b.EndCapture(b.s)
		switch name {
		case "begin twice", "end elsewhere":
			b.ok(err) // refused, and nothing spoiled
		default:
			b.code(err, cuda.CodeCaptureInvalid, "")
		}
	}
}

// TestHostMemory: what the host does to memory of a copy before it knows that
// the copy is done.
func TestHostMemory(t *testing.T) {
	host := func(b *bench) []byte {
		mem, err := b.HostAlloc(4 * words)
		b.ok(err)
		return mem
	}
	b := newBench(t, Options{})
	x, mem := b.buffer(), host(b)
	b.ok(b.CopyToHost(mem, x, b.s))
	if mem[0] != stale {
		t.Error("what a copy writes is there before anything waited for it")
	}
	e := b.event()
	b.ok(b.Record(e, b.s))
	b.ok(b.WaitHost(e))
	if mem[0] == stale {
		t.Error("what a copy wrote is not there")
	}
	b.ok(b.CopyToDevice(x, mem, b.s))
	b.code(b.HostFree(mem), codeHazard, "not known to be done")

	b = newBench(t, Options{})
	x, mem = b.buffer(), host(b)
	b.ok(b.CopyToDevice(x, mem, b.s))
	b.ok(b.Synchronize(b.u)) // the wrong stream: nothing is known
	mem[5]++
	b.code(b.Synchronize(b.s), codeHazard, "changed before")

	b = newBench(t, Options{})
	x, mem = b.buffer(), host(b)
	b.ok(b.BeginCapture(b.s))
	b.ok(b.CopyToDevice(x, mem, b.s))
	g, err := b.EndCapture(b.s)
	b.ok(err)
	run, err := b.Instantiate(g)
	b.ok(err)
	for range 2 { // a replay copies what is there then
		mem[7]++
		b.ok(b.LaunchGraph(run, b.s))
		b.ok(b.Synchronize(b.s))
	}
	b.ok(b.HostFree(mem))
	b.code(b.LaunchGraph(run, b.s), cuda.CodeIllegalAddress, "freed")
}

func TestOverlaps(t *testing.T) {
	b := newBench(t, Options{})
	x := b.buffer()
	b.code(b.Copy(x, x+16, 32, b.s), cuda.CodeInvalidValue, "overlap")
	b.ok(b.Copy(x, x+32, 32, b.s))
	m := cuda.Matrix{Type: cuda.R32F, Ld: 4}
	p, err := b.Blas().Plan(cuda.Matmul{M: 4, N: 4, K: 4, A: m, B: m, C: m, D: m, Align: 16, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueNone})
	b.ok(err)
	algos, err := p.Algos(0, 1)
	b.ok(err)
	o := cuda.Operands{A: x, B: x + 64, C: x + 128, D: x + 128}
	b.ok(p.Run(algos[0], 1, 1, o, b.s))
	o.D = x + 112
	b.code(p.Run(algos[0], 1, 0, o, b.s), statusInvalid, "reads")
	c := cuda.Conv{X: []int64{1, 1, 2, 2}, W: []int64{1, 1, 1, 1}, Y: []int64{1, 1, 2, 2},
		Shape: cuda.ConvShape{Pads: []int64{0, 0}, EndPads: []int64{0, 0}, Strides: []int64{1, 1}, Dilations: []int64{1, 1}}}
	q, err := cuda.FirstPlan(b.Dnn(), c.Graph(), cuda.DnnOptions{Workspace: 1 << 20})
	b.ok(err)
	ws, err := b.Alloc(q.Workspace())
	b.ok(err)
	b.ok(q.Run([]cuda.Ptr{x, x + 32, x + 64}, ws, b.s))
	b.code(q.Run([]cuda.Ptr{x, x + 16, x + 16}, ws, b.s), cuda.CodeInvalidValue, "reads")
}

// TestFootprints holds steps to what they declare: by page, through a replay, and
// until something else is declared.
func TestFootprints(t *testing.T) {
	for _, c := range []struct {
		name          string
		reads, writes func(x, y cuda.Ptr) []Range
		want          string
	}{
		{"all", func(x, _ cuda.Ptr) []Range { return []Range{{x, 4 * words}} }, func(_, y cuda.Ptr) []Range { return []Range{{y, 4 * words}} }, ""},
		{"half read", func(x, _ cuda.Ptr) []Range { return []Range{{x, 2 * words}} }, func(_, y cuda.Ptr) []Range { return []Range{{y, 4 * words}} }, "reads 256 bytes"},
		{"half written", func(x, _ cuda.Ptr) []Range { return []Range{{x, 4 * words}} }, func(_, y cuda.Ptr) []Range { return []Range{{y + 2*words, 2 * words}} }, "writes 256 bytes"},
		{"written and not said", func(x, y cuda.Ptr) []Range { return []Range{{x, 4 * words}, {y, 4 * words}} }, func(_, _ cuda.Ptr) []Range { return nil }, "writes 256 bytes"},
		{"two parts", func(x, _ cuda.Ptr) []Range { return []Range{{x + 2*words, 2 * words}, {x, 2 * words}} }, func(_, y cuda.Ptr) []Range { return []Range{{y, 4 * words}} }, ""},
	} {
		for _, captured := range []bool{false, true} {
			b := newBench(t, Options{})
			x, y := b.buffer(), b.buffer()
			if captured {
				b.ok(b.BeginCapture(b.s))
			}
			b.Limit(NewFootprint(c.reads(x, y), c.writes(x, y)))
			err := b.inc(b.s, x, y)
			b.Limit(nil)
			if captured {
				b.ok(err)
				g, end := b.EndCapture(b.s)
				b.ok(end)
				e, made := b.Instantiate(g)
				b.ok(made)
				err = b.LaunchGraph(e, b.s)
			}
			if c.want == "" {
				b.ok(err)
				b.ok(b.inc(b.s, y, x)) // nothing is declared any more
				continue
			}
			b.code(err, codeHazard, c.want)
		}
	}
}

// TestMissingEdge: a capture that forgets to wait is found when the graph runs.
func TestMissingEdge(t *testing.T) {
	b := newBench(t, Options{})
	x, y := b.buffer(), b.buffer()
	fork, join := b.event(), b.event()
	b.ok(b.BeginCapture(b.s))
	b.ok(b.Record(fork, b.s))
	b.ok(b.Wait(b.u, fork))
	b.ok(b.inc(b.s, x, x))
	b.ok(b.inc(b.u, x, y)) // should have waited
	b.ok(b.Record(join, b.u))
	b.ok(b.Wait(b.s, join))
	g, err := b.EndCapture(b.s)
	b.ok(err)
	e, err := b.Instantiate(g)
	b.ok(err)
	b.code(b.LaunchGraph(e, b.s), cuda.CodeLaunchFailed, "nothing to order them")
}

func TestMisuse(t *testing.T) {
	b := newBench(t, Options{Memory: 1 << 20})
	x := b.buffer()
	_, err := b.Alloc(1 << 21)
	if !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Errorf("2 MiB of 1: %v", err)
	}
	b.code(b.CopyToDevice(x, make([]byte, 4), b.s), cuda.CodeInvalidValue, "HostAlloc")
	b.code(b.Free(x+4), cuda.CodeInvalidValue, "not an allocation")
	b.code(b.Record(77, b.s), cuda.CodeInvalidHandle, "")
	b.code(b.Fill32(x+2, 0, 1, b.s), cuda.CodeInvalidValue, "multiple of 4")
	_, err = b.Load(".version 7.0 .target sm_80 nonsense")
	b.code(err, cuda.CodeInvalidPTX, "line 1")
	_, err = b.Function(b.mod, "absent")
	b.code(err, cuda.CodeMissing, "absent")
	b.ok(b.Unload(b.mod))
	b.code(b.inc(b.s, x, x), cuda.CodeInvalidHandle, "no such function")
	old, err := Open(Options{Major: 7})
	b.ok(err)
	_, err = old.Load((&ptx.Module{Flavour: ptx.SM80}).Text())
	b.code(err, 209, "sm_80 on sm_70")
	if _, err := Open(Options{Major: 6}); !errors.Is(err, cuda.ErrUnavailable) {
		t.Errorf("sm_60: %v", err)
	}
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "1 allocations") {
		t.Errorf("close with a leak: %v", err)
	}
}

func TestBadKernelsBreakTheContext(t *testing.T) {
	b := newBench(t, Options{})
	x := b.buffer()
	b.code(b.inc(b.s, x+4*words-16, x), cuda.CodeIllegalAddress, "out of bounds")
	b.code(b.Fill32(x, 0, 1, b.s), cuda.CodeIllegalAddress, "") // sticky
	b = newBench(t, Options{})
	x = b.buffer()
	y, err := b.Alloc(4 * words)
	b.ok(err)
	b.code(b.inc(b.s, y, x), cuda.CodeIllegalAddress, "never written")
	b = newBench(t, Options{})
	x = b.buffer()
	b.code(b.inc(b.s, x+4, x), cuda.CodeMisaligned, "misaligned")
}

func TestInjectedFaults(t *testing.T) {
	b := newBench(t, Options{FailAlloc: 2, FailLaunch: 1, FailLoad: 2})
	x := b.buffer()
	if _, err := b.Alloc(4); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Errorf("second allocation: %v", err)
	}
	_, err := b.Load("")
	b.code(err, cuda.CodeInvalidPTX, "ptxas")
	b.code(b.inc(b.s, x, x), cuda.CodeLaunchFailed, "injected")
	b.code(b.Synchronize(b.s), cuda.CodeLaunchFailed, "injected")

	b = newBench(t, Options{FailProduct: 1, NoDnn: true})
	x = b.buffer()
	m := cuda.Matrix{Type: cuda.R32F, Ld: 1}
	p, err := b.Blas().Plan(cuda.Matmul{M: 1, N: 1, K: 1, A: m, B: m, C: m, D: m, Align: 16, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueNone})
	b.ok(err)
	algos, err := p.Algos(0, 1)
	b.ok(err)
	b.code(p.Run(algos[0], 1, 0, cuda.Operands{A: x, B: x, D: x + 16}, b.s), statusFailed, "injected")
	b.ok(p.Run(algos[0], 1, 0, cuda.Operands{A: x, B: x, D: x + 16}, b.s))
	if _, err := b.OpenDnn(); !errors.Is(err, cuda.ErrUnavailable) {
		t.Errorf("no cuDNN: %v", err)
	}
}
