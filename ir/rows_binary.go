package ir

import (
	"fmt"
	"math"
)

const whyWider = "takes the wider operand"

// entering are operands a and b that are floats or integers, with the dtype in which the code reads
// them.
func entering(a, b Entry) []Operand {
	return in(Operand{Name: "a", Kinds: KNum, Entry: a}, Operand{Name: "b", Kinds: KNum, Entry: b})
}

// binary completes the row of a function of two broadcast operands a and b.
func binary(d Def, f func(c *Code, a, b Reg) Reg) Def {
	if d.In == nil {
		d.In = in(number("a"), number("b"))
	}
	if d.Infer == nil {
		d.Infer = inferBroadcast
		d.Flags |= InPlace
	}
	if d.Class == Keep {
		d.In[0].ReadsLow, d.In[1].ReadsLow = true, true
	}
	d.Out = out(Result{Name: "y", StoresLow: d.Class == Keep})
	d.Elem = func(c *Code, _ *Node) []Reg { return []Reg{f(c, c.In(0), c.In(1))} }
	return d
}

// comparison completes the row of a predicate on two operands.
func comparison(d Def, f func(c *Code, a, b Reg) Reg) Def {
	d.Infer, d.Class, d.Why, d.Unit, d.NoGrad = inferPredicate, Clear, "its result is a bool", UnitSame, "not a float"
	return binary(d, f)
}

// logic completes the row of a logical (bools) or bitwise (integers) op.
func logic(d Def, f func(c *Code, a, b Reg) Reg) Def {
	d.In = in(Operand{Name: "a", Kinds: KMask}, Operand{Name: "b", Kinds: KMask})
	d.Flags, d.Class, d.Why, d.Unit, d.NoGrad = Commutative, Clear, "logic", UnitAny, "not a float"
	return binary(d, f)
}

