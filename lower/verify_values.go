package lower

import (
	"math"
	"slices"

	"ampc/ir"
)

// expr is the number of a computation: equal numbers mean equal computations.
type expr int32

// exprKey is one computation over others: a primitive, an element of a tensor, or a result of a
// node that is not elementwise.
type exprKey struct {
	kind    exprKind
	op      ir.Prim
	typ, to ir.DType
	a, b, c expr
	imm     uint64
	num     int64
	of      *ir.Value
}

type exprKind uint8

const (
	ofPrimitive exprKind = iota
	ofRoot               // a is the root and num the byte from which on a tensor is walked
	ofWalk               // a, and a dimension of num elements that are imm apart
	ofResult             // of a node that is not elementwise
	ofNothing            // an operand that is no port
)

// exprs numbers computations.
type exprs struct {
	ids   map[exprKey]expr
	keys  []exprKey
	walk  [][2]int64 // of the element at hand
	codes map[rowKey]rowCode
}

// rowKey and rowCode are the code of the last node of a row with a type.
type rowKey struct {
	row *ir.Def
	typ ir.Type
}

type rowCode struct {
	of      *ir.Node
	code    []ir.Instr
	results []ir.Reg
}

// reset forgets all computations.
func (x *exprs) reset() {
	x.keys = x.keys[:0]
	x.ids = emptied(x.ids)
}

// emptied is an empty map: m, unless m has been so large that another one is cheaper.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil || len(m) > 256 {
		return map[K]V{}
	}
	clear(m)
	return m
}

func (x *exprs) id(k exprKey) expr {
	if id, ok := x.ids[k]; ok {
		return id
	}
	id := expr(len(x.keys))
	x.ids[k] = id
	x.keys = append(x.keys, k)
	return id
}

// element is an element of a tensor that begins at byte at of root and is walked over shape by
// strides.
func (x *exprs) element(root BufferID, at int64, d ir.DType, shape, strides []int64) expr {
	k := exprKey{kind: ofRoot, op: ir.PIn, typ: ir.RegType(d), to: d, a: expr(root), num: at}
	e := x.id(k)
	x.walk = collapsed(x.walk[:0], shape, strides)
	for _, w := range x.walk {
		k.kind, k.a, k.num, k.imm = ofWalk, e, w[0], uint64(w[1])
		e = x.id(k)
	}
	return e
}

// collapsed appends sizes and strides of a walk with as few dimensions as possible to an empty list.
// Two walks over the same elements in the same order collapse to the same list.
func collapsed(list [][2]int64, shape, strides []int64) [][2]int64 {
	for i, n := range shape {
		last := len(list) - 1
		switch {
		case n == 1:
		case last >= 0 && list[last][1] == strides[i]*n:
			list[last] = [2]int64{list[last][0] * n, strides[i]}
		default:
			list = append(list, [2]int64{n, strides[i]})
		}
	}
	return list
}

// result is the computation of result i of node n, before rounding.
func (x *exprs) result(n *ir.Node, i int) expr {
	return x.id(exprKey{kind: ofResult, op: ir.PIn, typ: ir.RegType(n.Out[i].Type.DType), of: n.Out[i]})
}

// round is e rounded to d, in a register.
func (x *exprs) round(e expr, d ir.DType) expr {
	if !d.Low() && (!d.Integer() || d == ir.RegType(d)) {
		return e
	}
	if k := &x.keys[e]; (k.kind == ofRoot || k.kind == ofWalk || k.op == ir.PRound) && k.to == d {
		return e
	}
	return x.id(exprKey{op: ir.PRound, typ: ir.RegType(d), to: d, a: e})
}

// convert is e in a register of type t.
func (x *exprs) convert(e expr, t ir.DType) expr {
	if x.keys[e].typ == t {
		return e
	}
	return x.id(exprKey{op: ir.PConv, typ: t, a: e})
}

// run evaluates code, whose load i is in(i), and returns its registers.
func (x *exprs) run(code []ir.Instr, in func(i int) expr) []expr {
	regs := make([]expr, len(code))
	for r, c := range code {
		if c.Op == ir.PIn {
			regs[r] = in(int(c.Int))
			continue
		}
		k := exprKey{op: c.Op, typ: c.Type, to: c.To, imm: math.Float64bits(c.Imm), num: c.Int}
		for i, arg := range []ir.Reg{c.A, c.B, c.C}[:ir.Prims[c.Op].Args] {
			*[]*expr{&k.a, &k.b, &k.c}[i] = regs[arg]
		}
		switch c.Op {
		case ir.PRound:
			regs[r] = x.round(k.a, c.To)
			continue
		case ir.PAdd, ir.PMul, ir.PMin, ir.PMax, ir.PAnd, ir.POr, ir.PXor, ir.PEq, ir.PNe:
			k.a, k.b = min(k.a, k.b), max(k.a, k.b)
		}
		regs[r] = x.id(k)
	}
	return regs
}

// apply evaluates the code of op's row with the operands in.
func (x *exprs) apply(op ir.Op, in ...expr) expr {
	n := &ir.Node{Op: op}
	for range in {
		n.In = append(n.In, &ir.Value{Type: ir.T(ir.F32)})
	}
	n.Out = []*ir.Value{{Type: ir.T(ir.F32)}}
	return x.node(n, func(i int) expr { return in[i] })[0]
}

// node is the computation of the elementwise node n, before rounding.
func (x *exprs) node(n *ir.Node, in func(i int) expr) []expr {
	key := rowKey{n.Def(), n.Out[0].Type}
	row, ok := x.codes[key]
	if !ok || !sameRow(row.of, n) {
		code, results := ir.NodeCode(n)
		row = rowCode{n, code.Ins, results}
		if x.codes == nil {
			x.codes = map[rowKey]rowCode{}
		}
		x.codes[key] = row
	}
	regs := x.run(row.code, in)
	out := make([]expr, len(row.results))
	for i, r := range row.results {
		out[i] = regs[r]
	}
	return out
}

// sameRow reports whether two nodes of one row have equal attributes and types, and so equal code.
func sameRow(a, b *ir.Node) bool {
	return a.Attrs.Equal(b.Attrs) &&
		slices.EqualFunc(a.In, b.In, func(x, y *ir.Value) bool { return (x == nil) == (y == nil) && (x == nil || x.Type == y.Type) }) &&
		slices.EqualFunc(a.Out, b.Out, func(x, y *ir.Value) bool { return x.Type == y.Type })
}
