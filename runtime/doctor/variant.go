package doctor

import (
	"encoding/binary"
	"math"

	"ampc/ir"
	"ampc/runtime"
)

// variant is the same step in another precision: node for node, with that dtype in
// place of every 16-bit one, tf32 off and every loss scale at 1.
type variant struct {
	dtype ir.DType // f32 or bf16
	g     *ir.Graph
	state map[string][]byte
	feeds []runtime.Feed
	to    map[*ir.Value]*ir.Value // where each value of the step went
}

func newVariant(d ir.DType, g *ir.Graph, state map[string][]byte, feeds []runtime.Feed) (*variant, error) {
	t := &variant{dtype: d, state: make(map[string][]byte, len(state))}
	t.g, t.to = g.CloneMap()
	low := map[string]ir.DType{}
	for _, v := range t.g.Vars {
		if v.Type.DType.Low() {
			low[v.Name] = v.Type.DType
		}
		t.declare(v, state)
	}
	for _, n := range t.g.Nodes {
		n.Attrs = restored(n.Attrs, d).Without("math")
		if err := n.Retype(); err != nil {
			return nil, err
		}
	}
	for _, f := range feeds {
		fed := make(runtime.Feed, len(f))
		for name, x := range f {
			if was, ok := low[name]; ok {
				x = runtime.Tensor{Type: x.Type.With(d), Data: converted(was, d, x.Data)}
			}
			fed[name] = x
		}
		t.feeds = append(t.feeds, fed)
	}
	return t, nil
}

// declare stores a variable anew. A 16-bit copy of another holds what that one does.
func (t *variant) declare(v *ir.Value, state map[string][]byte) {
	was := v.Type.DType
	if was.Low() {
		v.Type = v.Type.With(t.dtype)
	}
	t.state[v.Name] = converted(was, v.Type.DType, state[v.Name])
	switch of, _ := v.Attr.Get("of").(string); v.Attr.Get("role") {
	case ir.RoleCopy:
		t.state[v.Name], v.Attr = converted(ir.F32, t.dtype, state[of]), nil
	case ir.RoleScale:
		t.state[v.Name], v.Init = scalar(1), &ir.Init{Args: []float64{1}}
	}
}

// restored has d for every 16-bit dtype.
func restored(a ir.Attrs, d ir.DType) ir.Attrs {
	for _, x := range a {
		if low, ok := x.Value.(ir.DType); ok && low.Low() {
			a = a.With(x.Name, d)
		}
	}
	return a
}

func scalar(x float64) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
}
