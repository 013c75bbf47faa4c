package bridge

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"ampc/ir"
)

// Imported is a Gorgonia graph as ampc's IR.
type Imported struct {
	Graph *ir.Graph
	// Values has what stands for every node that was read. Nodes that a
	// composite swallowed (the parts of a convolution, say) are not there
	// unless something else uses them.
	Values map[*G.Node]*ir.Value
	// Inputs are Gorgonia's inputs in order: those with a gradient are
	// parameters of the graph, the others its inputs.
	Inputs []*G.Node

	norms []runningNorm
}

// runningNorm is a batch norm with its running statistics.
type runningNorm struct {
	op             *G.BatchNormOp
	mean, variance *ir.Value
}

// Import reads what the roots depend on; without roots, the costs that Grad was
// called on and every other result of the forward graph. Gradients that Grad
// added are left out: ampc derives its own. float64 becomes f32, the only
// precision that ampc computes above f16. The graph returns the roots.
//
// An op without a rule is an error that names the op's Go type and the node.
func Import(g *G.ExprGraph, roots ...*G.Node) (*Imported, error) {
	w, err := read(g)
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		r := w.survey(nil)
		roots = slices.Concat(r.costs, r.sinks)
	}
	return load(w, roots, nil, true)
}

// load imports the roots; params are parameters besides the inputs with a
// gradient. Only a training graph keeps running statistics.
func load(w *walk, roots, params []*G.Node, training bool) (*Imported, error) {
	if len(roots) == 0 {
		return nil, fmt.Errorf("gorgonia graph: it computes nothing: name a root")
	}
	for _, r := range roots {
		if r == nil || !slices.Contains(w.all, r) {
			return nil, fmt.Errorf("gorgonia graph: a root is not one of its nodes")
		}
	}
	i := newImporter(w, roots, params, training)
	for _, n := range w.all { // declarations in the order of the graph
		if i.busy[n] && n.Op() == nil {
			i.value(n)
		}
	}
	for _, r := range roots {
		i.b.Return(i.value(r))
	}
	return i.out, i.err
}

// importer builds the IR, operands before users, starting from the roots.
type importer struct {
	*walk
	b        *ir.Builder
	rules    map[string]rule
	params   []*G.Node
	training bool
	busy     map[*G.Node]bool // what the roots depend on
	users    map[*G.Node]int  // how often what the roots depend on uses a node
	out      *Imported
	err      error
}

func newImporter(w *walk, roots, params []*G.Node, training bool) *importer {
	rules := ruleTable()
	maps.Copy(rules, gradRules())
	i := &importer{
		walk: w, training: training, rules: rules, b: ir.NewBuilder("gorgonia"), params: params, users: map[*G.Node]int{}, busy: w.under(roots...),
		out: &Imported{Values: map[*G.Node]*ir.Value{}},
	}
	for n := range i.busy {
		for _, x := range w.in[n] {
			if opType(n) != "sizeOp" { // reads no element
				i.users[x]++
			}
		}
	}
	i.out.Graph = i.b.Graph()
	return i
}

func (i *importer) fail(n *G.Node, format string, args ...any) {
	if i.err == nil {
		i.err = fmt.Errorf("%s: %s", describe(n), fmt.Sprintf(format, args...))
	}
}

// value is what stands for a node; nil after a mistake.
func (i *importer) value(n *G.Node) *ir.Value {
	if v, ok := i.out.Values[n]; ok || i.err != nil {
		return v
	}
	v := i.fit(n, i.build(n))
	if i.b.Err() != nil {
		i.fail(n, "%v", i.b.Err())
	}
	if i.err != nil {
		return nil
	}
	i.out.Values[n] = v
	return v
}

func (i *importer) build(n *G.Node) *ir.Value {
	if n.Op() == nil {
		return i.input(n)
	}
	c := &call{importer: i, n: n, in: i.in[n], op: structOf(n.Op())}
	if v := c.composite(); v != nil || i.err != nil {
		return v
	}
	name := opType(n)
	if rule := i.rules[name]; rule != nil {
		return rule(c)
	}
	why := refused[name]
	if why == "" {
		why = noRule
	}
	i.fail(n, "%s", why)
	return nil
}

