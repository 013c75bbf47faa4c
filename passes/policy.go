package passes

import (
	"maps"
	"slices"

	"ampc/ir"
	"ampc/passes/systems"
)

// Policy is which precision each op gets. It is a value: methods return changed copies. The zero
// Policy is f32.
type Policy struct {
	Name string
	// Low is the 16-bit format; Invalid: everything stays f32.
	Low ir.DType
	// TF32 rounds the operands of f32 products to tf32, with a mantissa of 10 bits.
	TF32 bool
	// Direct computes convolutions by their definition, without Winograd's transforms, whose errors
	// depend on the largest values of a tile.
	Direct bool
	// Manual keeps the dtypes and casts of the source.
	Manual bool
	// Algorithm chooses the dtypes of free values: mincut, local or paint. Empty means mincut with
	// a SavedCost of 1, or local if no value is free (an eager policy, no Low).
	Algorithm string
	// SavedCost is what mincut counts for a byte that forward keeps for backward, relative to 1 for
	// a byte that moves.
	SavedCost float64
	// Guard keeps a free value f32 if its range (Config.Ranges) times Guard exceeds the largest
	// value of Low; 0: no guard.
	Guard float64
	// Eager stores values as an eager system does, which looks at operands only: a product stores
	// low and a kept op f32, whatever their readers need.
	Eager bool
	// Narrow lets promoting and kept ops store low even if an operand is f32.
	Narrow bool
	// Cast casts weights and inputs to low for every reader except the update, not only for products.
	Cast bool
	// NoMasters stores parameters and their gradients low.
	NoMasters bool
	// NormF32 keeps batch norm f32 where the classes say otherwise (keep_batchnorm_fp32).
	NormF32 bool
	// Outputs is the dtype of returned values; Invalid: their source types (cast_model_outputs).
	Outputs ir.DType
	// Class overrides the classes of ops, Cases those of some nodes of an op. A case comes before a
	// class.
	Class map[ir.Op]ir.Class
	Cases []Case
	// Widens lists operands that widen the result of their op although their own dtype is fixed.
	Widens []Widen
	// Rules override the precision by name; the last matching rule applies.
	Rules []Rule
	// Stores override how free values are stored, by name; the last matching rule applies.
	Stores []Rule
	// Scaler is the loss scaling of the policy.
	Scaler Scaler
	// Losses is how many losses get their own scaler (num_losses); 0 and 1: all share one.
	Losses int
}

// Rule overrides the precision of the nodes with matching names.
type Rule struct {
	Pattern string
	Pin     ir.Pin // PinF32, PinTF32 or PinLow
	Pos     string // file and line of the rule; "": unknown
}

// Case gives some nodes of an op a class that differs from the op's: "resize.nearest",
// "pow.scalar", "matmul.bmm".
type Case = systems.Case

// Widen says that an op's result is at least as wide as one of its operands.
type Widen = systems.Widen

// Mixed reports whether the policy stores anything in 16 bits.
func (p Policy) Mixed() bool { return p.Low != ir.Invalid }

// decided is the policy with its algorithm filled in.
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

// Keep returns the policy with all nodes that match pattern in f32. The pattern is a scope
// ("h0.attn": it and everything inside) or the name of a value. A * matches any characters.
func (p Policy) Keep(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: ir.PinF32}) }

// Lower returns the policy with all nodes that match pattern in 16 bits.
func (p Policy) Lower(pattern string) Policy { return p.with(Rule{Pattern: pattern, Pin: ir.PinLow}) }

// keepTF32 is Keep with products in the tf32 math mode.
func (p Policy) keepTF32(pattern string) Policy {
	return p.with(Rule{Pattern: pattern, Pin: ir.PinTF32})
}

func (p Policy) with(r Rule) Policy {
	p.Rules = append(slices.Clip(p.Rules), r)
	return p
}

// setClass returns the policy with another class for op.
func (p Policy) setClass(op ir.Op, c ir.Class) Policy {
	p.Class = maps.Clone(p.Class)
	if p.Class == nil {
		p.Class = map[ir.Op]ir.Class{}
	}
	p.Class[op] = c
	return p
}

// classOf is the class of n under the policy, with overrides for its op and its case, without pins
// and rules by name.
func (p Policy) classOf(n *ir.Node) ir.Class {
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

// scalers gives each of the first p.Losses losses without a scaler its own copy of s.
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
