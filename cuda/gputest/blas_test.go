package gputest

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

func (g *gpu) openBlas(t testing.TB) cuda.Blas {
	t.Helper()
	b, err := g.blas()
	if err != nil && !needed() {
		t.Skip(err)
	}
	g.must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

var dtypes = map[cuda.DataType]ptx.DType{cuda.R32F: ptx.Float32, cuda.R16F: ptx.Float16, cuda.R16BF: ptx.BFloat16}

// linear is y[m,n] = epilogue(x[m,k]·W[n,k]^T + bias[n]) as the row-major forward product.
func linear(m, n, k int64, in, out cuda.DataType, e cuda.Epilogue) cuda.Matmul {
	p := cuda.RowMajor(m, n, k, false, true, cuda.Matrix{Type: in, Ld: k}, cuda.Matrix{Type: in, Ld: k}, cuda.Matrix{Type: out, Ld: n}, cuda.Compute32F)
	p.Epilogue, p.BiasType, p.AuxLd, p.AuxType = e, out, n, out
	return p
}

// TestGemm compares products with float64, over types and epilogues.
func TestGemm(t *testing.T) {
	g := open(t)
	b := g.openBlas(t)
	const workspace = 32 << 20
	ws := g.buffer(t, workspace)
	for _, c := range []struct {
		in, out cuda.DataType
		e       cuda.Epilogue
	}{
		{cuda.R16F, cuda.R16F, cuda.EpilogueNone}, {cuda.R16BF, cuda.R16BF, cuda.EpilogueNone}, {cuda.R32F, cuda.R32F, cuda.EpilogueNone},
		{cuda.R16F, cuda.R32F, cuda.EpilogueNone}, {cuda.R16BF, cuda.R32F, cuda.EpilogueNone},
		{cuda.R16F, cuda.R16F, cuda.EpilogueBias}, {cuda.R16BF, cuda.R16BF, cuda.EpilogueBias}, {cuda.R16BF, cuda.R16BF, cuda.EpilogueReluBias},
		{cuda.R16BF, cuda.R16BF, cuda.EpilogueGeluAuxBias}, {cuda.R16F, cuda.R16F, cuda.EpilogueGeluAuxBias},
	} {
		t.Run(fmt.Sprintf("%s_%s_%d", dtypes[c.in], dtypes[c.out], c.e), func(t *testing.T) {
			const m, n, k = 136, 264, 392
			r := rand.New(rand.NewPCG(3, 4))
			draw := func(d ptx.DType, n int) ptxtest.Tensor { return ptxtest.Fill(r, d, n, 1) }
			x, w, bias := draw(dtypes[c.in], m*k), draw(dtypes[c.in], n*k), draw(dtypes[c.out], n)
			y, aux := ptxtest.New(dtypes[c.out], m*n), ptxtest.New(dtypes[c.out], m*n)
			plan, err := b.Plan(linear(m, n, k, c.in, c.out, c.e))
			g.must(t, err)
			defer plan.Close()
			algos, err := plan.Algos(workspace, 4)
			if errors.Is(err, cuda.ErrNotSupported) {
				t.Skip(err)
			}
			g.must(t, err)
			o := cuda.Operands{
				A: g.upload(t, w.Bytes), B: g.upload(t, x.Bytes), D: g.upload(t, y.Bytes), Bias: g.upload(t, bias.Bytes),
				Aux: g.upload(t, aux.Bytes), Workspace: ws, WorkspaceBytes: workspace,
			}
			o.C = o.D
			g.must(t, plan.Run(algos[0], 1, 0, o, g.s))
			g.download(t, y.Bytes, o.D)
			worst := 0.0
			for i := range m * n {
				want, mass := product(x, w, i/n, i%n, k)
				want, mass = finish(c.e, want, mass, bias.At(i%n))
				err := math.Abs(y.At(i) - want)
				limit := mass*k*0x1p-23 + ptxtest.Ulp(dtypes[c.out], want)
				worst = math.Max(worst, err/limit)
				if !(err <= limit) {
					t.Fatalf("y[%d] = %g, want %g within %g", i, y.At(i), want, limit)
				}
			}
			t.Logf("largest error %.2f of the bound", worst)
		})
	}
}

// product is a row of x times a row of w, and the sum of magnitudes.
func product(x, w ptxtest.Tensor, i, j, k int) (v, mass float64) {
	for q := range k {
		p := x.At(i*k+q) * w.At(j*k+q)
		v += p
		mass += math.Abs(p)
	}
	return v, mass
}

// finish applies an epilogue; GELU is the tanh form.
func finish(e cuda.Epilogue, v, mass, bias float64) (float64, float64) {
	if e.HasBias() {
		v += bias
	}
	switch e {
	case cuda.EpilogueReluBias:
		v = math.Max(v, 0)
	case cuda.EpilogueGeluAuxBias:
		v = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
		mass = 2*mass + 1e3*math.Abs(v) // the library's tanh is an approximation of about 11 bits
	}
	return v, mass
}
