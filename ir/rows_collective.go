package ir

import "fmt"

var (
	ranksAttr  = AttrDef{Name: "ranks", Kind: AttrInt, Required: true, Doc: "how many devices take part"}
	reduceAttr = AttrDef{Name: "op", Kind: AttrString, Default: "sum", Doc: "sum or mean"}
)

var collectiveRows = map[Op]Def{
	OpAllReduce: collective(Def{
		Name: "all_reduce", Nonfinite: added, Doc: "The sum or mean of x over all ranks, on every rank.", Attrs: []AttrDef{ranksAttr, reduceAttr}, Infer: inferAllReduce,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.AllReduce(d[0], n.Int("ranks"), n.Str("op"))}
		},
	}),
	OpAllGather: collective(Def{
		Name: "all_gather", Nonfinite: passed, Doc: "Joins every rank's x along an axis in rank order, on every rank.", Attrs: []AttrDef{ranksAttr, alongAxis}, Infer: inferAllGather,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.ReduceScatter(d[0], n.Int("ranks"), n.Int("axis"), "sum")}
		},
	}),
	OpReduceScatter: collective(Def{
		Name: "reduce_scatter", Doc: "The sum or mean of x over all ranks, of which every rank gets its part along an axis.", Attrs: []AttrDef{ranksAttr, alongAxis, reduceAttr}, Infer: inferReduceScatter,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.AllGather(d[0], n.Int("ranks"), n.Int("axis"))
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

// checkRanks checks the attributes that collectives share.
func (n *Node) checkRanks() error {
	if r := n.Int("ranks"); r < 1 || r > 1<<20 {
		return fmt.Errorf("ranks is %d, want 1 or more", r)
	}
	if op := n.Str("op"); n.Op != OpAllGather && op != "sum" && op != "mean" {
		return fmt.Errorf("op is %q, want sum or mean", op)
	}
	return n.bare()
}

func inferAllReduce(n *Node) ([]Type, error) { return []Type{n.In[0].Type}, n.checkRanks() }

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

// AllReduce is the sum ("sum") or mean ("mean") of x over all ranks.
func (b *Builder) AllReduce(x *Value, ranks int64, op string) *Value {
	return b.Emit(OpAllReduce, []*Value{x}, A("ranks", ranks, "op", op))[0]
}

// AllGather joins every rank's x along an axis.
func (b *Builder) AllGather(x *Value, ranks, axis int64) *Value {
	return b.Emit(OpAllGather, []*Value{x}, A("ranks", ranks, "axis", axis))[0]
}

// ReduceScatter is this rank's part of the sum or mean of x over all ranks.
func (b *Builder) ReduceScatter(x *Value, ranks, axis int64, op string) *Value {
	return b.Emit(OpReduceScatter, []*Value{x}, A("ranks", ranks, "axis", axis, "op", op))[0]
}
