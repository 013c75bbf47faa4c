//go:build linux && amd64 && !nocuda

package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// fakeLog builds the logging driver and gives its log since the last call.
func fakeLog(t *testing.T) (so string, since func() string) {
	t.Helper()
	src, err := os.ReadFile("testdata/fake.c")
	if err != nil {
		t.Fatal(err)
	}
	so = compileC(t, "fake", string(src))
	log := recorderSymbol(t, so, "fake_log")
	seen := 0
	return so, func() string {
		text := cString(log())
		defer func() { seen = len(text) }()
		return strings.TrimSuffix(text[seen:], "\n")
	}
}

func expectLog(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, w)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAdopt wants a foreign context made current only for as long as it takes,
// bound like one of our own, and left alone by Close.
func TestAdopt(t *testing.T) {
	so, log := fakeLog(t)
	lib := openLibrary(libDriver, []string{so})
	d, err := adopt(lib, 0xc7)
	must(t, err)
	if d.Info().Name != "Fake 40" {
		t.Errorf("info %+v", d.Info())
	}
	must(t, d.Bind())
	must(t, d.Close())
	expectLog(t, "adopt", log(), "init 0", "push 0xc7", "pop", "current 0xc7")
	if _, err := adopt(lib, 0xbad); err == nil {
		t.Error("adopted a context that the driver refused")
	}
}

func TestDeviceCalls(t *testing.T) {
	so, log := fakeLog(t)
	d, err := openDevice(openLibrary(libDriver, []string{so}), 1)
	must(t, err)
	must(t, d.Bind())
	expectLog(t, "open", log(), "init 0", "retain 41", "current 0xc0")
	if i := d.Info(); i.Name != "Fake 41" || i.Major != 9 || i.SMs != 160 || i.Memory != 1<<36 || i.Driver != 12040 || i.L2 != 380 {
		t.Errorf("info %+v", i)
	}
	p, err := d.Alloc(256)
	must(t, err)
	mem, err := d.HostAlloc(8)
	must(t, err)
	copy(mem, "payload!")
	s, err := d.NewStream()
	must(t, err)
	must(t, d.CopyToDevice(p, mem[:7], s))
	must(t, d.CopyToHost(mem[:3], p+8, s))
	must(t, d.Copy(p, p+16, 5, s))
	must(t, d.Fill32(p, 0xffffffff, 4, s))
	must(t, d.Fill8(p, 7, 3, s))
	if string(mem) != "xxxload!" {
		t.Errorf("host memory %q", mem)
	}
	expectLog(t, "memory", log(), "alloc 256", "hostalloc 8 0", "stream 1", "htod 7000 payload 0x51", "dtoh 7008 3 0x51",
		"dtod 7000 7010 5 0x51", "fill32 7000 4294967295 4 0x51", "fill8 7000 7 3 0x51")

	e, err := d.NewEvent(false)
	must(t, err)
	must(t, d.Record(e, s))
	must(t, d.Wait(s, e))
	if done, err := d.Done(e); done || err != nil {
		t.Errorf("event done %v, %v", done, err)
	}
	if dt, err := d.Elapsed(e, e+1); dt != 1500*time.Microsecond || err != nil {
		t.Errorf("elapsed %v, %v", dt, err)
	}
	before := d.Syncs()
	must(t, d.Synchronize(s))
	must(t, d.WaitHost(e))
	if d.Syncs() != before+2 {
		t.Errorf("%d syncs counted", d.Syncs()-before)
	}
	expectLog(t, "events", log(), "event 2", "record 0xe1 0x51", "wait 0x51 0xe1 0", "elapsed 0xe1 0xe2", "sync 0x51", "eventsync 0xe1")

	m, err := d.Load("text")
	must(t, err)
	f, err := d.Function(m, "k")
	must(t, err)
	must(t, d.Launch(f, [3]int{1, 2, 3}, 128, 50000, s, []Ptr{0x10, 0x20}))
	expectLog(t, "kernels", log(), "load 'text' options 5 6 3 4 12 sizes 16384 16384", "function 0x30 k", "setattr 0xf0 8 50000",
		"launch 0xf0 1,2,3 128,1,1 50000 0x51 params 0 args 10 20")

	must(t, d.BeginCapture(s))
	g, err := d.EndCapture(s)
	must(t, err)
	if n, err := d.Nodes(g); n != 3 || err != nil {
		t.Errorf("%d nodes, %v", n, err)
	}
	x, err := d.Instantiate(g)
	must(t, err)
	must(t, d.LaunchGraph(x, s))
	must(t, errors.Join(d.FreeExec(x), d.FreeGraph(g), d.Unload(m), d.FreeEvent(e), d.FreeStream(s), d.HostFree(mem), d.Free(p), d.Close()))
	expectLog(t, "graph", log(), "capture 0x51 1", "endcapture 0x51", "nodes 0x90 0", "instantiate 0x90 0", "graphlaunch 0x91 0x51",
		"execfree 0x91", "graphfree 0x90", "unload 0x30", "eventfree 0xe1", "streamfree 0x51", "hostfree 1", "free 7000", "release 41")
}

