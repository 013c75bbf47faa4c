package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// put uploads a tensor.
func (b *bench) put(x ptxtest.Tensor) cuda.Ptr {
	p, err := b.Alloc(int64(len(x.Bytes)))
	b.ok(err)
	mem, err := b.HostAlloc(int64(len(x.Bytes)))
	b.ok(err)
	copy(mem, x.Bytes)
	b.ok(b.CopyToDevice(p, mem, b.s))
	return p
}

func (b *bench) get(d ptx.DType, n int, p cuda.Ptr) ptxtest.Tensor {
	x := ptxtest.New(d, n)
	mem, err := b.HostAlloc(int64(len(x.Bytes)))
	b.ok(err)
	b.ok(b.CopyToHost(mem, p, b.s))
	b.ok(b.Synchronize(b.s))
	copy(x.Bytes, mem)
	return x
}

func closeTo(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol*(1+math.Abs(want))) {
		t.Fatalf("%s = %g, want %g", what, got, want)
	}
}

// TestLinearLayer runs the three products of a linear layer with their epilogues, as the row-major
// table has them, and compares with sums written out.
func TestLinearLayer(t *testing.T) {
	const m, n, k = 8, 16, 24
	b := newBench(t, Options{})
	blas := b.Blas()
	r := rand.New(rand.NewPCG(7, 8))
	f16 := func(n int) ptxtest.Tensor { return ptxtest.Fill(r, ptx.Float16, n, 0.5) }
	x, w, bias, dy := f16(m*k), f16(n*k), f16(n), f16(m*n)
	px, pw, pb, pdy := b.put(x), b.put(w), b.put(bias), b.put(dy)
	alloc := func(n int64) cuda.Ptr { p, err := b.Alloc(n); b.ok(err); return p }
	half := func(ld int64) cuda.Matrix { return cuda.Matrix{Type: cuda.R16F, Ld: ld} }
	run := func(p cuda.Matmul, o cuda.Operands) {
		t.Helper()
		plan, err := blas.Plan(p)
		b.ok(err)
		algos, err := plan.Algos(0, 4)
		b.ok(err)
		o.C = o.D
		b.ok(plan.Run(algos[0], 1, 0, o, b.s))
	}

	fwd := cuda.RowMajor(m, n, k, false, true, half(k), half(k), half(n), cuda.Compute32F)
	fwd.Epilogue, fwd.BiasType, fwd.AuxLd, fwd.AuxType = cuda.EpilogueGeluAuxBias, cuda.R16F, n, cuda.R16F
	y, aux := alloc(2*m*n), alloc(2*m*n)
	run(fwd, cuda.Operands{A: pw, B: px, D: y, Bias: pb, Aux: aux})
	gy, gaux := b.get(ptx.Float16, m*n, y), b.get(ptx.Float16, m*n, aux)
	pre := func(i, j int) float64 {
		v := bias.At(j)
		for q := range k {
			v += x.At(i*k+q) * w.At(j*k+q)
		}
		return v
	}
	for i := range m * n {
		v := pre(i/n, i%n)
		closeTo(t, fmt.Sprintf("aux[%d]", i), gaux.At(i), v, 1e-3)
		closeTo(t, fmt.Sprintf("y[%d]", i), gy.At(i), float64(gelu(float32(v))), 1e-3)
	}

	// dx[m,k] = dy[m,n]·W[n,k]; dW[n,k] = dy^T·x in f32, with the bias gradient beside it.
	dx := alloc(2 * m * k)
	run(cuda.RowMajor(m, k, n, false, false, half(n), half(k), half(k), cuda.Compute32F), cuda.Operands{A: pw, B: pdy, D: dx})
	gdx := b.get(ptx.Float16, m*k, dx)
	wgrad := cuda.RowMajor(n, k, m, true, false, half(n), half(k), cuda.Matrix{Type: cuda.R32F, Ld: k}, cuda.Compute32F)
	wgrad.Epilogue, wgrad.BiasType = cuda.EpilogueBgradB, cuda.R32F
	dw, db := alloc(4*n*k), alloc(4*n)
	run(wgrad, cuda.Operands{A: px, B: pdy, D: dw, Bias: db})
	gdw, gdb := b.get(ptx.Float32, n*k, dw), b.get(ptx.Float32, n, db)
	for i := range m * k {
		v := 0.0
		for q := range n {
			v += dy.At(i/k*n+q) * w.At(q*k+i%k)
		}
		closeTo(t, fmt.Sprintf("dx[%d]", i), gdx.At(i), v, 1e-3)
	}
	for i := range n * k {
		v := 0.0
		for q := range m {
			v += dy.At(q*n+i/k) * x.At(q*k+i%k)
		}
		closeTo(t, fmt.Sprintf("dw[%d]", i), gdw.At(i), v, 1e-6)
	}
	for j := range n {
		v := 0.0
		for q := range m {
			v += dy.At(q*n + j)
		}
		closeTo(t, fmt.Sprintf("db[%d]", j), gdb.At(j), v, 1e-6)
	}
}