var binaryRows = map[Op]Def{
	OpAdd: binary(Def{Name: "add", Doc: "Adds, broadcasting the operands; integers wrap.", In: entering(Added, Added), Flags: Commutative, Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Grad: both(func(_ *Builder, _ *Node, d *Value) (*Value, *Value) { return d, d }),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{finite(in[0].Lo+in[1].Lo, in[0].Hi+in[1].Hi, in)}
		}}, (*Code).Add),
	OpSub: binary(Def{Name: "sub", Doc: "Subtracts, broadcasting the operands; integers wrap.", In: entering(Added, Subtracted), Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.sumTo(d[0], n.In[0]), b.Neg(b.sumTo(d[0], n.In[1]))}
		},
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{finite(in[0].Lo-in[1].Hi, in[0].Hi-in[1].Lo, in)}
		}}, (*Code).Sub),
	OpMul: binary(Def{Name: "mul", Doc: "Multiplies, broadcasting the operands; integers wrap.", In: entering(Multiplied, Multiplied), Flags: Commutative, Class: PromoteC, Why: whyWider, Unit: UnitProduct,
		Grad: both(func(b *Builder, n *Node, d *Value) (*Value, *Value) { return b.Mul(d, n.In[1]), b.Mul(d, n.In[0]) }),
		Range: func(_ *Node, in []Interval) []Interval {
			p, q, r, s := in[0].Lo*in[1].Lo, in[0].Lo*in[1].Hi, in[0].Hi*in[1].Lo, in[0].Hi*in[1].Hi
			return []Interval{finite(min(p, q, r, s), max(p, q, r, s), in)}
		}}, (*Code).Mul),
	OpDiv: binary(Def{Name: "div", Doc: "Divides, broadcasting the operands; integers truncate towards zero, and by zero give zero.", In: entering(Reduced, Divides), Class: PromoteC, Why: whyWider, Poles: "divides by 0", Unit: unitQuotient,
		Grad: both(func(b *Builder, n *Node, d *Value) (*Value, *Value) {
			da := b.Div(d, n.In[1])
			return da, b.Neg(b.Mul(da, n.Out[0]))
		})}, (*Code).Div),
	OpMod: binary(Def{Name: "mod", Doc: "a - floor(a/b)·b, each step rounded to f32: the sign of b; integers likewise.", In: entering(Reduced, Reduced), Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Grad: both(func(b *Builder, n *Node, d *Value) (*Value, *Value) {
			return d, b.Neg(b.Mul(d, b.Floor(b.Div(n.In[0], n.In[1]))))
		})}, elemMod),
	OpPow: binary(Def{Name: "pow", Doc: "a to the power b; NaN for a below zero and b not an integer.", In: in(Operand{Name: "a", Entry: Reduced}, Operand{Name: "b", Entry: Reduced}), Class: Keep, Why: whyRange,
		Grad: both(gradPow)}, (*Code).Pow),
	OpMin: binary(Def{Name: "min", Doc: "The smaller one; NaN wins, -0 is below +0; equal ones share the gradient.", Flags: Commutative, Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Grad: both(func(b *Builder, n *Node, d *Value) (*Value, *Value) {
			return b.chosen(d, n.In[1], n.In[0]), b.chosen(d, n.In[0], n.In[1])
		}),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{min(in[0].Lo, in[1].Lo), min(in[0].Hi, in[1].Hi), in[0].NaN || in[1].NaN}}
		}}, (*Code).Min),
	OpMax: binary(Def{Name: "max", Doc: "The larger one; NaN wins, +0 is above -0; equal ones share the gradient.", Flags: Commutative, Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Grad: both(func(b *Builder, n *Node, d *Value) (*Value, *Value) {
			return b.chosen(d, n.In[0], n.In[1]), b.chosen(d, n.In[1], n.In[0])
		}),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{{max(in[0].Lo, in[1].Lo), max(in[0].Hi, in[1].Hi), in[0].NaN || in[1].NaN}}
		}}, (*Code).Max),

	OpEq: comparison(Def{Name: "eq", Doc: "a = b; false where either is NaN.", In: anyPair(), Flags: Commutative}, (*Code).Eq),
	OpNe: comparison(Def{Name: "ne", Doc: "a ≠ b; true where either is NaN.", In: anyPair(), Flags: Commutative}, (*Code).Ne),
	OpLt: comparison(Def{Name: "lt", Doc: "a < b; false where either is NaN."}, (*Code).Lt),
	OpLe: comparison(Def{Name: "le", Doc: "a ≤ b; false where either is NaN."}, (*Code).Le),
	OpGt: comparison(Def{Name: "gt", Doc: "a > b; false where either is NaN."}, func(c *Code, a, b Reg) Reg { return c.Lt(b, a) }),
	OpGe: comparison(Def{Name: "ge", Doc: "a ≥ b; false where either is NaN."}, func(c *Code, a, b Reg) Reg { return c.Le(b, a) }),

	OpAnd: logic(Def{Name: "and", Doc: "Logical and of bools, bitwise of integers."}, (*Code).And),
	OpOr:  logic(Def{Name: "or", Doc: "Logical or of bools, bitwise of integers."}, (*Code).Or),
	OpXor: logic(Def{Name: "xor", Doc: "Exclusive or of bools, bitwise of integers."}, (*Code).Xor),

	OpWhere: {
		Name: "where", Doc: "a where cond holds, else b (absent: zero), broadcasting; a choice of bits, so an unselected NaN does no harm.",
		In:  in(Operand{Name: "cond", Kinds: KBool, Class: Fixed}, Operand{Name: "a", Kinds: KAny}, Operand{Name: "b", Kinds: KAny, Optional: true}),
		Out: out(Result{Name: "y"}), Class: PromoteC, Why: whyWider, Unit: UnitSame,
		Infer: inferWhere, Elem: elemWhere, Grad: gradWhere,
	},
	OpAddN: {
		Name: "add_n", Doc: "Adds operands of one shape from left to right in f32 and rounds once.",
		In:  in(Operand{Name: "x", Variadic: true, Entry: Added}),
		Out: out(Result{Name: "y"}), Class: PromoteC, Why: whyWider, Unit: UnitSame, Flags: InPlace,
		Infer: inferAddN,
		Elem: func(c *Code, n *Node) []Reg {
			s := c.In(0)
			for i := range n.In[1:] {
				s = c.Add(s, c.In(i+1))
			}
			return []Reg{s}
		},
		Grad: func(_ *Builder, n *Node, d []*Value) []*Value {
			out := make([]*Value, len(n.In))
			for i := range out {
				out[i] = d[0]
			}
			return out
		},
		Cost: func(n *Node) Cost { return Cost{Flops: int64(len(n.In)-1) * count(n.Out[0].Type)} },
	},

	OpCast: {
		Name: "cast", Doc: "Converts: floats round to nearest even (overflow to Inf, subnormals kept), floats to integers truncate, saturate and take NaN to 0, integers wrap, anything but zero is true.",
		In: in(Operand{Name: "x", Kinds: KAny}), Out: out(Result{Name: "y"}),
		Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Required: true, Doc: "dtype of the result"}},
		Class: Fixed, Why: "the dtype is its purpose", Unit: UnitSame,
		Infer: inferCast, Elem: elemCast,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			if !n.In[0].Type.DType.Float() {
				return []*Value{nil}
			}
			return []*Value{b.castTo(d[0], n.In[0].Type.DType)}
		},
		Range: func(_ *Node, in []Interval) []Interval { return in[:1] },
	},
	OpRound: {
		Name: "round", Doc: "Rounds the value to the numbers of another dtype and keeps the dtype: never elided, moved or fused away.",
		In: in(x("x")), Out: out(Result{Name: "y"}), Flags: NoMerge | InPlace,
		Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Required: true, Doc: "dtype whose numbers to round to"}},
		Class: Fixed, Why: "the rounding is its purpose", Unit: UnitSame,
		Infer: inferRound,
		Elem:  func(c *Code, n *Node) []Reg { return []Reg{c.Round(c.In(0), n.DT("to"))} },
		Grad:  func(_ *Builder, _ *Node, d []*Value) []*Value { return d[:1] }, // straight through
		Range: func(_ *Node, in []Interval) []Interval { return in[:1] },
	},
}

