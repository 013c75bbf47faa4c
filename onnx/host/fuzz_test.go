package host_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// FuzzRun runs models in sessions, on zeros and then on other sizes, within bounds of
// memory, iterations and time.
func FuzzRun(f *testing.F) {
	for _, pattern := range []string{"../testdata/*.onnx", "testdata/node/*/model.onnx", "../../../shared/onnx/node/test_[lso]*/model.onnx"} {
		list, _ := filepath.Glob(pattern)
		for _, p := range list {
			if b, err := os.ReadFile(p); err == nil && len(b) < 1<<14 {
				f.Add(b)
			}
		}
	}
	b, err := cpu.Open(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { b.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := onnx.Parse(bytes.Clone(data))
		if err != nil {
			return
		}
		s, err := host.New(m, host.Options{Backend: b, Config: passes.Config{Policy: passes.F32()}, Iterations: 100, Bytes: 1 << 24})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		defer s.Close()
		for size := int64(2); size < 4; size++ {
			in := map[string]*host.Value{}
			for _, x := range s.Inputs() {
				v, ok := zeros(x, size)
				if !ok {
					return
				}
				in[x.Name] = v
			}
			ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := s.Run(ctx, in)
			stop()
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
		}
	})
}

// zeros is a value for an input whose open dimensions have a size; false where it is large.
func zeros(x *onnx.Info, size int64) (*host.Value, bool) {
	switch x.Kind {
	case "sequence":
		return host.NewSequence(), true
	case "optional":
		return &host.Value{Kind: host.Nothing}, true
	}
	d, err := x.DType.DType()
	if err != nil || len(x.Dims) > ir.MaxRank {
		return nil, false
	}
	var dims []ir.Dim
	n := int64(1)
	for _, k := range x.Dims {
		if !k.Known {
			k.Size = size
		}
		if k.Size < 0 || k.Size > 1<<12 {
			return nil, false
		}
		n *= k.Size
		dims = append(dims, ir.Dim(k.Size))
		if n > 1<<16 {
			return nil, false
		}
	}
	t := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(dims...)})
	return host.NewTensor(t.Type, t.Bytes()), true
}
