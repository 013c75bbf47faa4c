package cpu

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// A program of inference that was loaded beside a running step has its memory on
// another execContext. Its buffers can be asked for all the same, before a step and after.
func TestBufferOfProgramLoadedBesideStep(t *testing.T) {
	b := open(t, 2)
	l, err := b.acquire(context.Background(), false) // as a step of inference does
	if err != nil {
		t.Fatal(err)
	}
	p, _, e := loaded(t, b, `graph @infer {
  input %x : f32[4]
forward:
  %y = relu %x : f32[4]
  return %y
}
`)
	b.release(l, false)
	out := p.Outputs[0].Buffer
	if n := len(e.Buffer(out).Bytes()); n != 16 {
		t.Fatalf("before a step %%y has %d bytes, want 16", n)
	}
	e.Trace(runtime.Tracer{Part: func(_ lower.Part, _ int) bool { return true }})
	feed := feedFor(p)
	slice[float32](feed["x"].Data)[0] = 3
	if _, err := e.Step(context.Background(), []runtime.Feed{feed}); err != nil {
		t.Fatal(err)
	}
	if got := slice[float32](e.Buffer(out).Bytes())[0]; got != 3 {
		t.Errorf("after a traced step %%y[0] is %g, want 3", got)
	}
	e.Close()
	if got := e.Buffer(out).Bytes(); got != nil {
		t.Errorf("a closed program has a buffer of %d bytes", len(got))
	}
}

// Flags start as false in every micro-batch, and are in the update what the host says.
func TestBeforeUpdate(t *testing.T) {
	b := open(t, 2)
	_, s, e := loaded(t, b, `graph @train {
  input %x : bool[]
  state %flag : bool[] = 0 {role=acc}
  state %seen : i32[] = 0
backward:
  %flag' = or %flag, %x
update:
  %now = cast %flag {to=i32} : i32[]
  %seen' = add %seen, %now
}
`)
	seen := func() int32 {
		out := make([]byte, 4)
		if err := s.Read("seen", out); err != nil {
			t.Fatal(err)
		}
		return slice[int32](out)[0]
	}
	if err := e.BeforeUpdate([]string{"none"}, 3, nil); err == nil || !strings.Contains(err.Error(), `no variable "none"`) {
		t.Errorf("a flag that there is not: %v", err)
	}
	if err := e.BeforeUpdate([]string{"seen"}, 3, nil); err == nil || !strings.Contains(err.Error(), "want bool[]") {
		t.Errorf("a flag that is a number: %v", err)
	}
	var sets [][]bool
	answer := false
	err := e.BeforeUpdate([]string{"flag"}, 3, func(_ context.Context, feeds []runtime.Feed, set [][]bool) []bool {
		if len(feeds) != len(set) {
			t.Errorf("%d feeds, flags of %d micro-batches", len(feeds), len(set))
		}
		for _, of := range set {
			sets = append(sets, slices.Clone(of))
		}
		return []bool{answer}
	})
	if err != nil {
		t.Fatal(err)
	}
	step := func(xs ...byte) {
		t.Helper()
		sets = nil
		var feeds []runtime.Feed
		for _, x := range xs {
			feeds = append(feeds, runtime.Feed{"x": runtime.Tensor{Type: ir.T(ir.Bool), Data: []byte{x}}})
		}
		if _, err := e.Step(context.Background(), feeds); err != nil {
			t.Fatal(err)
		}
	}
	if step(0, 0, 0); sets != nil || seen() != 0 {
		t.Errorf("no flag was set: asked about %v, the update has seen %d", sets, seen())
	}
	if step(1, 0, 1); !reflect.DeepEqual(sets, [][]bool{{true}, {false}, {true}}) || seen() != 0 {
		t.Errorf("asked about %v, the update has seen %d of a flag that was taken back", sets, seen())
	}
	answer = true
	if step(0, 1); !reflect.DeepEqual(sets, [][]bool{{false}, {true}}) || seen() != 1 {
		t.Errorf("asked about %v, the update has seen %d of a flag that stays", sets, seen())
	}
	if step(0); sets != nil || seen() != 1 {
		t.Errorf("the flag of the step before is there: asked about %v, the update has seen %d", sets, seen())
	}
}