// finite is the range of a sum or product of ranges: NaN is possible where an
// operand may be NaN or the limits leave the reals (Inf-Inf, 0·Inf).
func finite(lo, hi float64, in []Interval) Interval {
	v := Interval{lo, hi, false}
	for _, x := range in {
		v.NaN = v.NaN || x.NaN || math.IsInf(x.Lo, 0) || math.IsInf(x.Hi, 0)
	}
	if lo != lo || hi != hi {
		return Interval{math.Inf(-1), math.Inf(1), true}
	}
	return v
}

func anyPair() []Operand { return in(Operand{Name: "a", Kinds: KAny}, Operand{Name: "b", Kinds: KAny}) }

// both is the gradient of a row of two broadcast operands: f returns the gradients in the result's
// shape, which are summed to the operands' shapes.
func both(f func(b *Builder, n *Node, d *Value) (da, db *Value)) func(*Builder, *Node, []*Value) []*Value {
	return func(b *Builder, n *Node, d []*Value) []*Value {
		da, db := f(b, n, d[0])
		return []*Value{b.sumTo(da, n.In[0]), b.sumTo(db, n.In[1])}
	}
}

func elemMod(c *Code, a, b Reg) Reg {
	if !c.Type(a).Float() && !c.Type(b).Float() { // truncated, then corrected to the sign of b
		r := c.Sub(a, c.Mul(c.Div(a, b), b))
		zero := c.Like(r, 0)
		fix := c.And(c.Ne(r, zero), c.Xor(c.Lt(r, zero), c.Lt(b, zero)))
		return c.Select(fix, c.Add(r, b), r)
	}
	return c.Sub(a, c.Mul(c.Floor(c.Div(a, b)), b))
}

// chosen is the gradient of the larger of x and y in x: nothing where y is
// larger, half where they are equal, and where either is NaN, all of it.
func (b *Builder) chosen(d, x, y *Value) *Value {
	share := b.Where(b.Eq(x, y), b.Affine(d, 0.5, 0), d)
	return b.Where(b.Not(b.Lt(x, y)), share, nil)
}

// gradPow: if the exponent is 0, the power is 1 for every base, so the base has gradient 0. The
// exponent's gradient is aᵇ·log a: 0 for a base of 0 whose power is finite, and NaN for a negative
// base.
func gradPow(b *Builder, n *Node, d *Value) (da, db *Value) {
	x, p := n.In[0], n.In[1]
	zero := func(v *Value) *Value { return b.Scalar(v.Type.DType, 0) }
	less := b.Where(b.Ne(p, zero(p)), b.Affine(p, 1, -1), nil)
	da = b.Mul(d, b.Mul(p, b.Pow(x, less)))
	flat := b.And(b.Eq(x, zero(x)), b.Ge(p, zero(p)))
	log := b.Log(b.Where(flat, b.Scalar(x.Type.DType, 1), x))
	return da, b.Mul(d, b.Mul(n.Out[0], log))
}

