package passes

import (
	"maps"
	"slices"

	"ampc/ir"
	"ampc/passes/systems"
)

// Policy says which precision each op gets. It is a value: methods return
// changed copies and never touch the receiver. The zero Policy is f32.
type Policy struct {
	Name string
	// Low is the 16-bit format; Invalid: everything stays f32.
	Low ir.DType
	// TF32 rounds the operands of f32 products to a 10-bit mantissa.
	TF32 bool
	// Direct computes convolutions by their definition, never by Winograd's
	// transforms, whose errors are bounded by a tile's largest values.
	Direct bool
	// Manual leaves dtypes and casts as the source has them.
	Manual bool
	// Algorithm chooses the dtypes of free values: mincut, local or paint; empty: mincut
	// with a SavedCost of 1, or local where nothing is free (an eager policy, no Low).
	Algorithm string
	// SavedCost is what mincut counts for a byte that is saved from forward for backward,
	// where a byte that is moved counts 1.
	SavedCost float64
	// Guard keeps a free value f32 where its range (Config.Ranges) times Guard
	// passes the largest value of Low; 0: no guard.
	Guard float64
	// Eager stores what an eager system would, looking at operands only: a
	// product stores low, a kept op stores f32, whoever reads them.
	Eager bool
	// Narrow lets promoting and kept ops store low although an operand is f32.
	Narrow bool
	// Cast casts weights and inputs to low for every reader, not only for products.
	Cast bool
	// NoMasters stores parameters and their gradients low.
	NoMasters bool
	// NormF32 keeps batch norm f32 where the classes say otherwise (keep_batchnorm_fp32).
	NormF32 bool
	// Outputs casts returned values to this dtype; Invalid: returns keep their
	// source types (cast_model_outputs).
	Outputs ir.DType
	// Class overrides the classes of ops, Cases those of some nodes of an op; a case is the stronger.
	Class map[ir.Op]ir.Class
	Cases []Case
	// Widens names operands that widen their op's result although their own dtype is fixed.
	Widens []Widen
	// Rules force precision by name; the last that matches wins.
	Rules []Rule
	// Stores decide how free values are stored, by name; the last that matches wins.
	Stores []Rule
	// Scaler is the loss scaling that goes with the policy.
	Scaler Scaler
	// Losses is how many losses get a scaler of their own (num_losses); 0 and 1: all share one.
	Losses int
}

// Rule forces the precision of the nodes whose names match.
type Rule struct {
	Pattern string
	Pin     ir.Pin // PinF32, PinTF32 or PinLow
	Pos     string // file and line that state the rule; "": unknown
}

// Case gives nodes of an op that have something in common another class than
// the op has: "resize.nearest", "pow.scalar", "matmul.bmm".
type Case = systems.Case

// Widen says that an op's result is at least as wide as one of its operands.
type Widen = systems.Widen

// Mixed reports whether the policy stores anything in 16 bits.
func (p Policy) Mixed() bool { return p.Low != ir.Invalid }

// decided is the policy with an algorithm.
func (p Policy) decided() Policy {
	switch {
	case p.Algorithm != "":
	case p.Eager || !p.Mixed():
		p.Algorithm = "local"
	default:
		p.Algorithm = "mincut"
		if p.SavedCost == 0 {
			p.SavedCost = 1
		}
	}
	return p
}

// Keep returns the policy with everything that matches pattern in f32. The
// pattern is a scope ("h0.attn": it and everything inside) or a value's name;
// * matches within one name part.
func (p Policy) Keep(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: ir.PinF32}) }

// Lower returns the policy with everything that matches pattern in 16 bits.
func (p Policy) Lower(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: ir.PinLow}) }

// keepTF32 is Keep with products in the tf32 math mode.
func (p Policy) keepTF32(pattern string) Policy {
	return p.with(Rule{Pattern: pattern, Pin: ir.PinTF32})
}

func (p Policy) with(r Rule) Policy {
	p.Rules = append(slices.Clip(p.Rules), r)
	return p
}

// SetClass returns the policy with another class for op.
func (p Policy) SetClass(op ir.Op, c ir.Class) Policy {
	p.Class = maps.Clone(p.Class)
	if p.Class == nil {
		p.Class = map[ir.Op]ir.Class{}
	}
	p.Class[op] = c
	return p
}

// ClassOf is the class of n under the policy, overrides of its op and of its
// case included; its own pins and the rules by name are not looked at.
func (p Policy) ClassOf(n *ir.Node) ir.Class {
	for _, c := range p.Cases {
		if c.Holds(n) {
			return c.Class
		}
	}
	if c, ok := p.Class[n.Op]; ok {
		return c
	}
	return n.Def().Class
}

// widens reports whether operand i widens the result of n.
func (p Policy) widens(n *ir.Node, i int) bool {
	return len(p.Widens) > 0 && slices.Contains(p.Widens, Widen{Op: n.Op, Operand: n.OperandDef(i).Name})
}

// scalers gives the first p.Losses losses that name none a scaler each, like s.
func (p Policy) scalers(losses []Loss, s Scaler) []Loss {
	losses = slices.Clone(losses)
	for i := range losses {
		if i > 0 && i < p.Losses && losses[i].Scaler == nil {
			own := s
			losses[i].Scaler = &own
		}
	}
	return losses
}
