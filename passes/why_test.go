package passes

import (
	"encoding/json"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

func TestWhyFollowsTheChain(t *testing.T) {
	g := mustRun(t, gptGraph(1, 2, 8, 16, 2, 32), trainConfig(MixedF16()))
	chain, err := Why(g, "h0.res2")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	PrintChain(&b, chain)
	want := `%h0.res2 : f32[2,8,16]  add is promote and takes the dtype of %h0.res1
  %h0.res1 : f32[2,8,16]  add is promote and takes the dtype of %emb
    %emb : f32[2,8,16]  add is promote and takes the dtype of %tok
      %tok : f32[2,8,16]  embedding is clear and takes the dtype of %wte
        %wte : f32[32,16]  param declared f32
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if _, err := json.Marshal(chain); err != nil {
		t.Error(err)
	}
	if _, err := Why(g, "res9"); err == nil || err.Error() != "graph @gpt has no value %res9" {
		t.Errorf("got %v", err)
	}
	for _, n := range g.Nodes { // every node has an answer that ends
		if v := n.Out[0]; v.Next == nil {
			if chain, err := Why(g, v.Name); err != nil || len(chain) == 0 || chain[0].Text == "" {
				t.Errorf("%s: %v %v", v, chain, err)
			}
		}
	}
}

func TestWhyNot(t *testing.T) {
	source := gptGraph(1, 2, 8, 16, 2, 32)
	for _, c := range []struct {
		value string
		d     ir.DType
		want  string
	}{
		{"h0.res2", ir.F16, "%h0.res2 must be f32, because of %h0.res1, then %emb, then %wpe: params keep the dtype they are declared with"},
		{"h0.up.w", ir.F16, "%h0.up.w must be f32: params keep the dtype they are declared with"},
		{"h0.ln1", ir.F16, "%h0.ln1 is stored in f16 already"},
		{"d.h0.up.w", ir.F16, "%d.h0.up.w must be f32: every reader needs f32, and storing it costs no cast"},
		{"h0.ln1", ir.F32, ""},
	} {
		f, err := WhyNot(source, trainConfig(MixedF16()), c.value, c.d)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.String(); c.want != "" && got != c.want {
			t.Errorf("%s in %s: %s\nwant %s", c.value, c.d, got, c.want)
		}
	}
	if _, err := WhyNot(source, trainConfig(MixedF16()), "loss", ir.BF16); err == nil {
		t.Error("a dtype the policy does not have is accepted")
	}
}

// For every free value of a decoder the price of the other dtype is what the
// lowered program then moves more.
func TestFlipsCostWhatTheProgramMoves(t *testing.T) {
	source := gptGraph(1, 2, 8, 16, 2, 32)
	cfg := trainConfig(MixedF16())
	program := func(f *flip) (bytes int64) {
		c := cfg
		c.Policy.Algorithm, c.flip = "mincut", f
		g := mustRun(t, source.Clone(), c)
		p, err := lower.Lower(g, lower.CPU)
		if err != nil {
			t.Fatal(err)
		}
		for _, steps := range p.Parts {
			for _, s := range steps {
				bytes += s.Bytes
			}
		}
		return bytes
	}
	base := program(&flip{})
	g := source.Clone()
	until := cfg
	until.Until = "cluster"
	mustRun(t, g, until)
	legal := 0
	for _, n := range g.Nodes {
		v := n.Out[0]
		if v.Next != nil || !v.Type.DType.Float() {
			continue
		}
		f, err := WhyNot(source, cfg, v.Name, ir.F32)
		if err == nil && f.From == f.To {
			f, err = WhyNot(source, cfg, v.Name, ir.F16)
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Because != "" {
			continue
		}
		legal++
		d, _ := ir.DTypeOf(f.To)
		if got := program(&flip{name: v.Name, d: d}) - base; got != f.Bytes {
			t.Errorf("%s: %+d bytes predicted, %+d measured", f, f.Bytes, got)
		}
		if f.Bytes < 0 {
			t.Errorf("%s: the cut was not the cheapest", f)
		}
	}
	if legal < 8 { // of the values that are stored: what a product continues with is none
		t.Errorf("only %d values had a choice", legal)
	}
}

// A rule about storage decides what the cut would have decided, and says so; one
// that nothing free answers to is an error with the reason.
func TestStoreRules(t *testing.T) {
	compile := func(p Policy) (*ir.Graph, error) {
		g := gptGraph(1, 2, 8, 16, 2, 32)
		return g, Run(g, trainConfig(p))
	}
	p, err := ParsePolicy("p", []byte("from mixed-f16\nstore f32 h0.up\nstore low h0.down\nstore f32 h0.down\n"))
	if err != nil || !strings.Contains(p.String(), "store f32 h0.up\n") {
		t.Fatalf("%v\n%s", err, p)
	}
	g, err := compile(MixedF16().Store("h0.up", ir.PinF32))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := Why(g, "h0.up")
	if err != nil || g.Value("h0.up").Type.DType != ir.F32 || !strings.Contains(chain[0].Text, "the policy's pattern store f32 h0.up") {
		t.Errorf("%v %+v", err, chain)
	}
	local := MixedF16().Store("h0.up", ir.PinF32)
	local.Algorithm = "local"
	for _, c := range []struct {
		p    Policy
		want string
	}{
		{MixedF16().Store("h0.res1", ir.PinLow), "policy mixed-f16: store h0.res1: %h0.res1 must be f32, because of %emb"},
		{MixedF16().Store("nothing", ir.PinLow), `policy mixed-f16: store: pattern "nothing" matches no value in graph @gpt`},
		{local, "policy mixed-f16: store: only algorithm mincut takes it; use keep or lower"},
	} {
		if _, err := compile(c.p); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// WhyNotAll answers what WhyNot does, for every float a step computes.
func TestWhyNotOfEveryValue(t *testing.T) {
	source, cfg := gptGraph(1, 2, 8, 16, 2, 32), trainConfig(MixedF16())
	all, err := WhyNotAll(source, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		d, _ := ir.DTypeOf(f.To)
		one, err := WhyNot(source, cfg, f.Value[1:], d)
		if err != nil {
			t.Fatal(err)
		}
		if one.String() != f.String() {
			t.Errorf("%s\nalone: %s", f, one)
		}
		if f.From == f.To || strings.Contains(f.String(), "already") {
			t.Errorf("%s", f)
		}
	}
	if len(all) < 60 {
		t.Errorf("%d answers", len(all))
	}
}

func TestDifferencesOfPolicies(t *testing.T) {
	a := mustRun(t, gptGraph(1, 2, 8, 16, 2, 32), trainConfig(O2(ir.F16)))
	b := mustRun(t, gptGraph(1, 2, 8, 16, 2, 32), trainConfig(MixedF16()))
	list := Differences(a, b)
	found := false
	for _, d := range list {
		if d.A == nil || d.B == nil { // a cast that moved across a reshape renames it
			if d.A == d.B || !strings.Contains(d.Value, ".reshape") {
				t.Errorf("%+v", d)
			}
			continue
		}
		if d.A.Text == "" || d.B.Text == "" {
			t.Errorf("%+v has no reason", d)
		}
		if d.A.Type == d.B.Type {
			t.Errorf("%s is %s in both", d.Value, d.A.Type)
		}
		found = found || d.Value == "%h0.res1" && strings.HasPrefix(d.A.Type, "f16") && strings.HasPrefix(d.B.Type, "f32")
	}
	if !found {
		t.Errorf("the trunk is not among %d differences", len(list))
	}
	if self := Differences(b, b.Clone()); len(self) != 0 {
		t.Errorf("a step differs from itself: %+v", self)
	}
}
