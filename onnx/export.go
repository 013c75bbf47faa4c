package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// ExportOptions say how a graph is written.
type ExportOptions struct {
	// Opset is the version of the standard operators, 13 to 24; 0: the least that has an
	// operator for every op of the graph that has one by opset 17.
	Opset int64
	// Weights gives the elements of a parameter or a state; nil: as its declaration says.
	Weights func(v *ir.Value) (NewTensor, error)
	// Data takes the elements of weights, which the model then finds in the file
	// DataFile beside it; nil: they stand in the model, which may not pass 2 GB then.
	Data     io.Writer
	DataFile string
	// Limit is the size from which a model without Data is refused (ErrTooLarge); 0: 2 GB.
	Limit int64
	// KeepInputs declares inputs that nothing reads, too.
	KeepInputs bool
}

// The opsets that are written, and the latest that is chosen for an op which
// earlier ones write out.
const (
	leastOpset = 13
	mostOpset  = 24
	usualOpset = 17
)

// irVersions are the versions of the format by the opset from which they are used:
// those of the ONNX releases that brought these opsets.
var irVersions = []struct{ opset, ir int64 }{{24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8}, {13, 7}}

func irVersion(opset int64) int64 {
	for _, v := range irVersions {
		if opset >= v.opset {
			return v.ir
		}
	}
	return 7
}

// Exported is what was written.
type Exported struct{ Opset, IR, Nodes int64 }

// maxMessage is the most that a protobuf message may take.
const maxMessage = math.MaxInt32

// ErrTooLarge is the error of a model of 2 GB or more without ExportOptions.Data.
var ErrTooLarge = errors.New("the model is too large for one ONNX file: write its weights to a separate file")

// Export writes the forward section of a Source graph as an ONNX model: its inputs,
// its parameters, states and constants as initializers, what it returns as
// outputs, all under their names. An op without an operator in the opset is
// written as its expansion; one without either is an error that names the node.
func Export(w io.Writer, g *ir.Graph, o ExportOptions) (*Exported, error) {
	if o.Opset != 0 && (o.Opset < leastOpset || o.Opset > mostOpset) {
		return nil, fmt.Errorf("opset %d cannot be written: choose one from %d to %d", o.Opset, leastOpset, mostOpset)
	}
	if len(g.Return) == 0 {
		return nil, errors.New("the graph returns no value: return one")
	}
	x := &exporter{o: o, opset: o.Opset, names: map[string]bool{}, vals: map[*ir.Value]string{}, consts: map[string]string{}, renamed: map[*ir.Value]string{}, wider: map[*ir.Value]string{}, domains: map[string]int64{}}
	if x.opset == 0 {
		x.opset = x.least(g)
	}
	var err error
	if x.g, err = x.expanded(g); err != nil {
		return nil, err
	}
	x.live()
	x.graph()
	if x.err != nil {
		return nil, x.err
	}
	if err := x.declare(); err != nil {
		return nil, err
	}
	m := x.model()
	if x.o.Data == nil && m.size > cmp.Or(o.Limit, maxMessage) || m.size > maxMessage {
		return nil, ErrTooLarge
	}
	return &Exported{Opset: x.opset, IR: irVersion(x.opset), Nodes: x.count}, m.writeTo(w)
}

// exporter writes one graph. It records the first mistake.
type exporter struct {
	o        ExportOptions
	opset    int64
	g        *ir.Graph
	needed   map[*ir.Value][]*ir.Node // nodes that read a value; every value that is needed has an entry
	names    map[string]bool
	vals     map[*ir.Value]string
	consts   map[string]string    // constants by content
	renamed  map[*ir.Value]string // results that are made under another value's name
	wider    map[*ir.Value]string // casts to f32
	wide32   bool                 // the current node reads operands in f32
	outputs  []string
	domains  map[string]int64 // versions of other operator sets
	infos    []*pieces        // types of values that their readers cannot infer
	nodes    pieces
	inits    pieces
	dataSize int64 // bytes in the data file
	count    int64
	at       *ir.Node
	err      error
}

func (x *exporter) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
		if x.at != nil {
			x.err = &ir.Error{Pos: x.at.Pos, Msg: fmt.Sprintf("%s = %s: %v", x.at.Name(), x.at.Def().Name, x.err)}
		}
	}
}

// least is the lowest opset that suits every node that is written.
func (x *exporter) least(g *ir.Graph) int64 {
	x.g = g
	x.live()
	need := int64(leastOpset)
	for _, n := range g.Body[ir.Forward] {
		if !x.wanted(n) {
			continue
		}
		if n.Op == ir.OpForeign && standard(n.Str("domain")) == "" {
			need = max(need, n.Int("opset"))
		}
		first := int64(math.MaxInt64)
		for _, f := range exports()[n.Op] {
			if f.when == nil || f.when(x, n) {
				first = min(first, f.since)
			}
		}
		if first <= usualOpset || first != math.MaxInt64 && simpler(n) == nil {
			need = max(need, first)
		}
	}
	return need
}

