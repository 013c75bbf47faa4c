package gputest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// TestAnswers prints what the libraries take of what lowering asks of them, and what it goes without
// because they are said to do it in another way: a line each, "takes" or "refuses" and why. Only an
// error of the driver is a failure: what is refused is lowered again without it.
func TestAnswers(t *testing.T) {
	g := open(t)
	answer := func(what string, err error) {
		t.Helper()
		var ce *cuda.Error
		switch {
		case err == nil:
			fmt.Printf("takes    %s\n", what)
		case errors.As(err, &ce) && ce.Lib != "cuda":
			fmt.Printf("refuses  %s: %v\n", what, err)
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	b := g.openBlas(t)
	for _, d := range []cuda.DataType{cuda.R16BF, cuda.R16F} {
		for _, q := range questions(d) {
			p, err := b.Plan(q.m)
			if err == nil {
				_, err = p.Algos(32<<20, 1)
				g.must(t, p.Close())
			}
			answer(fmt.Sprintf("%s, %s", q.what, dtypes[d]), err)
		}
	}
	n := g.openDnn(t)
	for _, d := range []cuda.DnnType{cuda.DnnBFloat16, cuda.DnnHalf} {
		graphs := graphQuestions(d, n.Version())
		for _, what := range slices.Sorted(maps.Keys(graphs)) {
			p, err := cuda.FirstPlan(n, graphs[what], cuda.DnnOptions{Workspace: 1 << 30})
			if err == nil {
				g.must(t, p.Close())
			}
			answer(fmt.Sprintf("%s, %s", what, dnnTypes[d]), err)
		}
	}
}

type question struct {
	what string
	m    cuda.Matmul
}

// questions are the endings of products, all of a layer of GPT-2.
func questions(d cuda.DataType) []question {
	const rows, in, out = 1024, 768, 3072
	half, wide := func(ld int64) cuda.Matrix { return cuda.Matrix{Type: d, Ld: ld} }, func(ld int64) cuda.Matrix { return cuda.Matrix{Type: cuda.R32F, Ld: ld} }
	ends := func(m cuda.Matmul, e cuda.Epilogue) cuda.Matmul {
		m.Epilogue, m.BiasType, m.AuxType, m.AuxLd = e, m.D.Type, m.D.Type, m.M
		return m
	}
	forward := cuda.RowMajor(rows, out, in, false, false, half(in), half(out), half(out), cuda.Compute32F)
	back := cuda.RowMajor(rows, out, in, false, true, half(in), half(in), half(out), cuda.Compute32F)
	filter := cuda.RowMajor(in, out, rows, true, false, half(in), half(out), wide(out), cuda.Compute32F)
	turned := cuda.RowMajor(out, in, rows, true, false, half(out), half(in), wide(in), cuda.Compute32F)
	return []question{
		{"bias", ends(forward, cuda.EpilogueBias)}, {"relu after bias", ends(forward, cuda.EpilogueReluBias)},
		{"gelu after bias, its argument kept", ends(forward, cuda.EpilogueGeluAuxBias)}, {"gradient of gelu", ends(back, cuda.EpilogueDGelu)},
		{"gradient of gelu and its sums", ends(back, cuda.EpilogueDGeluBgrad)}, {"a relu's mask", ends(forward, cuda.EpilogueReluAuxBias)},
		{"f32 sums of A beside f32", ends(filter, cuda.EpilogueBgradA)}, {"f32 sums of B beside f32", ends(turned, cuda.EpilogueBgradB)},
	}
}

// graphQuestions are convolutions as ResNet-50 has them, and attention as GPT-2.
func graphQuestions(d cuda.DnnType, version int) map[string]*cuda.DnnGraph {
	conv := func(kind cuda.DnnKind, channels int64, out cuda.DnnType, bias bool) *cuda.DnnGraph {
		c := cuda.Conv{Kind: kind, Type: d, Out: out, NHWC: true, X: []int64{8, channels, 28, 28}, W: []int64{64, channels, 3, 3}, Y: []int64{8, 64, 28, 28}, Bias: bias, BiasType: d,
			Shape: cuda.ConvShape{Pads: []int64{1, 1}, EndPads: []int64{1, 1}, Strides: []int64{1, 1}, Dilations: []int64{1, 1}}}
		return c.Graph()
	}
	a := cuda.Attention{Type: d, B: 2, H: 12, Sq: 1024, Skv: 1024, D: 64, Scale: 0.125, Causal: true, Version: version}
	return map[string]*cuda.DnnGraph{
		"convolution":                        conv(cuda.DnnConv, 64, d, false),
		"convolution of 3 channels":          conv(cuda.DnnConv, 3, d, false),
		"convolution with bias":              conv(cuda.DnnConv, 64, d, true),
		"convolution with bias, 3 channels":  conv(cuda.DnnConv, 3, d, true),
		"filter's gradient":                  conv(cuda.DnnConvFilter, 64, d, false),
		"filter's gradient in f32":           conv(cuda.DnnConvFilter, 64, cuda.DnnFloat, false),
		"filter's gradient in f32, 3 inputs": conv(cuda.DnnConvFilter, 3, cuda.DnnFloat, false),
		"attention":                          a.Forward(),
		"attention's gradient":               a.Backward(),
	}
}

// TestReluAtItsEnds prints what a product's ReLU makes of NaN, and what its mask says of zero: lowering
// leaves the mask alone because it is said to let a gradient pass there.
func TestReluAtItsEnds(t *testing.T) {
	const n = 128
	g := open(t)
	b := g.openBlas(t)
	x, eye := ptxtest.New(ptx.BFloat16, n*n), ptxtest.New(ptx.BFloat16, n*n)
	for i := range n {
		eye.Set(i*n+i, 1)
	}
	x.Set(0, math.NaN()) // column 0 of the product; column 1 stays zero; column 2 is -1
	x.Set(2*n, -1)
	m := cuda.Matrix{Type: cuda.R16BF, Ld: n}
	p := cuda.Matmul{M: n, N: n, K: n, A: m, B: m, C: m, D: m, Compute: cuda.Compute32F, Epilogue: cuda.EpilogueReluAux, AuxLd: 128}
	plan, err := b.Plan(p)
	g.must(t, err)
	algos, err := plan.Algos(0, 1)
	if errors.Is(err, cuda.ErrNotSupported) {
		t.Skip(err)
	}
	g.must(t, err)
	y, mask := ptxtest.New(ptx.BFloat16, n*n), make([]byte, n*16)
	o := cuda.Operands{A: g.upload(t, eye.Bytes), B: g.upload(t, x.Bytes), D: g.upload(t, y.Bytes), Aux: g.upload(t, mask)}
	o.C = o.D
	g.must(t, plan.Run(algos[0], 1, 0, o, g.s))
	g.download(t, y.Bytes, o.D)
	g.download(t, mask, o.Aux)
	bit := func(column int) byte { return mask[column*16] & 1 }
	fmt.Printf("relu(NaN) = %g, mask %d; relu(0) = %g, mask %d; relu(-1) = %g, mask %d\n", y.At(0), bit(0), y.At(n), bit(1), y.At(2*n), bit(2))
	if y.At(2*n) != 0 || bit(2) != 0 {
		t.Error("a negative element passes the ReLU or its mask")
	}
	g.must(t, plan.Close())
}
