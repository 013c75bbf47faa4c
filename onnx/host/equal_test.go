package host_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/onnx/host"
)

// decode decodes some lengths by a small GPT-2 and returns what each step gives, from
// one session, or from a new one for each step.
func decode(t *testing.T, layers int64, lengths int64, anew bool) (logits []*host.Value, compiled []int) {
	t.Helper()
	g := onnxmodel.Transformer{Layers: layers, Heads: 4, Width: 128, Vocabulary: 100, Positions: 64}
	path := filepath.Join(t.TempDir(), "gpt2.onnx")
	if err := onnxmodel.GPT2(g).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	in := map[string]*host.Value{"input_ids": ids(100, 1, 1), "attention_mask": ones(1, 1)}
	for i := range layers {
		for _, kind := range []string{"key", "value"} {
			in[fmt.Sprintf("past_key_values.%d.%s", i, kind)] = noise(1, 4, 0, 32)
		}
	}
	for n := range lengths {
		if anew && n > 0 {
			s = open(t, path)
		}
		out, err := s.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		logits, compiled = append(logits, out["logits"]), append(compiled, s.Compiled())
		in = map[string]*host.Value{"input_ids": ids(100, 1, 1), "attention_mask": ones(1, 2+n)}
		for name, v := range out {
			if past, ok := strings.CutPrefix(name, "present."); ok {
				in["past_key_values."+past] = v
			}
		}
	}
	return logits, compiled
}

// Equal layers compile once, whatever their weights are: a deeper network compiles as
// many regions, and computes the same as one region of all nodes does.
func TestEqualLayersCompileOnce(t *testing.T) {
	_, shallow := decode(t, 3, 5, false)
	got, deep := decode(t, 6, 5, false)
	if fmt.Sprint(shallow) != fmt.Sprint(deep) {
		t.Errorf("3 layers compile %v regions by length, 6 layers %v", shallow, deep)
	}
	for n := 3; n < len(deep); n++ { // as many lengths again may be foreseen
		if more := deep[n] - deep[2]; more > 2*3*(n-2) {
			t.Errorf("lengths 4 to %d compile %d regions", n+1, more)
		}
	}
	want, _ := decode(t, 6, 5, true)
	for n := range want {
		x, err := got[n].Elements()
		if err != nil {
			t.Fatal(err)
		}
		y, err := want[n].Elements()
		if err != nil {
			t.Fatal(err)
		}
		for i := range y.F {
			if math.Abs(x.F[i]-y.F[i]) > 1e-4*(1e-2+math.Abs(y.F[i])) {
				t.Fatalf("length %d, element %d: %g, in one region %g", n+1, i, x.F[i], y.F[i])
			}
		}
	}
}