// form is the export of n in the opset, nil if there is none.
func (x *exporter) form(n *ir.Node) *export {
	list := exports()[n.Op]
	for i := range list { // the latest first
		if f := &list[i]; f.since <= x.opset && (f.when == nil || f.when(x, n)) {
			return f
		}
	}
	return nil
}

// unsized says which sizes to give where the operators of n need them; "" where all are known.
func (x *exporter) unsized(n *ir.Node) string {
	for _, v := range slices.Concat(n.In, n.Out) {
		for i := 0; v != nil && i < v.Type.Shape.Rank(); i++ {
			if d := v.Type.Shape.Dims()[i]; d < 0 && -int(d)-1 < len(x.g.Syms) {
				name := x.g.Syms[-d-1].Name
				return fmt.Sprintf(" with a dimension that has no size: give it with --dim %s=SIZE (ExportOptions.Sizes)", name)
			}
		}
	}
	return ""
}

// expanded is g in which nodes without an operator are replaced by their expansions.
func (x *exporter) expanded(g *ir.Graph) (*ir.Graph, error) {
	for depth := 0; ; depth++ {
		x.g = g
		x.live()
		var open []*ir.Node
		for _, n := range g.Body[ir.Forward] {
			if x.wanted(n) && x.form(n) == nil {
				if simpler(n) == nil || depth == 8 {
					return nil, &ir.Error{Pos: n.Pos, Msg: fmt.Sprintf("%s = %s: no operators of opset %d compute it%s", n.Name(), n.Def().Name, x.opset, x.unsized(n))}
				}
				open = append(open, n)
			}
		}
		if open == nil {
			return g, nil
		}
		if depth == 0 {
			var at map[*ir.Value]*ir.Value
			g, at = g.CloneMap()
			for i, n := range open {
				open[i] = at[n.Out[0]].Def
			}
		}
		if err := expand(g, open); err != nil {
			return nil, err
		}
	}
}

// expand puts the expansions of nodes into their places.
func expand(g *ir.Graph, open []*ir.Node) error {
	b := ir.Edit(g)
	old := g.Body[ir.Forward]
	g.Body[ir.Forward] = nil
	instead := map[*ir.Value]*ir.Value{}
	for _, n := range old {
		if !slices.Contains(open, n) {
			g.Body[ir.Forward] = append(g.Body[ir.Forward], n)
			continue
		}
		for i, v := range simpler(n)(b.In(ir.Forward).Deriving(n, ""), n) {
			if v == nil || i >= len(n.Out) {
				continue
			}
			if d := n.Out[i].Type.DType; v.Type.DType != d && b.Err() == nil {
				v = b.Emit(ir.OpCast, []*ir.Value{v}, ir.A("to", d))[0]
			}
			instead[n.Out[i]] = v
		}
		if err := b.Err(); err != nil {
			return err
		}
	}
	g.Replace(instead)
	for was, is := range instead {
		if is.Def != nil && slices.Contains(g.Return, is) {
			is.Name = was.Name
		}
	}
	return nil
}

// live finds the values on which the outputs depend.
func (x *exporter) live() {
	x.needed = map[*ir.Value][]*ir.Node{}
	for _, v := range x.g.Return {
		x.needed[v] = nil
	}
	body := x.g.Body[ir.Forward]
	for i := len(body) - 1; i >= 0; i-- {
		n := body[i]
		if !x.wanted(n) {
			continue
		}
		read := n.In
		if f := x.form(n); f != nil && f.reads != nil {
			read = f.reads(n)
		}
		for _, v := range read {
			if v != nil {
				x.needed[v] = append(x.needed[v], n)
			}
		}
	}
}

// wants reports whether anything reads v.
func (x *exporter) wants(v *ir.Value) bool {
	_, ok := x.needed[v]
	return ok
}

func (x *exporter) wanted(n *ir.Node) bool { return slices.ContainsFunc(n.Out, x.wants) }

// graph writes the nodes.
func (x *exporter) graph() {
	for _, v := range x.g.Vars {
		x.names[v.Name] = true
	}
	for _, n := range x.g.Body[ir.Forward] {
		for _, v := range n.Out {
			x.names[v.Name] = true
		}
	}
	for _, n := range x.g.Body[ir.Forward] {
		if x.wanted(n) && x.err == nil && x.vals[n.Out[0]] == "" {
			x.node(n)
		}
	}
	x.at = nil
	seen := map[string]bool{}
	for _, v := range x.g.Return {
		name := x.name(v)
		if v.IsVar() || seen[name] || name != v.Name {
			to := v.Name
			if v.IsVar() || seen[name] {
				to = x.fresh(v.Name + ".out")
			}
			name = x.op(to, "Identity", []string{name})
		}
		seen[name] = true
		x.outputs = append(x.outputs, name)
	}
}

