package host_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/ir"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// compiling runs lengths and returns those whose runs compiled something, and the logits by length.
func compiling(t *testing.T, s *host.Session, lengths []int64, feed func(length int64) map[string]*host.Value) (at []int64, logits map[int64]*host.Value) {
	t.Helper()
	logits = map[int64]*host.Value{}
	for _, n := range lengths {
		before := s.Compiled()
		out, err := s.Run(context.Background(), feed(n))
		if err != nil {
			t.Fatal(err)
		}
		if logits[n] = out["logits"]; s.Compiled() > before {
			at = append(at, n)
		}
	}
	return at, logits
}

// upTo are lengths from one to another.
func upTo(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// Where one token more is fed in each run, one run compiles for several lengths to come. Each length
// gives what it gives where it could not be foreseen, bit for bit.
func TestLengthsAreForeseen(t *testing.T) {
	path, after := cached(t)
	feed := func(n int64) map[string]*host.Value { return after(n - 1) }
	at, got := compiling(t, open(t, path), upTo(1, 40), feed)
	if want := []int64{1, 2, 3, 5, 8, 13, 22, 31, 40}; fmt.Sprint(at) != fmt.Sprint(want) {
		t.Errorf("lengths %v compiled, want %v", at, want)
	}
	shuffled := upTo(3, 40)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
	at, want := compiling(t, open(t, path), append(upTo(1, 2), shuffled...), feed)
	if len(at) != 40 {
		t.Errorf("without an order, %d lengths compiled, want 40", len(at))
	}
	for n, x := range got {
		if !bytes.Equal(x.Bytes(), want[n].Bytes()) {
			t.Errorf("length %d: other logits than where it was not foreseen", n)
		}
	}
}

// What ends a sequence ends what is foreseen: the next one begins with one length again.
func TestForesightEndsWithTheSequence(t *testing.T) {
	path, after := cached(t)
	at, _ := compiling(t, open(t, path), append(upTo(1, 13), upTo(60, 70)...), func(n int64) map[string]*host.Value { return after(n - 1) })
	if want := []int64{1, 2, 3, 5, 8, 13, 60, 61, 62, 64, 67}; fmt.Sprint(at) != fmt.Sprint(want) {
		t.Errorf("lengths %v compiled, want %v", at, want)
	}
}

// A mask that hides what a sequence began with is foreseen, too. A number that a program depends on and
// that is another one in each run is not: after what was made for the number before, nothing is.
func TestForeseenElements(t *testing.T) {
	path, after := cached(t)
	at, _ := compiling(t, open(t, path), upTo(2, 9), func(n int64) map[string]*host.Value {
		in, mask := after(n-1), ones(1, n)
		mask.Bytes()[0] = 0
		in["attention_mask"] = mask
		return in
	})
	if want := []int64{2, 3, 4, 6, 9}; fmt.Sprint(at) != fmt.Sprint(want) {
		t.Errorf("lengths %v compiled with a mask, want %v", at, want)
	}
	c := nodeCase{build: func(g *onnxmodel.Graph) {
		x, n, w := g.Input("x", onnxmodel.F32, nil), g.Input("n", onnxmodel.I64, 1), g.Input("w", onnxmodel.F32, 4)
		for range 60 {
			w = g.Op("Relu", []string{w})
		}
		to(g, onnxmodel.F32, w, g.Op("Exp", []string{g.Op("Slice", []string{x, g.List(0), n})}))
	}}
	s := open(t, write(t, &c))
	for n := range int64(12) {
		before := s.Compiled()
		in := map[string]*host.Value{"x": floats([]int64{n + 8}), "n": integers([]int64{1}, n+1), "w": floats([]int64{4})}
		out, err := s.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := out["b"].Type.Shape.Dim(0); got != ir.Dim(n+1) {
			t.Errorf("%d elements were cut off, want %d", got, n+1)
		}
		want := 1
		if n == 2 {
			want = 2 // one of them for the number of this run and the size of the next one
		}
		if more := s.Compiled() - before; n > 1 && more != want {
			t.Errorf("run %d compiled %d regions, want %d", n, more, want)
		}
	}
}

// Foreseen lengths leave room for what other runs compiled: half of the programs that are kept.
func TestForesightKeepsToTheBounds(t *testing.T) {
	path, after := cached(t)
	for _, bound := range []int{8, 20} {
		b, err := cpu.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s, err := host.Open(path, host.Options{Backend: b, Config: passes.Config{Policy: passes.F32()}, Programs: bound})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for tokens := range int64(16) {
			if _, err := s.Run(context.Background(), after(tokens)); err != nil {
				t.Fatal(err)
			}
			if n, _ := s.Programs(); n > bound {
				t.Fatalf("%d programs are kept after %d tokens, the bound is %d", n, tokens, bound)
			}
		}
	}
}
