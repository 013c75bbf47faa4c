package ampc

import (
	"context"
	"fmt"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes"
	"ampc/passes/ranges"
)

// Calibrate evaluates the step that c and losses describe once per feed, in f32
// and without changing a variable, and returns the ranges that its values had:
// what CompileOptions.Ranges takes for a policy with a guard. Weights are the model's
// own where a step was compiled before, else their initial values. The end of ctx
// ends it between two nodes.
func (m *Model) Calibrate(ctx context.Context, c TrainConfig, feeds []Feed, losses ...Loss) (Ranges, error) {
	if err := m.Err(); err != nil {
		return Ranges{}, err
	}
	defer m.gate.hold()()
	if m.ended {
		return Ranges{}, fmt.Errorf("calibrate: %w", errModelClosed)
	}
	g, p, err := m.Source(c, losses...)
	if err != nil {
		return Ranges{}, err
	}
	p.Widen()
	if err := passes.Run(g, p); err != nil {
		return Ranges{}, err
	}
	g.DropUnused()
	rec := ranges.NewRecorder(g)
	for _, f := range feeds {
		env, err := m.environment(g, f, m.seed)
		if err != nil {
			return Ranges{}, err
		}
		if err := rec.Run(ctx, env); err != nil {
			return Ranges{}, err
		}
	}
	seen := Ranges{Recorded: map[string]Recorded{}}
	for name, r := range rec.Ranges() {
		seen.Recorded[name] = Recorded(r)
	}
	return seen, nil
}

// environment is what the evaluator needs to run g once.
func (m *Model) environment(g *ir.Graph, f Feed, seed int64) (map[string]*eval.Tensor, error) {
	env := map[string]*eval.Tensor{}
	for _, v := range g.Vars {
		var err error
		if env[v.Name], err = m.held(v, f, seed); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// held is what v holds: what is fed, what the model's variable has, or what it
// starts with.
func (m *Model) held(v *ir.Value, f Feed, seed int64) (*eval.Tensor, error) {
	if v.Kind == ir.Input && v.Attr.Get("role") == nil {
		x, ok := f[v.Name]
		if !ok {
			return nil, fmt.Errorf("feed: input %q is missing", v.Name)
		}
		data, err := encode(x, v.Type)
		if err != nil {
			return nil, fmt.Errorf("feed %q %w", v.Name, err)
		}
		return eval.FromBytes(v.Type, data)
	}
	if h, err := m.now(v.Name); err == nil && h.Type.t == v.Type {
		return eval.FromBytes(v.Type, h.Bytes)
	}
	return eval.InitVar(v, seed)
}