// TestReluMaskAndBatch keeps the mask of a batched ReLU and applies it backwards with row sums.
func TestReluMaskAndBatch(t *testing.T) {
	const n, batch = 16, 2
	b := newBench(t, Options{})
	r := rand.New(rand.NewPCG(9, 10))
	a, c := ptxtest.Fill(r, ptx.Float32, batch*n*n, 1), ptxtest.Fill(r, ptx.Float32, batch*n*n, 1)
	mat := cuda.Matrix{Type: cuda.R32F, Ld: n, Stride: n * n}
	p := cuda.Matmul{M: n, N: n, K: n, A: mat, B: mat, C: mat, D: mat, Batch: batch, Compute: cuda.Compute32F,
		Epilogue: cuda.EpilogueReluAux, AuxLd: 128, AuxStride: 128 * n}
	plan, err := b.Blas().Plan(p)
	b.ok(err)
	algos, err := plan.Algos(0, 1)
	b.ok(err)
	pa, pc := b.put(a), b.put(c)
	d, err := b.Alloc(4 * batch * n * n)
	b.ok(err)
	mask, err := b.Alloc(batch * n * 16)
	b.ok(err)
	b.ok(plan.Run(algos[0], 2, 0, cuda.Operands{A: pa, B: pc, D: d, Aux: mask}, b.s))
	got := b.get(ptx.Float32, batch*n*n, d)
	product := func(i int) float64 {
		z, col, row, v := i/(n*n), i/n%n, i%n, 0.0
		for q := range n {
			v += 2 * a.At(z*n*n+q*n+row) * c.At(z*n*n+col*n+q)
		}
		return v
	}
	for i := range got.Len() {
		closeTo(t, fmt.Sprintf("y[%d]", i), got.At(i), math.Max(0, product(i)), 1e-6)
	}
	// The gradient through the mask of the first product: dy = I·A keeps A where y > 0.
	one := cuda.Matmul{M: n, N: n, K: n, A: mat, B: mat, C: mat, D: mat, Compute: cuda.Compute32F,
		Epilogue: cuda.EpilogueDReluBgrad, BiasType: cuda.R32F, AuxLd: 128}
	eye := ptxtest.New(ptx.Float32, n*n)
	for i := range n {
		eye.Set(i*n+i, 1)
	}
	plan, err = b.Blas().Plan(one)
	b.ok(err)
	algos, err = plan.Algos(0, 1)
	b.ok(err)
	sums, err := b.Alloc(4 * n)
	b.ok(err)
	b.ok(plan.Run(algos[0], 1, 0, cuda.Operands{A: b.put(eye), B: pa, D: d, Bias: sums, Aux: mask}, b.s))
	grad, gsum := b.get(ptx.Float32, n*n, d), b.get(ptx.Float32, n, sums)
	want := make([]float64, n)
	for i := range n * n {
		v := 0.0
		if product(i) > 0 {
			v = a.At(i)
		}
		want[i%n] += v
		closeTo(t, fmt.Sprintf("dx[%d]", i), grad.At(i), v, 0)
	}
	for i := range n {
		closeTo(t, fmt.Sprintf("db[%d]", i), gsum.At(i), want[i], 1e-6)
	}
}

