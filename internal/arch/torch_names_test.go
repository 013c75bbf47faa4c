package arch_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// torchEntry is a line of the index by PyTorch's names.
type torchEntry struct{ torch, ours, differs string }

// Reasons why something is not offered.
const (
	dataShape = "not offered: the size of its result depends on the data, and sizes are fixed when a step is compiled"
	noKernel  = "not offered: there is no kernel; write a [CustomOp](amp.md#gradients-and-ops-of-your-own)"
	composeIt = "a composition"
)

// otherTorch are names of PyTorch that are not one method here: what to write in
// their place, or why there is nothing. ours is Go with x, y and m, or a name of
// the package.
var otherTorch = []torchEntry{
	{"F.adaptive_avg_pool2d", "m.AdaptiveAvgPool", ""},
	{"F.avg_pool2d", "m.AvgPool", "padding counts only with CountPad"},
	{"F.celu", "m.Elu", "alpha 1 alone; " + noKernel},
	{"F.ctc_loss", "", noKernel},
	{"F.fold", "", noKernel},
	{"F.gaussian_nll_loss", "m.ReduceMean(m.Affine(m.Add(m.Log(v), m.Div(m.Square(m.Sub(x, y)), v)), 0.5, 0))", "a composition; v is the variance"},
	{"F.glu", "m.Mul(a, m.Sigmoid(b))", "a and b are the halves that Split returns"},
	{"F.grid_sample", "", noKernel},
	{"F.gumbel_softmax", "m.Softmax(m.Add(x, m.Neg(m.Log(m.Neg(m.Log(u))))), -1)", "a composition; u is RandUniform from 1e-6 to 1; without hard"},
	{"F.hinge_embedding_loss", "m.Where(y, x, m.Relu(m.Affine(x, -1, 1)))", "a composition; y is a bool"},
	{"F.logsigmoid", "m.Neg(m.Softplus(m.Neg(x)))", composeIt},
	{"F.max_pool2d", "m.MaxPool", "without return_indices"},
	{"F.poisson_nll_loss", "m.ReduceMean(m.Sub(m.Exp(x), m.Mul(y, x)))", composeIt},
	{"F.softmin", "m.Softmax(m.Neg(x), -1)", composeIt},
	{"F.tanhshrink", "m.Sub(x, m.Tanh(x))", composeIt},
	{"F.threshold", "m.Where(m.Gt(x, t), x, value)", "a composition; t and value are Scalar"},
	{"F.unfold", "", noKernel},
	{"nn.Bilinear", "m.Einsum(\"bi,oij,bj->bo\", x, w, y)", "a composition over a Param"},
	{"nn.DataParallel", "ampc.DataParallel", "TrainConfig.Parallel; a process for each rank: [distributed.md](distributed.md)"},
	{"nn.EmbeddingBag", "m.ReduceSum(m.Embedding(\"e\", ids, n, d), ampc.Axes(1))", "a composition of bags of one size"},
	{"nn.Hardtanh", "m.Clip(x, -1, 1)", ""},
	{"nn.Identity", "x", ""},
	{"nn.init.kaiming_normal_", "ampc.Kaiming", "Init of a layer's options; Xavier, Normal, TruncNormal and Uniform are there, too"},
	{"nn.LocalResponseNorm", "", noKernel},
	{"nn.MarginRankingLoss", "m.ReduceMean(m.Relu(m.Affine(m.Mul(y, m.Sub(a, b)), -1, margin)))", composeIt},
	{"nn.Module", "func(m *ampc.Model, x ampc.Tensor) ampc.Tensor", "a layer is a function; Scope names what it builds, Shared applies it many times"},
	{"nn.ModuleList", "for i := range n { x = block(m.Scope(fmt.Sprintf(\"h%d\", i)), x) }", "a loop in Go"},
	{"nn.PairwiseDistance", "m.ReduceL2(m.Affine(m.Sub(x, y), 1, 1e-6), ampc.Axes(-1))", composeIt},
	{"nn.parallel.DistributedDataParallel", "ampc.DataParallel", "TrainConfig.Parallel; see [distributed.md](distributed.md)"},
	{"nn.Parameter", "m.Param", ""},
	{"nn.ReflectionPad2d", "m.Pad", "with PadOptions{Mode: PadReflect}"},
	{"nn.ReLU6", "m.Clip(x, 0, 6)", ""},
	{"nn.ReplicationPad2d", "m.Pad", "with PadOptions{Mode: PadEdge}"},
	{"nn.Sequential", "m.Relu(m.Linear(\"fc1\", x, 256))", "calls in each other"},
	{"nn.SoftMarginLoss", "m.ReduceMean(m.Softplus(m.Neg(m.Mul(y, x))))", composeIt},
	{"nn.Softshrink", "m.Sub(x, m.Clip(x, -0.5, 0.5))", composeIt},
	{"nn.SyncBatchNorm", "ampc.DataParallel", "Parallel.SyncNorms"},
	{"nn.Transformer", "m.EncoderBlock", "a loop over EncoderBlock and DecoderBlock; zoo:gpt and zoo:encoder write their blocks out"},
	{"nn.utils.clip_grad_norm_", "ampc.ClipNorm", "TrainConfig.Clip; of unscaled gradients, whatever the loss scale"},
	{"nn.utils.clip_grad_value_", "ampc.ClipValue", "TrainConfig.Clip"},
	{"nn.utils.spectral_norm", "", "not offered; TrainConfig.Gradients and State can do its power iteration"},
	{"nn.utils.weight_norm", "m.LinearWith(x, m.Mul(m.Normalize(v, 0), g), b)", "a composition over Params v and g"},
	{"nn.ZeroPad2d", "m.Pad", ""},
	{"Tensor.backward", "m.Train", "the step computes and applies gradients; TrainConfig.Grads returns some"},
	{"Tensor.clone", "x", "a value never changes"},
	{"Tensor.contiguous", "x", "layout is the compiler's"},
	{"Tensor.detach", "", "not offered: freeze parameters by Group.Freeze, or train other ones in a step of its own (GANs)"},
	{"Tensor.half", "m.Cast(x, ampc.F16)", "a policy does it for a whole model"},
	{"Tensor.item", "Result.Wait", "the loss and other numbers; Result.Value reads tensors"},
	{"Tensor.masked_scatter", "", dataShape},
	{"Tensor.numpy", "Result.Value", "HostTensor.Floats has the elements"},
	{"Tensor.register_buffer", "m.State", ""},
	{"Tensor.unbind", "m.Squeeze(m.Split(x, 1, sizes...)[i], 1)", "a composition"},
	{"Tensor.unfold", "", noKernel},
	{"torch.acos", "", noKernel},
	{"torch.addmm", "m.Add(c, m.Matmul(x, y))", "a composition; the product's epilogue adds"},
	{"torch.all", "m.ReduceMin(m.Cast(x, ampc.I32))", "a composition; 1 for true"},
	{"torch.any", "m.ReduceMax(m.Cast(x, ampc.I32))", "a composition; 1 for true"},
	{"torch.asin", "", noKernel},
	{"torch.atan2", "", "not offered; Atan(Div(y, x)) has half its range"},
	{"torch.autocast", "TrainConfig.Policy", "see [migration.md](migration.md)"},
	{"torch.autograd.grad", "m.Grad", "create_graph=True: gradients are values like others"},
	{"torch.baddbmm", "m.Add(c, m.Matmul(x, y))", "a composition; the product's epilogue adds"},
	{"torch.bincount", "m.ReduceSum(m.OneHot(x, n, -1, ampc.I32), ampc.Axes(0))", "a composition with n given"},
	{"torch.cdist", "m.Sqrt(m.ReduceSum(m.Square(m.Sub(m.Unsqueeze(x, 1), m.Unsqueeze(y, 0))), ampc.Axes(-1)))", composeIt},
	{"torch.compile", "m.Train", "every model is compiled"},
	{"torch.cosh", "m.Affine(m.Add(m.Exp(x), m.Exp(m.Neg(x))), 0.5, 0)", composeIt},
	{"torch.count_nonzero", "m.ReduceSum(m.Cast(m.Ne(x, value), ampc.I32))", "a composition; value is Scalar 0"},
	{"torch.cross", "", noKernel},
	{"torch.cuda.amp.GradScaler", "ampc.Dynamic", "brought by MixedF16; see [migration.md](migration.md)"},
	{"torch.cumprod", "m.LinearScan(m.Mul(x, w), x, 1)", "a composition; w is 1 at the start of the axis and 0 behind it"},
	{"torch.diag", "m.ReduceSum(m.Mul(x, eye), ampc.Axes(1))", "a composition; eye as for torch.eye"},
	{"torch.diff", "m.Sub(m.Slice(x, []int{0}, []int{1}, []int{n}), m.Slice(x, []int{0}, []int{0}, []int{n - 1}))", composeIt},
	{"torch.dist", "m.ReduceL2(m.Sub(x, y))", composeIt},
	{"torch.distributed", "ampc.DataParallel", "over a World of package ampc/mpi or ampc/nccl: [distributed.md](distributed.md)"},
	{"torch.distributed.fsdp", "ampc.DataParallel", "Parallel.Shard divides masters, moments and averages (ZeRO stage 1), not gradients"},
	{"torch.dot", "m.ReduceSum(m.Mul(x, y))", composeIt},
	{"torch.eye", "m.OneHot(m.Iota(ampc.I32, 0, n), n, -1, ampc.F32)", composeIt},
	{"torch.fft", "", noKernel},
	{"torch.fmod", "m.Sub(x, m.Mul(y, m.Cast(m.Cast(m.Div(x, y), ampc.I32), ampc.F32)))", "a composition; Mod has the sign of the divisor, as torch.remainder"},
	{"torch.frac", "m.Sub(x, m.Trunc(x))", composeIt},
	{"torch.histc", "", noKernel},
	{"torch.hstack", "m.Concat", "along axis 1; vstack: along axis 0"},
	{"torch.index_add", "m.ScatterAdd", "its index has x's shape: Broadcast one of a single dimension"},
	{"torch.inference_mode", "m.Infer", "a step without backward"},
	{"torch.inverse", "", noKernel},
	{"torch.kthvalue", "m.TopK", "with Smallest; the last of k"},
	{"torch.lerp", "m.Add(x, m.Mul(m.Sub(y, x), w))", composeIt},
	{"torch.linalg", "", "not offered except for vector_norm: there are no decompositions"},
	{"torch.linspace", "m.Affine(m.Iota(ampc.F32, 0, n), step, first)", composeIt},
	{"torch.load", "m.LoadFile", "of m.SaveFile; the files of torch.save: [weights.Load](weights.md)"},
	{"torch.log10", "m.Affine(m.Log(x), 1/math.Ln10, 0)", composeIt},
	{"torch.log2", "m.Affine(m.Log(x), 1/math.Ln2, 0)", composeIt},
	{"torch.manual_seed", "ampc.Seed", "an option of New"},
	{"torch.masked_select", "", dataShape},
	{"torch.max", "m.ReduceMax", "and Argmax for the indices"},
	{"torch.median", "m.TopK", "with Smallest; the last of (n+1)/2"},
	{"torch.meshgrid", "m.Broadcast(m.Reshape(x, n, 1), n, k)", composeIt},
	{"torch.min", "m.ReduceMin", "and Argmin for the indices"},
	{"torch.movedim", "m.Transpose", ""},
	{"torch.multinomial", "", "not offered; Argmax of the logarithms plus Gumbel noise draws one"},
	{"torch.mv", "m.Squeeze(m.Matmul(x, m.Unsqueeze(v, 1)), 1)", composeIt},
	{"torch.nan_to_num", "m.MaskedFill(x, m.IsNaN(x), 0)", "a composition; the same with IsInf"},
	{"torch.no_grad", "m.Infer", "a step without backward; Group.Freeze within a step"},
	{"torch.nonzero", "", dataShape},
	{"torch.norm", "m.ReduceL2", ""},
	{"torch.ones_like", "m.Affine(x, 0, 1)", "for finite x; m.Full with its shape"},
	{"torch.onnx.export", "m.WriteONNX", "see [onnx.md](onnx.md)"},
	{"torch.optim.Adafactor", "optim.Adafactor", "package ampc/optim"},
	{"torch.optim.Adagrad", "ampc.WithRule", "[written as an `UpdateRule`](amp.md#gradients-and-ops-of-your-own)"},
	{"torch.optim.Adam", "ampc.Adam", "TrainConfig.Optimizer"},
	{"torch.optim.AdamW", "ampc.AdamW", "TrainConfig.Optimizer"},
	{"torch.optim.LBFGS", "", "not offered: it computes the loss several times in one step"},
	{"torch.optim.lr_scheduler.CosineAnnealingLR", "ampc.Cosine", "TrainConfig.LR"},
	{"torch.optim.lr_scheduler.CosineAnnealingWarmRestarts", "optim.CosineRestarts", "package ampc/optim"},
	{"torch.optim.lr_scheduler.LambdaLR", "step.SetLR", "between steps"},
	{"torch.optim.lr_scheduler.LinearLR", "ampc.LinearDecay", "TrainConfig.LR"},
	{"torch.optim.lr_scheduler.OneCycleLR", "optim.OneCycle", "package ampc/optim"},
	{"torch.optim.lr_scheduler.PolynomialLR", "optim.Polynomial", "package ampc/optim"},
	{"torch.optim.lr_scheduler.ReduceLROnPlateau", "optim.Plateau", "package ampc/optim"},
	{"torch.optim.lr_scheduler.StepLR", "ampc.StepDecay", "TrainConfig.LR"},
	{"torch.optim.Muon", "optim.Muon", "package ampc/optim; Lion is there, too"},
	{"torch.optim.RMSprop", "optim.RMSprop", "package ampc/optim; write others as [an `UpdateRule`](amp.md#gradients-and-ops-of-your-own)"},
	{"torch.optim.SGD", "ampc.SGD", "TrainConfig.Optimizer"},
	{"torch.optim.swa_utils.AveragedModel", "TrainConfig.EMA", "[moving averages](amp.md#moving-averages-of-the-weights)"},
	{"torch.outer", "m.Mul(m.Unsqueeze(x, 1), y)", composeIt},
	{"torch.profiler", "", "`ampc bench MODEL --profile` and `--trace`; see [view.md](view.md#traces)"},
	{"torch.quantile", "m.TopK", "of a k known when the model is built"},
	{"torch.repeat_interleave", "m.Reshape(m.Tile(m.Unsqueeze(x, 1), 1, r), n*r)", "a composition for one number of repeats"},
	{"torch.roll", "m.Concat(0, m.Slice(x, []int{0}, []int{n - k}, []int{n}), m.Slice(x, []int{0}, []int{0}, []int{n - k}))", composeIt},
	{"torch.save", "m.SaveFile", "safetensors; LoadFile reads; weights alone: [weights.Save](weights.md)"},
	{"torch.searchsorted", "", noKernel},
	{"torch.sinh", "m.Affine(m.Sub(m.Exp(x), m.Exp(m.Neg(x))), 0.5, 0)", composeIt},
	{"torch.std_mean", "m.ReduceStd", "and ReduceMean"},
	{"torch.take_along_dim", "m.GatherElements", ""},
	{"torch.trace", "m.ReduceSum(m.Mul(x, eye))", "a composition; eye as for torch.eye"},
	{"torch.unique", "", dataShape},
	{"torch.utils.data.DataLoader", "data.NewLoader", "package ampc/data; see [training.md](training.md)"},
	{"torch.var_mean", "m.ReduceVar", "and ReduceMean"},
	{"torch.vmap", "", "not offered: ops take leading dimensions"},
	{"torch.zeros_like", "m.Full", "with its shape"},
}

