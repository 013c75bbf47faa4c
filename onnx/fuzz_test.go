package onnx_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ampc/onnx"
	"ampc/onnx/convert"
	"ampc/passes"
)

// seed adds models of this repository, and of the ONNX project's where they are.
func seed(f *testing.F) {
	f.Add([]byte(addModel(tensorOf("w", []int64{2}, 1, 2))))
	for _, pattern := range []string{"testdata/*.onnx", "host/testdata/node/*/model.onnx", filepath.Join(data, "node", "test_[a-c]*", "model.onnx")} {
		list, _ := filepath.Glob(pattern)
		for _, p := range list {
			if b, err := os.ReadFile(p); err == nil && len(b) < 1<<16 {
				f.Add(b)
			}
		}
	}
}

// oneLine fails where an error is more than a line.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

// FuzzParse reads and imports, in memory bounded by the length of the file.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := onnx.Parse(bytes.Clone(b))
		oneLine(t, err)
		if err == nil {
			_, err = onnx.Import(m, onnx.Options{})
			oneLine(t, err)
		}
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 4<<20+5000*uint64(len(b)) {
			t.Errorf("%d bytes allocate %d", len(b), grew)
		}
	})
}

// FuzzConvert converts to f16 and, raised to its opset, to bf16, and reads the results:
// what is consistent stays so.
func FuzzConvert(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, policy := range []passes.Policy{passes.MixedF16(), passes.MixedBF16()} {
			m, err := onnx.Parse(bytes.Clone(b))
			if err != nil {
				return
			}
			o := onnx.Options{Foreign: true, Carry: true}
			x, err := onnx.Import(m, o)
			if err != nil {
				o.Dims = map[string]int64{"N": 2}
				if x, err = onnx.Import(m, o); err != nil {
					return
				}
			}
			if least := convert.LeastOpset(policy.Low); m.Opsets[""] < least {
				m, err = convert.Raise(m, x, least)
				oneLine(t, err)
				if err != nil {
					return
				}
				x, err = onnx.Import(m, o)
				oneLine(t, err)
				if err != nil {
					return
				}
			}
			sound := convert.Check(m, x) == nil
			e, _, err := convert.Plan(m, x, policy, convert.Options{})
			oneLine(t, err)
			if err != nil {
				continue
			}
			var out bytes.Buffer
			if err := m.Write(&out, e); err != nil {
				oneLine(t, err)
				continue
			}
			again, err := onnx.Parse(out.Bytes())
			if err != nil {
				t.Fatalf("converted, it is not read: %v", err)
			}
			y, err := onnx.Import(again, o)
			if err == nil {
				err = convert.Check(again, y)
			}
			oneLine(t, err) // convert reports it and writes no file
			if err != nil && sound {
				t.Errorf("consistent, it is converted to what is not: %v", err)
			}
		}
	})
}
