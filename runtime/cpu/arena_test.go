package cpu

import (
	"context"
	goruntime "runtime"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Memory of a program and its store goes back to the system with the last that reads it: the store,
// the program, and what shows a variable or a buffer.
func TestMemoryReturnsToTheSystem(t *testing.T) {
	const text = `graph @train {
  input %x : f32[256,256]
  param %w : f32[256,256] = 1
forward:
  %y = mul %x, %w : f32[256,256]
  %z = exp %y : f32[256,256]
  return %z
}
`
	before := kern.MappedBytes()
	g, err := ir.Parse("arena.ir", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, 2)
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	vars, err := runtime.Variables(p)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewStore(vars)
	if err != nil {
		t.Fatal(err)
	}
	made, err := b.Load(p, s)
	if err != nil {
		t.Fatal(err)
	}
	e := made.(*program)
	if _, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)}); err != nil {
		t.Fatal(err)
	}
	mapped := kern.MappedBytes() - before
	if want := int64(3 * 256 * 256 * 4); goruntime.GOOS == "linux" && !kern.RaceEnabled && mapped < want {
		t.Errorf("%d bytes lie outside the heap, want %d of the input, the parameter and the result", mapped, want)
	}
	w, err := s.(runtime.Viewer).View("w")
	if err != nil {
		t.Fatal(err)
	}
	z := e.Buffer(p.Outputs[0].Buffer)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(z.Bytes()) + len(w.Bytes()); n != 2*256*256*4 || slice[float32](z.Bytes())[n/8-1] == 0 {
		t.Errorf("what is shown has %d bytes, or no content, after the program is closed", n)
	}
	z.Release()
	w.Release()
	if left := kern.MappedBytes() - before; left > 0 {
		t.Errorf("%d bytes are still mapped", left)
	}
}
