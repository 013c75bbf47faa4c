package onnx

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
)

// Options say what a model leaves open.
type Options struct {
	Dims   map[string]int64   // sizes of named dimensions
	Shapes map[string][]int64 // shapes of inputs, by name; they come before Dims
	// Values are elements of inputs, by name, for what must be known before the model
	// runs: sizes, axes, bounds. Imported.Bound says which of them the graph holds for.
	Values map[string]*eval.Tensor
	// Train keeps what only training needs: an initializer that this holds for is a
	// parameter, every other one is frozen. nil: all floating-point ones are.
	Train func(name string) bool
	// Foreign carries nodes of the main graph that are not understood as ops of the graph that
	// nothing computes (Imported.Foreign), where the model says the types of their results.
	Foreign bool
	// Carry has Foreign carry nodes, too, that are understood and have no static form, and nodes
	// with results that the graph cannot have, such as strings; outputs of that kind are left out.
	Carry bool
	// Host says why the host runs an operator that has no row, "" where it does not run it; nil: it
	// runs none.
	Host func(n *Node) string
	// Given is what a graph reads from around it, and its inputs, whose types come before
	// those that it says; nil for a name that nothing has. Types are static.
	Given func(name string) *Given
}

// maxConst is the size in bytes up to which each program of a session keeps its own copy of an
// integer table.
const maxConst = 1 << 12

// Limits of what is computed while importing: what is larger becomes a node.
const (
	maxKnownInts   = 1 << 16
	maxKnownFloats = 64
	maxFolded      = 1 << 16
)

// NodeError is why a node was not imported.
type NodeError struct {
	File  string
	Index int // of the node among those of its graph, from 0
	Node  string
	Op    string
	Err   error
}

func (e *NodeError) Error() string {
	name := e.Node
	if name != "" {
		name = " " + ir.Printable(name)
	}
	return fmt.Sprintf("%snode %d%s (%s): %v", e.File, e.Index, name, ir.Printable(e.Op), e.Err)
}

func (e *NodeError) Unwrap() error { return e.Err }

// Unsupported is what this package does not do, as opposed to a fault in a model.
type Unsupported struct {
	Reason string
	// Data says that elements of an operand would have to be known before the model runs.
	Data bool
}

func (u Unsupported) Error() string { return u.Reason }

// value is a value of the model while it is imported: an initializer that
// nothing has read as a tensor yet, one whose elements are known, or a value of
// the graph.
type value struct {
	name string
	typ  ir.Type
	v    *ir.Value    // in the graph; nil until a node reads it
	k    *eval.Tensor // the elements, where they are known
	init *Tensor
	kind string   // "" for a tensor, else what it is
	kept bool     // not trained, whatever the options say: running statistics
	from []string // inputs whose fed elements k comes from; it is a value of the graph then
}

// Imported is what became of a model.
type Imported struct {
	Graph *ir.Graph
	// Inputs and Outputs are the values of the graph in the order of the model's,
	// with their names there.
	Inputs, Outputs []Port
	// Types are those of all values of the main graph whose nodes were imported, by name.
	Types map[string]ir.Type
	// Values are those of the graph that values of the main graph became, by name; what
	// is known while importing has none until a node reads it.
	Values map[string]*ir.Value
	// Known are the elements of values that are known while importing, by name.
	Known map[string]*eval.Tensor
	// Foreign are the nodes of the model that are carried, and not understood.
	Foreign []int
	// Single are the nodes of the main graph that compute elements of f64 in f32.
	Single []int
	// Bound are inputs of the model whose elements (Options.Values) were read: the
	// graph is right for no others.
	Bound []string
	model *Model
}

// Port is an input or an output.
type Port struct {
	Name  string
	Value *ir.Value
}

// importer builds the graph.
type importer struct {
	m      *Model
	b      *ir.Builder
	o      Options
	rows   map[rowKey]*row
	at     int // the node
	made   int // constants
	inline int // how deep functions and branches stand in each other
	out    Imported
	guards []guarded
	shared map[*Tensor]*ir.Value // variables of constants, which several calls of a function read
	folds  Folds                 // of imports before, of a session; nil: none are kept
	part   bool                  // of a session, whose programs share large tables of integers as well
}

// guarded is a value that comes of inputs and whose elements were read.
type guarded struct {
	v *value
	k *eval.Tensor
}

