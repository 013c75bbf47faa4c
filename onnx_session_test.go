package ampc_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ampc"
)

// A session runs a model on inputs of any size, and says how.
func TestONNXSession(t *testing.T) {
	s, err := ampc.OpenONNX("onnx/testdata/positive.onnx", ampc.ONNXRun{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ x, want []float32 }{{[]float32{1, -2, 3}, []float32{2, 6}}, {[]float32{-1}, nil}, {[]float32{4, 5, 6, 7}, []float32{8, 10, 12, 14}}} {
		r, err := s.Run(context.Background(), ampc.Feed{"x": c.x})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tensors["y"].Floats(); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.x, got, c.want)
		}
	}
	var steps []string
	for _, x := range s.Steps() {
		steps = append(steps, x.String())
	}
	if got := strings.Join(steps, "\n"); !strings.Contains(got, "host: node 1 (NonZero): the size of its result depends on data") {
		t.Error(got)
	}
	for want, f := range map[string]ampc.Feed{
		`feed "z": the model has no such input`: {"z": []float32{1}},
		`feed "x" is a string`:                  {"x": "1"},
		`input "x" is missing: feed it`:         {},
	} {
		if _, err := s.Run(context.Background(), f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The sizes of a model with named dimensions vary over one session.
func TestONNXSessionSizes(t *testing.T) {
	s, err := ampc.OpenONNX("onnx/testdata/mlp.onnx", ampc.ONNXRun{Programs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, n := range []int{1, 3, 5, 1} {
		r, err := s.Run(context.Background(), ampc.Feed{"x": make([]float32, 4*n)})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tensors["p"].Type; got != ampc.TypeOf(ampc.F32, n, 3) {
			t.Errorf("%d rows give %s", n, got)
		}
	}
	if n, _ := s.Programs(); n != 2 {
		t.Errorf("%d programs are kept, the bound is 2", n)
	}
}
