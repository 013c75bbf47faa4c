package passes

import (
	"reflect"
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
		p = p.Keep("head").Lower("h*.up").keepTF32("lm").setClass(ir.OpSoftmax, ir.Low)
		p.Losses, p.Outputs = 2, ir.BF16
		q, err := ParsePolicy("file", []byte(p.String()))
		if err != nil {
			t.Errorf("%v\n%s", err, p)
			continue
		}
		for i := range q.Rules {
			q.Rules[i].Pos = ""
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
	_ = p.setClass(ir.OpSoftmax, ir.Low)
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
		{"num_losses", "3"}, {"loss_scale", "dynamic"}, {"min_loss_scale", "0.125"}, {"max_loss_scale", "4096"}, {"direct", "true"},
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
	want := "- batchnorm_f32 on\n+ direct on\n+ no_masters on\n+ outputs f16\n+ losses 3\n+ scaler dynamic init=4096 growth=2 backoff=0.5 floor=0.125 cap=4096 every=2000 hysteresis=1\n"
	if got := DiffPolicies(O2(ir.F16), p); got != want {
		t.Errorf("diff\n%s\nwant\n%s", got, want)
	}
}

// A policy that names no algorithm is decided by the minimum cut, as the presets
// are; where nothing is free there is nothing to cut.
func TestPolicyWithoutAlgorithm(t *testing.T) {
	mixed := MixedF16()
	mixed.Name = "mine"
	mine := Policy{Name: "mine", Low: ir.F16}
	file, err := ParsePolicy("mine", []byte("low f16\n"))
	if err != nil {
		t.Fatal(err)
	}
	zero, f32 := Policy{}, F32()
	eager := Policy{Low: ir.F16, Eager: true}
	o1 := O1(ir.F16)
	for _, c := range []struct {
		name      string
		got, want Policy
	}{{"low f16", mine, mixed}, {"a file", file, mixed}, {"zero", zero, f32}, {"eager", eager, o1}} {
		a, b := gptGraph(2, 2, 8, 16, 2, 32), gptGraph(2, 2, 8, 16, 2, 32)
		mustRun(t, a, trainConfig(c.got))
		mustRun(t, b, trainConfig(c.want))
		if a.String() != b.String() {
			t.Errorf("%s compiles to\n%s\nwant\n%s", c.name, a, b)
		}
	}
	mine.SavedCost = 3
	if got := mine.decided(); got.SavedCost != 3 {
		t.Errorf("saved cost became %g", got.SavedCost)
	}
}

// Whatever a policy file holds: a policy that prints and reads back, or one line of error.
func FuzzParsePolicy(f *testing.F) {
	for _, name := range PolicyNames() {
		p, err := PolicyNamed(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.String())
	}
	f.Add("eager on\nscaler dynamic init=0\n")
	f.Add("from mixed-f16\nguard 4 # a comment\nkeep h*.attn\nstore f32 h0.up\nclass softmax low\nscaler dynamic init=2 every=3\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy("p", []byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		q, err := ParsePolicy("p", []byte(p.String()))
		if err != nil || p.String() != q.String() {
			t.Errorf("reads back as\n%s(%v) from\n%s", q, err, p)
		}
	})
}

// A line that is not understood is answered by its file, its line and what may have been meant; so is a rule that names nothing.
func TestPolicyFileMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"clas softmax low":             `mine.policy:2: no word "clas" in a policy file; did you mean class?`,
		"kep head":                     `mine.policy:2: no word "kep" in a policy file; did you mean keep?`,
		"lowerr head":                  `mine.policy:2: no word "lowerr" in a policy file; did you mean lower?`,
		"los_scale 4":                  `mine.policy:2: no word "los_scale" in a policy file; did you mean loss_scale?`,
		"gibberish 4":                  `mine.policy:2: no word "gibberish" in a policy file; there are policy, from, low, outputs, algorithm, saved_cost, guard, losses, scaler, class, widens, keep, lower, keep_tf32, store, tf32, direct`,
		"class softmx low":             `mine.policy:2: class: no op "softmx"; did you mean softmax?`,
		"keep a b":                     `mine.policy:2: keep: want a pattern`,
		"keep":                         `mine.policy:2: keep: want a pattern`,
		"policy my own":                `mine.policy:2: policy: want a name`,
		"loss_scale 4 5":               `mine.policy:2: loss_scale: want one value`,
		"keep head\nfrom mixed-bf16":   `mine.policy:3: from: want it before all lines`,
		"store f16 head":               `mine.policy:2: store: want f32 or low and a pattern`,
		"keep\thead\nkeep tail # none": `mine.policy:2: policy mine.policy: keep: pattern "head" matches nothing in graph @g`,
		"store low\thead":              `mine.policy:2: policy mine.policy: store: pattern "head" matches no value in graph @g`,
	} {
		p, err := ParsePolicy("mine.policy", []byte("from mixed-f16\n"+text))
		if err == nil {
			var g *ir.Graph
			if g, err = ir.Parse("g.ir", []byte("graph @g {\n input %x : f32[2]\nforward:\n %y = relu %x : f32[2]\n return %y\n}")); err != nil {
				t.Fatal(err)
			}
			err = Run(g, Config{Policy: p})
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q gives\n%v, want\n%s", text, err, want)
		}
	}
}
