package cpu

import (
	"bytes"
	"context"
	"testing"

	"ampc/runtime"
)

// Weights are packed by the first step and packed again after a write, whichever of them is written: results are those of
// a new program.
func TestPackedWeightsFollowWrites(t *testing.T) {
	texts := map[string]string{"f32": `graph @infer {
  input %x : f32[40,64]
  param %w1 : f32[64,96]
  param %w2 : f32[48,96]
forward:
  %h = matmul %x, %w1 : f32[40,96]
  %r = relu %h : f32[40,96]
  %y = matmul %r, %w2 {tb} : f32[40,48]
  return %y
}
`, "copies": `graph @infer {
  input %x : f32[40,64]
  param %w1 : f32[64,96]
  param %w2 : f32[48,96]
prepare:
  %w1.l = cast %w1 {to=bf16} : bf16[64,96]
  %w2.l = cast %w2 {to=bf16} : bf16[48,96]
forward:
  %x.l = cast %x {to=bf16} : bf16[40,64]
  %h = matmul %x.l, %w1.l : bf16[40,96]
  %r = relu %h : bf16[40,96]
  %y = matmul %r, %w2.l {tb out=f32} : f32[40,48]
  return %y
}
`, "convolutions": `graph @infer {
  input %x : f32[2,64,12,12]
  param %w1 : f32[64,64,3,3]
  param %w2 : f32[96,64,1,1]
forward:
  %h = conv %x, %w1 {pads=[1,1,1,1]} : f32[2,64,12,12]
  %r = relu %h : f32[2,64,12,12]
  %y = conv %r, %w2 : f32[2,96,12,12]
  return %y
}
`}
	b := open(t, 2)
	for name, text := range texts {
		p, s, e := loaded(t, b, text)
		feed := feedFor(p)
		x := slice[float32](feed["x"].Data)
		for i := range x {
			x[i] = float32(i%13) - 6
		}
		result := func(e runtime.Exec) []byte {
			t.Helper()
			f, err := e.Step(context.Background(), []runtime.Feed{feed})
			if err != nil {
				t.Fatal(err)
			}
			out := make([]byte, p.Outputs[0].Type.Bytes())
			if err := f.Read(0, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
		for name, v := range s.(*store).vars {
			data := make([]byte, len(v.mem))
			for i := range slice[float32](data) {
				slice[float32](data)[i] = float32(i%7) - 2
			}
			if err := s.Write(name, data); err != nil {
				t.Fatal(err)
			}
		}
		first := result(e)
		if !bytes.Equal(first, result(e)) {
			t.Errorf("%s: the second step gives other bits", name)
		}
		for _, w := range []string{"w1", "w2"} {
			v := s.(*store).vars[w]
			if v.weights.packed == nil && len(v.low) == 0 {
				t.Errorf("%s: %s has no packed form", name, w)
			}
			data := bytes.Clone(v.mem)
			for i, x := range slice[float32](data) {
				slice[float32](data)[i] = x + 1
			}
			before := result(e)
			if err := s.Write(w, data); err != nil {
				t.Fatal(err)
			}
			got := result(e)
			if bytes.Equal(got, before) {
				t.Errorf("%s: after a write to %s the old weights are read", name, w)
			}
			fresh, err := b.NewStore(p.Vars)
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range s.(*store).vars {
				if err := fresh.Write(name, v.mem); err != nil {
					t.Fatal(err)
				}
			}
			again, err := b.Load(p, fresh)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, result(again)) {
				t.Errorf("%s: after a write to %s other bits than a new program's", name, w)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for _, v := range s.(*store).vars {
			if v.weights.packed != nil && v.weights.packed.Bytes() > 0 {
				t.Errorf("%s: packed weights outlive the program that reads them", name)
			}
		}
	}
}
