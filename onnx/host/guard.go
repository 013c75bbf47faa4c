package host

import (
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
)

// guards are the elements for which a region was made. They belong to integers, or to short lists
// of floats, that are computed from what the region reads.
type guards struct {
	direct []guard   // of values that the region reads
	graph  *ir.Graph // computes all others; nil: there are none
	inputs []feed    // of graph
	want   []*eval.Tensor
}

type guard struct {
	name string
	want *eval.Tensor
}

// newGuards makes the graph of a region that was compiled compute what its guards need.
func newGuards(p *onnx.Partial) *guards {
	if len(p.Guards) == 0 {
		return nil
	}
	g := &guards{}
	names := map[*ir.Value]string{}
	for _, in := range p.Inputs {
		names[in.Value] = in.Name
	}
	var computed []*ir.Value
	for _, x := range p.Guards {
		if name, ok := names[x.Value]; ok {
			g.direct = append(g.direct, guard{name, x.Want})
			continue
		}
		computed = append(computed, x.Value)
		g.want = append(g.want, x.Want)
	}
	if len(computed) == 0 {
		return g
	}
	p.Graph.Return = computed
	keep := map[*ir.Node]bool{}
	var mark func(v *ir.Value)
	mark = func(v *ir.Value) {
		if v == nil || v.Def == nil || keep[v.Def] {
			return
		}
		keep[v.Def] = true
		for _, x := range v.Def.In {
			mark(x)
		}
	}
	for _, v := range computed {
		mark(v)
	}
	p.Graph.Filter(func(_ ir.Section, n *ir.Node) bool { return keep[n] })
	p.Graph.DropUnused()
	g.graph = p.Graph
	for _, in := range p.Inputs {
		if p.Graph.Var(in.Value.Name) != nil {
			g.inputs = append(g.inputs, feed{in.Value.Name, in.Name})
		}
	}
	return g
}

// hold reports whether the values of a frame have the elements.
func (g *guards) hold(s *Session, f *frame) (bool, error) {
	for _, x := range g.direct {
		v, err := f.value(s, x.name)
		if err != nil {
			return false, err
		}
		if !equal(v, x.want) {
			return false, nil
		}
	}
	if g.graph == nil {
		return true, nil
	}
	env := map[string]*eval.Tensor{}
	for _, in := range g.inputs {
		v, err := f.value(s, in.name)
		if err != nil {
			return false, err
		}
		if env[in.input], err = v.Elements(); err != nil {
			return false, err
		}
	}
	r, err := eval.Run(g.graph, env, eval.Options{})
	if err != nil {
		return false, err
	}
	for i, v := range g.graph.Return {
		if !equal(decoded(r.Value(v)), g.want[i]) {
			return false, nil
		}
	}
	return true, nil
}
