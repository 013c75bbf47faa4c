package gputest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/cuda"
	"ampc/internal/fp"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// One linear layer trained in mixed precision with a dynamic loss scale, the whole step one graph:
// f16 products, f32 gradient and master weights, a f16 copy written by the update, skip and scale
// decided on the device.
const (
	stepRows, stepIn, stepOut = 64, 32, 16
	stepCount, stepGrowth     = 100, 60
	stepScale                 = 1 << 22 // eight times what f16 holds here: the first steps overflow
	stepRate                  = 0.05
)

// code is element code under construction.
type code struct{ ins []ptx.Instr }

func (c *code) emit(i ptx.Instr) int { c.ins = append(c.ins, i); return len(c.ins) - 1 }

func (c *code) f(op string, a ...int) int {
	i := ptx.Instr{Op: op, Type: ptx.Float32}
	for k, to := range []*int{&i.A, &i.B, &i.C} {
		if k < len(a) {
			*to = a[k]
		}
	}
	return c.emit(i)
}

func (c *code) num(x float64) int {
	return c.emit(ptx.Instr{Op: "const", Type: ptx.Float32, Imm: x})
}

// in loads operands of the given value types.
func (c *code) in(types ...ptx.DType) {
	for i, t := range types {
		c.emit(ptx.Instr{Op: "in", Type: t, Int: int64(i)})
	}
}

func scalar(name string, d ptx.DType, rank int) ptx.Access {
	return ptx.Access{Name: name, DType: d, Stride: make([]int64, rank)}
}

func stored(name string, d ptx.DType, v int) ptx.Output {
	return ptx.Output{Access: ptx.Access{Name: name, DType: d}, Value: v}
}

// errorCode is dy = (y - target)·scale/rows in f16.
func errorCode() ptx.Elementwise {
	c := &code{}
	c.in(ptx.Float32, ptx.Float32, ptx.Float32)
	d := c.f("mul", c.f("mul", c.f("sub", 0, 1), c.num(1.0/stepRows)), 2)
	return ptx.Elementwise{Name: "step_error", Shape: []int64{stepRows * stepOut}, Code: c.ins,
		Loads:  []ptx.Access{{Name: "y", DType: ptx.Float16}, {Name: "t", DType: ptx.Float32}, scalar("scale", ptx.Float32, 1)},
		Stores: []ptx.Output{stored("dy", ptx.Float16, d)}}
}

// inverseCode is 1/scale.
func inverseCode() ptx.Elementwise {
	c := &code{}
	c.in(ptx.Float32)
	return ptx.Elementwise{Name: "step_inverse", Code: append(c.ins, ptx.Instr{Op: "const", Type: ptx.Float32, Imm: 1}, ptx.Instr{Op: "div", Type: ptx.Float32, A: 1, B: 0}),
		Loads: []ptx.Access{{Name: "scale", DType: ptx.Float32}}, Stores: []ptx.Output{stored("inv", ptx.Float32, 2)}}
}

// gradientNorm adds up the squares of unscaled gradients and counts those that are not finite.
type gradientNorm struct {
	ptx.Batch
	squares, bad int // values of the code
}

// normOf is the gradientNorm of one tensor of n elements.
func normOf(d ptx.DType, n int64) gradientNorm {
	c := &code{}
	c.in(ptx.Float32, ptx.Float32)
	u := c.f("mul", 0, 1)
	is := func(op string, a, b int) int { return c.emit(ptx.Instr{Op: op, Type: ptx.Bool, A: a, B: b}) }
	k := gradientNorm{squares: c.f("mul", u, u)}
	k.bad = c.f("select", is("or", is("isnan", u, 0), is("isinf", u, 0)), c.num(1), c.num(0))
	k.Batch = ptx.Batch{Sizes: []int64{n}, Elementwise: ptx.Elementwise{Name: "norm", Code: c.ins,
		Loads: []ptx.Access{{Name: "g", DType: d}, scalar("inv", ptx.Float32, 1)}}}
	return k
}

func (k gradientNorm) build(fl ptx.Flavour) (*ptx.Launch, error) { return k.Sum(fl, k.squares, k.bad) }

// table uploads the table of a batch over one tensor, which each access walks.
func (g *gpu) table(t *testing.T, b ptx.Batch, tensor cuda.Ptr) cuda.Ptr {
	t.Helper()
	var bytes []byte
	for _, w := range b.Table() {
		v := uint64(w.Value)
		if w.Access >= 0 {
			v = uint64(tensor)
		}
		bytes = binary.LittleEndian.AppendUint64(bytes, v)
	}
	return g.upload(t, bytes)
}

// foundCode is whether a gradient or their norm is not finite.
func foundCode() ptx.Elementwise {
	c := &code{}
	c.in(ptx.Float32, ptx.Float32)
	is := func(op string, a, b int) int { return c.emit(ptx.Instr{Op: op, Type: ptx.Bool, A: a, B: b}) }
	found := is("or", is("ne", 1, c.num(0)), is("or", is("isnan", 0, 0), is("isinf", 0, 0)))
	return ptx.Elementwise{Name: "step_found", Code: c.ins,
		Loads:  []ptx.Access{{Name: "squares", DType: ptx.Float32}, {Name: "bad", DType: ptx.Float32, Offset: 1}},
		Stores: []ptx.Output{stored("found", ptx.Bool, found)}}
}

