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

// TestGemm checks products over types and epilogues. The bound of each element follows from the length
// of its sum.
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
		g.run(t, fmt.Sprintf("%s_%s_%d", dtypes[c.in], dtypes[c.out], c.e), func(t *testing.T) {
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
			at, want, kept := make([]int, m*n), make([]num, m*n), make([]num, m*n)
			for i := range at {
				at[i] = i
				kept[i] = dot(k, func(q int) (a, b num) { return exact(x.At(i/n*k + q)), exact(w.At(i%n*k + q)) })
				want[i], kept[i] = finish(c.e, kept[i], bias.At(i%n))
			}
			within(t, t.Name(), y, at, want)
			if c.e.HasAux() {
				g.download(t, aux.Bytes, o.Aux)
				within(t, t.Name()+", its argument", aux, at, kept)
			}
		})
	}
}

// finish applies an epilogue, and gives what a GELU keeps.
func finish(e cuda.Epilogue, v num, bias float64) (y, kept num) {
	if e.HasBias() {
		v = v.plus(exact(bias))
	}
	switch e {
	case cuda.EpilogueReluBias:
		return num{math.Max(v.v, 0), v.e}, v
	case cuda.EpilogueGeluAuxBias:
		return v.gelu(), v
	}
	return v, v
}
