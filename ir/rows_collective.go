package ir

import "fmt"

var (
	ranksAttr  = AttrDef{Name: "ranks", Kind: AttrInt, Required: true, Doc: "how many devices take part"}
	reduceAttr = AttrDef{Name: "op", Kind: AttrString, Default: "sum", Doc: "sum or mean"}
	joinAttr   = AttrDef{Name: "op", Kind: AttrString, Default: "sum", Doc: "sum, mean or max; of bools max alone, which is or"}
	msgAttr    = AttrDef{Name: "msg", Kind: AttrDType, Default: F32, Doc: "of messages: a float is rounded to it when it is sent; sums are f32"}
	seqAttr    = AttrDef{Name: "seq", Kind: AttrInt, Default: 0, Doc: "its place among the messages of the step: all ranks send them in this order"}
	treeAttr   = AttrDef{Name: "tree", Kind: AttrBool, Doc: "sums add neighbours first, then the sums of neighbours: ranks is a power of two"}
	shiftAttr  = AttrDef{Name: "shift", Kind: AttrInt, Default: 0, Doc: "floats are sent times 2^-shift, and the sum is taken times 2^shift"}
)

var collectiveRows = map[Op]Def{
	OpAllReduce: bucket(collective(Def{
		Name: "all_reduce", Nonfinite: joined, Doc: "Each operand's sum, mean or largest element over all ranks, on every rank. The operands, a bucket, travel as one message; sums add in the order of ranks, or in a binary tree.",
		Attrs: []AttrDef{ranksAttr, joinAttr, msgAttr, shiftAttr, treeAttr, seqAttr}, Infer: inferAllReduce, Grad: gradAllReduce,
	})),
	OpAllGather: ofAny(collective(Def{
		Name: "all_gather", Nonfinite: passed, Doc: "Joins every rank's x along an axis in rank order, on every rank.", Attrs: []AttrDef{ranksAttr, alongAxis, seqAttr}, Infer: inferAllGather,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.reduceScatter(d[0], n.Int("ranks"), n.Int("axis"), "sum")}
		},
	})),
	OpReduceScatter: collective(Def{
		Name: "reduce_scatter", Doc: "The sum or mean of x over all ranks, of which every rank gets its part along an axis.", Attrs: []AttrDef{ranksAttr, alongAxis, reduceAttr, seqAttr}, Infer: inferReduceScatter,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.allGather(d[0], n.Int("ranks"), n.Int("axis"))
			if n.Str("op") == "mean" {
				g = b.Affine(g, 1/float64(n.Int("ranks")), 0)
			}
			return []*Value{g}
		},
	}),
}

// collective completes a row that talks to other ranks: it sends what it is given.
func collective(d Def) Def {
	d.In, d.Out = in(x("x")), out(Result{Name: "y"})
	d.Flags, d.Class, d.Why, d.Unit = Collective|NoMerge, Fixed, "sends what it is given", UnitSame
	d.Bound = func(n *Node) Bound { return Bound{K: n.Int("ranks")} }
	return d
}

// ofAny makes a row take elements of any kind, which it moves as they are.
func ofAny(d Def) Def {
	d.In = in(Operand{Name: "x", Kinds: KAny})
	return d
}

// bucket makes a row take any number of operands.
func bucket(d Def) Def {
	d.In, d.Out = in(Operand{Name: "x", Kinds: KAny, Variadic: true}), out(Result{Name: "y"})
	d.Flags |= Apart
	return d
}

// checkRanks checks the attributes that collectives share.
func (n *Node) checkRanks() error {
	if r := n.Int("ranks"); r < 1 || r > 1<<20 {
		return fmt.Errorf("ranks is %d, want 1 or more", r)
	}
	if op := n.Str("op"); n.Op == OpReduceScatter && op != "sum" && op != "mean" {
		return fmt.Errorf("op is %q, want sum or mean", op)
	}
	return n.bare()
}

// MaxShift bounds the power of two that an all_reduce divides by.
const MaxShift = 32

