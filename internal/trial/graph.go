package trial

import (
	"context"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/runtimetest"
)

// RunOn compiles a copy of an inference graph under a policy, with the proof, and
// runs it once. in has the inputs by name; the results are those of g.Return, in
// order.
func RunOn(b runtime.Backend, g *ir.Graph, in map[string]*eval.Tensor, policy passes.Policy) ([]*eval.Tensor, error) {
	g = g.Clone()
	c := passes.Config{Policy: policy, Compiling: passes.Compiling{Prove: true}}
	for _, y := range g.Return {
		c.Outputs = append(c.Outputs, passes.Output{Value: y})
	}
	if err := passes.Run(g, c); err != nil {
		return nil, err
	}
	p, err := lower.Lower(g, b.Target())
	if err != nil {
		return nil, err
	}
	s, err := b.NewStore(p.Vars)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := runtimetest.Initialize(s, p.Vars, 1); err != nil {
		return nil, err
	}
	x, err := b.Load(p, s)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	feed := runtime.Feed{}
	for _, v := range p.Vars {
		if v.Kind == ir.Input {
			feed[v.Name] = runtime.Tensor{Type: v.Type, Data: in[v.Name].Bytes()}
		}
	}
	future, err := x.Step(context.Background(), []runtime.Feed{feed})
	if err != nil {
		return nil, err
	}
	out := make([]*eval.Tensor, len(p.Outputs))
	for i, y := range p.Outputs {
		raw := make([]byte, y.Type.Bytes())
		if err := future.Read(i, raw); err != nil {
			return nil, err
		}
		if out[i], err = eval.FromBytes(y.Type, raw); err != nil {
			return nil, err
		}
	}
	return out, nil
}
