package cpu

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"ampc/runtime"
)

// filled has the variables of a program filled on demand, with the bytes of data, and counts how often.
func filled(t *testing.T, s *store, data map[string][]byte, fail *error) map[string]int {
	t.Helper()
	times := map[string]int{}
	for name, b := range data {
		err := s.Fill(name, func(dst []byte) error {
			times[name]++
			copy(dst, b)
			return *fail
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return times
}

// What programs read packed ahead is not held as it lies, too: it is read once, packed, and given back, and read again
// where somebody wants it as it lies.
func TestWeightsAreHeldOnce(t *testing.T) {
	const text = `graph @infer {
  input %x : f32[40,64]
  input %ids : i32[3]
  param %w1 : f32[64,512]
  param %w2 : f32[512,512]
  param %table : f32[400,64]
  param %k : f32[64,512,3,3]
  input %image : f32[1,512,12,12]
forward:
  %h = matmul %x, %w1 : f32[40,512]
  %r = relu %h : f32[40,512]
  %y = matmul %r, %w2 {tb} : f32[40,512]
  %rows = gather %table, %ids : f32[3,64]
  %c = conv %image, %k {pads=[1,1,1,1]} : f32[1,64,12,12]
  return %y, %rows, %c
}
`
	b := open(t, 2)
	p, _, _ := loaded(t, b, text)
	data := map[string][]byte{}
	for i := range p.Vars {
		if v := &p.Vars[i]; strings.HasPrefix(v.Name, "w") || v.Name == "table" || v.Name == "k" {
			data[v.Name] = make([]byte, v.Type.Bytes())
			for i, x := range slice[float32](data[v.Name]) {
				slice[float32](data[v.Name])[i] = x + float32(i%11) - 5
			}
		}
	}
	run := func(s *store) ([][]byte, runtime.Exec, error) {
		t.Helper()
		e, err := b.Load(p, s)
		if err != nil {
			return nil, nil, err
		}
		f := feedFor(p)
		for i := range slice[float32](f["x"].Data) {
			slice[float32](f["x"].Data)[i] = float32(i%5) - 2
		}
		r, err := e.Step(context.Background(), []runtime.Feed{f})
		if err != nil {
			return nil, e, err
		}
		var out [][]byte
		for i, o := range p.Outputs {
			out = append(out, make([]byte, o.Type.Bytes()))
			if err := r.Read(i, out[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out, e, nil
	}
	newStore := func() *store {
		s, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		return s.(*store)
	}
	written := newStore()
	for name, b := range data {
		if err := written.Write(name, b); err != nil {
			t.Fatal(err)
		}
	}
	want, _, err := run(written)
	if err != nil {
		t.Fatal(err)
	}
	var fail error
	s := newStore()
	times := filled(t, s, data, &fail)
	for range 2 {
		got, _, err := run(s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("result %d differs from that of variables that were written", i)
			}
		}
	}
	for name := range data {
		zero := len(bytes.Trim(s.vars[name].mem[8192:], "\x00")) < 8192 // but for parts of pages
		if times[name] != 1 || zero != (name != "table") {
			t.Errorf("%s was read %d times; its memory was given back: %t", name, times[name], zero)
		}
		got := make([]byte, len(data[name]))
		if err := s.Read(name, got); err != nil || !bytes.Equal(got, data[name]) {
			t.Errorf("%s reads as something else (%v)", name, err)
		}
	}
	if err := s.Write("w1", data["w1"]); err != nil {
		t.Fatal(err)
	}
	if got, _, err := run(s); err != nil || !bytes.Equal(got[0], want[0]) {
		t.Errorf("after a write: other results (%v)", err)
	}
	s, fail = newStore(), errors.New("the file was made shorter while it was read")
	filled(t, s, data, &fail)
	if _, _, err := run(s); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), fail.Error()) {
		t.Errorf("weights that cannot be read: %v", err)
	}
	fail = nil
	if got, _, err := run(s); err != nil || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Errorf("weights that can be read again: %v", err)
	}
}
