package cpu

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// loaded parses, lowers and loads a graph.
func loaded(t testing.TB, b *Backend, src string) (*lower.Program, runtime.Store, *program) {
	t.Helper()
	g, err := ir.Parse("t.ir", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewStore(p.Vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimetest.Initialize(s, p.Vars, 1); err != nil {
		t.Fatal(err)
	}
	e, err := b.Load(p, s)
	if err != nil {
		t.Fatal(err)
	}
	return p, s, e.(*program)
}

func open(t testing.TB, threads int) *Backend {
	t.Helper()
	b, err := Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// feedFor makes zeros for every input.
func feedFor(p *lower.Program) runtime.Feed {
	f := runtime.Feed{}
	for i := range p.Vars {
		if v := &p.Vars[i]; v.Kind == ir.Input && v.Role() != runtime.RoleMicro {
			f[v.Name] = runtime.Tensor{Type: v.Type, Data: make([]byte, v.Type.Bytes())}
		}
	}
	return f
}

func TestStepDoesNotAllocate(t *testing.T) {
	p, _, e := loaded(t, open(t, 2), mlp)
	feeds := []runtime.Feed{feedFor(p)}
	step := func() {
		if _, err := e.Step(context.Background(), feeds); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%g allocations per step", n)
	}
}

// Each 16-bit copy is written once per update, whatever the number of
// micro-batches and of programs that read it.
func TestLowCopiesAreCastOnce(t *testing.T) {
	b := open(t, 2)
	p, s, train := loaded(t, b, mlp)
	g, err := ir.Parse("eval.ir", []byte(`graph @eval {
  input %x : f32[16,12]
  param %w1 : f32[12,20]
prepare:
  %other = cast %w1 {to=f16} : f16[12,20]
forward:
  %x.l = cast %x {to=f16} : f16[16,12]
  %h = matmul %x.l, %other : f16[16,20]
  return %h
}
`))
	if err != nil {
		t.Fatal(err)
	}
	q, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := b.Load(q, s)
	if err != nil {
		t.Fatal(err)
	}
	run := func(e runtime.Exec, p *lower.Program, micro int) {
		t.Helper()
		feeds := make([]runtime.Feed, micro)
		for i := range feeds {
			feeds[i] = feedFor(p)
		}
		if _, err := e.Step(context.Background(), feeds); err != nil {
			t.Fatal(err)
		}
	}
	made := func(e runtime.Exec) int64 { return e.(runtime.Counted).Counters().CastBytes }
	all := int64(2 * (12*20 + 20 + 20*10))
	run(train, p, 4)
	if made(train) != all {
		t.Errorf("four micro-batches wrote %d bytes of 16-bit copies, want %d", made(train), all)
	}
	run(ev, q, 1)
	run(train, p, 4)
	if made(ev) != 2*12*20 || made(train) != 2*all-made(ev) {
		t.Errorf("an evaluation wrote %d bytes and the next step %d: %d is shared", made(ev), made(train)-all, 2*12*20)
	}
	run(ev, q, 1)
	run(ev, q, 1)
	if made(ev) != 2*2*12*20 {
		t.Errorf("two evaluations of the same weights wrote %d bytes", made(ev)-2*12*20)
	}
	if err := s.Write("w1", make([]byte, 4*12*20)); err != nil {
		t.Fatal(err)
	}
	run(ev, q, 1)
	if made(ev) != 3*2*12*20 {
		t.Error("a write from outside leaves the 16-bit copy stale")
	}
}

func TestTicketsKeepTheirStep(t *testing.T) {
	p, _, e := loaded(t, open(t, 1), `graph @t {
  input %x : f32[2]
  state %n : f32[2]
forward:
  %y = add %x, %n : f32[2]
update:
  %n' = add %n, %x
  return %y
}
`)
	f := feedFor(p)
	f["x"].Data[3] = 0x40 // 2
	var futures []runtime.Future
	for range runtime.RingSize + 1 {
		x, err := e.Step(context.Background(), []runtime.Feed{f})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, x)
	}
	buf := make([]byte, 8)
	if err := futures[0].Read(0, buf); err == nil || !strings.Contains(err.Error(), "the results of step 0 are gone, the last 4 steps keep theirs") {
		t.Errorf("an old future: %v", err)
	}
	for i, want := range []float32{4, 6, 8, 10} {
		if err := futures[i+1].Read(0, buf); err != nil || slice[float32](buf)[0] != want {
			t.Errorf("step %d: %v, %v, want %g", i+1, slice[float32](buf), err, want)
		}
	}
	if err := futures[1].Read(1, buf); err == nil || err.Error() != "t: result 1 of 1" {
		t.Error(err)
	}
	if err := futures[1].Read(0, buf[:4]); err == nil || !strings.Contains(err.Error(), "is f32[2], 8 bytes, not 4") {
		t.Error(err)
	}
}

func TestFeedErrors(t *testing.T) {
	p, s, e := loaded(t, open(t, 1), mlp)
	state := func() []byte {
		var all []byte
		for _, v := range p.Vars {
			if v.Kind == ir.Param || v.Kind == ir.State {
				b := make([]byte, v.Type.Bytes())
				if err := s.Read(v.Name, b); err != nil {
					t.Fatal(err)
				}
				all = append(all, b...)
			}
		}
		return all
	}
	before := state()
	good := feedFor(p)
	with := func(name string, x runtime.Tensor) runtime.Feed {
		f := runtime.Feed{}
		for k, v := range good {
			f[k] = v
		}
		f[name] = x
		return f
	}
	label := append([]byte(nil), good["y"].Data...)
	label[0] = 77
	for _, c := range []struct {
		feeds []runtime.Feed
		want  string
	}{
		{nil, "mlp: no feeds: a step takes one per micro-batch"},
		{[]runtime.Feed{{"x": good["x"]}}, `mlp: no feed for input "y" i32[16]`},
		{[]runtime.Feed{with("x", runtime.Tensor{Type: ir.T(ir.F32, 12, 16), Data: good["x"].Data})}, `mlp: feed "x" is f32[12,16], the program takes f32[16,12]`},
		{[]runtime.Feed{with("y", runtime.Tensor{Type: ir.T(ir.I64, 16), Data: make([]byte, 128)})}, `mlp: feed "y" is i64[16], the program takes i32[16]`},
		{[]runtime.Feed{with("x", runtime.Tensor{Type: good["x"].Type, Data: make([]byte, 5)})}, `mlp: feed "x" has 5 bytes, f32[16,12] takes 768`},
		{[]runtime.Feed{good, with("z", good["x"])}, `mlp: micro-batch 1: feed "z": no such input, the program takes x, y`},
		{[]runtime.Feed{with("y", runtime.Tensor{Type: good["y"].Type, Data: label})}, "mlp: cross_entropy %sum: label 77 at place 0 is outside 0..9"},
	} {
		if _, err := e.Step(context.Background(), c.feeds); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if !bytes.Equal(state(), before) {
			t.Fatalf("%s: variables changed", c.want)
		}
	}
	if _, err := e.Step(context.Background(), []runtime.Feed{good}); err != nil {
		t.Errorf("after errors: %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	b := open(t, 1)
	p, s, _ := loaded(t, b, mlp)
	if _, err := b.Load(&lower.Program{Name: "x", Target: sm.Must("sm_90")}, s); err == nil || err.Error() != "cpu: x is lowered for sm_90" {
		t.Error(err)
	}
	empty, err := b.NewStore(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(p, empty); err == nil || err.Error() != `cpu: mlp: the store has no variable "w1"` {
		t.Error(err)
	}
	if err := empty.Declare([]lower.Var{{Name: "w1", Type: ir.T(ir.F16, 3), Kind: ir.Param}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(p, empty); err == nil || err.Error() != `cpu: mlp: variable "w1" is f16[3] in the store, the program takes f32[12,20]` {
		t.Error(err)
	}
	if err := empty.Declare(p.Vars); err == nil || err.Error() != `variable "w1" is f16[3] in the store, declared again as f32[12,20]` {
		t.Error(err)
	}
	if _, err := Open(-1); err == nil {
		t.Error("Open(-1) works")
	}
}

// A variable whose next value would overwrite what a later read of the old one
// needs is written late. A variable that is returned is what it is after the
// step; a view of it is what it was when the view was taken.
func TestOldValuesSurvive(t *testing.T) {
	p, s, e := loaded(t, open(t, 1), `graph @old {
  input %x : f32[2]
  state %a : f32[2] = 1
  state %b : f32[2] = 10
forward:
  %y = add %x, %a : f32[2]
  %v = reshape %b {shape=[1,2]} : f32[1,2]
update:
  %a' = add %a, %b
  %b' = sub %b, %a
  return %y, %a, %v, %a'
}
`)
	for step, want := range [][4]float32{{1, 11, 10, 11}, {11, 20, 9, 20}} {
		future, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)})
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			buf := make([]byte, 8)
			if err := future.Read(i, buf); err != nil {
				t.Fatal(err)
			}
			if got := slice[float32](buf)[1]; got != w {
				t.Errorf("step %d: %s is %g, want %g", step, p.Outputs[i].Name, got, w)
			}
		}
	}
	buf := make([]byte, 8)
	if err := s.Read("b", buf); err != nil || slice[float32](buf)[0] != -2 {
		t.Errorf("%%b is %g, want -2", slice[float32](buf)[0])
	}
}

// A profile has one line for each step that ran, says how many workers there are, and accounts for their time: none is busy
// longer than the step took, and who works alone is busy.
func TestProfileOfWorkers(t *testing.T) {
	b := open(t, 2)
	p, _, e := loaded(t, b, `graph @t {
  input %x : f32[512,512]
  param %w : f32[512,512]
forward:
  %y = matmul %x, %w : f32[512,512]
  %z = reduce_sum %y {axes=[0]} : f32[512]
  return %z
}
`)
	var seen int
	var all runtime.Timing
	e.Profile(func(part lower.Part, step int, s runtime.Timing) {
		if seen++; s.Workers != 2 || s.Alone > s.Took || s.Busy < s.Alone || s.Busy > 2*s.Took {
			t.Errorf("%s %d: %+v", part, step, s)
		}
		all.Regions += s.Regions
	})
	if _, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)}); err != nil {
		t.Fatal(err)
	}
	if seen != len(p.Parts[lower.Micro]) || all.Regions == 0 {
		t.Errorf("%d steps reported with %d regions, the program has %d steps", seen, all.Regions, len(p.Parts[lower.Micro]))
	}
	e.Profile(nil)
	if _, err := e.Step(context.Background(), []runtime.Feed{feedFor(p)}); err != nil || seen != len(p.Parts[lower.Micro]) {
		t.Errorf("%v; %d reports after the profile ended", err, seen)
	}
}