func TestDeviceErrors(t *testing.T) {
	so, _ := fakeLog(t)
	lib := openLibrary(libDriver, []string{so})
	d, err := openDevice(lib, 0)
	must(t, err)
	if _, err := d.Alloc(1 << 40); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("allocation: %v", err)
	}
	if _, err := d.Load("bad"); err == nil || !strings.Contains(err.Error(), "ptxas line 3: no") {
		t.Errorf("bad module: %v", err)
	}
	if _, err := openDevice(lib, 2); !errors.Is(err, ErrUnavailable) {
		t.Errorf("device 2 of 2: %v", err)
	}
	if err := d.HostFree(make([]byte, 4)); err == nil {
		t.Error("foreign host memory is freed")
	}
	if e := (&Error{Lib: libDriver, Code: CodeIllegalAddress}); !e.Sticky() {
		t.Error("an illegal address is not sticky")
	}
}

func TestBlasCalls(t *testing.T) {
	so, log := fakeLog(t)
	b, err := openBlas(openLibrary(libBlas, []string{so}))
	must(t, err)
	if b.Version() != 120405 {
		t.Errorf("version %d", b.Version())
	}
	log()
	m := RowMajor(64, 256, 784, false, true, Matrix{R16F, 784, 0}, Matrix{R16F, 784, 0}, Matrix{R16F, 256, 0}, Compute32F)
	m.Epilogue, m.BiasType, m.AuxLd, m.AuxType, m.Align = EpilogueGeluAuxBias, R32F, 256, R16F, 16
	p, err := b.Plan(m)
	must(t, err)
	// y[64,256] = x[64,784]·W[256,784]^T: cuBLAS sees 256×64 from W transposed and x.
	expectLog(t, "plan", log(), "desc 68 0", "descattr 3 size 4 = 1", "descattr 4 size 4 = 0", "descattr 7 size 4 = a4",
		"descattr 8 size 8 = 100", "descattr 26 size 4 = 0", "descattr 11 size 8 = 100", "descattr 12 size 8 = 100",
		"layout 2 784 256 784", "layout 2 784 64 784", "layout 2 256 64 256", "layout 2 256 64 256")
	algos, err := p.Algos(1<<20, 4)
	must(t, err)
	if len(algos) != 1 || algos[0].Words[0] != 11 || algos[0].Workspace != 64 {
		t.Errorf("algorithms %+v", algos)
	}
	expectLog(t, "heuristics", log(), "prefattr 1 size 8 = 100000", "prefattr 3 size 4 = 2",
		"prefattr 5 size 4 = 10", "prefattr 6 size 4 = 10", "prefattr 7 size 4 = 10", "prefattr 8 size 4 = 10",
		"heuristic 0xb0 0xd5 0xa1 0xa2 0xa3 0xa4 0x9e 4 size 96", "preffree 0x9e")
	must(t, p.Run(algos[0], 1, 0.5, Operands{A: 1, B: 2, C: 3, D: 4, Bias: 5, Aux: 6, Workspace: 7, WorkspaceBytes: 64}, 8))
	expectLog(t, "run", log(), "descattr 8 size 8 = 5", "descattr 11 size 8 = 6",
		"matmul 0xb0 0xd5 1 0x1 0xa1 0x2 0xa2 0.5 0x3 0xa3 0x4 0xa4 algo 11 ws 0x7 64 0x8")
	m.Batch, m.A.Stride, m.Epilogue = 3, 77, EpilogueNone
	q, err := b.Plan(m)
	must(t, err)
	if l := log(); strings.Count(l, "layoutattr 5 size 4 = 3\n") != 4 || !strings.Contains(l, "layoutattr 5 size 4 = 3\nlayoutattr 6 size 8 = 4d") {
		t.Errorf("batch: %s", l)
	}
	must(t, errors.Join(p.Close(), q.Close(), b.Close()))
}

// TestAttributes: a driver need not know what is only shown; without a compute capability there is no
// device.
func TestAttributes(t *testing.T) {
	source, err := os.ReadFile("testdata/fake.c")
	must(t, err)
	without := func(attrs string) *library {
		return openLibrary(libDriver, []string{compileC(t, "attrs", strings.Replace(string(source), "{ *v = a == 75", "{ if ("+attrs+") return 1; *v = a == 75", 1))})
	}
	d, err := openDevice(without("a != 75 && a != 76"), 0)
	must(t, err)
	if i := d.Info(); i.Major != 9 || i.L2 != 0 || i.SMs != 0 {
		t.Errorf("info %+v", i)
	}
	if _, err := openDevice(without("a == 75"), 0); err == nil {
		t.Error("a device of unknown capability is opened")
	}
}

// TestRealLibraryAbsent: whatever this machine has, Open either works or says why not.
func TestRealLibraryAbsent(t *testing.T) {
	d, err := Open(0)
	if err == nil {
		must(t, d.Close())
		return
	}
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), ";") {
		t.Errorf("unhelpful: %v", err)
	}
	r := Discover()
	if r.Problem == "" || r.Advice == "" || !strings.Contains(r.String(), "to do:") {
		t.Errorf("report without a way out:\n%s", r)
	}
}

func TestMissingFunctions(t *testing.T) {
	so := compileC(t, "empty", "int cuInit(unsigned f) { return 100; }")
	l := openLibrary(libDriver, []string{"/nonexistent/libcuda.so.1", so})
	if l.loaded() || len(l.tried) != 2 || !strings.Contains(l.tried[1].Problem, "lacks cuDriverGetVersion") {
		t.Errorf("tried %+v", l.tried)
	}
}
