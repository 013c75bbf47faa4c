package ir

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Unit is the product of the loss scales that a value carries, in canonical form: "" is one,
// "amp.scale" that scale, "amp.scale^-1 b.scale^2" and so on. A variable with the attribute
// role=scale has itself as its unit.
type Unit string

// RoleScale is the role attribute of a loss scale variable.
const RoleScale = "scale"

// RoleRank is the role attribute of an i32[] input that holds this rank's number.
const RoleRank = "rank"

// RoleSlice is the role attribute of an i32[] input with the number of this micro-batch among those
// of all ranks. Its attribute each is the number of micro-batches of a rank.
const RoleSlice = "slice"

// InnerSweep is the sweep attribute of a state that does not scale a loss but the start of a
// gradient inside the forward pass.
const InnerSweep = "inner"

// InnerScale reports whether v is the scale of a gradient inside the forward
// pass: a constant, or a state with the attribute sweep.
func InnerScale(v *Value) bool {
	return v.Attr.Get("role") == RoleScale && (v.Kind == Const || v.Attr.Get("sweep") == InnerSweep)
}

// AttrPart is the attribute of a state that holds one rank's part of a variable: the name of
// that variable. The attribute "whole" has its dimensions. The variable is flattened and filled
// up until the ranks divide it; rank r has range r.
const AttrPart = "part"

// PartOf is the name of the variable that v is one rank's part of, "" where it is none.
func (v *Value) PartOf() string { s, _ := v.Attr.Get(AttrPart).(string); return s }

// RoleCopy is the role attribute of a state that is another variable (attribute of), rounded to 16
// bits, and is written together with it. A runtime updates it if anything but such a step wrote the
// variable.
const RoleCopy = "copy"

func (u Unit) parse() map[string]int {
	m := map[string]int{}
	for _, f := range strings.Fields(string(u)) {
		name, exp, ok := strings.Cut(f, "^")
		e := 1
		if ok {
			e, _ = strconv.Atoi(exp)
		}
		m[name] += e
	}
	return m
}

// times returns u·v^exp.
func (u Unit) times(v Unit, exp int) Unit {
	switch {
	case v == "" || exp == 0:
		return u
	case u == "" && exp == 1:
		return v
	case u == v && exp == -1:
		return ""
	case exp == 1 && u.inverts(v), exp == 1 && v.inverts(u):
		return ""
	case u == "" && exp == -1 && !strings.ContainsAny(string(v), " ^"):
		return v + "^-1"
	}
	m := u.parse()
	for name, e := range v.parse() {
		m[name] += e * exp
	}
	names := make([]string, 0, len(m))
	for name, e := range m {
		if e != 0 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for i, name := range names {
		if m[name] != 1 {
			names[i] = name + "^" + strconv.Itoa(m[name])
		}
	}
	return Unit(strings.Join(names, " "))
}

// inverts reports whether u is one over the single scale v.
func (u Unit) inverts(v Unit) bool {
	return len(u) == len(v)+3 && strings.HasPrefix(string(u), string(v)) && u[len(v):] == "^-1" && !strings.ContainsAny(string(v), " ^")
}

// Has reports whether u contains the scale called name, to any power.
func (u Unit) Has(name string) bool { return u.Exponent(name) != 0 }

// Exponent is the power of the scale called name in u.
func (u Unit) Exponent(name string) int {
	switch {
	case u == "":
		return 0
	case string(u) == name:
		return 1
	}
	return u.parse()[name]
}

func (u Unit) String() string {
	if u == "" {
		return "1"
	}
	return string(u)
}

// UnitRule gives the unit of a node's results from its operands' units, or one
// sentence that says which operands do not fit.
type UnitRule func(n *Node) (Unit, error)

// UnitOne is the rule of rows for which only unscaled values make sense.
func UnitOne(n *Node) (Unit, error) {
	for _, v := range n.In {
		if v != nil && v.Unit != "" {
			return "", fmt.Errorf("%s reads %s, which carries the loss scale %s; unscale it first", n.Name(), at(v), v.Unit)
		}
	}
	return "", nil
}

// UnitSame is the rule of rows that are linear in all operands together: sums, casts, shapes. It
// ignores operands that are not floats, absent ones, and constant zeros, which have every unit.
func UnitSame(n *Node) (Unit, error) {
	var first *Value
	for _, v := range n.In {
		switch {
		case v == nil || !v.Type.DType.Float() || v.zero():
		case first == nil:
			first = v
		case v.Unit != first.Unit:
			return "", fmt.Errorf("%s has scale unit %s and meets %s, which has scale unit %s", at(first), first.Unit, at(v), v.Unit)
		}
	}
	if first == nil {
		return "", nil
	}
	return first.Unit, nil
}

// zero reports whether v is a constant tensor of zeros, cast or not.
func (v *Value) zero() bool {
	for v.Def != nil && v.Def.Op == OpCast {
		v = v.Def.In[0]
	}
	x, ok := v.Filled()
	return ok && x == 0
}

// Filled is the number that a node gives to all elements of v. ok is false for other values.
func (v *Value) Filled() (x float64, ok bool) {
	if v.Def == nil || v.Def.Op != OpFull {
		return 0, false
	}
	return v.Def.Float("value"), true
}

// OneConstant reports whether v is one number that is known at compile time. It takes the dtype of
// the other operands.
func (v *Value) OneConstant() bool {
	_, full := v.Filled()
	return v.Type.Shape.Elements() == 1 && (full || v.Kind == Const)
}

// UnitProduct is the rule of products, and of gradient rows, which are linear
// in the incoming gradient.
func UnitProduct(n *Node) (Unit, error) {
	var u Unit
	for _, v := range n.In {
		if v != nil {
			u = u.times(v.Unit, 1)
		}
	}
	return u, nil
}

// unitQuotient is the rule of a/b.
func unitQuotient(n *Node) (Unit, error) { return n.In[0].Unit.times(n.In[1].Unit, -1), nil }

// UnitAny is the rule of rows whose result does not depend on a scale: signs,
// finiteness, shapes read as numbers.
func UnitAny(*Node) (Unit, error) { return "", nil }

// InferUnits computes the unit of every value again, and returns an error about the first node
// whose operands do not fit.
func InferUnits(g *Graph) error { return InferUnitsFrom(g, 0) }

// InferUnitsFrom does that for variables and nodes of section s and those after it. The units of the
// values before are known.
func InferUnitsFrom(g *Graph, s Section) error {
	for _, v := range g.Vars {
		v.Unit = ""
		if v.Attr.Get("role") == RoleScale {
			v.Unit = Unit(v.Name)
		}
		if u, ok := v.Attr.Get("unit").(string); ok {
			v.Unit = Unit(u)
		}
	}
	for ; s < NumSections; s++ {
		for _, n := range g.Body[s] {
			if err := n.inferUnit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) inferUnit() error {
	rule := n.Def().Unit
	if rule == nil {
		rule = UnitOne
	}
	u, err := rule(n)
	if err != nil {
		return nodeError(n, err)
	}
	for _, v := range n.Out {
		v.Unit = u
		if !v.Type.DType.Float() {
			v.Unit = ""
		}
	}
	return nil
}
