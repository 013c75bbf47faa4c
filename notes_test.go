package ampc_test

import (
	"slices"
	"testing"

	"ampc"
	"ampc/passes"
)

// A step tells what the compiler rewrote, and still calls the config's After.
func TestStepNotes(t *testing.T) {
	m := ampc.New("notes")
	x, y := m.Input("x", ampc.F32, 8, 4), m.Input("y", ampc.F32, 8, 1)
	h := m.Linear("fc", x, 1)
	loss := m.Named("loss").BCE(m.Sigmoid(h), y)
	c := adam()
	var seen []string
	c.After = func(e passes.Event) { seen = append(seen, e.Notes...) }
	s := train(t, m, loss, c)
	want := "%bce: sigmoid and bce become bce_with_logits"
	if got := s.Notes(); !slices.Contains(got, want) || !slices.Equal(got, seen) {
		t.Errorf("notes %q, After saw %q, want %q among both", got, seen, want)
	}
	if s.Notes()[0] = ""; s.Notes()[0] == "" {
		t.Error("notes are not copied")
	}
}
