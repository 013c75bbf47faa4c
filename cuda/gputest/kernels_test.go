package gputest

import (
	"fmt"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ptx"
	"ampc/ptx/interp"
	"ampc/ptx/ptxtest"
)

// TestKernels runs every case of the catalogue in the base flavour and in the device's own: the
// reference must agree, and so must the interpreter, bit for bit (any NaN equals any NaN), unless the
// kernel uses an approximation of the GPU's.
func TestKernels(t *testing.T) {
	g := open(t)
	if _, simulated := g.Driver.(*sim.Device); simulated && testing.Short() {
		t.Skip("the interpreter's own tests run these cases")
	}
	n := 0
	for _, fl := range []ptx.Flavour{ptx.SM70, g.fl} {
		for _, c := range ptxtest.Cases() {
			g.run(t, fmt.Sprintf("sm%d/%s", fl.SM, c.Name), func(t *testing.T) { runCase(t, g, c, fl) })
			n++
		}
	}
	fmt.Printf("kernels: %d cases run\n", n)
}

func runCase(t *testing.T, g *gpu, c ptxtest.Case, fl ptx.Flavour) {
	l, err := c.Build(fl)
	g.must(t, err)
	bufs := c.Fill(c.Rand())
	before := ptxtest.Snapshot(bufs)
	want := simulate(t, l, c, ptxtest.Snapshot(bufs))
	f := g.kernel(t, l, fl)
	args, at := make([]cuda.Ptr, len(bufs)), make([]uint64, len(bufs))
	for i := len(bufs) - 1; i >= 0; i-- { // what no argument names comes last, and is linked to
		b := bufs[i]
		if i < len(l.Args) && !l.Args[i].Read && !c.Partial {
			for k := range b.Bytes { // what the kernel does not write is seen
				b.Bytes[k] = 0xa5
			}
		}
		if i == 0 && c.Link != nil {
			c.Link(bufs, at)
		}
		args[i] = g.upload(t, b.Bytes)
		at[i] = uint64(args[i])
	}
	g.must(t, g.Launch(f, l.Grid, l.Block, 0, g.s, args[:len(l.Args)]))
	written := func(i int) bool { return i >= len(l.Args) || l.Args[i].Write }
	for i, b := range bufs {
		if written(i) {
			g.download(t, b.Bytes, args[i])
		}
	}
	if err := c.Check(before, bufs); err != nil {
		t.Error(err)
	}
	for i := range bufs {
		if !written(i) || l.Kernel.Approximate() { // which Check bounds
			continue
		}
		if err := ptxtest.SameBits(fmt.Sprintf("buffer %d", i), bufs[i], want[i]); err != nil {
			t.Errorf("differs from the interpreter: %v", err)
		}
	}
}

// simulate runs the launch in the interpreter.
func simulate(t *testing.T, l *ptx.Launch, c ptxtest.Case, bufs []ptxtest.Tensor) []ptxtest.Tensor {
	t.Helper()
	p, err := interp.Compile(l.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	mem, at := interp.NewMemory(), make([]uint64, len(bufs))
	for i, b := range bufs {
		at[i] = mem.Alloc(len(b.Bytes))
	}
	if c.Link != nil {
		c.Link(bufs, at)
	}
	for i, b := range bufs {
		if err := mem.Write(at[i], b.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Run(mem, interp.Config{Grid: l.Grid, Block: l.Block, Args: at[:len(l.Args)]}, interp.Options{NoRaces: true}); err != nil {
		t.Fatal(err)
	}
	for i, b := range bufs {
		if err := mem.Read(b.Bytes, at[i]); err != nil {
			t.Fatal(err)
		}
	}
	return bufs
}

// TestGraph captures a few launches with a fork and join, replays them, and counts the waits.
func TestGraph(t *testing.T) {
	g := open(t)
	const n, replays = 1 << 12, 10
	group := ptx.Elementwise{
		Name: "increment", Shape: []int64{n}, Loads: []ptx.Access{{Name: "x", DType: ptx.Float32}},
		Code:   []ptx.Instr{{Op: "in", Type: ptx.Float32}, {Op: "const", Type: ptx.Float32, Imm: 1}, {Op: "add", Type: ptx.Float32, A: 0, B: 1}},
		Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float32}, Value: 2}},
	}
	l, err := group.Build(g.fl)
	g.must(t, err)
	f := g.kernel(t, l, g.fl)
	a, b := g.buffer(t, 4*n), g.buffer(t, 4*n)
	g.must(t, g.Fill32(a, 0, n, g.s))
	g.must(t, g.Fill32(b, 0, n, g.s))
	side, err := g.NewStream()
	g.must(t, err)
	fork, err := g.NewEvent(false)
	g.must(t, err)
	join, err := g.NewEvent(false)
	g.must(t, err)
	launch := func(s cuda.Stream, p cuda.Ptr) { g.must(t, g.Launch(f, l.Grid, l.Block, 0, s, []cuda.Ptr{p, p})) }
	launch(g.s, a) // touched once before capture: modules load lazily
	g.must(t, g.Synchronize(g.s))
	g.must(t, g.BeginCapture(g.s))
	launch(g.s, a)
	g.must(t, g.Record(fork, g.s))
	g.must(t, g.Wait(side, fork))
	launch(side, b)
	launch(g.s, a)
	g.must(t, g.Record(join, side))
	g.must(t, g.Wait(g.s, join))
	graph, err := g.EndCapture(g.s)
	g.must(t, err)
	nodes, err := g.Nodes(graph)
	g.must(t, err)
	exec, err := g.Instantiate(graph)
	g.must(t, err)
	waits := g.Syncs()
	for range replays {
		g.must(t, g.LaunchGraph(exec, g.s))
	}
	if g.Syncs() != waits {
		t.Error("a replay waited for the device")
	}
	x, y := ptxtest.New(ptx.Float32, n), ptxtest.New(ptx.Float32, n)
	g.download(t, x.Bytes, a)
	g.download(t, y.Bytes, b)
	if nodes != 3 || x.At(n-1) != 1+2*replays || y.At(0) != replays {
		t.Errorf("%d nodes, a = %g, b = %g", nodes, x.At(n-1), y.At(0))
	}
	g.must(t, g.FreeExec(exec))
	g.must(t, g.FreeGraph(graph))
}
