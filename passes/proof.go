package passes

import "ampc/passes/prove"

// ProofRules is what the policy allows, in the words of the independent
// checker. unchecked says that the step was compiled with NoSkip.
func (p Policy) ProofRules(unchecked bool) prove.Rules {
	return prove.Rules{
		Low: p.Low, CastAll: p.Cast, NoMasters: p.NoMasters, Eager: p.Eager, Outputs: p.Outputs, Unchecked: unchecked, Class: p.Class,
		// Painting puts whole regions in 16 bits, whatever their f32 operands.
		Narrow: p.Narrow || p.Algorithm == "paint",
	}
}
