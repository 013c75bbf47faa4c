package passes

import (
	"fmt"
	"strings"

	"ampc/ir"
)

// F32 computes everything in f32.
func F32() Policy { return Policy{Name: "f32"} }

// TF32 computes everything in f32 and products in the tf32 math mode.
func TF32() Policy { return Policy{Name: "tf32", TF32: true} }

// Manual leaves the source's dtypes and casts alone.
func Manual() Policy { return Policy{Name: "manual", Manual: true} }

// MixedF16 is ampc's own policy over f16, with dynamic loss scaling.
func MixedF16() Policy { return mixed(ir.F16) }

// MixedBF16 is ampc's own policy over bf16; its range needs no loss scaling.
func MixedBF16() Policy { return mixed(ir.BF16) }

func mixed(low ir.DType) Policy { return lowPolicy("mixed", low) }

// lowPolicy is a policy over low with the default scaler for it.
func lowPolicy(name string, low ir.DType) Policy {
	return Policy{Name: name + "-" + low.String(), Low: low, Algorithm: "local"}
}

// O1 decides per op from its operands, as Apex's opt level of that name did by
// patching functions.
func O1(low ir.DType) Policy {
	p := lowPolicy("o1", low)
	p.Eager = true
	return p
}

// O2 casts weights and inputs low and computes all but batch norm and losses
// on low values; f32 masters and dynamic scaling remain.
func O2(low ir.DType) Policy {
	p := lowPolicy("o2", low)
	p.Cast, p.Narrow, p.NormF32 = true, true, true
	return p
}

// O3 stores parameters and their gradients low, without masters and with the
// loss scale 1: the speed of light rather than mixed precision. The optimiser
// computes in f32 and rounds when it stores.
func O3(low ir.DType) Policy {
	p := lowPolicy("o3", low)
	p.Cast, p.Narrow, p.NoMasters = true, true, true
	p.Scaler = Static(1)
	return p
}

// Torch is what torch's autocast does on CUDA: its lists, each op looking at
// its operands only, and its gradient scaler.
func Torch(low ir.DType) Policy {
	p := lowPolicy("torch", low)
	p.Eager = true
	p.Class = torchClasses()
	if low == ir.F16 {
		p.Scaler = TorchScaler()
	}
	return p
}

// The ops of torch's CUDA autocast lists under our names. What stands in
// neither runs in the dtype of its operands, whatever our row says.
var (
	torchLow  = []string{"matmul", "linear", "conv", "conv_transpose", "attention", "prelu", "lstm", "gru"}
	torchKeep = []string{
		"exp", "expm1", "log", "log1p", "pow", "reciprocal", "rsqrt", "tan", "softplus",
		"layer_norm", "group_norm", "instance_norm", "rms_norm", "softmax", "log_softmax", "logsumexp",
		"reduce_sum", "reduce_prod", "reduce_l2", "reduce_l1", "cumsum", "resize",
		"cross_entropy", "nll", "bce", "bce_with_logits", "mse", "l1_loss", "huber", "kl_div",
		"embedding_grad", "sum_to",
	}
)

// torchClasses lists the ops whose class under torch is not the row's. The
// gradient of an op goes with the op.
func torchClasses() map[ir.Op]ir.Class {
	listed := map[string]ir.Class{}
	for _, name := range torchLow {
		listed[name] = ir.Low
	}
	for _, name := range torchKeep {
		listed[name] = ir.Keep
	}
	m := map[ir.Op]ir.Class{}
	for _, op := range ir.Ops() {
		row := op.Def().Class
		class, ok := listed[op.Def().Name]
		if !ok {
			class, ok = listed[strings.TrimSuffix(op.Def().Name, "_grad")]
		}
		if !ok && row == ir.Keep {
			class, ok = ir.PromoteC, true
		}
		if ok && row != ir.Fixed && class != row && !(row == ir.Low && class != ir.Keep) {
			m[op] = class
		}
	}
	return m
}

// presets maps the first part of a name to what it makes of a low dtype.
func presets() map[string]func(ir.DType) Policy {
	return map[string]func(ir.DType) Policy{"mixed": mixed, "o1": O1, "o2": O2, "o3": O3, "torch": Torch}
}

// PolicyNames lists every preset.
func PolicyNames() []string {
	return []string{
		"f32", "tf32", "mixed-f16", "mixed-bf16", "o1-f16", "o1-bf16", "o2-f16", "o2-bf16",
		"o3-f16", "o3-bf16", "torch-f16", "torch-bf16", "manual",
	}
}

// PolicyNamed finds a preset.
func PolicyNamed(name string) (Policy, error) {
	switch name {
	case "f32", "o0":
		return F32(), nil
	case "tf32":
		return TF32(), nil
	case "manual":
		return Manual(), nil
	}
	system, suffix, _ := strings.Cut(name, "-")
	low, _ := ir.DTypeOf(suffix)
	if f := presets()[system]; f != nil && low.Low() {
		return f(low), nil
	}
	return Policy{}, fmt.Errorf("no policy %q; there are %s", name, strings.Join(PolicyNames(), ", "))
}
