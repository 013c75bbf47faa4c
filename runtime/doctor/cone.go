package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// stored reports whether the program has dense memory for v, which its steps
// fill: what a step keeps in registers, or shows by strides, has none.
func (r *replay) stored(v *ir.Value) bool {
	id := r.home(v)
	if id == lower.None {
		return v.IsVar()
	}
	b := &r.p.Buffers[id]
	if b.Arena != lower.WorkArena {
		return true
	}
	_, filled := r.sourceOf(id)
	return filled && b.Strides == nil
}

// strided reports whether v lies inside another value's memory, filled by a step.
func (r *replay) strided(v *ir.Value) bool {
	id := r.home(v)
	if id == lower.None || r.p.Buffers[id].Strides == nil {
		return false
	}
	_, filled := r.sourceOf(id)
	return filled
}

// visible reports whether v need not be computed to be looked at.
func (r *replay) visible(v *ir.Value) bool { return r.lean || r.stored(v) || r.strided(v) }

// runs hands out the memory of a strided value, as many elements at a time as
// lie one after the other.
func (r *replay) runs(v *ir.Value, with func(part []byte)) {
	b := &r.p.Buffers[r.home(v)]
	mem, width := r.watch.Buffer(r.home(v)), b.Type.DType.Size()
	shape := ir.Sizes(b.Type.Shape)
	dense, inner := int64(1), len(shape)
	for inner > 0 && b.Strides[inner-1] == dense {
		inner--
		dense *= shape[inner]
	}
	var walk func(axis int, at int64)
	walk = func(axis int, at int64) {
		if axis == inner {
			with(mem[at*width : (at+dense)*width])
			return
		}
		for i := range shape[axis] {
			walk(axis+1, at+i*b.Strides[axis])
		}
	}
	walk(0, 0)
}

// unstored computes v, and what else is not stored on the way from stored values
// to it, by itself. Joining steps changes no bit: this is what the step had in
// its registers.
func (r *replay) unstored(v *ir.Value) []byte {
	if data := r.inner[v]; data != nil {
		return data
	}
	if r.strided(v) {
		data := make([]byte, 0, v.Type.Bytes())
		r.runs(v, func(part []byte) { data = append(data, part...) })
		r.inner[v] = data
		return data
	}
	var nodes []*ir.Node
	seen := map[*ir.Node]bool{}
	var walk func(n *ir.Node)
	walk = func(n *ir.Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		for _, op := range n.In {
			if op != nil && op.Def != nil && !r.known(op) {
				walk(op.Def)
			}
		}
		nodes = append(nodes, n)
	}
	walk(v.Def)
	if err := r.compute(nodes); err != nil {
		r.failed = fmt.Errorf("%s: %w", v, err)
		return nil
	}
	return r.inner[v]
}

// known reports whether v need not be computed.
func (r *replay) known(v *ir.Value) bool {
	return r.inner[v] != nil || r.stored(v)
}

// compute runs nodes of the step by themselves, in their order, on what their
// operands hold, and keeps all results.
func (r *replay) compute(nodes []*ir.Node) error {
	a := newAlone(r.g.Name)
	for _, n := range nodes {
		if _, err := a.node(n, func(v *ir.Value) (ir.Type, []byte, error) {
			data := r.data(v)
			if int64(len(data)) != v.Type.Bytes() {
				return ir.Type{}, nil, fmt.Errorf("%s is not known", v)
			}
			return v.Type, data, nil
		}); err != nil {
			return err
		}
	}
	out, err := a.run(r.ctx, r.b.Inside(), r.loaded.spares)
	if err != nil {
		return err
	}
	for i, v := range a.of {
		r.inner[v] = out[i]
	}
	return nil
}

// alone is a graph of some nodes of a step, which is fed what they read.
type alone struct {
	g    *ir.Graph
	feed runtime.Feed
	to   map[*ir.Value]*ir.Value
	of   []*ir.Value // whose results the graph returns
}

func newAlone(name string) *alone {
	return &alone{g: &ir.Graph{Name: name}, feed: runtime.Feed{}, to: map[*ir.Value]*ir.Value{}}
}

// node adds a copy of n; fed says what an operand holds that no node before computes.
func (a *alone) node(n *ir.Node, fed func(*ir.Value) (ir.Type, []byte, error)) (*ir.Node, error) {
	k := *n
	k.Of, k.Why, k.Captured = nil, ir.Reason{}, nil
	k.In, k.Out = slices.Clone(n.In), make([]*ir.Value, len(n.Out))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if a.to[v] == nil {
			t, data, err := fed(v)
			if err != nil {
				return nil, err
			}
			in := &ir.Value{Name: fmt.Sprintf("in%d", len(a.g.Vars)), Type: t, Kind: ir.Input}
			a.g.Vars, a.to[v] = append(a.g.Vars, in), in
			a.feed[in.Name] = runtime.Tensor{Type: t, Data: data}
		}
		k.In[i] = a.to[v]
	}
	for i, v := range n.Out {
		k.Out[i] = &ir.Value{Name: fmt.Sprintf("out%d", len(a.of)), Type: v.Type, Def: &k, Idx: i}
		a.to[v] = k.Out[i]
		a.of, a.g.Return = append(a.of, v), append(a.g.Return, k.Out[i])
	}
	a.g.Body[ir.Forward] = append(a.g.Body[ir.Forward], &k)
	return &k, nil
}

// run returns what the graph's results hold.
func (a *alone) run(ctx context.Context, b *cpu.Backend, spares *cpu.Spares) ([][]byte, error) {
	p, err := lower.LowerNodes(a.g)
	if err != nil {
		return nil, err
	}
	store, err := b.ReplayStore(p, nil, spares)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	exec, err := b.Load(p, store)
	if err != nil {
		return nil, err
	}
	defer exec.Close()
	t := exec.(runtime.Tracer)
	out := make([][]byte, len(p.Outputs))
	t.Watch(runtime.Watch{Part: func(part lower.Part, _ int) bool {
		if part != lower.Micro {
			return true
		}
		for i, o := range p.Outputs {
			out[i] = slices.Clone(t.Buffer(o.Buffer))
		}
		return false
	}})
	if _, err := exec.Step(ctx, []runtime.Feed{a.feed}); err != nil && !errors.Is(err, runtime.ErrStopped) {
		return nil, err
	}
	return out, nil
}
