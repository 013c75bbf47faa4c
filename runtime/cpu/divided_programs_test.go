package cpu_test

import (
	"fmt"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// dividedProgram is a step whose regions TestDividedCallers divides.
type dividedProgram struct {
	name    string
	program *lower.Program
}

// dividedModels are training steps.
var dividedModels = []struct{ spec, policy string }{
	{"gpt2?batch=1", "f32"},
	{"gpt2?batch=4", "mixed-bf16"},
	{"bert?batch=8&seq=128&vocab=30522&layers=2&heads=12&dim=768", "f32"},
	{"bert?batch=1&seq=128&vocab=30522&layers=2&heads=12&dim=768", "mixed-bf16"},
	{"resnet50?batch=32", "f32"},
	{"resnet50?batch=1", "f32"},
	{"resnet50?batch=32", "mixed-bf16"},
	{"unet", "mixed-f16"},
	{"lstm?dim=1024&batch=64", "f32"},
	{"lenet?batch=256", "mixed-bf16"},
	{"gan", "f32"},
}

// dividedOps are graphs of one node: its operands, the node and its results.
var dividedOps = []struct{ name, in, node, out string }{
	{"softmax of GPT-2", "f32[4096,1024]", "softmax {axis=1}", "f32[4096,1024]"},
	{"softmax of GPT-2, gradient", "f32[4096,1024] f32[4096,1024]", "softmax_grad {axis=1}", "f32[4096,1024]"},
	{"log-softmax of BERT", "f32[1024,30522]", "log_softmax", "f32[1024,30522]"},
	{"log-softmax of BERT, gradient", "f32[1024,30522] f32[1024,30522]", "log_softmax_grad {axis=1}", "f32[1024,30522]"},
	{"log-softmax of ResNet-50", "f32[4096,1000]", "log_softmax", "f32[4096,1000]"},
	{"log-softmax of ResNet-50, gradient", "f32[4096,1000] f32[4096,1000]", "log_softmax_grad {axis=1}", "f32[4096,1000]"},
	{"softmax across channels", "f32[8,21,56,56]", "softmax {axis=1}", "f32[8,21,56,56]"},
	{"rope of Llama-7B, prefill", "f32[1,32,512,128]", "rope", "f32[1,32,512,128]"},
	{"rope of Llama-7B, decoding", "f32[1,32,1,128] i32[1,1]", "rope", "f32[1,32,1,128]"},
	{"cache of Llama-7B, prefill", "f32[1,32,1024,128] f32[1,32,512,128] i32[1]", "cache_append", "f32[1,32,1024,128]"},
	{"attention of Llama-7B to a cache", "f32[1,32,1,128] f32[1,32,1024,128] f32[1,32,1024,128] i32[1]", "cached_attention", "f32[1,32,1,128]"},
	{"norm of Llama-7B, prefill", "f32[512,4096] f32[4096]", "rms_norm", "f32[512,4096] f32[512]"},
	{"embedding of Llama-7B, prefill", "f32[32000,4096] i32[512]", "embedding", "f32[512,4096]"},
	{"gather", "f32[50257,768] i32[4096]", "gather {axis=0}", "f32[4096,768]"},
	{"gather of elements", "f32[4096,768] i32[4096,768]", "gather_elements {axis=0}", "f32[4096,768]"},
	{"transpose of attention's heads", "f32[4,1024,12,64]", "transpose {perm=[0,2,1,3]}", "f32[4,12,1024,64]"},
	{"transpose of a weight of Llama-7B", "f32[4096,4096]", "transpose {perm=[1,0]}", "f32[4096,4096]"},
	{"tensors of two types beside each other", "f32[4096,768] bf16[4096,768]", "concat {axis=1}", "f32[4096,1536]"},
	{"top 50 of Llama-7B's words", "f32[8,32000]", "topk {k=50}", "f32[8,50] i64[8,50]"},
	{"largest of Llama-7B's words", "f32[8,32000]", "argmax {axis=1}", "i64[8]"},
	{"running sums", "f32[512,32000]", "cumsum {axis=1}", "f32[512,32000]"},
	{"running maxima", "f32[512,4096]", "cummax {axis=1}", "f32[512,4096] i64[512,4096]"},
	{"scan", "f32[8,1024,256] f32[8,1024,256]", "linear_scan {axis=1}", "f32[8,1024,256]"},
	{"mask of GPT-2", "f32[1024,1024]", "tril {k=0}", "f32[1024,1024]"},
	{"numbers", "", "iota {axis=1 shape=[1024,1024]}", "i32[1024,1024]"},
	{"sum of everything", "f32[4096,768]", "reduce_sum", "f32[]"},
	{"norms of rows", "f32[4096,768]", "reduce_l2 {axes=[1]}", "f32[4096]"},
	{"norm of everything", "f32[4096,768]", "reduce_l2", "f32[]"},
	{"product across rows and columns", "f32[64,4096,64]", "reduce_prod {axes=[0,-1]}", "f32[4096]"},
	{"sum of integers", "i32[4096,768]", "reduce_sum {axes=[1]}", "i32[4096]"},
	{"sum of f64", "f64[4096,768]", "reduce_sum {axes=[1]}", "f64[4096]"},
	{"soft labels of ResNet-50", "f32[32,1000] f32[32,1000]", "soft_cross_entropy", "f32[] f32[]"},
	{"padding of ResNet-50's images", "f32[32,3,224,224]", "pad {hi=[0,0,3,3] lo=[0,0,3,3] mode=edge}", "f32[32,3,230,230]"},
	{"resized images of ResNet-50", "f32[32,3,256,256]", "resize {mode=linear sizes=[224,224]}", "f32[32,3,224,224]"},
	{"resized images of ResNet-50, gradient", "f32[32,3,224,224]", "resize_grad {mode=linear sizes=[256,256]}", "f32[32,3,256,256]"},
	{"mean pool of one image", "f32[1,64,112,112]", "avg_pool {kernel=[3,3] pads=[1,1,1,1] strides=[2,2]}", "f32[1,64,56,56]"},
	{"pool of pairs of one image", "f32[1,64,112,112]", "max_pool {kernel=[2,2] strides=[2,2]}", "f32[1,64,56,56] -"},
	{"sum of 64 MB", "f32[64,512,512] f32[64,512,512]", "add", "f32[64,512,512]"},
	{"pool of ResNet-50, 32 images", "f32[32,64,112,112]", "max_pool {kernel=[3,3] pads=[1,1,1,1] strides=[2,2]}", "f32[32,64,56,56] -"},
	{"pool of ResNet-50, 1 image", "f32[1,64,112,112]", "max_pool {kernel=[3,3] pads=[1,1,1,1] strides=[2,2]}", "f32[1,64,56,56] -"},
	{"last pool of ResNet-50", "f32[32,2048,7,7]", "adaptive_avg_pool {size=[1,1]}", "f32[32,2048,1,1]"},
	{"norm of ResNet-50, channels last", "f32[32,56,56,256] f32[256] f32[256]", "batch_norm {layout=NHWC}", "f32[32,56,56,256] f32[256] f32[256]"},
	{"depthwise convolution", "f32[1,96,112,112] f32[96,1,3,3]", "conv {groups=96 pads=[1,1,1,1]}", "f32[1,96,112,112]"},
	{"depthwise convolution, weights", "f32[32,96,56,56] f32[32,96,56,56]", "conv_grad_w {groups=96 pads=[1,1,1,1] kernel=[3,3]}", "f32[96,1,3,3]"},
}

// poolTwice is a max pool that its gradient computes again.
const poolTwice = `graph @op {
  input %x : f32[32,64,112,112]
  input %dy : f32[32,64,56,56]
forward:
  %y, %i = max_pool %x {launch=1 kernel=[3,3] pads=[1,1,1,1] strides=[2,2]} : f32[32,64,56,56], i32[32,64,56,56]
  %dx = max_pool_grad %dy, %i {launch=1 size=[112,112]} : f32[32,64,112,112]
  return %dx
}
`

// graphOf is the text of a graph of one node.
func graphOf(in, op, out string) string {
	text, names := "graph @op {\n", []string{}
	for i, typ := range strings.Fields(in) {
		text += fmt.Sprintf("  input %%in%d : %s\n", i, typ)
		names = append(names, fmt.Sprintf("%%in%d", i))
	}
	node, attrs, _ := strings.Cut(op, " ")
	var results, stored, types []string
	for i, typ := range strings.Fields(out) {
		name := fmt.Sprintf("%%r%d", i)
		if results = append(results, name); typ == "-" { // positions of a pool, which nothing reads
			typ = strings.Replace(types[0], "f32", "i32", 1)
		} else {
			stored = append(stored, name)
		}
		types = append(types, typ)
	}
	list := func(names []string) string { return strings.Join(names, ", ") }
	return text + fmt.Sprintf("forward:\n  %s = %s %s %s : %s\n  return %s\n}\n", list(results), node, list(names), attrs, list(types), list(stored))
}

// dividedPrograms are all of them.
func dividedPrograms(t *testing.T) (list []dividedProgram) {
	for _, m := range dividedModels {
		if testing.Short() && m.spec != "unet" {
			continue
		}
		list = append(list, dividedProgram{m.spec + ", " + m.policy, compiled(t, m.spec, m.policy)})
	}
	for _, op := range dividedOps {
		list = append(list, dividedProgram{op.name, loweredText(t, op.name, graphOf(op.in, op.node, op.out))})
	}
	list = append(list, dividedProgram{"pool of ResNet-50, computed again", loweredText(t, "pool", poolTwice)})
	return list
}

func loweredText(t *testing.T, name, text string) *lower.Program {
	t.Helper()
	g, err := ir.Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return lowered(t, g)
}
