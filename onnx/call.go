package onnx

import (
	"fmt"

	"ampc/ir"
	"ampc/ir/eval"
)

// call is one node being imported. A row's importer asks it for operands and attributes. It records
// the first mistake; after that importers continue with zero values.
type call struct {
	im    *importer
	n     *Node
	s     *scope
	b     *ir.Builder
	opset int64
	in    []*value
	env   *scratch // the elements of a scratch graph, in which the node is evaluated at once
	// single: operands of f64 are read as f32, as kernels have no f64 for the row,
	// and results of f32 become f64.
	single bool
	err    error
}

// run imports the node by its row. If all operands are known, it builds the node in a scratch graph
// and evaluates it, so shape computations do not appear in the graph.
func (c *call) run(r *row) ([]*value, error) {
	if r.values != nil {
		out := r.values(c)
		return out, c.failure()
	}
	folded, from, ok := c.fold(r)
	if ok && from == nil {
		return folded, nil
	}
	out := c.values(c.build(r))
	for i := range out {
		if ok && out[i] != nil && folded[i] != nil && out[i].k == nil && Knowable(out[i].typ) {
			out[i].k, out[i].from = folded[i].k, from
		}
	}
	return out, c.failure()
}

// build calls the row's importer.
func (c *call) build(r *row) []*ir.Value {
	for _, v := range c.in {
		c.single = c.single || r.single && v != nil && v.typ.DType == ir.F64
	}
	if c.single && c.env == nil {
		c.im.out.Single = append(c.im.out.Single, c.im.at)
	}
	if r.exact {
		c.b = c.b.Pinned(ir.PinF32)
	}
	ys := r.imp(c)
	for i, y := range ys {
		switch {
		case y == nil || y.Type.DType != ir.F32:
		case c.single:
			ys[i] = c.cast(y, ir.F64)
		case c.has(0) && c.typ(0).DType.Low() && !r.own && (i == 0 || !r.stats):
			ys[i] = c.cast(y, c.typ(0).DType) // these ops return f32 here, and 16 bits in ONNX
		}
	}
	return ys
}

func (c *call) failure() error {
	if c.err != nil {
		return c.err
	}
	return c.b.Err()
}

func (c *call) values(ys []*ir.Value) []*value {
	if c.failure() != nil {
		return nil
	}
	out := make([]*value, len(ys))
	for i, y := range ys {
		if y == nil {
			continue
		}
		for _, v := range c.in {
			if v != nil && v.v == y {
				out[i] = v // passed through
			}
		}
		if out[i] == nil {
			out[i] = &value{v: y, typ: y.Type}
			if y.Type.Shape.Elements() == 0 {
				out[i].v, out[i].k = nil, eval.New(y.Type)
			}
		}
	}
	return out
}

// known makes a result of elements that are known.
func known(e *eval.Tensor) *value { return &value{typ: e.Type, k: e} }

func (c *call) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// refuse reports that something is not supported.
func (c *call) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = Unsupported{Reason: fmt.Sprintf(format, args...)}
	}
}

func (c *call) has(i int) bool { return i < len(c.in) && c.in[i] != nil }

// wants reports whether something reads result i.
func (c *call) wants(i int) bool { return i < len(c.n.Out) && c.n.Out[i] != "" }

// x is operand i as a value of the graph.
func (c *call) x(i int) *ir.Value {
	if !c.has(i) {
		c.fail("operand %d is missing, and the operator requires it", i)
		return nil
	}
	v := c.in[i]
	x := v.v
	if c.env == nil {
		x = c.im.operand(v)
	} else if x == nil {
		v.v = c.env.declare(c.b, v.typ, v.k, i)
		x = v.v
	}
	if c.single && v.typ.DType == ir.F64 {
		return c.cast(x, ir.F32)
	}
	return x
}

// opt is operand i, nil where it is absent.
func (c *call) opt(i int) *ir.Value {
	if !c.has(i) {
		return nil
	}
	return c.x(i)
}

// all are the operands from i on.
func (c *call) all(i int) []*ir.Value {
	var out []*ir.Value
	for ; i < len(c.in); i++ {
		out = append(out, c.x(i))
	}
	return out
}

func (c *call) typ(i int) ir.Type {
	if !c.has(i) {
		c.fail("operand %d is missing, and the operator requires it", i)
		return ir.Type{DType: ir.F32, Shape: ir.MakeShape()}
	}
	t := c.in[i].typ
	if c.single && t.DType == ir.F64 {
		t = t.With(ir.F32)
	}
	return t
}

func (c *call) dims(i int) []int64 { return sizes(c.typ(i)) }
func (c *call) rank(i int) int     { return c.typ(i).Shape.Rank() }

