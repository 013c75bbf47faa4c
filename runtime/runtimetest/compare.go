// Package runtimetest is the conformance suite that any backend runs: every
// row of the op table against the evaluator, in every dtype, with odd shapes,
// special values, several micro-batches and skipped steps.
package runtimetest

import (
	"context"
	"fmt"
	"math"
	"testing"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime"
)

// Loaded is a graph lowered and loaded on a backend, with the evaluator's view
// of the same variables beside it.
type Loaded struct {
	Graph   *ir.Graph
	Program *lower.Program
	Store   runtime.Store
	Exec    runtime.Exec
	env     map[string]*eval.Tensor
}

// Load lowers g for b and initializes the variables
// with seed on both sides.
func Load(t testing.TB, b runtime.Backend, g *ir.Graph, seed int64) *Loaded {
	t.Helper()
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		t.Fatal(err)
	}
	vars, err := runtime.Variables(p)
	if err != nil {
		t.Fatal(err)
	}
	l := &Loaded{Graph: g, Program: p, env: map[string]*eval.Tensor{}}
	if l.Store, err = b.NewStore(vars); err != nil {
		t.Fatal(err)
	}
	if err := Initialize(l.Store, vars, seed); err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Vars {
		if v.Kind == ir.Input {
			continue
		}
		x, err := eval.InitVar(v, seed)
		if err != nil {
			t.Fatal(err)
		}
		l.env[v.Name] = x
	}
	if l.Exec, err = b.Load(p, l.Store); err != nil {
		if why, again := runtime.FallBack(b, err); again {
			t.Log(why)
			return Load(t, b, g, seed)
		}
		t.Fatalf("%v\n%s", err, p)
	}
	return l
}

// Step runs one step on the backend and returns its results by name.
func (l *Loaded) Step(t testing.TB, feeds ...map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	future, err := l.Exec.Step(context.Background(), Feeds(feeds...))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*eval.Tensor{}
	for i, o := range l.Program.Outputs {
		buf := make([]byte, o.Type.Bytes())
		if err := future.Read(i, buf); err != nil {
			t.Fatal(err)
		}
		got[o.Name] = tensor(t, o.Type, buf)
	}
	return got
}

// Feeds turns tensors into what Exec.Step takes.
func Feeds(feeds ...map[string]*eval.Tensor) []runtime.Feed {
	list := make([]runtime.Feed, len(feeds))
	for i, f := range feeds {
		list[i] = runtime.Feed{}
		for name, x := range f {
			list[i][name] = runtime.Tensor{Type: x.Type, Data: x.Bytes()}
		}
	}
	return list
}

func tensor(t testing.TB, typ ir.Type, b []byte) *eval.Tensor {
	t.Helper()
	x, err := eval.FromBytes(typ, b)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Want runs the same step in the evaluator: results by name, and the
// variables move on.
func (l *Loaded) Want(t testing.TB, feeds ...map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	r, err := eval.Step(l.Graph, l.env, feeds, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*eval.Tensor{}
	for _, v := range l.Graph.Return {
		want[v.String()] = r.Value(v)
	}
	for name, x := range r.Next {
		l.env[name] = x
	}
	return want
}

// Variables reads every param and state back from the store.
func (l *Loaded) Variables(t testing.TB) map[string]*eval.Tensor {
	t.Helper()
	got := map[string]*eval.Tensor{}
	for _, v := range l.Graph.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		buf := make([]byte, v.Type.Bytes())
		if err := l.Store.Read(v.Name, buf); err != nil {
			t.Fatal(err)
		}
		got["%"+v.Name] = tensor(t, v.Type, buf)
	}
	return got
}

// Assume gives the backend and the evaluator these variables.
func (l *Loaded) Assume(t testing.TB, vars map[string]*eval.Tensor) {
	t.Helper()
	for _, v := range l.Graph.Vars {
		if x := vars[v.String()]; x != nil {
			if err := l.Store.Write(v.Name, x.Bytes()); err != nil {
				t.Fatal(err)
			}
			l.env[v.Name] = x
		}
	}
}

// WantVariables is what the evaluator holds in their place.
func (l *Loaded) WantVariables() map[string]*eval.Tensor {
	want := map[string]*eval.Tensor{}
	for _, v := range l.Graph.Vars {
		if v.Kind == ir.Param || v.Kind == ir.State {
			want["%"+v.Name] = l.env[v.Name]
		}
	}
	return want
}

// Close gives the program and its variables back.
func (l *Loaded) Close(t testing.TB) {
	t.Helper()
	if err := l.Exec.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Store.Close(); err != nil {
		t.Error(err)
	}
}

// tolerance says by how much element i may differ; nil: not at all.
type tolerance func(i int, want float64) float64

// differ describes the first element in which got misses want, "" for none,
// and returns the largest share of the tolerance that was used.
func differ(got, want *eval.Tensor, tol tolerance) (string, float64) {
	if got == nil || want == nil {
		return "is missing", 0
	}
	if got.Type != want.Type {
		return fmt.Sprintf("is %s, want %s", got.Type, want.Type), 0
	}
	for i := range want.I {
		if got.I[i] != want.I[i] {
			return fmt.Sprintf("element %d is %d, want %d", i, got.I[i], want.I[i]), 0
		}
	}
	share := 0.0
	for i, w := range want.F {
		g := got.F[i]
		if g == w && math.Signbit(g) == math.Signbit(w) || g != g && w != w {
			continue
		}
		if tol == nil {
			return fmt.Sprintf("element %d is %g (%x), want %g (%x)", i, g, math.Float32bits(float32(g)), w, math.Float32bits(float32(w))), 0
		}
		if g == w {
			continue
		}
		allowed := tol(i, w)
		if d := math.Abs(g - w); !(d <= allowed) {
			return fmt.Sprintf("element %d is %g, want %g ± %g", i, g, w, allowed), 0
		} else if d > 0 {
			share = math.Max(share, d/allowed)
		}
	}
	return "", share
}

// Initialize writes what the variables hold before the first step. Random
// initializers draw from streams of the variables' names and the seed.
func Initialize(s runtime.Store, vars []lower.Var, seed int64) error {
	for i := range vars {
		v := &vars[i]
		if v.Kind != ir.Param && v.Kind != ir.State || v.PerCall() {
			continue
		}
		b, err := runtime.InitialBytes(v, seed)
		if err != nil {
			return err
		}
		if err := s.Write(v.Name, b); err != nil {
			return err
		}
	}
	return nil
}
