package gputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// noise is draw's memory until the test ends.
func (g *gpu) noise(t testing.TB, d cuda.DataType, n int64) cuda.Ptr {
	t.Helper()
	p := g.draw(t, d, n)
	t.Cleanup(func() { g.Free(p) })
	return p
}

// draw allocates n random elements, repeated from a million.
func (g *gpu) draw(t testing.TB, d cuda.DataType, n int64) cuda.Ptr {
	t.Helper()
	pattern := int(min(n, g.of(1<<20, 1<<12)))
	bytes := ptxtest.Fill(rand.New(rand.NewPCG(5, 6)), dtypes[d], pattern, 1).Bytes
	mem, err := g.HostAlloc(int64(len(bytes)))
	g.must(t, err)
	copy(mem, bytes)
	dst, err := g.Alloc(n * d.Size())
	g.must(t, err)
	for off := int64(0); off < n*d.Size(); off += int64(len(bytes)) {
		g.must(t, g.CopyToDevice(dst+cuda.Ptr(off), mem[:min(int64(len(bytes)), n*d.Size()-off)], g.s))
	}
	g.must(t, g.Synchronize(g.s))
	g.must(t, g.HostFree(mem))
	return dst
}

// seconds is the time of one run, in batches after runs to warm up. The simulator's is by its model, of
// one run.
func (g *gpu) seconds(t testing.TB, run func() error) float64 {
	t.Helper()
	measure := cuda.Measure
	if g.simulated() {
		measure = cuda.TimeOf
	}
	took, err := measure(g.Driver, g.s, run)
	g.must(t, err)
	return took.Seconds()
}

// copyRate is the rate of a copy of n random bytes in the device, read and written, and the copy's
// source.
func (g *gpu) copyRate(t testing.TB, n int64) (src cuda.Ptr, rate float64) {
	t.Helper()
	src, dst := g.noise(t, cuda.R32F, n/4), g.buffer(t, n)
	rate = 2 * float64(n) / g.seconds(t, func() error { return g.Copy(dst, src, n, g.s) })
	fmt.Printf("copy of %d KiB: %.0f GB/s read and written\n", n>>10, rate/1e9)
	return src, rate
}

// TestCopy prints the rate of copies within the device, by size.
func TestCopy(t *testing.T) {
	g := open(t)
	for n := int64(1 << 20); n <= g.of(1<<30, 1<<20); n *= 4 {
		if _, rate := g.copyRate(t, n); rate <= 0 {
			t.Errorf("a copy of %d bytes takes no time", n)
		}
	}
}

// streamed is a kernel to time.
type streamed struct {
	name  string
	build func(fl ptx.Flavour) (*ptx.Launch, error)
	table *ptx.Batch // its first argument leads to a tensor; nil: it does not
}

// streaming kernels at sizes far above the L2 cache, small on the simulator; the arguments are random.
func (g *gpu) streaming() []streamed {
	n, rows := int(g.of(1<<27, 1<<12)), int(g.of(1<<17, 8))
	xent := ptx.CrossEntropy{Name: "xent", Rows: int(g.of(16384, 4)), Cols: int(g.of(50304, 200)), In: ptx.BFloat16, Labels: ptx.Int32, Ignore: -100}
	norm := ptx.Norm{Name: "norm", Rows: rows, Cols: 768, In: ptx.BFloat16, Out: ptx.BFloat16, Bias: true, Eps: 1e-5}
	soft := ptx.Softmax{Name: "soft", Rows: rows, Cols: 1024, In: ptx.BFloat16, Out: ptx.BFloat16}
	grads := normOf(ptx.BFloat16, int64(4*n))
	turned := ptxtest.Cast(ptx.BFloat16, ptx.BFloat16, 1)
	turned.Name, turned.Shape = "turned", []int64{g.of(1<<13, 1<<5), g.of(1<<14, 1<<6)}
	turned.Loads[0].Stride = []int64{1, turned.Shape[0]}
	return []streamed{
		{"cast f32 to bf16", ptxtest.Cast(ptx.Float32, ptx.BFloat16, n).Build, nil},
		{"cast bf16 to f32", ptxtest.Cast(ptx.BFloat16, ptx.Float32, n).Build, nil},
		{"cast f32 to f16", ptxtest.Cast(ptx.Float32, ptx.Float16, n).Build, nil},
		{"unscale norm check", grads.build, &grads.Batch},
		{"adamw + bf16 copy", ptxtest.AdamW(n).Build, nil},
		{"layer_norm", norm.Forward, nil},
		{"layer_norm backward", norm.Backward, nil},
		{"softmax 1024", soft.Forward, nil},
		{"softmax backward", soft.Backward, nil},
		{"cross entropy fwd", xent.Forward, nil},
		{"cross entropy bwd", xent.Backward, nil},
		{"bias gelu (erf)", ptxtest.BiasGelu(int(g.of(1<<15, 4)), 3072).Build, nil},
		{"column sum", ptx.ColReduce{Name: "cols", Op: "sum", Outer: 1, N: rows, Inner: 768, Split: int(g.of(32, 1)), In: ptx.BFloat16, Out: ptx.Float32}.Build, nil},
		{"transpose bf16", turned.Build, nil},
	}
}

// TestStreaming prints the bytes over time of the kernels that torch_kernels.py times in PyTorch, beside
// a device copy in the same run.
func TestStreaming(t *testing.T) {
	g := open(t)
	if g.simulated() && testing.Short() {
		t.Skip("without -short the kernels run once on the simulator, in small")
	}
	copyBytes := g.of(cuda.CopyBytes, 1<<16)
	src, ceiling := g.copyRate(t, copyBytes)
	for _, k := range g.streaming() {
		l, err := k.build(g.fl)
		g.must(t, err)
		f := g.kernel(t, l, g.fl)
		var args []cuda.Ptr
		var bytes float64
		var owned []cuda.Ptr
		for _, a := range l.Args {
			size := a.Elems * int64(a.DType.Size())
			p, err := g.Alloc(size)
			g.must(t, err)
			owned = append(owned, p)
			g.must(t, g.fillLike(p, src, copyBytes, a))
			args = append(args, p)
			bytes += float64(size)
		}
		if k.table != nil {
			n := k.table.Sizes[0]
			args[0], bytes = g.table(t, *k.table, g.noise(t, cuda.R16BF, n)), bytes+2*float64(n)
		}
		sec := g.seconds(t, func() error { return g.Launch(f, l.Grid, l.Block, 0, g.s, args) })
		rate := bytes / sec
		fmt.Printf("%-22s %8.3f ms  %6.0f GB/s  %3.0f%% of copy\n", k.name, sec*1e3, rate/1e9, math.Round(100*rate/ceiling))
		for _, p := range owned {
			g.must(t, g.Free(p))
		}
	}
}

// fillLike fills an argument with random floats; labels and flags get zeros.
func (g *gpu) fillLike(p, noise cuda.Ptr, have int64, a ptx.Argument) error {
	size := a.Elems * int64(a.DType.Size())
	if a.DType != ptx.Float32 && !a.DType.Low() {
		return g.Fill8(p, 0, size, g.s)
	}
	for off := int64(0); off < size; off += have {
		if err := g.Copy(p+cuda.Ptr(off), noise, min(have, size-off), g.s); err != nil {
			return err
		}
	}
	return nil
}
