package pretrained_test

import (
	"testing"
	"time"

	"ampc"
	"ampc/ir"
	"ampc/pretrained"
	"ampc/weights"
)

// BenchmarkLoad loads the 124 million parameters of GPT-2 from a file of f32 and from
// one of bf16: go test ./pretrained -run '^$' -bench Load. first is the time to compile
// and to draw initial values, which loading replaces.
func BenchmarkLoad(b *testing.B) {
	g, err := pretrained.ReadGPT2(config(b, gpt2))
	if err != nil {
		b.Fatal(err)
	}
	m := ampc.New("gpt2")
	defer m.Close()
	logits := g.Logits(m, m.Input("ids", ampc.I32, 1, 8))
	begin := time.Now()
	if _, err := m.Infer(ampc.InferConfig{Policy: ampc.MixedBF16()}, logits); err != nil {
		b.Fatal(err)
	}
	first, bytes := time.Since(begin), int64(0)
	for _, v := range m.Graph().Vars {
		if v.Kind == ir.Param {
			bytes += v.Type.Bytes()
		}
	}
	for _, d := range []ampc.DType{ampc.F32, ampc.BF16} {
		path := b.TempDir() + "/model.safetensors"
		if err := weights.Save(m, path, weights.As(d)); err != nil {
			b.Fatal(err)
		}
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(bytes)
			b.ReportAllocs()
			for range b.N {
				if _, err := weights.Load(m, path, g.Weights()...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(first.Seconds(), "s-first")
		})
	}
}