// node writes one node. Operators of ONNX have results of their operands' type:
// one of ours that computes f32 from 16 bits is written in these where nothing
// but a cast back reads it, and over casts of its operands elsewhere.
func (x *exporter) node(n *ir.Node) {
	x.at, x.wide32 = n, false
	if low, y := x.widens(n); y != nil {
		readers := x.needed[y]
		if len(readers) == 1 && readers[0].Op == ir.OpCast && readers[0].Out[0].Type.DType == low && !slices.Contains(x.g.Return, y) {
			x.renamed[y] = x.result(readers[0], 0)
		} else {
			x.wide32 = true
		}
	}
	x.form(n).write(x, n)
}

// widens is the result that n stores in f32 of operands in 16 bits, and their dtype.
func (x *exporter) widens(n *ir.Node) (low ir.DType, y *ir.Value) {
	if n.Op == ir.OpCast || len(n.In) == 0 || n.In[0] == nil || !n.In[0].Type.DType.Low() || n.Out[0].Type.DType != ir.F32 {
		return low, nil
	}
	return n.In[0].Type.DType, n.Out[0]
}

// name is the value's name in the model.
func (x *exporter) name(v *ir.Value) string {
	if v == nil {
		return ""
	}
	if s := x.vals[v]; s != "" {
		return s
	}
	return v.Name
}

// fresh is a name that nothing has yet.
func (x *exporter) fresh(base string) string {
	for i := 0; ; i++ {
		s := base
		if i > 0 {
			s = fmt.Sprintf("%s_%d", base, i)
		}
		if !x.names[s] {
			x.names[s] = true
			return s
		}
	}
}

// in is the name of operand i, "" where it is absent.
func (x *exporter) in(n *ir.Node, i int) string {
	if i >= len(n.In) {
		return ""
	}
	v := n.In[i]
	if x.wide32 && v != nil && v.Type.DType.Low() {
		if x.wider[v] == "" {
			x.wider[v] = x.op(x.fresh(v.Name+".f32"), "Cast", []string{x.name(v)}, "to", 1)
		}
		return x.wider[v]
	}
	return x.name(v)
}

// ins are the names of all operands.
func (x *exporter) ins(n *ir.Node) []string {
	var out []string
	for i := range n.In {
		out = append(out, x.in(n, i))
	}
	return out
}

// result is the name of result i, which a node of the model is about to make.
func (x *exporter) result(n *ir.Node, i int) string {
	v := n.Out[i]
	if x.renamed[v] != "" {
		x.vals[v] = x.renamed[v]
	} else {
		x.vals[v] = v.Name
	}
	return x.vals[v]
}

// op adds a node with one result, of a new name where out is "". attrs are names and values.
func (x *exporter) op(out, op string, in []string, attrs ...any) string {
	if out == "" {
		base := op
		if x.at != nil {
			base = x.at.Out[0].Name + "." + op
		}
		out = x.fresh(base)
	}
	x.ops([]string{out}, op, in, attrs...)
	return out
}

func (x *exporter) ops(out []string, op string, in []string, attrs ...any) {
	for len(in) > 0 && in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	n := NewNode{Name: out[0], Op: op, In: in, Out: out}
	for i := 0; i < len(attrs); i += 2 {
		v := attrs[i+1]
		switch w := v.(type) {
		case int:
			v = int64(w)
		case bool:
			v = int64(b2i(w))
		case float64:
			v = float32(w)
		}
		n.Attrs = append(n.Attrs, NewAttr{attrs[i].(string), v})
	}
	x.nodes.message(1, n.pieces())
	x.count++
}

// constant is an initializer of elements that are here; equal ones are one.
func (x *exporter) constant(e *eval.Tensor) string {
	b := e.Bytes()
	key := e.Type.String() + string(b)
	if name := x.consts[key]; name != "" {
		return name
	}
	name := x.fresh(fmt.Sprintf("const.%d", len(x.consts)))
	x.consts[key] = name
	x.inits.message(5, tensorPieces(name, ir.Sizes(e.Type.Shape), Bytes(TypeOf(e.Type.DType), b)))
	return name
}

// ints is a vector of i64.
func (x *exporter) ints(v ...int64) string {
	return x.constant(eval.Ints(ir.I64, []ir.Dim{ir.Dim(len(v))}, v...))
}

// lit is a number in a dtype.
func (x *exporter) lit(d ir.DType, v float64) string {
	e := eval.New(ir.Type{DType: d, Shape: ir.MakeShape()})
	if e.F != nil {
		e.F[0] = eval.Round(v, d)
	} else {
		e.I[0] = int64(v)
	}
	return x.constant(e)
}

// filled is a vector of n equal numbers.
func (x *exporter) filled(v *ir.Value, d ir.DType, n int64, number float64) string {
	if v != nil {
		return x.name(v)
	}
	e := eval.New(ir.Type{DType: d, Shape: ir.MakeShape(ir.Dim(n))})
	for i := range e.F {
		e.F[i] = number
	}
	return x.constant(e)
}

// TypeOf is the type of elements in a file that holds d.
func TypeOf(d ir.DType) DataType {
	for t, info := range dataTypes {
		if info.ours == d {
			return t
		}
	}
	return 0
}