// updateCode is w -= rate·g·inv unless skipped, with the f16 copy.
func updateCode() ptx.Elementwise {
	c := &code{}
	c.in(ptx.Float32, ptx.Float32, ptx.Float32)
	skip := c.emit(ptx.Instr{Op: "in", Type: ptx.Bool, Int: 3})
	w := c.f("select", skip, 0, c.f("sub", 0, c.f("mul", c.f("mul", 1, 2), c.num(stepRate))))
	return ptx.Elementwise{Name: "step_update", Shape: []int64{stepOut * stepIn}, Code: c.ins,
		Loads:  []ptx.Access{{Name: "w", DType: ptx.Float32}, {Name: "g", DType: ptx.Float32}, scalar("inv", ptx.Float32, 1), scalar("skip", ptx.Bool, 1)},
		Stores: []ptx.Output{stored("w1", ptx.Float32, w), stored("low", ptx.Float16, w)}}
}

// scaleCode halves the scale on overflow, doubles it after stepGrowth clean steps, and counts skips.
func scaleCode() ptx.Elementwise {
	c := &code{}
	c.in(ptx.Float32, ptx.Int32, ptx.Int32, ptx.Bool)
	i32 := func(op string, a ...int) int { n := c.f(op, a...); c.ins[n].Type = ptx.Int32; return n }
	num := func(x int64) int { return c.emit(ptx.Instr{Op: "const", Type: ptx.Int32, Int: x}) }
	next := i32("add", 1, num(1))
	grow := c.emit(ptx.Instr{Op: "eq", Type: ptx.Bool, A: next, B: num(stepGrowth)})
	scale := c.f("select", 3, c.f("mul", 0, c.num(0.5)), c.f("select", grow, c.f("mul", 0, c.num(2)), 0))
	good := i32("select", 3, num(0), i32("select", grow, num(0), next))
	skips := i32("add", 2, i32("conv", 3))
	return ptx.Elementwise{Name: "step_scale", Code: c.ins,
		Loads:  []ptx.Access{{Name: "scale", DType: ptx.Float32}, {Name: "good", DType: ptx.Int32}, {Name: "skips", DType: ptx.Int32}, {Name: "skip", DType: ptx.Bool}},
		Stores: []ptx.Output{stored("scale1", ptx.Float32, scale), stored("good1", ptx.Int32, good), stored("skips1", ptx.Int32, skips)}}
}

// reference trains the same layer on the host, products in float64.
func reference(x, target, w ptxtest.Tensor) (weights []float32, scale float32, good, skips, growths int) {
	weights, scale = make([]float32, stepOut*stepIn), stepScale
	for i := range weights {
		weights[i] = w.F32(i)
	}
	half := func(v float32) float64 { return float64(fp.F16ToF32(fp.F16(v))) }
	for range stepCount {
		var dy [stepRows][stepOut]float64
		for i := range stepRows {
			for j := range stepOut {
				y := 0.0
				for q := range stepIn {
					y += x.At(i*stepIn+q) * half(weights[j*stepIn+q])
				}
				d := float32(half(float32(y))) - target.F32(i*stepOut+j)
				dy[i][j] = half(float32(float32(d*(1.0/stepRows)) * scale))
			}
		}
		grad, bad := make([]float32, len(weights)), false
		for k := range grad {
			g := 0.0
			for i := range stepRows {
				g += dy[i][k/stepIn] * x.At(i*stepIn+k%stepIn)
			}
			grad[k] = float32(g)
			bad = bad || math.IsInf(g, 0) || g != g
		}
		if bad {
			scale, good, skips = scale/2, 0, skips+1
			continue
		}
		for k := range weights {
			weights[k] -= float32(float32(grad[k]*(1/scale)) * stepRate)
		}
		if good++; good == stepGrowth {
			scale, good, growths = scale*2, 0, growths+1
		}
	}
	return weights, scale, good, skips, growths
}