var (
	modelCall   = regexp.MustCompile(`\bm\.([A-Z]\w*)`)
	packageName = regexp.MustCompile(`\bampc\.([A-Z]\w*)`)
)

// torchProgram is Go of every expression in the index, for a compiler to check.
func torchProgram() string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n\"math\"\n\n\"ampc\"\n)\n\nvar _ = math.Pi\n")
	for i, e := range otherTorch {
		if !strings.Contains(e.ours, "(") || strings.HasPrefix(e.ours, "for ") || strings.HasPrefix(e.ours, "func(") {
			continue
		}
		fmt.Fprintf(&b, "\n// %s\nfunc torch_%d(m *ampc.Model, x, y, a, b, c, eye, far, g, ids, near, t, u, v, value, w ampc.Tensor, d, i, k, n, r int, sizes []int, first, margin, step float64) ampc.Tensor {\n\treturn %s\n}\n", e.torch, i, e.ours)
	}
	return b.String()
}

// What the index names exists.
func TestTorchNamesExist(t *testing.T) {
	methods, names := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.pkg != "." || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							names[id.Name] = true
						}
					}
				}
			}
		}
	}
	for _, f := range exported(t) {
		if f.Recv != nil && slices.Contains([]string{"ops", "*Model"}, expr(f.Recv.List[0].Type)) {
			methods[f.Name.Name] = true
		}
	}
	seen := map[string]bool{}
	for _, e := range otherTorch {
		for _, c := range modelCall.FindAllStringSubmatch(e.ours, -1) {
			if !methods[c[1]] {
				t.Errorf("%s: Model has no method %s", e.torch, c[1])
			}
		}
		for _, c := range packageName.FindAllStringSubmatch(e.ours, -1) {
			if !names[c[1]] {
				t.Errorf("%s: the package has no %s", e.torch, c[1])
			}
		}
		if seen[e.torch] || e.ours == "" && e.differs == "" {
			t.Errorf("%s: occurs twice, or says nothing", e.torch)
		}
		seen[e.torch] = true
	}
	for _, m := range torchEntries(facade(t)) {
		if seen[m.torch] {
			t.Errorf("%s: %s has that name in its comment already", m.torch, m.ours)
		}
	}
}