func inferWhere(n *Node) ([]Type, error) {
	a := n.In[1].Type.DType
	if b := n.operand(2); b != nil && (a == Bool) != (b.Type.DType == Bool) {
		return nil, fmt.Errorf("cannot choose between %s %s and %s %s", n.In[1], n.In[1].Type, b, b.Type)
	}
	return inferBroadcast(n)
}

func elemWhere(c *Code, n *Node) []Reg {
	a := c.In(1)
	b := Reg(0)
	if n.operand(2) != nil {
		b = c.In(2)
	} else {
		b = c.Like(a, 0)
	}
	return []Reg{c.Select(c.In(0), a, b)}
}

func gradWhere(b *Builder, n *Node, d []*Value) []*Value {
	cond := n.In[0]
	g := []*Value{nil, b.sumTo(b.Where(cond, d[0], nil), n.In[1])}
	if y := n.operand(2); y != nil {
		g = append(g, b.sumTo(b.Where(b.Not(cond), d[0], nil), y))
	}
	return g
}

func inferAddN(n *Node) ([]Type, error) {
	for _, v := range n.In[1:] {
		if a, b := n.In[0].Type.Shape, v.Type.Shape; a != b && a.Static() && b.Static() {
			return nil, fmt.Errorf("shapes differ: %s %s, %s %s", n.In[0], n.In[0].Type, v, v.Type)
		}
	}
	return inferBroadcast(n)
}

func inferCast(n *Node) ([]Type, error) {
	to := n.DT("to")
	if to == E4M3 || to == E5M2 {
		return nil, fmt.Errorf("%s is reserved and cannot be computed yet", to)
	}
	if n.Has("out") {
		return nil, fmt.Errorf("the attribute to gives the dtype of the result: out does not apply")
	}
	return []Type{n.In[0].Type.With(to)}, nil
}

// elemCast saturates where floats become integers of a wider register. The conversion to the
// register saturates by itself; everything else is the store.
func elemCast(c *Code, n *Node) []Reg {
	x, to := c.In(0), n.DT("to")
	switch {
	case to == Bool && c.Type(x) != Bool:
		return []Reg{c.Ne(x, c.Like(x, 0))}
	case to.Integer() && RegType(to) != to && c.Type(x).Float():
		lo, hi := to.Limits()
		x = c.Conv(x, RegType(to))
		limit := func(v int64) Reg { return c.emit(Instr{Op: PConst, Type: RegType(to), Int: v}) }
		return []Reg{c.Min(c.Max(x, limit(lo)), limit(hi))}
	}
	return []Reg{c.Conv(x, RegType(to))}
}

func inferRound(n *Node) ([]Type, error) {
	if to := n.DT("to"); !to.Low() && to != F32 {
		return nil, fmt.Errorf("cannot round to %s, want f16, bf16 or f32", to)
	}
	if n.Has("out") {
		return nil, fmt.Errorf("keeps the dtype, out does not apply")
	}
	return []Type{n.In[0].Type}, nil
}

func (b *Builder) binary(op Op, x, y *Value) *Value { return b.one(op, []*Value{x, y}, nil) }

// castTo is a cast where the dtype differs.
func (b *Builder) castTo(x *Value, d DType) *Value {
	if x == nil || x.Type.DType == d {
		return x
	}
	return b.Cast(x, d)
}

// Add returns a+b, broadcast.
//
//   - PyTorch: torch.add.
func (b *Builder) Add(x, y *Value) *Value { return b.binary(OpAdd, x, y) }

// Sub returns a-b, broadcast.
//
//   - PyTorch: torch.sub.
func (b *Builder) Sub(x, y *Value) *Value { return b.binary(OpSub, x, y) }

// Mul returns a·b, broadcast.
//
//   - PyTorch: torch.mul.
func (b *Builder) Mul(x, y *Value) *Value { return b.binary(OpMul, x, y) }

// Div returns a/b, broadcast.
//
//   - PyTorch: torch.div; integers round towards zero.
func (b *Builder) Div(x, y *Value) *Value { return b.binary(OpDiv, x, y) }

