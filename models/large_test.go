package models_test

import (
	"regexp"
	"slices"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
	"ampc/ptx"
)

// The two models that speed is compared on have the parameters of their
// papers, and lower for a GPU at their full size. A multiplication and an
// addition are two operations; forward is a third of a step, except for the input
// of the first convolution, which needs no gradient, and for attention, whose
// gradient computes the scores again. In 16 bits a causal attention is half the
// work; f32 has no kernel that leaves the other half out. A reduction that moves
// 16 MiB has a block for each of an H100's multiprocessors.
func TestLargeModels(t *testing.T) {
	const (
		tokens, dim, vocab, layers = 16 * 1024, 768, 50257, 12
		linear                     = 2 * tokens * (layers*12*dim*dim + dim*vocab)
		mixing                     = layers * 2 * tokens * 1024 * dim    // of causal pairs
		image, stem                = 4089184256, 64 * 112 * 112 * 3 * 49 // multiplications per image, of them in the first convolution
	)
	for _, c := range []struct {
		spec             string
		params           int64
		mixed, moreInF32 int64
		output           ir.Type
	}{
		{"gpt2", 124439808, 3*linear + mixing*7/2, mixing * 7 / 2, ir.T(ir.F32, 16, 1024, vocab)},
		{"resnet50", 25557032, 256 * 2 * (3*image - stem), 0, ir.T(ir.F32, 256, 1000)},
	} {
		z, err := models.Open(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		params := int64(0)
		for _, v := range z.Model.Graph().Vars {
			if v.Kind == ir.Param {
				params += v.Type.Shape.Elements()
			}
		}
		if params != c.params || z.Output.IR().Type != c.output {
			t.Errorf("%s: %d parameters and %s, want %d and %s", c.spec, params, z.Output.IR().Type, c.params, c.output)
		}
		inF32 := int64(0)
		for _, policy := range []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16()} {
			cfg := z.Steps[0].Config
			cfg.Policy = policy
			g, pc, err := z.Model.Source(cfg, z.Steps[0].Losses...)
			if err != nil {
				t.Fatal(err)
			}
			pc.Caps = sm.Must("sm_90").Caps()
			if err := passes.Run(g, pc); err != nil {
				t.Fatal(err)
			}
			p, err := lower.Lower(g, sm.Must("sm_90"))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range sm.Modules(p) {
				if err := ptx.Verify(m); err != nil {
					t.Errorf("%s under %s: %v", c.spec, policy.Name, err)
				}
			}
			want := c.mixed
			if !policy.Mixed() {
				want += c.moreInF32
			}
			if n := p.Flops(); n != want {
				t.Errorf("%s under %s: %d operations in products, want %d", c.spec, policy.Name, n, want)
			}
			for _, s := range slices.Concat(p.Parts[:]...) {
				if s.Launch != nil && s.Bytes > 16<<20 && reduces.MatchString(s.Launch.Kernel) && s.Launch.Grid[0]*s.Launch.Grid[1]*s.Launch.Grid[2] < 132 {
					t.Errorf("%s under %s: %s %s moves %d bytes in %v blocks", c.spec, policy.Name, s.Launch.Kernel, s.Node.Name, s.Bytes, s.Launch.Grid)
				}
			}
			if n := updates(t, p); n != 1 {
				t.Errorf("%s under %s: %d launches update its parameters, want one", c.spec, policy.Name, n)
			}
			bytes := moved(p, 1)
			if !policy.Mixed() {
				inF32 = bytes
			} else if bytes > inF32*6/10 {
				t.Errorf("%s under %s: a step moves %d bytes, more than 0.6 times the %d of f32", c.spec, policy.Name, bytes, inF32)
			}
			t.Logf("%s under %s: work %.2f GiB, state %.2f GiB, a step moves %.1f GB", c.spec, policy.Name,
				float64(p.Arenas[lower.WorkArena])/(1<<30), float64(p.Arenas[lower.StateArena])/(1<<30), float64(bytes)/1e9)
		}
	}
}

// TestStepBytes limits what the steps of the speed comparison name and launch. All that a step runs
// counts: prepare's casts are left out only because the update writes the same copies.
func TestStepBytes(t *testing.T) {
	for _, c := range []struct {
		spec, policy string
		gb           float64
		launches     int
	}{
		{"gpt2", "mixed-f16", 44, 250},
		{"gpt2", "mixed-bf16", 44, 250},
		{"resnet50", "mixed-f16", 98, 525},
		{"resnet50", "mixed-f16-trunk", 90, 525},
	} {
		bytes, launches := int64(0), 0
		p := lowered(t, c.spec, "sm_90", c.policy)
		for _, w := range p.WeightCopies {
			if !slices.ContainsFunc(p.Parts[lower.Update], func(s lower.Step) bool { return slices.Contains(s.Out, w.Buffer) }) {
				t.Errorf("%s under %s: the update does not write the copy of %s", c.spec, c.policy, w.Var)
			}
		}
		for part, steps := range p.Parts {
			for i, s := range steps {
				if lower.Part(part) == lower.Prepare && slices.ContainsFunc(p.WeightCopies, func(w lower.WeightCopy) bool { return w.Step == i }) {
					continue
				}
				bytes += s.Bytes
				launches++
			}
		}
		if gb := float64(bytes) / 1e9; gb > c.gb || launches > c.launches {
			t.Errorf("%s under %s names %.2f GB in %d launches, more than %g or %d", c.spec, c.policy, gb, launches, c.gb, c.launches)
		} else {
			t.Logf("%s under %s names %.2f GB in %d launches", c.spec, c.policy, gb, launches)
		}
	}
}

var reduces = regexp.MustCompile("^(row|col)_")

// updates counts the launches that store many tensors of millions of elements
// between them: one for each optimizer, here one. Its table of tensors is small
// beside what it moves.
func updates(t *testing.T, p *lower.Program) (n int) {
	for _, s := range p.Parts[lower.Update] {
		if len(s.More) > 0 && s.Bytes > 64<<20 {
			n++
			if 8*int64(len(s.Launch.Table)) > s.Bytes/10000 {
				t.Errorf("%s: a table of %d words for %d bytes", s.Node.Name, len(s.Launch.Table), s.Bytes)
			}
		}
	}
	return n
}
