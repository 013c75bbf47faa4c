package ir

import (
	"math"
	"slices"
	"strings"
)

// AttrKind says what an attribute holds and how it prints.
type AttrKind uint8

const (
	AttrInt    AttrKind = iota // int64:   axis=-1
	AttrFloat                  // float64: eps=1e-05
	AttrBool                   // bool:    ta
	AttrString                 // string:  mode="nearest", bare when an identifier
	AttrDType                  // DType:   to=f16
	AttrInts                   // []int64: axes=[0,1]
	AttrFloats                 // []float64
	AttrGraph                  // *Graph:  body of a foreign If, Loop or Scan
	AttrAny                    // foreign attributes: any of the above
)

// AttrDef is an attribute that a row has. Default is the value of an absent attribute (nil: the
// zero value of the kind). Required attributes have no default. A value outside of Takes is refused
// before the row infers types.
type AttrDef struct {
	Name     string
	Kind     AttrKind
	Default  any
	Required bool
	Takes    Domain // of a number
	Entry    Entry  // of a number
	Doc      string
}

// Attr is one attribute of a node: int64, float64, bool, string, DType,
// []int64, []float64 or *Graph.
type Attr struct {
	Name  string
	Value any
}

// Attrs is sorted by name and never modified in place: nodes may share it.
type Attrs []Attr

// A builds Attrs from name, value pairs; ints and plain []int are widened.
func A(kv ...any) Attrs {
	a := make(Attrs, 0, len(kv)/2)
	for i := 0; i+1 < len(kv); i += 2 {
		x := Attr{kv[i].(string), normAttr(kv[i+1])}
		if at, found := a.find(x.Name); found {
			a[at] = x
		} else {
			a = slices.Insert(a, at, x)
		}
	}
	return a
}

// find returns the index of name, or where it belongs.
func (a Attrs) find(name string) (i int, found bool) {
	return slices.BinarySearchFunc(a, name, func(x Attr, n string) int { return strings.Compare(x.Name, n) })
}

func normAttr(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case float32:
		return float64(v)
	case []int:
		w := make([]int64, len(v))
		for i, x := range v {
			w[i] = int64(x)
		}
		return w
	}
	return v
}

// Get returns the value of name, nil when absent.
func (a Attrs) Get(name string) any {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value
		}
	}
	return nil
}

// With returns a copy that has name set to v.
func (a Attrs) With(name string, v any) Attrs {
	i, found := a.find(name)
	out := make(Attrs, 0, len(a)+1)
	out = append(out, a[:i]...)
	out = append(out, Attr{name, normAttr(v)})
	if found {
		i++
	}
	return append(out, a[i:]...)
}

// Without returns a copy that lacks name.
func (a Attrs) Without(name string) Attrs {
	if a.Get(name) == nil {
		return a
	}
	return slices.DeleteFunc(slices.Clone(a), func(x Attr) bool { return x.Name == name })
}

func attrEqual(x, y any) bool {
	switch x := x.(type) {
	case []int64:
		y, ok := y.([]int64)
		return ok && slices.Equal(x, y)
	case []float64:
		y, ok := y.([]float64)
		return ok && slices.EqualFunc(x, y, sameNumber)
	case *Graph:
		y, ok := y.(*Graph)
		return ok && equalNested(x, y)
	case float64:
		y, ok := y.(float64)
		return ok && sameNumber(x, y)
	}
	return x == y
}

// sameNumber reports whether x and y are the same number, 0 and -0 being two, or both NaN.
func sameNumber(x, y float64) bool {
	return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
}

// Equal reports whether both lists have the same attributes.
func (a Attrs) Equal(b Attrs) bool {
	return slices.EqualFunc(a, b, func(x, y Attr) bool { return x.Name == y.Name && attrEqual(x.Value, y.Value) })
}

// attrDef finds the row's attribute, or one that every row has.
func (d *Def) attrDef(name string) *AttrDef {
	for i := range d.Attrs {
		if d.Attrs[i].Name == name {
			return &d.Attrs[i]
		}
	}
	for i := range commonAttrs {
		if commonAttrs[i].Name == name {
			return &commonAttrs[i]
		}
	}
	return nil
}

// commonAttrs are attributes that every node may have.
var commonAttrs = []AttrDef{
	{Name: "out", Kind: AttrDType, Doc: "stored dtype of the first result where the row leaves a choice"},
	{Name: "acc", Kind: AttrDType, Doc: "accumulation dtype where the row leaves a choice"},
	{Name: "loss", Kind: AttrString, Doc: "the sweep a backward node belongs to"},
	{Name: "math", Kind: AttrString, Doc: "tf32: operands of an f32 product may be rounded to a 10-bit mantissa, as the evaluator does; direct: a convolution is computed by its definition, without Winograd's transforms"},
}

func (n *Node) attr(name string) any {
	if v := n.Attrs.Get(name); v != nil {
		return v
	}
	if d := n.Def().attrDef(name); d != nil && d.Default != nil {
		return normAttr(d.Default)
	}
	return nil
}

// Int returns an integer attribute or its default.
func (n *Node) Int(name string) int64 { v, _ := n.attr(name).(int64); return v }

// Float returns a float attribute or its default; an integer literal counts.
func (n *Node) Float(name string) float64 {
	switch v := n.attr(name).(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	}
	return 0
}

// Flag returns a boolean attribute or its default.
func (n *Node) Flag(name string) bool { v, _ := n.attr(name).(bool); return v }

// Str returns a string attribute or its default.
func (n *Node) Str(name string) string { v, _ := n.attr(name).(string); return v }

// Ints returns a list attribute or its default; callers do not modify it.
func (n *Node) Ints(name string) []int64 { v, _ := n.attr(name).([]int64); return v }

// Floats returns a list of floats, widening a list of integers.
func (n *Node) Floats(name string) []float64 {
	switch v := n.attr(name).(type) {
	case []float64:
		return v
	case []int64:
		w := make([]float64, len(v))
		for i, x := range v {
			w[i] = float64(x)
		}
		return w
	}
	return nil
}

// DT returns a dtype attribute or its default, Invalid when neither is there.
func (n *Node) DT(name string) DType { v, _ := n.attr(name).(DType); return v }

// Has reports whether the attribute is set on the node itself.
func (n *Node) Has(name string) bool { return n.Attrs.Get(name) != nil }

var attrKindNames = [...]string{
	AttrInt: "an integer", AttrFloat: "a number", AttrBool: "a flag", AttrString: "a word", AttrDType: "a dtype",
	AttrInts: "a list of integers", AttrFloats: "a list of numbers", AttrGraph: "a graph", AttrAny: "a value",
}

func (k AttrKind) accepts(v any) bool {
	switch v.(type) {
	case int64:
		return k == AttrInt || k == AttrFloat || k == AttrAny
	case float64:
		return k == AttrFloat || k == AttrAny
	case bool:
		return k == AttrBool || k == AttrAny
	case string:
		return k == AttrString || k == AttrAny
	case DType:
		return k == AttrDType || k == AttrAny
	case []int64:
		return k == AttrInts || k == AttrFloats || k == AttrAny
	case []float64:
		return k == AttrFloats || k == AttrAny
	case *Graph:
		return k == AttrGraph || k == AttrAny
	}
	return false
}
