package sim

import (
	"errors"
	"strings"
	"testing"

	"ampc/cuda"
)

// refusal wants the status of a rule, by its name.
func refusal(t *testing.T, name string, status int, err error) {
	t.Helper()
	var e *cuda.Error
	if !errors.As(err, &e) || e.Code != status || !strings.HasPrefix(e.Text, name+": ") {
		t.Errorf("%s: %v, want status %d", name, err, status)
	}
}

// TestBlasRules breaks each rule of the table alone: what every example starts from is answered.
func TestBlasRules(t *testing.T) {
	m16 := cuda.Matrix{Type: cuda.R16F, Ld: 256}
	base := cuda.RowMajor(64, 256, 64, false, false, cuda.Matrix{Type: cuda.R16F, Ld: 64}, m16, m16, cuda.Compute32F)
	gelu, relu, sums := base, base, base
	gelu.Epilogue, gelu.BiasType, gelu.AuxType, gelu.AuxLd = cuda.EpilogueGeluAuxBias, cuda.R16F, cuda.R16F, 256
	relu.Epilogue, relu.AuxLd = cuda.EpilogueReluAux, 256
	sums.Epilogue, sums.BiasType = cuda.EpilogueBgradA, cuda.R16F
	bf16 := base
	bf16.A.Type, bf16.B.Type, bf16.C.Type, bf16.D.Type = cuda.R16BF, cuda.R16BF, cuda.R16BF, cuda.R16BF
	f32 := base
	f32.A.Type, f32.B.Type, f32.C.Type, f32.D.Type = cuda.R32F, cuda.R32F, cuda.R32F, cuda.R32F
	cases := map[string]struct {
		from   cuda.Matmul
		change func(m *cuda.Matmul)
		on     int
		faulty bool
	}{
		"injected fault":                          {from: gelu, faulty: true},
		"an epilogue of the list":                 {from: base, change: func(m *cuda.Matmul) { m.Epilogue = cuda.EpilogueBgradA | cuda.EpilogueRelu }},
		"operand types":                           {from: base, change: func(m *cuda.Matmul) { m.B.Type = cuda.R16BF }},
		"result type":                             {from: f32, change: func(m *cuda.Matmul) { m.C.Type, m.D.Type = cuda.R16F, cuda.R16F }},
		"bf16 from sm_80":                         {from: bf16, on: 7},
		"TF32 takes f32":                          {from: base, change: func(m *cuda.Matmul) { m.Compute = cuda.ComputeTF32 }},
		"sizes":                                   {from: base, change: func(m *cuda.Matmul) { m.A.Ld = 1 << 31 }},
		"results of a batch lie apart":            {from: base, change: func(m *cuda.Matmul) { m.Batch = 2 }},
		"the bias is of the result's type":        {from: gelu, change: func(m *cuda.Matmul) { m.BiasType = cuda.R32F }},
		"a kept argument is of the result's type": {from: gelu, change: func(m *cuda.Matmul) { m.AuxType = cuda.R32F }},
		"rows of a kept argument":                 {from: gelu, change: func(m *cuda.Matmul) { m.AuxLd = 260 }},
		"rows of a mask":                          {from: relu, change: func(m *cuda.Matmul) { m.AuxLd = 320 }},
		"auxiliaries of a batch lie apart":        {from: gelu, change: func(m *cuda.Matmul) { m.Batch, m.D.Stride = 2, 1<<20 }},
		"bias gradients are not of batches":       {from: sums, change: func(m *cuda.Matmul) { m.Batch, m.D.Stride = 2, 1<<20 }},
		"the operand that is summed is not turned": {from: sums, change: func(m *cuda.Matmul) {
			m.TransA, m.A.Ld = true, 64
		}},
		"gradients want an inner dimension of 2": {from: sums, change: func(m *cuda.Matmul) { m.K = 1 }},
	}
	answer := func(m cuda.Matmul, major int, faulty bool) error {
		d, err := Open(Options{NoAux: faulty, Major: max(major, 7) + map[bool]int{true: 2}[major == 0]})
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Blas().Plan(m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Algos(1<<20, 1)
		return err
	}
	for _, r := range blasRules {
		c, ok := cases[r.name]
		if !ok {
			t.Errorf("%s: no example", r.name)
			continue
		}
		if err := answer(c.from, 0, false); err != nil {
			t.Errorf("%s: what it starts from: %v", r.name, err)
		}
		if c.change != nil {
			c.change(&c.from)
		}
		refusal(t, r.name, r.status, answer(c.from, c.on, c.faulty))
	}
	if len(cases) != len(blasRules) {
		t.Errorf("%d examples of %d rules", len(cases), len(blasRules))
	}
}

// TestDnnRules does the same for convolutions and attention.
func TestDnnRules(t *testing.T) {
	image := cuda.Conv{Kind: cuda.DnnConv, Type: cuda.DnnHalf, Out: cuda.DnnHalf, NHWC: true, X: []int64{2, 8, 6, 6}, W: []int64{16, 8, 3, 3}, Y: []int64{2, 16, 6, 6},
		Shape: cuda.ConvShape{Pads: []int64{1, 1}, EndPads: []int64{1, 1}, Strides: []int64{1, 1}, Dilations: []int64{1, 1}}}
	conv := func(change func(c *cuda.Conv)) *cuda.DnnGraph { c := image; change(&c); return c.Graph() }
	heads := cuda.Attention{Type: cuda.DnnHalf, B: 1, H: 2, Sq: 128, Skv: 128, D: 16, Scale: 1}
	attention := func(change func(a *cuda.Attention)) *cuda.DnnGraph { a := heads; change(&a); return a.Forward() }
	short := heads
	short.Sq, short.Skv = 64, 64
	mixed := conv(func(*cuda.Conv) {})
	mixed.Nodes[0].B.Type = cuda.DnnFloat
	gap := conv(func(*cuda.Conv) {})
	gap.Nodes[0].X.Strides[2] += 8
	alone := attention(func(*cuda.Attention) {})
	alone.Consts = append(alone.Consts, &cuda.DnnTensor{UID: 1000, ByValue: true})
	cases := []struct {
		rules []dnnRule
		name  string
		g     *cuda.DnnGraph
		major int
	}{
		{attentionRules, "tensors are of operations", alone, 9},
		{convRules, "injected fault", image.Graph(), 0},
		{attentionRules, "injected fault", heads.Forward(), 0},
		{convRules, "two or three dimensions", conv(func(c *cuda.Conv) { c.X, c.W, c.Y = []int64{2, 8, 6}, []int64{16, 8, 3}, []int64{2, 16, 6} }), 9},
		{convRules, "operands of one type", mixed, 9},
		{convRules, "bf16 from sm_80", conv(func(c *cuda.Conv) { c.Type, c.Out = cuda.DnnBFloat16, cuda.DnnBFloat16 }), 7},
		{convRules, "channels of a filter", conv(func(c *cuda.Conv) { c.W = []int64{16, 3, 3, 3} }), 9},
		{convRules, "tensors lie dense, in one order", gap, 9},
		{convRules, "paddings at both ends", conv(func(c *cuda.Conv) { c.Shape.EndPads = []int64{1, 2} }), 9},
		{convRules, "a result of another type is a filter's gradient in f32", conv(func(c *cuda.Conv) { c.Out = cuda.DnnFloat }), 9},
		{convRules, "a result of another type is a filter's gradient in f32", conv(func(c *cuda.Conv) {
			c.Kind, c.Out, c.NHWC = cuda.DnnConvFilter, cuda.DnnFloat, false
		}), 9},
		{convRules, "what follows a convolution", conv(func(c *cuda.Conv) { c.Bias, c.NHWC = true, false }), 9},
		{convRules, "what follows a convolution", conv(func(c *cuda.Conv) { c.Bias = true }), 7},
		{attentionRules, "from sm_80", attention(func(*cuda.Attention) {}), 7},
		{attentionRules, "16-bit tensors of one type", attention(func(a *cuda.Attention) { a.Type = cuda.DnnFloat }), 9},
		{attentionRules, "head size", attention(func(a *cuda.Attention) { a.D = 12 }), 9},
		{attentionRules, "head size", attention(func(a *cuda.Attention) { a.D = 192 }), 8},
		{attentionRules, "more than one key", attention(func(a *cuda.Attention) { a.Skv = 1 }), 9},
		{attentionRules, "a gradient wants whole tiles of keys", short.Backward(), 9},
		{attentionRules, "heads lie dense, everything else 16 bytes apart", attention(func(a *cuda.Attention) { a.QStrides = []int64{4096, 2048, 20, 1} }), 9},
	}
	plan := func(g *cuda.DnnGraph, major int) error {
		d, err := Open(Options{Major: max(major, 7), NoConv: major == 0, NoAttention: major == 0})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cuda.FirstPlan(d.Dnn(), g, cuda.DnnOptions{Workspace: 1 << 20})
		return err
	}
	for _, g := range []*cuda.DnnGraph{image.Graph(), conv(func(c *cuda.Conv) { c.Bias = true }), heads.Forward(), heads.Backward(), attention(func(a *cuda.Attention) { a.Causal = true }),
		conv(func(c *cuda.Conv) { c.Kind, c.Out = cuda.DnnConvFilter, cuda.DnnFloat })} {
		if err := plan(g, 9); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
	}
	seen := map[string]bool{}
	for _, c := range cases {
		for _, r := range c.rules {
			if r.name == c.name {
				refusal(t, r.name, r.status, plan(c.g, c.major))
				seen[r.name] = true
			}
		}
	}
	for _, r := range append(append([]dnnRule(nil), convRules...), attentionRules...) {
		if !seen[r.name] {
			t.Errorf("%s: no example", r.name)
		}
	}
}
