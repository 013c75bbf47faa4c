package host

import (
	"bytes"
	"maps"
	"slices"

	"ampc/ir"
	"ampc/onnx"
)

// foresight is what the inputs of the last runs say of those to come: a decoder is fed one token more in
// each run. Lengths that are compiled at one go take a fraction of the time that each takes alone: the
// compiler's code and tables, which every step evicts from the processor's caches, are read once, and
// while a program is compiled the next one is imported.
type foresight struct {
	types map[string]ir.Type // of the inputs of the last run
	grows map[string]growth  // by how much they had grown; nil: some input shrank, or none grew
	again bool               // as much as before
	far   int                // runs that were foreseen last; -1: what was foreseen did not serve
	left  int                // runs to come among them
	now   bool               // the current run is one of them
}

// growth is by how much the dimensions of an input grow from run to run.
type growth [ir.MaxRank]int64

// mostForeseen bounds how many runs are foreseen: programs of so many are for nothing where the sequence
// ends. They are always fewer than its runs so far.
const mostForeseen = 8

// note takes in what a run is fed.
func (x *foresight) note(in map[string]*Value) {
	types := make(map[string]ir.Type, len(in))
	for name, v := range in {
		if v.Kind == Tensor {
			types[name] = v.Type
		}
	}
	grows := grown(x.types, types)
	x.again = grows != nil && maps.Equal(grows, x.grows)
	x.types, x.grows, x.now = types, grows, x.again && x.left > 0
	switch {
	case !x.again:
		x.far, x.left = 0, 0
	case x.now:
		x.left--
	}
}

// grown is by how much types have grown; nil where other inputs are fed, one has shrunk or none has grown.
func grown(from, to map[string]ir.Type) map[string]growth {
	if len(from) != len(to) {
		return nil
	}
	any, out := false, make(map[string]growth, len(to))
	for name, t := range to {
		was, ok := from[name]
		if !ok || was.Shape.Rank() != t.Shape.Rank() {
			return nil
		}
		var g growth
		for i := range t.Shape.Rank() {
			if g[i] = int64(t.Shape.Dim(i) - was.Shape.Dim(i)); g[i] < 0 {
				return nil
			}
			any = any || g[i] > 0
		}
		out[name] = g
	}
	if !any {
		return nil
	}
	return out
}

// after is what the run that comes n runs after one that is fed in will be fed, as far as programs may
// depend on it; nil where that cannot be told.
func (x *foresight) after(in map[string]*Value, n int64) map[string]*Value {
	out := make(map[string]*Value, len(in))
	for name, v := range in {
		y := v.after(x.grows[name], n)
		if y == nil {
			return nil
		}
		out[name] = y
	}
	return out
}

// after is v when it has grown n times, nil where nothing is known of elements that programs may depend
// on. Those of a mask are: each row goes on as it ends. Where that proves wrong, the entries do not serve.
func (v *Value) after(g growth, n int64) *Value {
	if v.Kind != Tensor {
		return nil
	}
	if g == (growth{}) {
		return v
	}
	d := v.Type.Shape.Dims()
	last := len(d) - 1
	columns := int(d[last])
	for i := range d {
		d[i] += ir.Dim(n * g[i])
	}
	t := ir.Type{DType: v.Type.DType, Shape: ir.MakeShape(d...)}
	if !onnx.Knowable(t) {
		return &Value{Type: t, stable: v.stable, later: true}
	}
	more := int(n * g[last])
	if g[last] = 0; g != (growth{}) || columns == 0 {
		return nil
	}
	out := &Value{Type: t, stable: v.stable}
	each := int(t.DType.Size())
	for row := range slices.Chunk(v.Bytes(), columns*each) {
		out.data = append(append(out.data, row...), bytes.Repeat(row[len(row)-each:], more)...)
	}
	return out
}

// foresee makes the entries of the next runs by plan p where inputs grow by as much in each run: of twice
// as many as the last time.
func (r *run) foresee(p *plan, left *room) {
	x := &r.s.foresight
	if x.now { // and yet something was missing
		x.far = -1
	}
	if !x.again || x.far < 0 || x.left > 0 || p.scope != r.s.main || p.varies == nil {
		return
	}
	x.far = min(max(1, 2*x.far), mostForeseen)
	for n := range x.far {
		if !r.foreseen(p, x.after(r.in, int64(n+1)), left) {
			x.far = -1
			return
		}
		x.left++
	}
}

// foreseen makes the entries of a run that is fed in, and reports whether types were enough for all of
// them.
func (r *run) foreseen(p *plan, in map[string]*Value, left *room) bool {
	f := &frame{scope: p.scope, env: in}
	if in == nil || p.scope.plan(f) != p {
		return false
	}
	e, _, err := r.entry(p.first(), f)
	return err == nil && r.follow(e, f, left)
}
