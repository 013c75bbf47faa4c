package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// fragment is a program of a few nodes of the step. Its inputs are the values that they read
// and do not compute.
type fragment struct {
	*compiled
	in  []*ir.Value // what it is fed, as in0, in1, ...
	out []*ir.Value // what its nodes compute, in the order of the program's outputs
}

// keptFragments is how many fragments of a step stay compiled.
const keptFragments = 64

// nodes makes the program that computes nodes of c's graph in their order; in f32 if
// wide.
func (c *compiled) nodes(nodes []*ir.Node, wide bool) (*fragment, error) {
	var name strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&name, "%s %t ", n.Name(), wide)
	}
	key := name.String()
	if a := c.fragments[key]; a != nil {
		return a, nil
	}
	a := &fragment{}
	g := &ir.Graph{Name: c.g.Name}
	to := map[*ir.Value]*ir.Value{}
	for _, n := range nodes {
		if err := a.add(g, to, n, wide); err != nil {
			return nil, err
		}
	}
	var err error
	if a.compiled, err = compile(g, lower.Replay{Nodes: true, Spread: true}, math.MaxInt64); err != nil {
		return nil, err
	}
	if len(c.fragments) >= keptFragments {
		clear(c.fragments)
	}
	c.fragments[key] = a
	return a, nil
}

// add adds a copy of n to g.
func (a *fragment) add(g *ir.Graph, to map[*ir.Value]*ir.Value, n *ir.Node, wide bool) error {
	k := *n
	k.Of, k.Why, k.Captured = nil, ir.Reason{}, nil
	k.In, k.Out = slices.Clone(n.In), make([]*ir.Value, len(n.Out))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if to[v] == nil {
			t := v.Type
			if wide && t.DType.Low() {
				t = t.With(ir.F32)
			}
			to[v] = &ir.Value{Name: fmt.Sprintf("in%d", len(a.in)), Type: t, Kind: ir.Input}
			a.in, g.Vars = append(a.in, v), append(g.Vars, to[v])
		}
		k.In[i] = to[v]
	}
	for i, v := range n.Out {
		to[v] = &ir.Value{Name: fmt.Sprintf("out%d", len(a.out)), Type: v.Type, Def: &k, Idx: i}
		k.Out[i] = to[v]
		a.out, g.Return = append(a.out, v), append(g.Return, to[v])
	}
	g.Body[ir.Forward] = append(g.Body[ir.Forward], &k)
	if !wide {
		return nil
	}
	k.Attrs = restored(k.Attrs, ir.F32)
	return k.Retype()
}

// run runs the program on r's values, each multiplied by its factor if it has one, and calls
// with for every result. The data are valid during that call only.
func (a *fragment) run(r *replay, factor map[*ir.Value]float64, with func(i int, data []byte)) error {
	feed := runtime.Feed{}
	for i, v := range a.in {
		data, t := r.data(v), a.g.Vars[i].Type
		if int64(len(data)) != v.Type.Bytes() {
			return fmt.Errorf("%s is not known", v)
		}
		if t != v.Type {
			data = r.widened(v.Type.DType, data)
		}
		if f := factor[v]; f != 0 && t.DType == ir.F32 {
			data = r.times(data, f)
		}
		feed[a.g.Vars[i].Name] = runtime.Tensor{Type: t, Data: data}
	}
	m, err := r.loaded.take(a.compiled, r.b.Inside(), func(map[string][]byte) map[string][]byte { return nil })
	if err != nil {
		return err
	}
	t := m.exec.(runtime.Traceable)
	t.Trace(runtime.Tracer{Part: func(part lower.Part, _ int) bool {
		if part != lower.Micro {
			return true
		}
		for i, o := range a.p.Outputs {
			shown := t.Buffer(o.Buffer)
			with(i, shown.Bytes())
			shown.Release()
		}
		return false
	}})
	if r.busy {
		_, err = m.exec.Step(r.ctx, []runtime.Feed{feed})
	} else {
		r.b.Hold(func() {
			r.busy = true
			_, err = m.exec.Step(r.ctx, []runtime.Feed{feed})
			r.busy = false
		})
	}
	if err != nil && !errors.Is(err, runtime.ErrStopped) {
		return err
	}
	r.loaded.used[a.compiled] = m
	return nil
}

// compute runs nodes of the step in the given order on their operands in r, and keeps all
// results.
func (r *replay) compute(nodes []*ir.Node) error {
	a, err := r.nodes(nodes, false)
	if err != nil {
		return err
	}
	return a.run(r, nil, func(i int, data []byte) { r.inner[a.out[i]] = slices.Clone(data) })
}

// computeNode runs node n of the step alone, in f32, on its operands in the replay, each multiplied
// by its factor if it has one. It returns the ranges of the results before they are stored.
func (x *analysis) computeNode(n *ir.Node, factor map[*ir.Value]float64) ([]Range, error) {
	a, err := x.actual.nodes([]*ir.Node{n}, true)
	if err != nil {
		return nil, err
	}
	out := make([]Range, len(a.out))
	err = a.run(x.actual, factor, func(i int, data []byte) {
		o := a.p.Outputs[i]
		out[i] = x.scan(o.Name, o.Type.DType, data)
	})
	return out, err
}

func (h *workers) times(data []byte, f float64) []byte {
	out := make([]byte, len(data))
	h.inChunks(data, func(i int, part []byte) {
		to := out[i*chunk:]
		for k := 0; k+3 < len(part); k += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(part[k:]))
			binary.LittleEndian.PutUint32(to[k:], math.Float32bits(x*float32(f)))
		}
	})
	return out
}