// TestTrainingStep runs the step once and replays it 99 times: three overflows, one growth, no wait
// of the host, and the weights of the reference.
func TestTrainingStep(t *testing.T) {
	g := open(t)
	blas := g.openBlas(t)
	r := rand.New(rand.NewPCG(17, 18))
	x, w := ptxtest.Fill(r, ptx.Float16, stepRows*stepIn, 1), ptxtest.Fill(r, ptx.Float32, stepOut*stepIn, 0.2)
	target, low := ptxtest.Fill(r, ptx.Float32, stepRows*stepOut, 1), ptxtest.New(ptx.Float16, stepOut*stepIn)
	for i := range low.Len() {
		low.Set(i, w.At(i))
	}
	start := ptxtest.New(ptx.Float32, 1)
	start.Set(0, stepScale)
	zero := ptxtest.New(ptx.Int32, 1)
	px, pw, plow, pt, pscale := g.upload(t, x.Bytes), g.upload(t, w.Bytes), g.upload(t, low.Bytes), g.upload(t, target.Bytes), g.upload(t, start.Bytes)
	pgood, pskips := g.upload(t, zero.Bytes), g.upload(t, zero.Bytes)
	y, dy, dw := g.buffer(t, 2*stepRows*stepOut), g.buffer(t, 2*stepRows*stepOut), g.buffer(t, 4*stepOut*stepIn)
	inv, sums, found := g.buffer(t, 4), g.buffer(t, 8), g.buffer(t, 4)

	f16 := func(ld int64) cuda.Matrix { return cuda.Matrix{Type: cuda.R16F, Ld: ld} }
	forward := g.product(t, blas, linear(stepRows, stepOut, stepIn, cuda.R16F, cuda.R16F, cuda.EpilogueNone), cuda.Operands{A: plow, B: px, C: y, D: y})
	grads := g.product(t, blas, cuda.RowMajor(stepOut, stepIn, stepRows, true, false, f16(stepOut), f16(stepIn), cuda.Matrix{Type: cuda.R32F, Ld: stepIn}, cuda.Compute32F),
		cuda.Operands{A: px, B: dy, C: dw, D: dw})
	stats := normOf(ptx.Float32, stepOut*stepIn)
	step := []func() error{
		forward,
		g.launcher(t, errorCode().Build, y, pt, pscale, dy),
		grads,
		g.launcher(t, inverseCode().Build, pscale, inv),
		g.launcher(t, stats.build, g.table(t, stats.Batch, dw), inv, sums),
		g.launcher(t, foundCode().Build, sums, sums, found),
		g.launcher(t, updateCode().Build, pw, dw, inv, found, pw, plow),
		g.launcher(t, scaleCode().Build, pscale, pgood, pskips, found, pscale, pgood, pskips),
	}
	exec := g.captured(t, step)
	before := g.Syncs()
	for range stepCount - 1 {
		g.must(t, g.LaunchGraph(exec, g.s))
	}
	if n := g.Syncs() - before; n != 0 {
		t.Errorf("%d waits of the host in %d steps", n, stepCount-1)
	}
	weights, scale, good, skips, growths := reference(x, target, w)
	g.download(t, w.Bytes, pw)
	g.download(t, start.Bytes, pscale)
	counts := [2]ptxtest.Tensor{ptxtest.New(ptx.Int32, 1), ptxtest.New(ptx.Int32, 1)}
	g.download(t, counts[0].Bytes, pgood)
	g.download(t, counts[1].Bytes, pskips)
	if start.F32(0) != scale || int(counts[0].At(0)) != good || int(counts[1].At(0)) != skips {
		t.Errorf("scale %g, good %g, skips %g; the reference has %g, %d, %d", start.F32(0), counts[0].At(0), counts[1].At(0), scale, good, skips)
	}
	if skips != 3 || growths != 1 {
		t.Errorf("the reference skips %d steps and grows %d times, want 3 and 1", skips, growths)
	}
	for i, want := range weights {
		if math.Abs(w.At(i)-float64(want)) > 2e-3 {
			t.Fatalf("w[%d] = %g, want %g", i, w.At(i), want)
		}
	}
}

// product plans a GEMM and gives the call that issues it.
func (g *gpu) product(t *testing.T, b cuda.Blas, m cuda.Matmul, o cuda.Operands) func() error {
	t.Helper()
	const workspace = 4 << 20
	plan, err := b.Plan(m)
	g.must(t, err)
	t.Cleanup(func() { plan.Close() })
	algos, err := plan.Algos(workspace, 1)
	g.must(t, err)
	o.Workspace, o.WorkspaceBytes = g.buffer(t, workspace), workspace
	return func() error { return plan.Run(algos[0], 1, 0, o, g.s) }
}

// launcher loads a kernel and gives the call that launches it.
func (g *gpu) launcher(t *testing.T, build func(ptx.Flavour) (*ptx.Launch, error), args ...cuda.Ptr) func() error {
	t.Helper()
	l, err := build(g.fl)
	g.must(t, err)
	f := g.kernel(t, l, g.fl)
	return func() error { return g.Launch(f, l.Grid, l.Block, 0, g.s, args) }
}

// captured runs the calls once, because modules and libraries load lazily, and makes a graph of them.
func (g *gpu) captured(t *testing.T, calls []func() error) cuda.GraphExec {
	t.Helper()
	for _, c := range calls {
		g.must(t, c())
	}
	g.must(t, g.Synchronize(g.s))
	g.must(t, g.BeginCapture(g.s))
	for _, c := range calls {
		g.must(t, c())
	}
	graph, err := g.EndCapture(g.s)
	g.must(t, err)
	if n, err := g.Nodes(graph); err != nil || n < len(calls) {
		t.Fatalf("%d nodes for %d calls, %v", n, len(calls), err)
	}
	exec, err := g.Instantiate(graph)
	g.must(t, err)
	t.Cleanup(func() { g.FreeExec(exec); g.FreeGraph(graph) })
	return exec
}
