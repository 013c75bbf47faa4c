package systems

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/ir"
)

// Case is a part of an op's nodes that has a class of its own: where another
// system has two ops, listed apart, and we have one.
type Case struct {
	Op    ir.Op
	When  string // what the nodes have in common; see Holds
	Class ir.Class
}

// whens says of each case which nodes it holds for.
var whens = map[string]func(n *ir.Node) bool{
	"nearest": func(n *ir.Node) bool { return n.Str("mode") == "nearest" },
	"scalar":  func(n *ir.Node) bool { return n.In[1].Type.Shape.Elements() == 1 },
	"bmm":     func(n *ir.Node) bool { return n.In[0].Type.Shape.Rank() == 3 && n.In[1].Type.Shape.Rank() == 3 },
}

// caseOps lists the ops that have a case.
var caseOps = map[string]ir.Op{"nearest": ir.OpResize, "scalar": ir.OpPow, "bmm": ir.OpMatmul}

// ParseCase reads "resize.nearest" (copies the nearest element), "pow.scalar"
// (the exponent is one number) or "matmul.bmm" (both operands have three
// dimensions). The class is left open.
func ParseCase(s string) (Case, error) {
	name, when, _ := strings.Cut(s, ".")
	op, ok := ir.OpNamed(name)
	if !ok {
		return Case{}, fmt.Errorf("unknown op %q", name)
	}
	if caseOps[when] != op || whens[when] == nil {
		return Case{}, fmt.Errorf("no case %q of %s; there are matmul.bmm, pow.scalar and resize.nearest", when, op)
	}
	return Case{Op: op, When: when}, nil
}

func (c Case) String() string { return c.Op.String() + "." + c.When }

// Holds reports whether n is of the case.
func (c Case) Holds(n *ir.Node) bool { return n.Op == c.Op && whens[c.When](n) }

// Widen says that an op's result is at least as wide as one operand, although
// that operand's own dtype is fixed (the scale of a norm) or decides nothing
// otherwise. An operand that a product made counts as what the product read.
type Widen struct {
	Op      ir.Op
	Operand string
}

// ParseWiden reads an op and the name of one of its operands.
func ParseWiden(name, operand string) (Widen, error) {
	op, ok := ir.OpNamed(name)
	if !ok {
		return Widen{}, fmt.Errorf("unknown op %q", name)
	}
	if !slices.ContainsFunc(op.Def().In, func(o ir.Operand) bool { return o.Name == operand }) {
		return Widen{}, fmt.Errorf("%s has no operand %q", op, operand)
	}
	return Widen{op, operand}, nil
}

// CaseClasses returns the cases that the system treats otherwise than it
// treats the op, by their names; classes are those of Classes.
func (s *System) CaseClasses(classes map[ir.Op]ir.Class) []Case {
	var out []Case
	for _, theirs := range slices.Sorted(maps.Keys(s.Cases)) {
		for _, c := range s.Cases[theirs] {
			c.Class = s.Of(theirs).Class()
			of, ok := classes[c.Op]
			if !ok {
				of = c.Op.Def().Class
			}
			if c.Class != of && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}
