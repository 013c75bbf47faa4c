package models_test

import (
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// For every free value of the decoder the price that why-not names for the
// other dtype is what storing it so by a rule of the policy makes the lowered
// program move and cast more.
func TestWhyNotPricesWhatRecompilingMeasures(t *testing.T) {
	z, err := models.Open("gpt")
	if err != nil {
		t.Fatal(err)
	}
	z.Steps[0].Config.Policy = ampc.MixedF16()
	source, cfg, err := z.Model.Source(z.Steps[0].Config, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(p passes.Policy) (bytes int64, casts int) {
		g, at := source.CloneMap()
		c := cfg.On(at)
		c.Policy = p
		if err := passes.Run(g, c); err != nil {
			t.Fatal(err)
		}
		program, err := lower.Lower(g, lower.CPU)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range program.Parts {
			for _, s := range part {
				bytes += s.Bytes
			}
		}
		for _, n := range g.Nodes {
			if n.Op == ir.OpCast {
				casts++
			}
		}
		return bytes, casts
	}
	bytes, casts := compile(cfg.Policy)
	flips, err := passes.WhyNotAll(source, cfg)
	if err != nil {
		t.Fatal(err)
	}
	free := 0
	for _, f := range flips {
		if f.Because != "" {
			continue
		}
		free++
		pin := ir.PinLow
		if f.To == "f32" {
			pin = ir.PinF32
		}
		b, c := compile(cfg.Policy.Store(f.Value[1:], pin))
		if b-bytes != f.Bytes || c-casts != f.Casts {
			t.Errorf("%s: measured %+d bytes and %+d casts", f, b-bytes, c-casts)
		}
		if f.From == f.To {
			t.Errorf("%s", f)
		}
	}
	if free < 10 || free == len(flips) {
		t.Errorf("%d of %d values are free", free, len(flips))
	}
}
