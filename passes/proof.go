package passes

import (
	"ampc/ir"
	"ampc/passes/prove"
)

// keepSource keeps a copy of g for the pass prove.
func (t *training) keepSource(g *ir.Graph, c Config) {
	if !c.proves() && c.Source == nil {
		return
	}
	t.source = g.Clone()
	if c.Source != nil {
		c.Source(t.source)
	}
}

func (c Config) proves() bool { return c.Prove || c.Check }

// judge runs the independent checker over what the pipeline made.
func judge(g *ir.Graph, c *Context) error {
	if !c.proves() || c.Policy.Manual {
		return nil
	}
	found := prove.Prove(c.training.source, g, c.Policy.ProofRules(c.training.source, c.NoSkip))
	c.Count("findings", len(found))
	return prove.Error(found)
}

// ProofRules is what the policy allows, in the words of the independent
// checker. t is the graph before the pass layout, nil where there is none: pins
// of rules and regions are found there, by name. unchecked says that the step
// was compiled with NoSkip.
func (p Policy) ProofRules(t *ir.Graph, unchecked bool) prove.Rules {
	r := prove.Rules{
		Low: p.Low, CastAll: p.Cast, NoMasters: p.NoMasters, Eager: p.Eager, Outputs: p.Outputs, Unchecked: unchecked, Class: p.Class,
		// Painting puts whole regions in 16 bits, whatever their f32 operands.
		Narrow: p.Narrow || p.Algorithm == "paint",
	}
	if t == nil {
		return r
	}
	forced, err := forcedPins(t, p)
	if err != nil { // a pattern that matches nothing: amp has refused it
		return r
	}
	r.Pins = make([]ir.Pin, len(forced))
	for i, f := range forced {
		r.Pins[i] = f.pin
	}
	return r
}