// fit gives v the node's shape where it has as many elements: Gorgonia drops
// and keeps axes of size 1 by rules of its own.
func (i *importer) fit(n *G.Node, v *ir.Value) *ir.Value {
	if v == nil || i.err != nil || i.b.Err() != nil {
		return v
	}
	want, err := shapeOf(n.Shape())
	switch {
	case err != nil:
		i.fail(n, "%v", err)
	case v.Type.Shape == want:
		return v
	case v.Type.Shape.Elements() == want.Elements():
		return i.b.Reshape(v, longs(n.Shape())...)
	default:
		i.fail(n, "imported with type %s", v.Type)
	}
	return nil
}

// input declares a parameter or an input.
func (i *importer) input(n *G.Node) *ir.Value {
	shape, err := shapeOf(n.Shape())
	if err != nil {
		i.fail(n, "%v", err)
		return nil
	}
	kind := ir.Input
	if n.Deriv() != nil || slices.Contains(i.params, n) {
		kind = ir.Param
	}
	i.out.Inputs = append(i.out.Inputs, n)
	return i.b.Declare(kind, i.free(n.Name()), ir.Type{DType: i.dtype(n), Shape: shape}, nil, nil)
}

// free turns a name into one that patterns can match and nothing has.
func (i *importer) free(name string) string {
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n'%\"", r) {
			return '_'
		}
		return r
	}, name)
	if name == "" {
		name = "input"
	}
	for k, base := 2, name; i.b.Lookup(name) != nil; k++ {
		name = fmt.Sprintf("%s_%d", base, k)
	}
	return name
}

// dtype is the type that a node's elements have here.
func (i *importer) dtype(n *G.Node) ir.DType {
	t, ok := elemOf(n)
	if !ok {
		i.fail(n, "its type %v has no elements", n.Type())
		return ir.F32
	}
	d, err := dtypeOf(t)
	if err != nil {
		i.fail(n, "%v", err)
	}
	if d == ir.F64 {
		return ir.F32
	}
	return d
}

// call is one node under a rule.
type call struct {
	*importer
	n  *G.Node
	in []*G.Node
	op reflect.Value // the op's struct
}

// x is operand k.
func (c *call) x(k int) *ir.Value {
	if k >= len(c.in) {
		c.fail(c.n, "it has %d operands", len(c.in))
		return nil
	}
	return c.value(c.in[k])
}

// slim is operand k without the repetition of axes of size 1 that Gorgonia
// spells out: elementwise rows broadcast by themselves.
func (c *call) slim(k int) *ir.Value {
	n := c.in[k]
	for i := 0; opType(n) == "repeatOp" && repeatsOne(n, c.walk.in[n][0]); i++ {
		n = c.walk.in[n][0]
	}
	return c.value(n)
}

// repeatsOne says whether n repeats axes of size 1 of x and changes nothing else.
func repeatsOne(n, x *G.Node) bool {
	to, from := n.Shape(), x.Shape()
	if len(to) != len(from) {
		return false
	}
	for i := range to {
		if to[i] != from[i] && from[i] != 1 {
			return false
		}
	}
	return true
}

// field reads a field of the op, through embedded structs and pointers.
func (c *call) field(name string) reflect.Value {
	f := c.op.FieldByName(name)
	if !f.IsValid() {
		c.fail(c.n, "it has no field %s: this reads Gorgonia v0.9.18", name)
	}
	return f
}

// number reads a field of any numeric kind, or one that holds a pointer to such.
func (c *call) number(name string) float64 { return numberOf(c.field(name)) }

func numberOf(f reflect.Value) float64 {
	switch {
	case !f.IsValid():
		return 0
	case f.Kind() == reflect.Interface || f.Kind() == reflect.Pointer:
		return numberOf(f.Elem())
	case f.CanInt():
		return float64(f.Int())
	case f.CanUint():
		return float64(f.Uint())
	case f.CanFloat():
		return f.Float()
	}
	return 0
}

func (c *call) int(name string) int64 { return int64(c.number(name)) }

func (c *call) flag(name string) bool {
	f := c.field(name)
	return f.IsValid() && f.Bool()
}

func (c *call) ints(name string) []int64 {
	f := c.field(name)
	if !f.IsValid() {
		return nil
	}
	out := make([]int64, f.Len())
	for i := range out {
		out[i] = f.Index(i).Int()
	}
	return out
}

// pair reads two fields, height and width.
func (c *call) pair(h, w string) []int64 { return []int64{c.int(h), c.int(w)} }

// scalar is one number of the node's element type.
func (c *call) scalar(x float64) *ir.Value { return c.b.Scalar(c.dtype(c.n), x) }

func longs(s tensor.Shape) []int64 {
	out := make([]int64, len(s))
	for i, d := range s {
		out[i] = int64(d)
	}
	return out
}