// elements are those of operand i, which must be known while importing.
func (c *call) elements(i int, what string) *eval.Tensor {
	if c.has(i) {
		v := c.in[i]
		if k := c.known(i); k != nil {
			c.im.out.Bound = append(c.im.out.Bound, v.from...)
			if v.from != nil && c.env == nil {
				c.im.guards = append(c.im.guards, guarded{v, k})
			}
			return k
		}
		if c.err == nil {
			c.err = Unsupported{Reason: fmt.Sprintf("the %s (operand %d) depends on data, but must be known before the model runs: make it an initializer", what, i), Data: true}
		}
	} else {
		c.fail("operand %d, the %s, is missing, and the operator requires it", i, what)
	}
	return eval.Ints(ir.I64, []ir.Dim{0})
}

func (c *call) ints(i int, what string) []int64 {
	e := c.elements(i, what)
	out := make([]int64, e.Len())
	for k := range out {
		out[k] = int64(e.At(k))
		if e.I != nil {
			out[k] = e.I[k]
		}
	}
	return out
}

func (c *call) floats(i int, what string) []float64 {
	e := c.elements(i, what)
	out := make([]float64, e.Len())
	for k := range out {
		out[k] = e.At(k)
	}
	return out
}

// number is the one element of operand i, known while importing.
func (c *call) number(i int, what string) float64 {
	x := c.floats(i, what)
	if len(x) != 1 {
		c.fail("the %s (operand %d) has %d elements, want 1", what, i, len(x))
		return 0
	}
	return x[0]
}

// lookup finds an attribute that is set.
func (c *call) lookup(name string, t AttrType) *Attribute {
	for _, a := range c.n.Attrs {
		if a.Name == name {
			if a.Type != t {
				c.fail("attribute %s has type %s, want %s", name, a.Type, t)
				return nil
			}
			return a
		}
	}
	return nil
}

func (c *call) set(name string) bool {
	for _, a := range c.n.Attrs {
		if a.Name == name {
			return true
		}
	}
	return false
}

func (c *call) int(name string, or int64) int64 {
	if a := c.lookup(name, AttrInt); a != nil {
		return a.I
	}
	return or
}

func (c *call) flag(name string, or bool) bool {
	if a := c.lookup(name, AttrInt); a != nil {
		return a.I != 0
	}
	return or
}

func (c *call) float(name string, or float64) float64 {
	if a := c.lookup(name, AttrFloat); a != nil {
		return float64(a.F)
	}
	return or
}

func (c *call) str(name, or string) string {
	if a := c.lookup(name, AttrString); a != nil {
		return a.S
	}
	return or
}

// list is an attribute of integers, nil where it is not set.
func (c *call) list(name string) []int64 {
	if a := c.lookup(name, AttrInts); a != nil {
		return a.Ints
	}
	return nil
}

// axis is an axis counted from the front.
func (c *call) axis(a int64, rank int) int64 {
	if a < -int64(rank) || a >= max(int64(rank), 1) {
		c.fail("axis %d is out of range for a tensor of rank %d", a, rank)
		return 0
	}
	if a < 0 {
		a += int64(rank)
	}
	return a
}

func (c *call) axes(list []int64, rank int) []int64 {
	out := make([]int64, len(list))
	for i, a := range list {
		out[i] = c.axis(a, rank)
	}
	return out
}

// constant is a tensor of the graph that the importer computed.
func (c *call) constant(e *eval.Tensor) *ir.Value {
	if c.env == nil {
		return c.im.operand(known(e))
	}
	return c.env.declare(c.b, e.Type, e, -1)
}

func (c *call) intsConst(v ...int64) *ir.Value {
	return c.constant(eval.Ints(ir.I64, []ir.Dim{ir.Dim(len(v))}, v...))
}

// keep marks an initializer as frozen: it is not a weight to train.
func (c *call) keep(i int) {
	if c.has(i) && c.in[i].v == nil {
		c.in[i].kept = true
	}
}

// cast converts x, where it is not of the dtype already.
func (c *call) cast(x *ir.Value, d ir.DType) *ir.Value {
	if x == nil || x.Type.DType == d {
		return x
	}
	return c.b.Cast(x, d)
}

// lit is a number in x's dtype.
func (c *call) lit(x *ir.Value, v float64) *ir.Value {
	if x == nil {
		return nil
	}
	return c.b.Scalar(x.Type.DType, v)
}

// reshape gives x another shape. The graph's reshape reads a size of 0 as one to keep;
// a tensor without elements needs none.
func (c *call) reshape(x *ir.Value, shape ...int64) *ir.Value {
	if x == nil || product(shape) != 0 || x.Type.Shape.Elements() != 0 {
		return c.b.Reshape(x, shape...)
	}
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Dim(n)
	}
	return c.constant(eval.New(ir.Type{DType: x.Type.DType, Shape: ir.MakeShape(dims...)}))
}
