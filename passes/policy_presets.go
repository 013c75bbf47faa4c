package passes

import (
	"fmt"
	"strings"

	"ampc/ir"
)

// F32 computes everything in f32.
func F32() Policy { return Policy{Name: "f32"} }

// TF32 computes everything in f32, products in the tf32 math mode.
func TF32() Policy { return Policy{Name: "tf32", TF32: true} }

// Manual keeps the source's dtypes and casts.
func Manual() Policy { return Policy{Name: "manual", Manual: true} }

// MixedF16 is ampc's policy for f16, with dynamic loss scaling.
func MixedF16() Policy { return mixed(ir.F16) }

// MixedBF16 is ampc's policy for bf16, whose range needs no loss scaling.
func MixedBF16() Policy { return mixed(ir.BF16) }

// mixed chooses all dtypes together by the minimum cut. A byte that forward keeps for backward
// costs as much as a byte that moves.
func mixed(low ir.DType) Policy {
	p := lowPolicy("mixed", low)
	p.Algorithm, p.SavedCost = "mincut", 1
	return p
}

// mixedTrunk is mixed, but a sum of an f32 and a 16-bit tensor may be stored in 16
// bits: the residual trunk of a network and its gradient, which mixed keeps in f32.
func mixedTrunk(low ir.DType) Policy {
	p := mixed(low)
	p.Name += "-trunk"
	p.Narrow = true
	return p
}

// lowPolicy is a policy for low with its default scaler.
func lowPolicy(name string, low ir.DType) Policy {
	return Policy{Name: name + "-" + low.String(), Low: low, Algorithm: "local"}
}

// O1 chooses dtypes op by op from the operands, as Apex's opt level O1 does by patching functions.
func O1(low ir.DType) Policy {
	p := lowPolicy("o1", low)
	p.Eager = true
	return p
}

// O2 casts weights and inputs low and computes everything except batch norm and losses from low
// values. Master weights are f32, and the loss scale is dynamic.
func O2(low ir.DType) Policy {
	p := lowPolicy("o2", low)
	p.Cast, p.Narrow, p.NormF32 = true, true, true
	return p
}

// O3 stores parameters and their gradients low, without master weights and with the loss scale 1.
// It is an upper bound of speed, not for training. The optimizer computes in f32 and rounds when it
// stores.
func O3(low ir.DType) Policy {
	p := lowPolicy("o3", low)
	p.Cast, p.Narrow, p.NoMasters = true, true, true
	p.Scaler = Static(1)
	return p
}

// preset is a policy for each low dtype, whose name stands for * in its own.
type preset struct {
	name string
	of   func(low ir.DType) Policy // nil: the lists of the system of that name
}

var presets = []preset{
	{"mixed-*", mixed}, {"mixed-*-trunk", mixedTrunk}, {"o1-*", O1}, {"o2-*", O2}, {"o3-*", O3},
	{"torch-*", nil}, {"torch-cpu-*", nil}, {"apex-o1-*", nil}, {"tensorflow-*", nil}, {"oneflow-*", nil}, {"paddle-*", nil}, {"tvm-*", nil},
}

func (p preset) named(low ir.DType) string { return strings.Replace(p.name, "*", low.String(), 1) }

func (p preset) policy(low ir.DType) (Policy, error) {
	if p.of == nil {
		return systemPolicy(strings.TrimSuffix(p.name, "-*"), low)
	}
	return p.of(low), nil
}

// PolicyNames lists every preset.
func PolicyNames() []string {
	names := []string{"f32", "tf32"}
	for _, p := range presets {
		names = append(names, p.named(ir.F16), p.named(ir.BF16))
	}
	return append(names, "manual")
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
	for _, p := range presets {
		for _, low := range []ir.DType{ir.F16, ir.BF16} {
			if p.named(low) == name {
				return p.policy(low)
			}
		}
	}
	if near := nearPolicy(name); near != "" {
		return Policy{}, fmt.Errorf("no policy %q; did you mean %s?", name, near)
	}
	return Policy{}, fmt.Errorf("no policy %q; there are %s", name, strings.Join(PolicyNames(), ", "))
}

// otherNames are the names of policies in other systems.
var otherNames = map[string]string{
	"fp32": "f32", "float32": "f32", "float": "f32", "none": "f32",
	"fp16": "mixed-f16", "f16": "mixed-f16", "float16": "mixed-f16", "half": "mixed-f16", "16-mixed": "mixed-f16", "mixed_float16": "mixed-f16",
	"bf16": "mixed-bf16", "bfloat16": "mixed-bf16", "bf16-mixed": "mixed-bf16", "mixed_bfloat16": "mixed-bf16",
	"amp": "mixed-f16 or mixed-bf16", "mixed": "mixed-f16 or mixed-bf16", "autocast": "torch-f16 or torch-bf16", "torch": "torch-f16 or torch-bf16",
	"o1": "o1-f16 or o1-bf16", "o2": "o2-f16 or o2-bf16", "o3": "o3-f16 or o3-bf16",
}

// nearPolicy is the preset that an unknown name may mean, "" if there is none: the name is another
// system's, or differs from a preset in at most two letters.
func nearPolicy(name string) string {
	if other := otherNames[strings.ToLower(name)]; other != "" {
		return other
	}
	return ir.Nearest(name, PolicyNames())
}

// PolicyParts splits a preset's name into its first part and its low dtype.
func PolicyParts(name string) (string, ir.DType) {
	i := strings.LastIndex(name, "-")
	low, ok := ir.DTypeOf(name[i+1:])
	if i < 0 || !ok {
		return name, ir.Invalid
	}
	return name[:i], low
}
