package gputest

import (
	"os"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ptx"
)

// gpu is a bound device with one stream.
type gpu struct {
	cuda.Driver
	s    cuda.Stream
	fl   ptx.Flavour
	blas func() (cuda.Blas, error)
	dnn  func() (cuda.Dnn, error)
}

// needed reports whether doing without a GPU is a failure.
func needed() bool { return os.Getenv("AMPC_NEED_GPU") == "1" }

// open gives the device, or a simulated one where there is none.
func open(t testing.TB) *gpu {
	t.Helper()
	d, err := cuda.Open(0)
	g := &gpu{Driver: d, blas: cuda.OpenBlas, dnn: cuda.OpenDnn}
	switch {
	case err != nil && needed():
		t.Fatal(err)
	case err != nil:
		t.Logf("on the simulator: %v", err)
		dev, err := sim.Open(sim.Options{Major: 9})
		g.must(t, err)
		g.Driver, g.blas = dev, func() (cuda.Blas, error) { return dev.Blas(), nil }
		g.dnn = func() (cuda.Dnn, error) { return dev.Dnn(), nil }
	}
	g.must(t, g.Bind())
	g.s, err = g.NewStream()
	g.must(t, err)
	g.fl, err = ptx.FlavourFor(g.Info().Major, g.Info().Minor)
	g.must(t, err)
	t.Cleanup(func() {
		g.FreeStream(g.s)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run is t.Run with the device current to the subtest's thread: a subtest is a goroutine of its own.
func (g *gpu) run(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		g.must(t, g.Bind())
		f(t)
	})
}

// simulated reports whether there is no silicon to measure.
func (g *gpu) simulated() bool {
	_, is := g.Driver.(*sim.Device)
	return is
}

// of is a measurement's size: on the simulator, where only the way is tried, the small one.
func (g *gpu) of(full, small int64) int64 {
	if g.simulated() {
		return small
	}
	return full
}

func (g *gpu) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kernel loads a generated kernel.
func (g *gpu) kernel(t testing.TB, l *ptx.Launch, fl ptx.Flavour) cuda.Function {
	t.Helper()
	m := ptx.Module{Flavour: fl, Kernels: []*ptx.Kernel{l.Kernel}}
	mod, err := g.Load(m.Text())
	g.must(t, err)
	f, err := g.Function(mod, l.Kernel.Name)
	g.must(t, err)
	t.Cleanup(func() { g.Unload(mod) })
	return f
}

// buffer allocates device memory for the test.
func (g *gpu) buffer(t testing.TB, n int64) cuda.Ptr {
	t.Helper()
	p, err := g.Alloc(n)
	g.must(t, err)
	t.Cleanup(func() { g.Free(p) })
	return p
}

// upload copies bytes to a new buffer through page-locked memory.
func (g *gpu) upload(t testing.TB, b []byte) cuda.Ptr {
	t.Helper()
	p := g.buffer(t, int64(len(b)))
	mem, err := g.HostAlloc(int64(len(b)))
	g.must(t, err)
	copy(mem, b)
	g.must(t, g.CopyToDevice(p, mem, g.s))
	g.must(t, g.Synchronize(g.s))
	g.must(t, g.HostFree(mem))
	return p
}

func (g *gpu) download(t testing.TB, b []byte, p cuda.Ptr) {
	t.Helper()
	mem, err := g.HostAlloc(int64(len(b)))
	g.must(t, err)
	g.must(t, g.CopyToHost(mem, p, g.s))
	g.must(t, g.Synchronize(g.s))
	copy(b, mem)
	g.must(t, g.HostFree(mem))
}
