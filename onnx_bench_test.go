package ampc_test

import (
	"context"
	"path/filepath"
	"testing"

	"ampc"
	"ampc/internal/onnxmodel"
)

// BenchmarkResNet50 runs ResNet-50 on one picture by LoadONNX and Infer, and in a session. The
// batch norms are part of the convolutions in both but for "norms", which disables that in Infer.
func BenchmarkResNet50(b *testing.B) {
	path := filepath.Join(b.TempDir(), "resnet50.onnx")
	if err := onnxmodel.ResNet50().WriteFile(path); err != nil {
		b.Fatal(err)
	}
	ctx, feed := context.Background(), ampc.Feed{"x": make([]float32, 3*224*224)}
	for i := range feed["x"].([]float32) {
		feed["x"].([]float32)[i] = float32(i%17)/8 - 1
	}
	run := func(name string, once func() error) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if err := once(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, compile := range map[string]ampc.CompileOptions{"infer": {}, "norms": {Disable: []string{"foldnorms"}}} {
		m, err := ampc.LoadONNX(path, ampc.ONNXOptions{Sizes: ampc.Sizes{"batch": 1, "height": 224, "width": 224}})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		step, err := m.Infer(ampc.InferConfig{Compile: compile}, m.Outputs()...)
		if err != nil {
			b.Fatal(err)
		}
		once := func() error {
			r, err := step.Run(ctx, feed)
			if err == nil {
				_, err = r.Wait(ctx)
			}
			return err
		}
		if err := once(); err != nil {
			b.Fatal(err)
		}
		run(name, once)
	}
	s, err := ampc.OpenONNX(path, ampc.ONNXRun{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	once := func() error {
		x, err := ampc.NewHostTensor(ampc.TypeOf(ampc.F32, 1, 3, 224, 224), feed["x"])
		if err == nil {
			_, err = s.Run(ctx, ampc.Feed{"x": x})
		}
		return err
	}
	if err := once(); err != nil {
		b.Fatal(err)
	}
	run("session", once)
}
