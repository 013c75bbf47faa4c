package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/passes/prove"
)

// keepSource keeps a copy of g for the pass prove.
func (t *training) keepSource(g *ir.Graph, c Config) {
	if !c.proves() && c.Source == nil {
		return
	}
	g.Number()
	t.source = g.Clone()
	if c.Source != nil {
		c.Source(t.source)
	}
}

func (c Config) proves() bool { return c.Prove || c.Check }

// judge runs the independent checker on the result of the pipeline. What it finds in a node that
// the user wrote is an error of the user, all else an error of the compiler.
func judge(g *ir.Graph, c *Context) error {
	t := c.training.source
	if !c.proves() || t == nil {
		return nil
	}
	rules := c.Rules(t)
	rules.Verified = !c.NoVerify // each pass was verified
	found := prove.Prove(t, g, rules)
	c.Count("findings", len(found))
	if err := prove.Error(found); err == nil || !slices.ContainsFunc(found, func(f prove.Finding) bool { return !f.User }) {
		return err
	}
	return fmt.Errorf("the compiled step does not compute what the source says: this is a fault of the compiler, please report it with the model (NoProof compiles without this check):\n%w", prove.Error(found))
}

// Rules is what the checker needs to know about a step that was compiled with c. t is the graph
// before the pass layout.
func (c Config) Rules(t *ir.Graph) prove.Rules {
	rules := c.Policy.ProofRules(t, c.Caps, c.NoSkip)
	if c.Inherit != nil {
		rules.Inherited = c.Inherit.dtype
	}
	return rules
}

// ProofRules is what the policy allows, in the terms of the independent checker. t is the graph
// before the pass layout, where pins of rules and regions are found by name; nil if there is none.
// caps are the target's. unchecked says that the step was compiled with NoSkip.
func (p Policy) ProofRules(t *ir.Graph, caps ir.Caps, unchecked bool) prove.Rules {
	p = p.decided()
	r := prove.Rules{
		Low: p.Low, TF32: p.TF32, CastAll: p.Cast, NoMasters: p.NoMasters, Eager: p.Eager, Outputs: p.Outputs, Unchecked: unchecked, Class: p.classOf, Widens: p.widens, Caps: caps,
		Narrow: p.Narrow, NarrowAll: p.Narrow && p.Algorithm != "mincut", Paint: p.Algorithm == "paint", // paint stores whole regions in 16 bits, whatever their f32 operands
	}
	if t == nil {
		return r
	}
	t.Number()
	overrides := pinOverrides(t, p)
	r.Pins = make([]ir.Pin, len(overrides))
	for i, f := range overrides {
		r.Pins[i] = f.pin
	}
	var uses *ir.Uses
	if p.NormF32 {
		uses = t.Uses()
	}
	r.Kept = make([]bool, len(t.Vars))
	for i, v := range t.Vars {
		r.Kept[i] = p.keepsVar(v, uses)
	}
	return r
}
