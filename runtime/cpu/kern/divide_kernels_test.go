package kern

import "fmt"

// dividedKernel is a kernel at a shape.
type dividedKernel struct {
	name string
	run  func(*Machine)
}

// dividedKernels are the kernels with operands in a block, which nothing reads.
func dividedKernels(block *Block) (list []dividedKernel) {
	all := func(typ Type) Buf { return Buf{typ, block.Bytes()} }
	add := func(name string, run func(*Machine)) { list = append(list, dividedKernel{name, run}) }
	for _, s := range dividedProducts {
		for _, typ := range []Type{F32, BF16} {
			g := Gemm{M: s.m, N: s.n, K: s.k, Batch: [2]int{s.batch}, A: Mat{Buf: all(typ), LD: s.k, T: s.at}, B: Mat{Buf: all(typ), LD: s.n, T: s.bt}, C: Mat{Buf: all(typ), LD: s.n}}
			if s.at {
				g.A.LD = s.m
			}
			if s.bt {
				g.B.LD = s.k
			}
			add(fmt.Sprintf("%s, %v %dx%dx%d", s.name, typ, s.m, s.n, s.k), func(m *Machine) { m.Gemm(&g) })
		}
	}
	for _, s := range dividedAttentions {
		view := func(heads, n int) View { return View{all(F32), [3]int{heads * n * s.d, n * s.d, s.d}} }
		a := Attention{Batch: s.batch, Heads: s.heads, KVHeads: s.kv, S: s.s, T: s.t, D: s.d, DV: s.d, Scale: 1, Causal: s.causal, Offset: s.t - s.s,
			Q: view(s.heads, s.s), K: view(s.kv, s.t), V: view(s.kv, s.t), Y: view(s.heads, s.s)}
		if s.s == 1 {
			c := CachedAttention{Batch: s.batch, Heads: s.heads, KVHeads: s.kv, S: 1, T: s.t, D: s.d, DV: s.d, Scale: 1, Q: all(F32), K: all(F32), V: all(F32), Y: all(F32)}
			for range s.batch {
				c.Pos, c.Count = append(c.Pos, s.t-1), append(c.Count, 1)
			}
			add(s.name+" cached attention", func(m *Machine) { m.CachedAttention(&c) })
			continue
		}
		add(s.name+" attention", func(m *Machine) { m.Attention(&a) })
		add(s.name+" attention, gradient", func(m *Machine) { m.AttentionGrad(&a) })
	}
	for _, s := range dividedConvs {
		for _, last := range []bool{false, true} {
			c := benchConv(F32, 1, s.c, s.k, s.size, s.kernel, s.kernel/2, last)
			c.N, c.Groups, c.Stride = s.n, s.groups, [3]int{1, s.stride, s.stride}
			c.Out = [3]int{1, ceilDiv(s.size, s.stride), ceilDiv(s.size, s.stride)}
			c.X, c.W, c.Y = all(F32), all(F32), all(F32)
			name := fmt.Sprintf("%s, %d images, last=%v", s.name, s.n, last)
			add(name, func(m *Machine) { m.Conv(c) })
			add(name+", gradient", func(m *Machine) { m.ConvInputGrad(c) })
			add(name+", weights", func(m *Machine) { m.ConvWeightGrad(c) })
		}
	}
	addRowKernels(all, add)
	return list
}

// addRowKernels adds kernels over rows, channels and lists of tensors.
func addRowKernels(all func(Type) Buf, add func(string, func(*Machine))) {
	x, labels := all(F32), ints32(make([]int32, 4096))
	stats := make([]float32, 1<<16)
	for _, s := range []struct {
		name       string
		rows, cols int
	}{{"GPT-2", 4096, 768}, {"GPT-2 head", 4096, 50257}, {"Llama-7B prefill", 512, 4096}, {"Llama-7B decode", 1, 4096}, {"BERT", 128, 768}} {
		rows, cols := s.rows, s.cols
		add(s.name+" softmax", func(m *Machine) { m.Softmax(x, x, rows, cols) })
		add(s.name+" softmax, gradient", func(m *Machine) { m.SoftmaxGrad(x, x, x, rows, cols) })
		n := Norm{Rows: rows, Cols: cols, X: x, Gamma: x, Beta: x, Y: x, DY: x, DX: x, DGamma: x, DBeta: x, Rstd: stats, Mean: stats}
		add(s.name+" norm", func(m *Machine) { m.Norm(&n) })
		add(s.name+" norm, gradient", func(m *Machine) { m.NormGrad(&n) })
		add(s.name+" cross entropy", func(m *Machine) { m.CrossEntropy(&CrossEntropy{Rows: rows, Cols: cols, X: x, Labels: labels}) })
		add(s.name+" sum of rows", func(m *Machine) { m.Reduce(ReduceSum, x, x, rows, cols, 1) })
		add(s.name+" sum of columns", func(m *Machine) { m.Reduce(ReduceSum, x, x, 1, rows, cols) })
		if cols < 5000 {
			index := ints32(make([]int32, rows))
			add(s.name+" gather", func(m *Machine) { m.Gather(x, x, index, cols, nil) })
			add(s.name+" scatter", func(m *Machine) { m.ScatterAdd(Buf{F32, x.Data[:4*50257*cols]}, x, index, cols, false) })
		}
	}
	for _, s := range []struct {
		name                            string
		images, channels, space, groups int
	}{
		{"ResNet-50", 32, 64, 112 * 112, 0}, {"ResNet-50", 32, 256, 56 * 56, 0}, {"ResNet-50", 32, 512, 28 * 28, 0}, {"ResNet-50", 32, 1024, 14 * 14, 0},
		{"ResNet-50", 32, 512, 7 * 7, 0}, {"ResNet-50", 1, 2048, 7 * 7, 0}, {"ResNet-50", 1, 64, 112 * 112, 0}, {"ResNet-50", 2, 256, 56 * 56, 0},
		{"U-Net", 1, 320, 64 * 64, 32}, {"U-Net", 2, 640, 32 * 32, 32}, {"U-Net", 8, 1280, 16 * 16, 32}, {"VAE", 1, 128, 512 * 512, 32},
		{"instances", 1, 64, 256 * 256, 64}, {"one group", 1, 256, 56 * 56, 1}, {"one group", 8, 256, 28 * 28, 1}, {"groups of odd planes", 4, 96, 57 * 57, 2},
	} {
		for _, last := range []bool{false, true} {
			n := ChannelNorm{Images: s.images, Channels: s.channels, Space: s.space, Groups: s.groups, ChannelsLast: last, X: x, Y: x, DY: x, DX: x, Mean: stats, Var: stats, Rstd: stats}
			name := fmt.Sprintf("%s norm, %d images of %d channels, %d groups, last=%v", s.name, s.images, s.channels, s.groups, last)
			add(name, func(m *Machine) { m.ChannelNorm(&n) })
			add(name+", gradient", func(m *Machine) { m.ChannelNormGrad(&n) })
		}
	}
}

