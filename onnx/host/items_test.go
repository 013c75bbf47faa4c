package host_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/ir"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// A batch of pictures gives what the pictures give alone, bit for bit, with any number of threads.
func TestBatchByItems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "squeezenet.onnx")
	if err := onnxmodel.SqueezeNet().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	const pictures, size = 3, 3 * 224 * 224
	x := make([]float32, pictures*size)
	for i := range x {
		x[i] = float32(i%1021)/512 - 1
	}
	for _, policy := range []string{"f32", "mixed-bf16"} {
		var want []byte
		for _, threads := range []int{1, 2, 5} {
			b, err := cpu.Open(threads)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			p, err := passes.PolicyNamed(policy)
			if err != nil {
				t.Fatal(err)
			}
			s, err := host.Open(path, host.Options{Config: passes.Config{Policy: p}, Backend: b})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			run := func(n int, x []float32) []byte {
				out, err := s.Run(context.Background(), map[string]*host.Value{"x": pictureValue(x)})
				if err != nil {
					t.Fatal(err)
				}
				if y := out["logits"]; y.Type != ir.T(ir.F32, ir.Dim(n), 1000) {
					t.Fatalf("%s, %d threads: logits are %s", policy, threads, y.Type)
				}
				return out["logits"].Bytes()
			}
			if want == nil {
				for i := range pictures {
					want = append(want, run(1, x[i*size:(i+1)*size])...)
				}
			}
			if got := run(pictures, x); !bytes.Equal(got, want) {
				t.Errorf("%s, %d threads: logits of a batch are not those of its pictures", policy, threads)
			}
		}
	}
}

// pictureValue is a batch of pictures.
func pictureValue(x []float32) *host.Value {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return host.NewTensor(ir.T(ir.F32, ir.Dim(len(x)/(3*224*224)), 3, 224, 224), b)
}