func TestBlasRefuses(t *testing.T) {
	b := newBench(t, Options{})
	good := cuda.RowMajor(8, 8, 8, false, false, cuda.Matrix{Type: cuda.R16F, Ld: 8}, cuda.Matrix{Type: cuda.R16F, Ld: 8}, cuda.Matrix{Type: cuda.R16F, Ld: 8}, cuda.Compute32F)
	status := func(what string, err error, code int) {
		t.Helper()
		var e *cuda.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want status %d", what, err, code)
		}
	}
	short := good
	short.A.Ld = 7
	_, err := b.Blas().Plan(short)
	status("short leading dimension", err, statusInvalid)
	mixed := good
	mixed.B.Type = cuda.R16BF
	gelu := good
	gelu.Epilogue, gelu.AuxLd = cuda.EpilogueGeluAux, 12
	for what, m := range map[string]cuda.Matmul{"mixed inputs": mixed, "odd auxiliary": gelu} {
		p, err := b.Blas().Plan(m)
		b.ok(err)
		if _, err = p.Algos(0, 1); !errors.Is(err, cuda.ErrNotSupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p, err := b.Blas().Plan(good)
	b.ok(err)
	algos, err := p.Algos(1<<20, 4)
	b.ok(err)
	x := b.buffer()
	status("misaligned operand", p.Run(algos[0], 1, 0, cuda.Operands{A: x + 2, B: x, D: x}, b.s), statusInvalid)
	status("small workspace", p.Run(algos[2], 1, 0, cuda.Operands{A: x, B: x, D: x}, b.s), statusInvalid)
	status("foreign algorithm", p.Run(cuda.Algo{}, 1, 0, cuda.Operands{A: x, B: x, D: x}, b.s), statusInvalid)
	none := newBench(t, Options{NoAlgorithm: true})
	p, err = none.Blas().Plan(good)
	none.ok(err)
	if _, err = p.Algos(0, 1); !errors.Is(err, cuda.ErrNotSupported) {
		t.Errorf("injected: %v", err)
	}
	// A product that reads what another stream is writing is a hazard like any other.
	b.ok(b.inc(b.s, x, x))
	q, err := b.Blas().Plan(good)
	b.ok(err)
	y, err := b.Alloc(256)
	b.ok(err)
	b.code(q.Run(algos[0], 1, 0, cuda.Operands{A: x, B: x, D: y}, b.u), cuda.CodeLaunchFailed, "nothing to order them")
}

// TestProductsAddInF32: sums are f32, each algorithm's in an order of its own, as on a GPU: ones added to
// 2^24 are lost, but not those that go to another part of the sum.
func TestProductsAddInF32(t *testing.T) {
	const n, k = 8, 65
	b := newBench(t, Options{})
	x := ptxtest.New(ptx.Float16, n*k)
	for i := range n * k {
		x.Set(i, 1)
		if i%k == 0 {
			x.Set(i, 1<<12)
		}
	}
	half := cuda.Matrix{Type: cuda.R16F, Ld: k}
	plan, err := b.Blas().Plan(cuda.RowMajor(n, n, k, false, true, half, half, cuda.Matrix{Type: cuda.R32F, Ld: n}, cuda.Compute32F))
	b.ok(err)
	const space = 1 << 20
	algos, err := plan.Algos(space, 8)
	b.ok(err)
	ws, err := b.Alloc(space)
	b.ok(err)
	p := b.put(x)
	to, err := b.Alloc(4 * n * n)
	b.ok(err)
	seen := map[float64]bool{}
	for i, algo := range algos {
		b.ok(plan.Run(algo, 1, 0, cuda.Operands{A: p, B: p, C: to, D: to, Workspace: ws, WorkspaceBytes: space}, b.s))
		got := b.get(ptx.Float32, n*n, to).At(0)
		if exact := float64(1<<24 + k - 1); i == 0 && got != 1<<24 || got >= exact {
			t.Errorf("algorithm %d: %g, %g without rounding", i, got, exact)
		}
		seen[got] = true
	}
	if len(algos) < 3 || len(seen) != len(algos) {
		t.Errorf("%d algorithms give %d sums", len(algos), len(seen))
	}
}
