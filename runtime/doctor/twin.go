package doctor

import (
	"encoding/binary"
	"math"

	"ampc/ir"
	"ampc/runtime"
)

// twin is the same step in f32: node for node, with every 16-bit dtype widened,
// tf32 off and every loss scale at 1.
type twin struct {
	g     *ir.Graph
	state map[string][]byte
	feeds []runtime.Feed
	to    map[*ir.Value]*ir.Value // where each value of the step went
}

func newTwin(g *ir.Graph, state map[string][]byte, feeds []runtime.Feed) (*twin, error) {
	t := &twin{state: make(map[string][]byte, len(state))}
	t.g, t.to = g.CloneMap()
	low := map[string]ir.DType{}
	for _, v := range t.g.Vars {
		if v.Type.DType.Low() {
			low[v.Name] = v.Type.DType
		}
		t.declare(v, state)
	}
	for _, n := range t.g.Nodes {
		n.Attrs = wideAttrs(n.Attrs).Without("math")
		if err := n.Retype(); err != nil {
			return nil, err
		}
	}
	for _, f := range feeds {
		fed := make(runtime.Feed, len(f))
		for name, x := range f {
			if d, ok := low[name]; ok {
				x = runtime.Tensor{Type: x.Type.With(ir.F32), Data: widened(d, x.Data)}
			}
			fed[name] = x
		}
		t.feeds = append(t.feeds, fed)
	}
	return t, nil
}

// declare widens a variable. A 16-bit copy of another holds what that one does.
func (t *twin) declare(v *ir.Value, state map[string][]byte) {
	t.state[v.Name] = widened(v.Type.DType, state[v.Name])
	switch of, _ := v.Attr.Get("of").(string); v.Attr.Get("role") {
	case ir.RoleCopy:
		t.state[v.Name], v.Attr = state[of], nil
	case ir.RoleScale:
		t.state[v.Name], v.Init = scalar(1), &ir.Init{Args: []float64{1}}
	}
	if v.Type.DType.Low() {
		v.Type = v.Type.With(ir.F32)
	}
}

// wideAttrs has f32 for every 16-bit dtype.
func wideAttrs(a ir.Attrs) ir.Attrs {
	for _, x := range a {
		if d, ok := x.Value.(ir.DType); ok && d.Low() {
			a = a.With(x.Name, ir.F32)
		}
	}
	return a
}

func scalar(x float64) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
}
