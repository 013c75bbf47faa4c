package eval_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
)

// A slice of f32 initializes a variable that is stored in 16 bits, rounded; a slice of
// another size is an error.
func TestFileInitIsRounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	b := []byte("head")
	for _, x := range []float32{1, 1 + 1./4096, 1e5} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	init := &ir.Init{Func: "file", File: path, Offset: 4, Size: 12}
	for d, want := range map[ir.DType][]float64{ir.F32: {1, 1 + 1./4096, 1e5}, ir.F16: {1, 1, math.Inf(1)}, ir.BF16: {1, 1, 99840}} {
		x, err := eval.InitVar(&ir.Value{Name: "w", Type: ir.T(d, 3), Init: init}, 1)
		if err != nil || !slices.Equal(x.F, want) {
			t.Errorf("%s: %v (%v), want %v", d, x, err, want)
		}
	}
	if _, err := eval.FileBytes(ir.T(ir.F16, 4), init); err == nil || !strings.Contains(err.Error(), "needs 8 bytes, the slice of") {
		t.Errorf("a slice of another size: %v", err)
	}
}
