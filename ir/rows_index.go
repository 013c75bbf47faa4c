package ir

import "fmt"

var indexRows = map[Op]Def{
	OpFull: {
		Name: "full", Doc: "One number everywhere.", In: in(likeIn), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{shapeAttr, {Name: "value", Kind: AttrFloat, Default: 0.0, Doc: "the number, rounded to the dtype"}, {Name: "dtype", Kind: AttrDType, Default: F32, Doc: "of the result"}},
		Class: Fixed, Why: "a constant has the dtype it was given", Unit: UnitAny, NoGrad: "reads no float", Infer: inferFull,
		Elem: func(c *Code, n *Node) []Reg {
			r := c.F(0)
			if t := RegType(n.DT("dtype")); t != F32 {
				r = c.Conv(r, t)
			}
			return []Reg{c.Like(r, n.Float("value"))}
		},
		Range: func(n *Node, _ []Interval) []Interval {
			v := n.Float("value")
			return []Interval{{v, v, v != v}}
		},
	},
}

func inferFull(n *Node) ([]Type, error) {
	d := n.DT("dtype")
	if d == E4M3 || d == E5M2 {
		return nil, fmt.Errorf("%s is reserved and cannot be computed yet", d)
	}
	if n.Has("out") {
		return nil, fmt.Errorf("dtype names the dtype, out does not apply")
	}
	if v := n.like(); v != nil {
		return []Type{v.Type.With(d)}, n.checkShapeAttr(0)
	}
	for _, k := range n.Ints("shape") {
		if k < 0 {
			return nil, fmt.Errorf("shape %v has the size %d", n.Ints("shape"), k)
		}
	}
	return []Type{{d, MakeShape(dimsOf(n.Ints("shape"))...)}}, nil
}

// Full returns a tensor of one number.
func (b *Builder) Full(d DType, value float64, shape ...int64) *Value {
	a := A("dtype", d, "value", value)
	if len(shape) > 0 {
		a = a.With("shape", shape)
	}
	return b.Emit(OpFull, nil, a)[0]
}

// Scalar returns one number without axes.
func (b *Builder) Scalar(d DType, value float64) *Value { return b.Full(d, value) }

// zerosLike returns zeros of v's type.
func (b *Builder) zerosLike(v *Value) *Value {
	if b.err != nil || v == nil {
		return nil
	}
	a, like := shapeOf(v)
	return b.Emit(OpFull, values(like), a.With("dtype", v.Type.DType))[0]
}