// scope is where names mean something: the main graph, a function or a branch.
type scope struct {
	vals   map[string]*value
	outer  *scope
	opsets map[string]int64
	given  func(name string) *value // what is not here; nil: nothing is
}

func (s *scope) find(name string) *value {
	for ; s != nil; s = s.outer {
		if v := s.vals[name]; v != nil {
			return v
		}
		if s.given != nil && name != "" {
			return s.given(name)
		}
	}
	return nil
}

// Import makes a Source graph of the model: its inputs, its initializers as
// parameters or states that name their bytes in the file, its nodes, and its
// outputs in order as what the graph returns. All dimensions must have a size.
func Import(m *Model, o Options) (*Imported, error) {
	name := m.Graph.Name
	if ir.CheckName(name) != nil {
		name = "onnx"
	}
	im := &importer{m: m, o: o, rows: table(), b: ir.NewBuilder(name)}
	im.b.Locate(func() ir.Pos { return ir.Pos{File: filepath.Base(m.path), Line: im.at} })
	if err := m.guard(im.main); err != nil {
		if m.path != "" {
			err = fmt.Errorf("%s: %w", m.path, err)
		}
		return nil, err
	}
	im.out.Graph = im.b.Graph()
	im.out.model = m
	slices.Sort(im.out.Single)
	im.out.Single = slices.Compact(im.out.Single)
	slices.Sort(im.out.Bound)
	im.out.Bound = slices.Compact(im.out.Bound)
	return &im.out, nil
}

func (im *importer) main() error {
	g := im.m.Graph
	s := &scope{vals: make(map[string]*value, len(g.Nodes)+len(g.Initializers)), opsets: im.m.Opsets}
	if err := im.named(); err != nil {
		return err
	}
	var err error
	if im.o.Dims, err = im.m.Bound(im.o.Dims, im.o.Shapes); err != nil {
		return err
	}
	if err := im.initializers(g, s); err != nil {
		return err
	}
	if im.o.Given != nil {
		s.given = func(name string) *value {
			g := im.o.Given(name)
			if g == nil {
				return nil
			}
			s.vals[name] = im.given(g)
			return s.vals[name]
		}
	}
	for _, x := range g.Inputs {
		if im.o.Given != nil {
			if v := s.given(x.Name); v != nil {
				continue
			}
		}
		if s.vals[x.Name] != nil && im.o.Values[x.Name] == nil && im.o.Shapes[x.Name] == nil {
			continue // an initializer that a caller may replace, and does not
		}
		typ, err := im.inputType(x)
		if _, not := errors.AsType[Unsupported](err); not && im.o.Foreign {
			s.vals[x.Name] = &value{name: x.Name, kind: x.kindOf()} // only nodes that are carried read it
			continue
		}
		if size, ok := errors.AsType[*SizeError](err); ok {
			size.Unsized = im.unsized(g.Inputs)
		}
		if err != nil {
			return fmt.Errorf("input %q: %w", x.Name, err)
		}
		v := im.b.Declare(ir.Input, im.nameOf(x.Name), typ, nil, nil)
		if err := im.b.Err(); err != nil {
			return fmt.Errorf("input %q: %w", x.Name, err)
		}
		s.vals[x.Name] = &value{name: x.Name, typ: typ, v: v}
		if k := im.o.Values[x.Name]; k != nil && k.Type == typ && Knowable(typ) {
			s.vals[x.Name].k, s.vals[x.Name].from = k, []string{x.Name}
		}
		im.out.Inputs = append(im.out.Inputs, Port{x.Name, v})
	}
	if err := im.nodes(g.Nodes, s); err != nil {
		return err
	}
	im.out.Types, im.out.Values, im.out.Known = make(map[string]ir.Type, len(s.vals)), make(map[string]*ir.Value, len(s.vals)), map[string]*eval.Tensor{}
	for name, v := range s.vals {
		im.out.Types[name] = v.typ
		if v.k != nil && v.from == nil {
			im.out.Known[name] = v.k
		}
		if v.v != nil {
			im.out.Values[name] = v.v
		}
	}
	given := map[string]bool{}
	for _, t := range g.Initializers {
		given[t.Name] = true
	}
	for _, x := range g.Outputs {
		v := s.find(x.Name)
		if v == nil {
			return fmt.Errorf("output %q is neither an input nor an initializer nor the result of a node", x.Name)
		}
		if v.kind != "" && im.o.Carry {
			continue // it stays in the file
		}
		if v.kind != "" {
			return Unsupported{Reason: fmt.Sprintf("output %q is a %s, which no graph has", x.Name, v.kind), Data: true}
		}
		if v.v == nil && v.name == x.Name && !given[x.Name] {
			v.name += ".value" // the result has the output's name
		}
		y := im.operand(v)
		if im.b.Err() == nil && y.IsVar() {
			y = im.b.Reshape(y, sizes(v.typ)...) // a result is computed, if only copied
		}
		if y != nil && y.Def != nil {
			y = im.b.Rename(y, im.nameOf(x.Name))
		}
		im.b.Return(y)
		im.out.Outputs = append(im.out.Outputs, Port{x.Name, y})
	}
	return im.b.Err()
}

