package passes

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
)

func TestPoliciesReadBack(t *testing.T) {
	for _, name := range PolicyNames() {
		p, err := PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("%s calls itself %s", name, p.Name)
		}
		p = p.Keep("head").Lower("h*.up").KeepTF32("lm").SetClass(ir.OpSoftmax, ir.Low)
		p.Losses, p.Outputs = 2, ir.BF16
		q, err := ParsePolicy("file", []byte(p.String()))
		if err != nil {
			t.Errorf("%v\n%s", err, p)
			continue
		}
		if !reflect.DeepEqual(p, q) {
			t.Errorf("%s reads back as\n%s\nfrom\n%s", name, q, p)
		}
	}
}

// Methods return copies: neither map nor list of the receiver changes.
func TestPolicyIsAValue(t *testing.T) {
	p := Torch(ir.F16).Keep("a")
	before := p.String()
	_ = p.Keep("b")
	_ = p.Lower("c")
	_ = p.SetClass(ir.OpSoftmax, ir.Low)
	if _, err := p.Set("loss_scale", "dynamic"); err != nil {
		t.Fatal(err)
	}
	if got := p.String(); got != before {
		t.Errorf("changed to\n%s\nfrom\n%s", got, before)
	}
}

func TestPolicyProperties(t *testing.T) {
	p := O2(ir.F16)
	for _, c := range []struct{ name, value string }{
		{"keep_batchnorm_fp32", "false"}, {"master_weights", "false"}, {"cast_model_outputs", "f16"},
		{"num_losses", "3"}, {"loss_scale", "dynamic"}, {"min_loss_scale", "0.125"}, {"max_loss_scale", "4096"},
	} {
		var err error
		if p, err = p.Set(c.name, c.value); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	s := p.Scaler
	if p.NormF32 || !p.NoMasters || p.Outputs != ir.F16 || p.Losses != 3 || s.Mode != DynamicScale || s.Floor != 0.125 || s.Cap != 4096 || s.Init != 4096 {
		t.Errorf("got\n%s", p)
	}
	want := "- batchnorm_f32 on\n+ no_masters on\n+ outputs f16\n+ losses 3\n+ scaler dynamic init=4096 growth=2 backoff=0.5 floor=0.125 cap=4096 every=2000 hysteresis=1\n"
	if got := DiffPolicies(O2(ir.F16), p); got != want {
		t.Errorf("diff\n%s\nwant\n%s", got, want)
	}
}

// The torch preset against the facts in the reference table, where it is there.
func TestTorchListsMatchTheFacts(t *testing.T) {
	data, err := os.ReadFile("../../shared/reference/policy-tables.tsv")
	if err != nil {
		t.Skipf("no table of facts: %v", err)
	}
	// our name for theirs, where they differ
	ours := map[string]string{
		"conv1d": "conv", "conv2d": "conv", "conv3d": "conv", "conv_transpose2d.input": "conv_transpose", "_thnn_fused_lstm_cell": "lstm",
		"_thnn_fused_gru_cell": "gru", "scaled_dot_product_attention": "attention", "pow.Tensor_Tensor": "pow", "softmax.int": "softmax",
		"log_softmax.int": "log_softmax", "sum.dim_IntList": "reduce_sum", "prod.dim_int": "reduce_prod", "norm.ScalarOpt_dim": "reduce_l2",
		"upsample_bilinear2d": "resize", "nll_loss": "nll", "mse_loss": "mse", "huber_loss": "huber",
		"binary_cross_entropy_with_logits": "bce_with_logits", "mm": "matmul", "bmm": "matmul",
	}
	category := map[string]string{}
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Split(line, "\t")
		if len(f) < 4 || f[0] != "torch-cuda-autocast" {
			continue
		}
		name := f[2]
		if o, ok := ours[name]; ok {
			name = o
		}
		class := "keep"
		switch f[3] {
		case "lower":
			class = "low"
		case "promote_infer_gray", "clear":
			class = "promote"
		case "banned":
			continue
		}
		category[name] = class
	}
	p := Torch(ir.F16)
	checked := 0
	for _, op := range ir.Ops() {
		want, ok := category[op.String()]
		if !ok || op.Def().Class == ir.Fixed {
			continue
		}
		class, over := p.Class[op]
		if !over {
			class = op.Def().Class
		}
		checked++
		if class.String() != want {
			t.Errorf("%s is %s, torch: %s", op, class, want)
		}
	}
	if checked < 25 {
		t.Errorf("only %d ops have a counterpart in the table", checked)
	}
	for _, name := range slices.Concat(torchLow, torchKeep) {
		if category[name] == "" {
			t.Logf("%s: by analogy, no op of that name in the table", name)
		}
	}
}

// num_losses gives each loss its own scale, which Apex's loss_id did.
func TestNumLosses(t *testing.T) {
	b := ir.NewBuilder("two")
	w := b.Declare(ir.Param, "w", ir.T(ir.F32, 4, 4), &ir.Init{Func: "ones"}, nil)
	x := b.Matmul(b.Declare(ir.Input, "x", ir.T(ir.F32, 4, 4), nil, nil), w, false, false)
	b.Return(b.Named("a").ReduceSum(b.Tanh(x), false), b.Named("b").ReduceSum(b.Square(x), false))
	for _, n := range []string{"1", "2"} {
		p, err := MixedF16().Set("num_losses", n)
		if err != nil {
			t.Fatal(err)
		}
		c := trainConfig(p)
		c.Losses = []Loss{{Value: "a"}, {Value: "b"}}
		g := mustRun(t, b.Graph().Clone(), c)
		scales := 0
		for _, v := range g.Vars {
			if v.Attr.Get("role") == ir.RoleScale {
				scales++
			}
		}
		if want := map[string]int{"1": 1, "2": 2}[n]; scales != want {
			t.Errorf("num_losses %s: %d scales, want %d\n%s", n, scales, want, g)
		}
	}
}
