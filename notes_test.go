package ampc_test

import (
	"slices"
	"testing"

	"ampc"
)

// A step tells what the compiler rewrote, and still calls the config's After.
func TestStepNotes(t *testing.T) {
	m := ampc.New("notes")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
	h := m.Linear("fc", x, 1)
	loss := m.Named("loss").BCE(m.Sigmoid(h), y)
	c := adam()
	var seen []string
	c.Compile.After = func(e ampc.PassEvent) { seen = append(seen, e.Notes...) }
	s := train(t, m, loss, c)
	want := "%bce: sigmoid and bce become bce_with_logits"
	if got := s.Notes(); !slices.Contains(got, want) || !slices.Equal(got, seen) {
		t.Errorf("notes %q, After saw %q, want %q among both", got, seen, want)
	}
	if s.Notes()[0] = ""; s.Notes()[0] == "" {
		t.Error("notes are not copied")
	}
}

// A padded step learns what the plain one learns, keeps the shapes of its
// variables, and its evaluation has its loss, to the bit.
func TestPaddedStep(t *testing.T) {
	build := func(pad bool) (*ampc.Model, ampc.Tensor, *ampc.Step, *ampc.Step) {
		m, loss := small(8)
		c := adam()
		c.Compile.Pad = pad
		s := train(t, m, loss, c)
		e, err := s.Eval(loss)
		if err != nil {
			t.Fatal(err)
		}
		return m, loss, s, e
	}
	padded, loss, s, e := build(true)
	plain, _, p, _ := build(false)
	if len(s.Program().Misaligned()) >= len(p.Program().Misaligned()) {
		t.Errorf("%v is left of %v", s.Program().Misaligned(), p.Program().Misaligned())
	}
	for i := range 5 {
		f := points(uint64(i), 8)
		before := run(t, e, f)
		h, err := before.Value(loss)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, s, f); metrics(t, r).Loss != h.At(0) || metrics(t, r).Skipped {
			t.Errorf("step %d: loss %g, evaluated %g, skipped %t", i, metrics(t, r).Loss, h.At(0), metrics(t, r).Skipped)
		}
		run(t, p, f)
	}
	followsF32(t, padded, plain, 5, "fc1.w", "fc2.w", "fc2.b")
}