// Mod returns a - floor(a/b)·b, broadcast.
//
//   - PyTorch: torch.remainder.
func (b *Builder) Mod(x, y *Value) *Value { return b.binary(OpMod, x, y) }

// Pow returns x to the power y, broadcast.
//
//   - PyTorch: torch.pow.
func (b *Builder) Pow(x, y *Value) *Value { return b.binary(OpPow, x, y) }

// Min returns the smaller of each pair, broadcast.
//
//   - PyTorch: torch.minimum.
func (b *Builder) Min(x, y *Value) *Value { return b.binary(OpMin, x, y) }

// Max returns the larger of each pair, broadcast.
//
//   - PyTorch: torch.maximum.
func (b *Builder) Max(x, y *Value) *Value { return b.binary(OpMax, x, y) }

// Eq asks whether x = y, broadcast.
//
//   - PyTorch: torch.eq.
func (b *Builder) Eq(x, y *Value) *Value { return b.binary(OpEq, x, y) }

// Ne asks whether x ≠ y, broadcast.
//
//   - PyTorch: torch.ne.
func (b *Builder) Ne(x, y *Value) *Value { return b.binary(OpNe, x, y) }

// Lt asks whether x < y, broadcast.
//
//   - PyTorch: torch.lt.
func (b *Builder) Lt(x, y *Value) *Value { return b.binary(OpLt, x, y) }

// Le asks whether x ≤ y, broadcast.
//
//   - PyTorch: torch.le.
func (b *Builder) Le(x, y *Value) *Value { return b.binary(OpLe, x, y) }

// Gt asks whether x > y, broadcast.
//
//   - PyTorch: torch.gt.
func (b *Builder) Gt(x, y *Value) *Value { return b.binary(OpGt, x, y) }

// Ge asks whether x ≥ y, broadcast.
//
//   - PyTorch: torch.ge.
func (b *Builder) Ge(x, y *Value) *Value { return b.binary(OpGe, x, y) }

// And returns the logical (bools) or bitwise (integers) and.
//
//   - PyTorch: torch.logical_and, torch.bitwise_and.
func (b *Builder) And(x, y *Value) *Value { return b.binary(OpAnd, x, y) }

// Or returns the logical (bools) or bitwise (integers) or.
//
//   - PyTorch: torch.logical_or, torch.bitwise_or.
func (b *Builder) Or(x, y *Value) *Value { return b.binary(OpOr, x, y) }

// Xor returns the logical (bools) or bitwise (integers) exclusive or.
//
//   - PyTorch: torch.logical_xor, torch.bitwise_xor.
func (b *Builder) Xor(x, y *Value) *Value { return b.binary(OpXor, x, y) }

// Where returns x where cond holds and y elsewhere, broadcast; an absent y is zero.
//
//   - Shapes: cond, x and y broadcast.
//   - DTypes: cond bool or integer, x and y one dtype or floats, which meet in the wider.
//   - Errors: shapes that do not broadcast.
//   - PyTorch: torch.where.
func (b *Builder) Where(cond, x, y *Value) *Value {
	return b.one(OpWhere, values(cond, x, y), nil)
}

// AddN adds values of one shape from left to right, rounding once.
//
//   - Shapes: operands of one shape to the same.
//   - DTypes: floats; the result has the widest.
//   - Errors: no operand, or shapes that differ.
//   - PyTorch: none; a chain of torch.add rounds at each step.
func (b *Builder) AddN(x ...*Value) *Value { return b.one(OpAddN, x, nil) }

// Cast converts x to dtype d.
//
//   - Shapes: x[...] to the same.
//   - DTypes: any to d.
//   - Errors: none.
//   - PyTorch: Tensor.to(dtype).
func (b *Builder) Cast(x *Value, d DType) *Value {
	return b.one(OpCast, []*Value{x}, A("to", d))
}

// Round rounds x to the numbers of dtype d and keeps x's dtype.
//
//   - Shapes: x[...] to the same.
//   - DTypes: float; the result has x's.
//   - Errors: d is not a float.
//   - PyTorch: x.to(dtype).to(x.dtype).
func (b *Builder) Round(x *Value, d DType) *Value {
	return b.one(OpRound, []*Value{x}, A("to", d))
}