func inferAllReduce(n *Node) ([]Type, error) {
	types := make([]Type, len(n.In))
	op, msg := n.Str("op"), n.DT("msg")
	if op != "sum" && op != "mean" && op != "max" {
		return nil, fmt.Errorf("op is %q, want sum, mean or max", op)
	}
	if msg != F32 && (!msg.Low() || op == "max") {
		return nil, fmt.Errorf("msg is %s: want f32, or a 16-bit float for a sum or mean", msg)
	}
	if r := n.Int("ranks"); n.Flag("tree") && (op != "sum" || r&(r-1) != 0) {
		return nil, fmt.Errorf("tree: op is %s over %d ranks, want a sum over a power of two", op, r)
	}
	if s := n.Int("shift"); s < 0 || s > MaxShift {
		return nil, fmt.Errorf("shift is %d, want 0 to %d", s, MaxShift)
	}
	for i, v := range n.In {
		d := v.Type.DType
		switch {
		case d != n.In[0].Type.DType:
			return nil, fmt.Errorf("%s is %s and %s is %s: a message has one dtype", n.In[0], n.In[0].Type.DType, v, d)
		case d == Bool && op != "max":
			return nil, fmt.Errorf("%s is bool: its op is max", v)
		case !d.Float() && (op == "mean" || msg != F32 || n.Int("shift") != 0):
			return nil, fmt.Errorf("%s is %s: mean, msg and shift are for floats", v, d)
		}
		types[i] = v.Type
	}
	return types, n.checkRanks()
}

// joined: the largest element loses -Inf, a sum nothing.
func joined(n *Node, i int, x Numbers) Numbers {
	if n.Str("op") == "max" {
		return largest(n, i, x)
	}
	return added(n, i, x)
}

// gradAllReduce sums the gradients that reach the ranks' copies of each result.
func gradAllReduce(b *Builder, n *Node, d []*Value) []*Value {
	if n.Str("op") == "max" {
		b.Fail("all_reduce: the largest element over all ranks has no gradient")
	}
	var sent []*Value
	for _, v := range d {
		if v != nil {
			sent = append(sent, v)
		}
	}
	out := make([]*Value, len(d))
	if len(sent) == 0 || b.Err() != nil {
		return out
	}
	sums := b.AllReduce(n.Attrs.Without("msg").Without("shift"), sent...)
	for i, v := range d {
		if v != nil {
			out[i], sums = sums[0], sums[1:]
		}
	}
	return out
}

func inferAllGather(n *Node) ([]Type, error) {
	return n.scaledAxis(func(d Dim) (Dim, bool) { return mulDims(d, Dim(n.Int("ranks"))), true })
}

func inferReduceScatter(n *Node) ([]Type, error) {
	return n.scaledAxis(func(d Dim) (Dim, bool) {
		r := Dim(n.Int("ranks"))
		if d < 0 && r > 1 {
			return UnknownDim, true
		}
		return d / r, d < 0 || d%r == 0
	})
}

// scaledAxis types a result whose axis is a multiple or a part of x's.
func (n *Node) scaledAxis(f func(Dim) (Dim, bool)) ([]Type, error) {
	x := n.In[0]
	if err := n.checkRanks(); err != nil || !x.Type.Shape.Known() {
		return []Type{x.Type}, err
	}
	d := x.Type.Shape.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	if err != nil {
		return nil, err
	}
	size, ok := f(d[axis])
	if !ok {
		return nil, fmt.Errorf("axis %d of %s %s is not divisible among %d ranks", axis, x, x.Type, n.Int("ranks"))
	}
	d[axis] = size
	return []Type{{x.Type.DType, MakeShape(d...)}}, nil
}

// AllReduce sends a bucket to all ranks and returns what they make of each of its values.
func (b *Builder) AllReduce(attrs Attrs, x ...*Value) []*Value { return b.Emit(OpAllReduce, x, attrs) }

// allGather joins every rank's x along an axis.
func (b *Builder) allGather(x *Value, ranks, axis int64) *Value {
	return b.Emit(OpAllGather, []*Value{x}, A("ranks", ranks, "axis", axis))[0]
}

// reduceScatter is this rank's part of the sum or mean of x over all ranks.
func (b *Builder) reduceScatter(x *Value, ranks, axis int64, op string) *Value {
	return b.Emit(OpReduceScatter, []*Value{x}, A("ranks", ranks, "axis", axis, "op", op))[0]
}