// named refuses options for what the model does not have.
func (im *importer) named() error {
	inputs, dims := map[string]bool{}, map[string]bool{}
	for _, x := range im.m.Graph.Inputs {
		inputs[x.Name] = true
		for _, d := range x.Dims {
			dims[d.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(im.o.Dims)) {
		if !dims[name] {
			return fmt.Errorf("no input has a dimension %q: they have %s", name, names(dims))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(im.o.Shapes)) {
		if !inputs[name] {
			return fmt.Errorf("the model has no input %q: its inputs are %s", name, names(inputs))
		}
	}
	return nil
}

func (im *importer) initializers(g *Graph, s *scope) error {
	if g.Sparse > 0 {
		return Unsupported{Reason: "sparse initializers are not read"}
	}
	for _, t := range g.Initializers {
		if s.vals[t.Name] != nil {
			return fmt.Errorf("the model has two initializers %q: rename one", t.Name)
		}
		s.vals[t.Name] = &value{name: t.Name, init: t}
	}
	return nil
}

// inputType is the type of an input with all sizes bound.
func (im *importer) inputType(x *Info) (ir.Type, error) {
	return x.Type(im.o.Dims, im.o.Shapes[x.Name])
}

func (im *importer) nameOf(name string) string { return VarName(name) }

// VarName is a name of the model as graphs take it.
func VarName(name string) string {
	if strings.HasPrefix(name, ir.Reserved) {
		name = "onnx." + name
	}
	if name == "" || ir.CheckName(name) != nil {
		return fmt.Sprintf("onnx.%x", name)
	}
	return name
}

// nodes imports a list of nodes, in an order in which operands come first.
func (im *importer) nodes(list []*Node, s *scope) error {
	order, err := sorted(list, s)
	if err != nil {
		return err
	}
	for _, i := range order {
		n := list[i]
		if im.inline == 0 {
			im.at = i
		}
		if err := im.node(n, s); err != nil {
			return &NodeError{Index: i, Node: n.Name, Op: opName(n), Err: plain(err)}
		}
	}
	return nil
}

func (im *importer) node(n *Node, s *scope) error {
	c := &call{im: im, n: n, s: s, b: im.b, opset: s.opsets[n.Domain], in: make([]*value, 0, len(n.In))}
	for _, name := range n.In {
		v := s.find(name)
		if v == nil && name != "" {
			return fmt.Errorf("operand %q is neither an input nor an initializer nor the result of an earlier node", name)
		}
		if v != nil && v.kind != "" && !im.carries() {
			return Unsupported{Reason: fmt.Sprintf("operand %q is a %s, which no graph has", name, v.kind), Data: true}
		}
		c.in = append(c.in, v)
	}
	if len(n.Out) == 0 {
		return fmt.Errorf("the node has no results, want one at least")
	}
	r := im.rows[rowKey{n.Domain, n.Op}]
	if r == nil {
		if f := im.function(n); f != nil {
			_, err := im.orCarried(c, func() error { return im.call(f, c) })
			return err
		}
		why := im.rowless(n)
		if im.carries() {
			return im.foreign(c, why)
		}
		return Unsupported{Reason: why}
	}
	if im.carries() && (c.open() || c.strange()) {
		return im.foreign(c, "an operand has no sizes, or elements that are not computed with")
	}
	if c.opset == 0 {
		return fmt.Errorf("the model does not import operator set %q, so its version is not known: add it to opset_import", n.Domain)
	}
	if c.opset < r.since {
		return Unsupported{Reason: fmt.Sprintf("the operator is supported from opset %d on: convert the model to a later opset", r.since)}
	}
	for i, v := range c.in {
		if v == nil || v.init == nil || v.typ != (ir.Type{}) {
			continue
		}
		typ, err := v.init.Type()
		if err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		v.typ = typ
	}
	var outs []*value
	carried, err := im.orCarried(c, func() (err error) { outs, err = c.run(r); return err })
	if carried || err != nil {
		return err
	}
	for i, name := range n.Out {
		if name == "" {
			continue
		}
		if i >= len(outs) || outs[i] == nil {
			return Unsupported{Reason: fmt.Sprintf("result %d is not computed", i)}
		}
		y := outs[i]
		if y.v != nil && y.v.Def != nil && y.name == "" {
			y.v = im.b.Rename(y.v, im.nameOf(name))
		}
		if y.name == "" {
			y.name = name
		}
		s.vals[name] = y
	}
	return nil
}

// operand is v as a value of the graph, declared where it is not one yet.
func (im *importer) operand(v *value) *ir.Value {
	if v.v != nil {
		return v.v
	}
	if v.init != nil {
		if v.v = im.shared[v.init]; v.v == nil {
			v.v = im.declare(v)
			if im.shared == nil {
				im.shared = map[*Tensor]*ir.Value{}
			}
			im.shared[v.init] = v.v
		}
		return v.v
	}
	if e := v.k; e != nil {
		im.made++
		name := v.name
		if name == "" || im.b.Lookup(im.nameOf(name)) != nil {
			name = fmt.Sprintf("onnx.const.%d", im.made)
		}
		v.v = im.b.Declare(ir.Const, im.nameOf(name), e.Type, data(e), nil)
	}
	return v.v
}

// data is an initializer that lists the elements, once where they are all equal.
func data(e *eval.Tensor) *ir.Init {
	args := make([]float64, e.Len())
	same := len(args) > 0
	for i := range args {
		args[i] = e.At(i)
		same = same && args[i] == args[0]
	}
	if same {
		return &ir.Init{Args: args[:1]}
	}
	return &ir.Init{Func: "data", Args: args}
}

// declare makes a variable of an initializer.
func (im *importer) declare(v *value) *ir.Value {
	typ, err := v.init.Type()
	if err != nil {
		im.b.Fail("%v", err)
		return nil
	}
	kind := ir.State
	switch {
	case im.part && typ.Bytes() > maxConst:
		if typ.DType.Float() {
			kind = ir.Param
		}
	case !typ.DType.Float() || typ.Shape.Rank() == 0:
		kind = ir.Const
	case !v.kept && (im.o.Train == nil || im.o.Train(v.name)):
		kind = ir.Param
	}
	if v.init.Made() && kind == ir.Param {
		return im.b.Declare(kind, im.nameOf(v.name), typ, nil, nil) // the session writes it
	}
	where, err := im.m.locate(v.init, typ)
	if err != nil {
		im.b.Fail("%v", err)
		return nil
	}
	if k := im.known(v); im.part && kind == ir.Const && k != nil {
		where = data(k) // by value, so that graphs that differ in places alone are equal
	}
	if where == nil {
		e, err := v.init.value()
		if err != nil {
			im.b.Fail("%v", err)
			return nil
		}
		where = data(e)
	}
	return im.b.Declare(kind, im.nameOf(v.name), typ, where, nil)
}

// known is what is known of v's elements while importing, nil where it is not
// known or too much.
func (im *importer) known(v *value) *eval.Tensor {
	if v.k != nil || v.init == nil {
		return v.k
	}
	if !Knowable(v.typ) {
		return nil
	}
	v.k, _ = im.m.read(v.init)
	return v.k
}

// Knowable reports whether the elements of a value are worth knowing while importing:
// those of many numbers are no shape, axis or bound.
func Knowable(t ir.Type) bool {
	limit := int64(maxKnownInts)
	if t.DType.Float() {
		limit = maxKnownFloats
	}
	return t.Shape.Elements() <= limit
}

func sizes(t ir.Type) []int64 { return ir.Sizes(t.Shape) }
