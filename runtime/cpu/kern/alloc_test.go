package kern

import "testing"

// TestNoAllocations: a warm machine allocates nothing, alone or with workers.
func TestNoAllocations(t *testing.T) {
	d := newDice(27)
	x, y, dy := d.buf(F16, 90*100), zeros(F32, 90*100), d.buf(BF16, 90*100)
	index := make([]int32, 90)
	gemm, smallM := benchGemm(150, 170, 1100, F16), benchGemm(3, 300, 400, BF16)
	gemm.C.Type, gemm.C.Data, gemm.Bias = F16, gemm.C.Data[:2*150*170], d.buf(F32, 170)
	subnormalBF16 := benchGemm(150, 170, 1100, BF16)
	subnormalBF16.A.set(7, 0x1p-130)
	turned := *smallM
	turned.B.T, turned.B.LD = true, 400
	conv := &Conv{N: 3, C: 8, K: 12, Groups: 2, In: [3]int{1, 20, 20}, Out: [3]int{1, 10, 10}, Kernel: [3]int{1, 3, 3},
		Stride: [3]int{1, 2, 2}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}, X: d.buf(F16, 9600), W: d.buf(F16, 432), Y: d.buf(F16, 3600)}
	last := *conv
	last.ChannelsLast, last.Weights = true, OXI
	wino := benchConv(F16, 3, winoDepth, winoDepth, 9, 3, 1, false)
	six, fewTiles := benchConv(BF16, 1, winoShallow, winoDepth, 32, 3, 1, false), benchConv(BF16, 1, winoDepth, winoDepth, 16, 3, 1, true)
	attn := &Attention{Batch: 2, Heads: 2, KVHeads: 1, S: 70, T: 70, D: 16, DV: 16, Scale: 0.25, Causal: true, LSE: make([]float32, 280)}
	for _, v := range []*View{&attn.Q, &attn.K, &attn.V, &attn.Y, &attn.DY, &attn.GradQ, &attn.GradK, &attn.GradV} {
		*v = d.view(F32, 2, 2, 70, 16)
	}
	norm := &Norm{Rows: 90, Cols: 100, Eps: 1e-5, X: x, Y: y, Gamma: d.buf(F16, 100), Mean: make([]float32, 90), Rstd: make([]float32, 90),
		DY: dy, DX: y, DGamma: zeros(F32, 100)}
	channels := make([]ChannelNorm, 4)
	for i := range channels {
		channels[i] = ChannelNorm{Images: 3, Channels: 6, Space: 500, ChannelsLast: i%2 > 0, Groups: i / 2 * 3, Eps: 1e-5, X: x, Y: y, Gamma: d.buf(F16, 6),
			Mean: make([]float32, 9), Var: make([]float32, 9), Rstd: make([]float32, 9), DY: dy, DX: y, DGamma: zeros(F32, 6)}
	}
	loss := &CrossEntropy{Rows: 90, Cols: 100, X: x, Labels: ints32(index), Ignore: -1, Weights: make([]float32, 100), Smoothing: 0.1}
	pool := Pool2{Planes: 3, H: 32, W: 32, Walk: new(Windows2)}
	image, pooled, grown := d.buf(F32, 3*32*32), zeros(F32, 3*16*16), zeros(F32, 3*32*32)
	kernels := map[string]func(m *Machine){
		"gemm":       func(m *Machine) { m.Gemm(gemm); m.Gemm(smallM); m.Gemm(subnormalBF16); m.Gemm(&turned) },
		"conv":       func(m *Machine) { m.Conv(conv); m.ConvInputGrad(conv); m.ConvWeightGrad(conv) },
		"conv last":  func(m *Machine) { m.Conv(&last); m.ConvInputGrad(&last); m.ConvWeightGrad(&last) },
		"transforms": func(m *Machine) { m.Conv(wino); m.ConvInputGrad(wino); m.ConvWeightGrad(wino) },
		"transforms of bf16": func(m *Machine) {
			for _, c := range []*Conv{six, fewTiles} {
				m.Conv(c)
				m.ConvInputGrad(c)
				m.ConvWeightGrad(c)
			}
		},
		"attention": func(m *Machine) { m.Attention(attn); m.AttentionGrad(attn) },
		"softmax":   func(m *Machine) { m.Softmax(y, x, 90, 100); m.SoftmaxGrad(y, x, dy, 90, 100) },
		"norm":      func(m *Machine) { m.Norm(norm); m.NormGrad(norm) },
		"channel norms": func(m *Machine) {
			for i := range channels {
				m.ChannelNorm(&channels[i])
				m.ChannelNormGrad(&channels[i])
			}
		},
		"loss": func(m *Machine) { m.CrossEntropy(loss) },
		"reduce": func(m *Machine) {
			m.Reduce(ReduceSum, y, x, 90, 100, 1)
			m.Reduce(ReduceMax, y, x, 1, 90, 100)
			m.Reduce(ReduceSum, y, x, 1, 900, 10)
		},
		"embedding": func(m *Machine) {
			m.Gather(y, x, ints32(index), 100, nil)
			m.ScatterAdd(x, y, ints32(index), 100, true)
		},
		"pool": func(m *Machine) {
			if m.Pools2(pool, F32) {
				m.MaxPool2(pool, pooled, nil, image)
				m.MaxPool2Grad(pool, grown, pooled, image)
				m.AvgPool2(pool, pooled, image)
			}
		},
	}
	for _, p := range Paths() {
		for _, workers := range []int{1, 2} {
			m := New(p, workers)
			for name, f := range kernels {
				// A worker's scratch grows when it first gets a task of its own; that may take a few regions.
				if n := testing.AllocsPerRun(20, func() { f(m) }); n >= 1 && workers == 1 {
					t.Errorf("%s: %s allocates %g times", p.Name(), name, n)
				} else if n > 1 {
					t.Errorf("%s, %d workers: %s allocates %g times", p.Name(), workers, name, n)
				}
			}
			m.Close()
		}
	}
}
