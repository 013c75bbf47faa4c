package passes

import (
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes/ranges"
)

// tall is a product whose result, free between two products and a softmax,
// may come near the largest f16.
const tall = `graph @tall {
  input %x : f32[4,8]
  param %w : f32[8,8] = uniform(-1, 1)
  param %v : f32[8,8] = uniform(-1, 1)
forward:
  %h = matmul %x, %w : f32[4,8]
  %s = softmax %h : f32[4,8]
  %y = matmul %s, %v : f32[4,8]
  %loss = reduce_mean %y : f32[]
  return %loss
}
`

// A range guard keeps free values f32 that come near the largest low value, and
// only those; the reason names the range.
func TestRangeGuard(t *testing.T) {
	compile := func(p Policy, o ranges.Options) (*ir.Graph, error) {
		g, err := ir.Parse("tall.ir", []byte(tall))
		if err != nil {
			t.Fatal(err)
		}
		cfg := trainConfig(p)
		cfg.Ranges = o
		return g, Run(g, cfg)
	}
	near := ranges.Options{Inputs: map[string]ir.Interval{"x": {Lo: -3000, Hi: 3000}}}
	far := ranges.Options{Inputs: map[string]ir.Interval{"x": {Lo: -10, Hi: 10}}}
	recorded := ranges.Options{Recorded: map[string]ranges.Recorded{"h": {Lo: -2e4, Hi: 2.5e4, Elements: 32}}}
	bad := ranges.Options{Recorded: map[string]ranges.Recorded{"h": {Lo: -1, Hi: 1, Elements: 32, Nonfinite: 3}}}
	for _, algorithm := range []string{"local", "mincut"} {
		for _, c := range []struct {
			name  string
			guard float64
			o     ranges.Options
			want  ir.DType
			text  string
		}{
			{"off", 0, near, ir.F16, ""},
			{"near", 4, near, ir.F32, "the range guard keeps it f32: its range [-2.4e+04, 2.4e+04] times 4 passes 65504, the largest f16"},
			{"little head-room", 2, near, ir.F16, ""},
			{"far", 4, far, ir.F16, ""},
			{"unknown", 4, ranges.Options{}, ir.F16, ""},
			{"recorded", 4, recorded, ir.F32, "its recorded range [-2e+04, 2.5e+04] times 4 passes 65504"},
			{"not finite", 4, bad, ir.F32, "3 of 32 recorded elements were not finite"},
		} {
			p := MixedF16()
			p.Algorithm, p.Guard = algorithm, c.guard
			g, err := compile(p, c.o)
			if err != nil {
				t.Fatal(err)
			}
			h := g.Value("h")
			if h.Type.DType != c.want {
				t.Errorf("%s, %s: %%h is stored as %s, want %s", algorithm, c.name, h.Type.DType, c.want)
			}
			chain, err := Why(g, "h")
			if err != nil {
				t.Fatal(err)
			}
			if (h.Def.Why.Cause == ir.ByGuard) != (c.text != "") || !strings.Contains(chain[0].Text, c.text) {
				t.Errorf("%s, %s: %s says %q, want %q", algorithm, c.name, chain[0].Cause, chain[0].Text, c.text)
			}
		}
	}
	for name, p := range map[string]Policy{"torch-f16": {}, "paint": {}} {
		p := p
		p, _ = PolicyNamed("torch-f16")
		if name == "paint" {
			p = MixedF16()
			p.Algorithm = name
		}
		p.Guard = 4
		if _, err := compile(p, near); err == nil || !strings.Contains(err.Error(), "guard") {
			t.Errorf("%s: a guard is accepted: %v", name, err)
		}
	}
}

func TestWhyNotNamesTheGuard(t *testing.T) {
	g, err := ir.Parse("tall.ir", []byte(tall))
	if err != nil {
		t.Fatal(err)
	}
	cfg := trainConfig(MixedF16())
	cfg.Policy.Guard = 4
	cfg.Ranges = ranges.Options{Inputs: map[string]ir.Interval{"x": {Lo: -3000, Hi: 3000}}}
	f, err := WhyNot(g, cfg, "h", ir.F16)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.Because, "the range guard keeps %h f32: its range [-2.4e+04, 2.4e+04]") {
		t.Errorf("%s", f)
	}
}

func TestGuardReadsBack(t *testing.T) {
	p, err := ParsePolicy("p", []byte("policy p\nfrom mixed-f16\nguard 8\n"))
	if err != nil || p.Guard != 8 || !strings.Contains(p.String(), "\nguard 8\n") {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"0.5", "-1", "x", "nan"} {
		if _, err := ParsePolicy("p", []byte("guard "+bad)); err == nil || !strings.Contains(err.Error(), "want a factor of at least 1") {
			t.Errorf("guard %s: %v", bad, err)
		}
	}
}

func TestPoliciesLowerToSixteenBits(t *testing.T) {
	g, err := ir.Parse("tall.ir", []byte(tall))
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(g, trainConfig(O1(ir.I32))); err == nil || !strings.Contains(err.Error(), "i32 is not a 16-bit float: want f16 or bf16") {
		t.Errorf("%v", err)
	}
}
