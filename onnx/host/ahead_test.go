package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"ampc/internal/onnxmodel"
	"ampc/lower"
	"ampc/onnx/host"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// cached writes a small GPT-2 and returns its path, and what to feed it after so many tokens.
func cached(t *testing.T) (path string, after func(tokens int64) map[string]*host.Value) {
	t.Helper()
	g := onnxmodel.Transformer{Layers: 3, Heads: 4, Width: 64, Vocabulary: 100, Positions: 160}
	path = filepath.Join(t.TempDir(), "gpt2.onnx")
	if err := onnxmodel.GPT2(g).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path, func(tokens int64) map[string]*host.Value {
		in := map[string]*host.Value{"input_ids": ids(100, 1, 1), "attention_mask": ones(1, tokens+1)}
		for i := range g.Layers {
			for _, kind := range []string{"key", "value"} {
				in[fmt.Sprintf("past_key_values.%d.%s", i, kind)] = noise(1, 4, tokens, 16)
			}
		}
		return in
	}
}

// What a session keeps from one length to the next (graphs in which nodes were folded, what follows a
// region, programs compiled beside each other) changes no program: a session that has decoded all
// lengths before has the programs of one that compiles this length as its third, one program after
// the other.
func TestProgramsDoNotDependOnTheLengthsBefore(t *testing.T) {
	path, after := cached(t)
	all := open(t, path)
	want := map[int64]*host.Value{}
	for tokens := range int64(128) {
		out, err := all.Run(context.Background(), after(tokens))
		if err != nil {
			t.Fatal(err)
		}
		want[tokens] = out["logits"]
	}
	code := all.Code()
	for _, length := range []int64{3, 16, 17, 32, 127, 128} {
		b, err := cpu.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		c := passes.Config{Policy: passes.F32(), Compiling: passes.Compiling{Prove: true}}
		c.After = func(passes.Event) {} // called by one goroutine alone
		s, err := host.Open(path, host.Options{Backend: b, Config: c})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var out map[string]*host.Value
		for _, tokens := range []int64{0, 1, length - 1} {
			if out, err = s.Run(context.Background(), after(tokens)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(out["logits"].Bytes(), want[length-1].Bytes()) {
			t.Errorf("length %d: other logits than in a session that decoded all lengths before", length)
		}
		for _, text := range s.Code() {
			if !slices.Contains(code, text) {
				t.Errorf("length %d: no session that decoded all lengths before has the program\n%s", length, text)
			}
		}
	}
}

// refusing is a backend that refuses to load one program.
type refusing struct {
	runtime.Backend
	left int // programs that it loads before
}

var errRefused = errors.New("this program is refused")

func (b *refusing) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	if b.left--; b.left == -1 {
		return nil, errRefused
	}
	return b.Backend.Load(p, s)
}

// A program that cannot be made ends the run that needs it, and no other: whichever it is, the next run
// has the results that it has in other sessions.
func TestProgramsThatFail(t *testing.T) {
	path, after := cached(t)
	whole := open(t, path)
	var want [3]*host.Value
	for tokens := range want {
		out, err := whole.Run(context.Background(), after(int64(tokens)))
		if err != nil {
			t.Fatal(err)
		}
		want[tokens] = out["logits"]
	}
	refusals := 0
	for bad := 0; ; bad++ {
		inner, err := cpu.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		b := &refusing{inner, bad}
		s, err := host.Open(path, host.Options{Backend: b, Config: passes.Config{Policy: passes.F32()}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for tokens := range want {
			out, err := s.Run(context.Background(), after(int64(tokens)))
			if errors.Is(err, errRefused) {
				refusals++
				out, err = s.Run(context.Background(), after(int64(tokens)))
			}
			if err != nil {
				t.Fatalf("program %d refused, length %d: %v", bad, tokens+1, err)
			}
			if !bytes.Equal(out["logits"].Bytes(), want[tokens].Bytes()) {
				t.Errorf("program %d refused, length %d: other logits", bad, tokens+1)
			}
		}
		if b.left >= 0 { // all were loaded before
			break
		}
	}
	if refusals < 3 {
		t.Errorf("%d runs ended because a program that they need was refused, want one for each length at least", refusals)
	}
}
