package onnx_test

import (
	"slices"
	"testing"

	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
)

// headModel has two products by weights of 64 by 512, and a last one of 64 by n, behind which tail
// stands.
func headModel(n int64, tail ...msg) msg {
	g := msg(nil).raw(1, nodeOf("MatMul", []string{"x", "w0"}, []string{"a"})).
		raw(1, nodeOf("Relu", []string{"a"}, []string{"b"})).
		raw(1, nodeOf("MatMul", []string{"b", "w1"}, []string{"c"})).
		raw(1, nodeOf("MatMul", []string{"c", "w"}, []string{"z"})).
		raw(5, tensorOf("w0", []int64{64, 512}, ramp(64*512, 0, 0.1)...)).
		raw(5, tensorOf("w1", []int64{512, 64}, ramp(64*512, 0, 0.1)...)).
		raw(5, tensorOf("w", []int64{64, n}, ramp(int(64*n), 0, 0.1)...)).
		raw(5, tensorOf("bias", []int64{n}, ramp(int(n), 0, 0.1)...)).
		raw(11, infoOf("x", 1, 1, 64))
	for _, t := range tail {
		g = g.raw(1, t)
	}
	return g
}

// The last product stays f32 if the output is f32, if it takes no more casts than in 16 bits, and
// if it is small.
func TestConvertLastProduct(t *testing.T) {
	add := nodeOf("Add", []string{"z", "bias"}, []string{"y"})
	output := func(name string, dims ...any) msg { return infoOf(name, 1, dims...) }
	for name, c := range map[string]struct {
		graph msg
		low   string // an output asked for in 16 bits
		rules func(passes.Policy) passes.Policy
		kept  []string // results of nodes in f32
		casts int
	}{
		"product":          {graph: headModel(1).raw(12, output("z", 1, 1)), kept: []string{"z"}, casts: 2},
		"bias":             {graph: headModel(1, add).raw(12, output("y", 1, 1)), kept: []string{"z", "y"}, casts: 2},
		"large":            {graph: headModel(64).raw(12, output("z", 1, 64)), casts: 2},
		"lowered":          {graph: headModel(1).raw(12, output("z", 1, 1)), rules: func(p passes.Policy) passes.Policy { return p.Lower("z") }, casts: 2},
		"bias lowered":     {graph: headModel(1, add).raw(12, output("y", 1, 1)), rules: func(p passes.Policy) passes.Policy { return p.Lower("z") }, kept: []string{"y"}, casts: 2},
		"asked in 16 bits": {graph: headModel(1).raw(12, output("z", 1, 1)), low: "z", casts: 1},
		"read by a node":   {graph: headModel(1, nodeOf("MatMul", []string{"z", "z"}, []string{"q"})).raw(12, output("z", 1, 1)).raw(12, output("q", 1, 1)), kept: []string{"q"}, casts: 2},
		"kept anyway":      {graph: headModel(1).raw(12, output("z", 1, 1)), rules: func(p passes.Policy) passes.Policy { return p.Keep("z") }, kept: []string{"z"}, casts: 2},
		"exponential":      {graph: headModel(1, nodeOf("Exp", []string{"z"}, []string{"y"})).raw(12, output("y", 1, 1)), kept: []string{"z", "y"}, casts: 2},
		"of two values":    {graph: headModel(1, nodeOf("Mul", []string{"z", "x"}, []string{"y"})).raw(12, output("y", 1, 64)), casts: 2},
		"shared weights":   {graph: headModel(1, nodeOf("MatMul", []string{"x", "w"}, []string{"u"})).raw(12, output("z", 1, 1)).raw(12, output("u", 1, 1)), casts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := onnx.Parse(modelOf(c.graph))
			if err != nil {
				t.Fatal(err)
			}
			x, err := onnx.Import(m, onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			policy := passes.MixedF16()
			if c.rules != nil {
				policy = c.rules(policy)
			}
			_, r, err := convert.Plan(m, x, policy, convert.Options{Low: func(name string) bool { return name == c.low }})
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, k := range r.Kept {
				kept = append(kept, k.Result)
			}
			if !slices.Equal(kept, c.kept) || r.Casts != c.casts {
				t.Errorf("%v stay f32 with %d casts, want %v and %d", kept, r.Casts, c.kept, c.casts)
			}
		})
	}
}
