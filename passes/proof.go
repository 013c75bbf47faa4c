package passes

import (
	"ampc/ir"
	"ampc/passes/prove"
)

// judge runs the independent checker over what the pipeline made. It is for
// tests and -check; `ampc prove` runs it by itself.
func judge(g *ir.Graph, c *Context) error {
	if !c.Check || c.Policy.Manual {
		return nil
	}
	found := prove.Prove(g, c.Policy.ProofRules(c.NoSkip))
	c.Count("findings", len(found))
	return prove.Error(found)
}

// ProofRules is what the policy allows, in the words of the independent
// checker. unchecked says that the step was compiled with NoSkip.
func (p Policy) ProofRules(unchecked bool) prove.Rules {
	return prove.Rules{
		Low: p.Low, CastAll: p.Cast, NoMasters: p.NoMasters, Eager: p.Eager, Outputs: p.Outputs, Unchecked: unchecked, Class: p.Class,
		// Painting puts whole regions in 16 bits, whatever their f32 operands.
		Narrow: p.Narrow || p.Algorithm == "paint",
	}
}