var dividedAttentions = []struct {
	name                      string
	batch, heads, kv, s, t, d int
	causal                    bool
}{
	{"GPT-2", 4, 12, 12, 1024, 1024, 64, true},
	{"GPT-2, 1 sequence", 1, 12, 12, 1024, 1024, 64, true},
	{"Llama-7B prefill", 1, 32, 32, 512, 512, 128, true},
	{"Llama-7B prefill 2048", 1, 32, 32, 2048, 2048, 128, true},
	{"Llama-7B decode", 1, 32, 32, 1, 1024, 128, true},
	{"Llama-7B decode, 8 sequences", 8, 32, 32, 1, 1024, 128, true},
	{"BERT, 8 sequences", 8, 12, 12, 128, 128, 64, false},
	{"BERT", 1, 12, 12, 128, 128, 64, false},
}

var dividedConvs = []struct {
	name                                  string
	n, c, k, size, kernel, stride, groups int
}{
	{"ResNet-50 first", 32, 3, 64, 224, 7, 2, 1},
	{"ResNet-50 3x3, 64", 32, 64, 64, 56, 3, 1, 1},
	{"ResNet-50 3x3, 512", 32, 512, 512, 7, 3, 1, 1},
	{"ResNet-50 3x3, 512", 1, 512, 512, 7, 3, 1, 1},
	{"ResNet-50 3x3 of stride 2, 128", 32, 128, 128, 56, 3, 2, 1},
	{"ResNet-50 1x1, 256 to 64", 32, 256, 64, 56, 1, 1, 1},
	{"ResNet-50 1x1, 512 to 2048", 32, 512, 2048, 7, 1, 1, 1},
	{"ResNet-50 1x1, 512 to 2048", 1, 512, 2048, 7, 1, 1, 1},
	{"ResNet-50 1x1 of stride 2", 32, 256, 512, 56, 1, 2, 1},
	{"depthwise 3x3, 96", 1, 96, 96, 112, 3, 1, 96},
	{"depthwise 3x3, 96", 32, 96, 96, 112, 3, 1, 96},
}

// dividedProducts are the products of models: results, and gradients of operands and of weights.
var dividedProducts = []struct {
	name           string
	m, n, k, batch int
	at, bt         bool
}{
	{"GPT-2 qkv", 4096, 2304, 768, 1, false, false},
	{"GPT-2 out", 4096, 768, 768, 1, false, false},
	{"GPT-2 up", 4096, 3072, 768, 1, false, false},
	{"GPT-2 down", 4096, 768, 3072, 1, false, false},
	{"GPT-2 head", 4096, 50257, 768, 1, false, true},
	{"GPT-2 up, gradient", 4096, 768, 3072, 1, false, true},
	{"GPT-2 up, weights", 768, 3072, 4096, 1, true, false},
	{"GPT-2 head, weights", 768, 50257, 4096, 1, true, false},
	{"Llama-7B decode q", 1, 4096, 4096, 1, false, false},
	{"Llama-7B decode up", 1, 11008, 4096, 1, false, false},
	{"Llama-7B decode down", 1, 4096, 11008, 1, false, false},
	{"Llama-7B decode head", 1, 32000, 4096, 1, false, false},
	{"Llama-7B decode up, B transposed", 1, 11008, 4096, 1, false, true},
	{"Llama-7B decode up, 8 sequences", 8, 11008, 4096, 1, false, false},
	{"Llama-7B decode up, 16 sequences", 16, 11008, 4096, 1, false, false},
	{"Llama-7B prefill q", 512, 4096, 4096, 1, false, false},
	{"Llama-7B prefill up", 512, 11008, 4096, 1, false, false},
	{"Llama-7B prefill down", 512, 4096, 11008, 1, false, false},
	{"BERT qkv", 128, 2304, 768, 1, false, false},
	{"BERT up", 128, 3072, 768, 1, false, false},
	{"BERT down", 128, 768, 3072, 1, false, false},
	{"BERT up, 8 sequences", 1024, 3072, 768, 1, false, false},
	{"BERT scores, 8 sequences", 128, 128, 64, 96, false, true},
	{"ResNet-50 classes, 32 images", 32, 1000, 2048, 1, false, false},
	{"2048 cubed", 2048, 2048, 2048, 1, false, false},
	{"MLP", 128, 512, 784, 1, false, false},
}
