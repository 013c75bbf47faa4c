package cpu

import (
	"context"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// A large result stays in the work arena until the next step of its program. The step of another
// program over the arena moves it.
func TestLargeResults(t *testing.T) {
	const text = `graph @NAME {
  input %x : f32[256,256]
  state %n : f32[]
forward:
  %y = exp %x : f32[256,256]
  %z = FUNC %y : f32[256,256]
update:
  %n' = add %n, %n
  return %z
}
`
	b := open(t, 2)
	var store runtime.Store
	load := func(name, f string) *program {
		g, err := ir.Parse("t.ir", []byte(strings.NewReplacer("NAME", name, "FUNC", f).Replace(text)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Lower(g, lower.CPU)
		if err != nil {
			t.Fatal(err)
		}
		if store == nil {
			if store, err = b.NewStore(p.Vars); err != nil {
				t.Fatal(err)
			}
		}
		e, err := b.Load(p, store)
		if err != nil {
			t.Fatal(err)
		}
		return e.(*program)
	}
	one, two := load("one", "neg"), load("two", "sqrt")
	step := func(e *program) runtime.Future {
		f, err := e.Step(context.Background(), []runtime.Feed{feedFor(e.p)})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	buf := make([]byte, 4*256*256)
	read := func(when string, f runtime.Future, want float32) {
		t.Helper()
		if err := f.Read(0, buf); err != nil || slice[float32](buf)[0] != want {
			t.Errorf("%s: %g (%v), want %g", when, slice[float32](buf)[0], err, want)
		}
	}
	first := step(one)
	read("after the step", first, -1)
	if moved := one.bound[b.first].kept.moved[0]; moved != nil {
		t.Errorf("the result is held twice, in %d bytes", len(moved))
	}
	other := step(two)
	read("after another program's step", first, -1)
	read("of the other program", other, 1)
	second := step(one)
	if err := first.Read(0, buf); err == nil || err.Error() != "one: result %z of step 0 is gone: large results are kept until the next step" {
		t.Errorf("after the program's next step: %v", err)
	}
	read("of the next step", second, -1)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Read(0, buf); err == nil || err.Error() != "one: result %z of step 1 is gone: the step is closed" {
		t.Errorf("after Close: %v", err)
	}
}
