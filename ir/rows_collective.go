package ir

import "fmt"

var (
	ranksAttr  = AttrDef{Name: "ranks", Kind: AttrInt, Required: true, Doc: "how many devices take part"}
	reduceAttr = AttrDef{Name: "op", Kind: AttrString, Default: "sum", Doc: "sum or mean"}
	joinAttr   = AttrDef{Name: "op", Kind: AttrString, Default: "sum", Doc: "sum, mean or max; of bools max alone, which is or"}
	msgAttr    = AttrDef{Name: "msg", Kind: AttrDType, Default: F32, Doc: "of messages: a float is rounded to it when it is sent; sums are f32"}
	seqAttr    = AttrDef{Name: "seq", Kind: AttrInt, Default: 0, Doc: "its place among the messages of the step: all ranks send them in this order"}
	treeAttr   = AttrDef{Name: "tree", Kind: AttrBool, Doc: "sums add neighbours first, then the sums of neighbours: ranks is a power of two"}
	microAttr  = AttrDef{Name: "micro", Kind: AttrInt, Default: 1, Doc: "how many micro-batches of each rank meet here: those of rank 0 first, each with operands of its own, and all get what all have"}
	flatAttr   = AttrDef{Name: "flat", Kind: AttrBool, Doc: "an operand is flattened and filled up with zeros until ranks divides it; a part is a range of that"}
	shapesAttr = AttrDef{Name: "shapes", Kind: AttrInts, Doc: "of the results, each with its rank first, where the operands are what reduce_scatter with flat leaves"}
	shiftAttr  = AttrDef{Name: "shift", Kind: AttrInt, Default: 0, Doc: "floats are sent times 2^-shift, and the sum is taken times 2^shift"}
)

var collectiveRows = map[Op]Def{
	OpAllReduce: bucket(collective(Def{
		Name: "all_reduce", Nonfinite: joined, Doc: "Each operand's sum, mean or largest element over all ranks, on every rank. The operands, a bucket, travel as one message; sums add in the order of ranks, or in a binary tree.",
		Attrs: []AttrDef{ranksAttr, joinAttr, msgAttr, shiftAttr, treeAttr, microAttr, seqAttr}, Infer: inferAllReduce, Grad: gradAllReduce,
	})),
	OpAllGather: bucket(collective(Def{
		Name: "all_gather", Nonfinite: passed, Doc: "Joins every rank's part of each operand in rank order, on every rank: along an axis, or as ranges of a flattened tensor. The operands, a bucket, travel as one message, as they are.",
		Attrs: []AttrDef{ranksAttr, alongAxis, shapesAttr, seqAttr}, Infer: inferAllGather, Grad: gradAllGather,
	})),
	OpReduceScatter: bucket(collective(Def{
		Name: "reduce_scatter", Nonfinite: added, Doc: "Each operand's sum or mean over all ranks, of which every rank gets its part: along an axis, or a range of the flattened tensor. The operands, a bucket, travel as one message, and are added as all_reduce adds them.",
		Attrs: []AttrDef{ranksAttr, alongAxis, flatAttr, reduceAttr, msgAttr, shiftAttr, treeAttr, seqAttr}, Infer: inferReduceScatter, Grad: gradReduceScatter,
	})),
}

// collective completes a row that communicates with other ranks: it sends its operands.
func collective(d Def) Def {
	d.In, d.Out = in(x("x")), out(Result{Name: "y"})
	d.Flags, d.Class, d.Why, d.Unit = Collective|NoMerge, Fixed, "sends what it is given", UnitSame
	d.Bound = func(n *Node) Bound { return Bound{K: n.Meets()} }
	return d
}

// bucket makes a row take any number of operands.
func bucket(d Def) Def {
	d.In, d.Out = in(Operand{Name: "x", Kinds: KAny, Variadic: true}), out(Result{Name: "y"})
	d.Flags |= Apart
	return d
}

// checkRanks checks the attributes that all collectives have.
func (n *Node) checkRanks() error {
	if r := n.Int("ranks"); r < 1 || r > 1<<20 {
		return fmt.Errorf("ranks is %d, want 1 or more", r)
	}
	if op := n.Str("op"); n.Op == OpReduceScatter && op != "sum" && op != "mean" {
		return fmt.Errorf("op is %q, want sum or mean", op)
	}
	return n.bare()
}

// Meets is how many parts meet at a collective: one of each rank, or of each of the micro-batches that
// its ranks run together.
func (n *Node) Meets() int64 { return n.Int("ranks") * n.Together() }

// Together is how many micro-batches of each rank meet at n: 1 except for an all_reduce that says so. They
// run together, node by node, and not one after the other.
func (n *Node) Together() int64 {
	if n.Op != OpAllReduce {
		return 1
	}
	return n.Int("micro")
}

// MaxShift bounds the power of two that an all_reduce divides by.
const MaxShift = 32

func inferAllReduce(n *Node) ([]Type, error) {
	if op := n.Str("op"); op != "sum" && op != "mean" && op != "max" {
		return nil, fmt.Errorf("op is %q, want sum, mean or max", op)
	}
	types := make([]Type, len(n.In))
	for i, v := range n.In {
		types[i] = v.Type
	}
	return types, firstError(n.checkMessage(), n.checkRanks())
}

// checkMessage checks the attributes of how a message adds up its operands.
func (n *Node) checkMessage() error {
	op, msg := n.Str("op"), n.DT("msg")
	if msg != F32 && (!msg.Low() || op == "max") {
		return fmt.Errorf("msg is %s: want f32, or a 16-bit float for a sum or mean", msg)
	}
	if m, d := n.Together(), n.In[0].Type.DType; m < 1 || m > 1<<MaxTree || m > 1 && (!n.Flag("tree") || d != F32 && !d.Low()) {
		return fmt.Errorf("micro is %d: want 1, or a tree of 2 to %d micro-batches that adds floats of up to 32 bits", m, 1<<MaxTree)
	}
	if r := n.Meets(); n.Flag("tree") && (op != "sum" || r&(r-1) != 0) {
		return fmt.Errorf("tree: op is %s over %d ranks, want a sum over a power of two", op, r)
	}
	if s := n.Int("shift"); s < 0 || s > MaxShift {
		return fmt.Errorf("shift is %d, want 0 to %d", s, MaxShift)
	}
	for _, v := range n.In {
		d := v.Type.DType
		switch {
		case d != n.In[0].Type.DType:
			return fmt.Errorf("%s is %s and %s is %s: a message has one dtype", n.In[0], n.In[0].Type.DType, v, d)
		case d == Bool && op != "max":
			return fmt.Errorf("%s is bool: its op is max", v)
		case !d.Float() && (op == "mean" || msg != F32 || n.Int("shift") != 0):
			return fmt.Errorf("%s is %s: mean, msg and shift are for floats", v, d)
		}
	}
	return nil
}

// joined is the effect of a reduction on special values: the largest element loses -Inf, a sum
// loses none.
func joined(n *Node, i int, x Numbers) Numbers {
	if n.Str("op") == "max" {
		return largest(n, i, x)
	}
	return added(n, i, x)
}

// gradAllReduce sums the gradients of the ranks' copies of each result.
func gradAllReduce(b *Builder, n *Node, d []*Value) []*Value {
	if n.Str("op") == "max" {
		b.Fail("all_reduce: the largest element over all ranks has no gradient")
	}
	if b.Err() != nil {
		return make([]*Value, len(d))
	}
	return eachOf(d, func(sent []*Value) []*Value {
		return b.AllReduce(n.Attrs.Without("msg").Without("shift"), sent...)
	})
}

// PartOf is the number of elements that each rank has of a tensor of n elements, which is divided
// into equal ranges. The last range is padded.
func PartOf(n, ranks int64) int64 { return (n + ranks - 1) / ranks }

func inferAllGather(n *Node) ([]Type, error) {
	if n.Attrs.Get("shapes") != nil {
		return n.inferWholes()
	}
	return n.each(func(x *Value) (Type, error) {
		return n.scaledAxis(x, func(d Dim) (Dim, bool) { return mulDims(d, Dim(n.Int("ranks"))), true })
	})
}

// inferWholes infers the types of tensors of which each rank has a range.
func (n *Node) inferWholes() ([]Type, error) {
	if err := n.checkRanks(); err != nil {
		return nil, err
	}
	shapes, err := n.Wholes()
	if err != nil {
		return nil, err
	}
	types := make([]Type, len(n.In))
	for i, x := range n.In {
		part := T(x.Type.DType, Dim(PartOf(shapes[i].Elements(), n.Int("ranks"))))
		if x.Type != part {
			return nil, fmt.Errorf("%s is %s: a part of %s among %d ranks is %s", x, x.Type, Type{x.Type.DType, shapes[i]}, n.Int("ranks"), part)
		}
		types[i] = Type{x.Type.DType, shapes[i]}
	}
	return types, nil
}

// Wire is the data that n sends to other ranks: the number of bytes that a ring transfers, and how
// many times. A reduction whose result every rank receives goes around the ring twice.
func (n *Node) Wire() (bytes, rounds int64) {
	vs, rounds := n.In, int64(1)
	switch n.Op {
	case OpAllGather:
		vs = n.Out
	case OpAllReduce:
		rounds = 2
	}
	for _, v := range vs {
		size := v.Type.DType.Size()
		if n.Op != OpAllGather && v.Type.DType.Float() {
			size = n.DT("msg").Size()
		}
		bytes += v.Type.Shape.Elements() * size
	}
	return bytes, rounds
}

// Wholes are the shapes that the attribute shapes lists, one for each operand.
func (n *Node) Wholes() ([]Shape, error) {
	list := n.Ints("shapes")
	shapes := make([]Shape, len(n.In))
	for i := range shapes {
		if len(list) == 0 || list[0] < 0 || list[0] > int64(MaxRank) || int(list[0]) >= len(list) {
			return nil, fmt.Errorf("shapes lists %v: want a rank and as many dimensions for each of %d operands", n.Ints("shapes"), len(n.In))
		}
		dims := make([]Dim, list[0])
		for k, d := range list[1 : 1+list[0]] {
			if d < 0 {
				return nil, fmt.Errorf("shapes lists the dimension %d: want 0 or more", d)
			}
			dims[k] = Dim(d)
		}
		shapes[i], list = MakeShape(dims...), list[1+list[0]:]
	}
	if len(list) > 0 {
		return nil, fmt.Errorf("shapes lists %d numbers too many for %d operands", len(list), len(n.In))
	}
	return shapes, nil
}

func inferReduceScatter(n *Node) ([]Type, error) {
	if err := firstError(n.checkRanks(), n.checkMessage()); err != nil {
		return nil, err
	}
	ranks := n.Int("ranks")
	return n.each(func(x *Value) (Type, error) {
		switch {
		case !n.Flag("flat"):
			return n.scaledAxis(x, func(d Dim) (Dim, bool) {
				r := Dim(ranks)
				if d < 0 && r > 1 {
					return UnknownDim, true
				}
				return d / r, d < 0 || d%r == 0
			})
		case !x.Type.Shape.Static():
			return T(x.Type.DType, UnknownDim), nil
		}
		return T(x.Type.DType, Dim(PartOf(x.Type.Shape.Elements(), ranks))), nil
	})
}

// each infers the types of the results one by one.
func (n *Node) each(f func(x *Value) (Type, error)) ([]Type, error) {
	types := make([]Type, len(n.In))
	for i, x := range n.In {
		var err error
		if types[i], err = f(x); err != nil {
			return nil, err
		}
	}
	return types, nil
}

// scaledAxis is the type of a result whose axis is a multiple or a part of x's.
func (n *Node) scaledAxis(x *Value, f func(Dim) (Dim, bool)) (Type, error) {
	if err := n.checkRanks(); err != nil || !x.Type.Shape.Known() {
		return x.Type, err
	}
	d := x.Type.Shape.Dims()
	axis, err := axisOf(n.Int("axis"), len(d))
	if err != nil {
		return Type{}, err
	}
	size, ok := f(d[axis])
	if !ok {
		return Type{}, fmt.Errorf("axis %d of %s %s is not divisible among %d ranks", axis, x, x.Type, n.Int("ranks"))
	}
	d[axis] = size
	return Type{x.Type.DType, MakeShape(d...)}, nil
}

// gradAllGather computes on each rank the sum of the gradients of its part.
func gradAllGather(b *Builder, n *Node, d []*Value) []*Value {
	attrs := A("ranks", n.Int("ranks"), "axis", n.Int("axis"))
	if n.Attrs.Get("shapes") != nil {
		attrs = A("ranks", n.Int("ranks"), "flat", true)
	}
	return eachOf(d, func(sent []*Value) []*Value { return b.ReduceScatter(attrs, sent...) })
}

// gradReduceScatter sends every rank the gradients of all parts.
func gradReduceScatter(b *Builder, n *Node, d []*Value) []*Value {
	attrs := A("ranks", n.Int("ranks"), "axis", n.Int("axis"))
	if n.Flag("flat") {
		var shapes []int64
		for i, v := range d {
			if v != nil {
				shapes = AppendWhole(shapes, n.In[i].Type.Shape)
			}
		}
		attrs = A("ranks", n.Int("ranks"), "shapes", shapes)
	}
	return eachOf(d, func(sent []*Value) []*Value {
		all := b.AllGather(attrs, sent...)
		if n.Str("op") == "mean" {
			for i, v := range all {
				all[i] = b.Affine(v, 1/float64(n.Int("ranks")), 0)
			}
		}
		return all
	})
}

// eachOf applies f to the gradients that are not nil and puts the results in their positions.
func eachOf(d []*Value, f func(sent []*Value) []*Value) []*Value {
	var sent []*Value
	for _, v := range d {
		if v != nil {
			sent = append(sent, v)
		}
	}
	out := make([]*Value, len(d))
	if len(sent) == 0 {
		return out
	}
	made := f(sent)
	for i, v := range d {
		if v != nil && len(made) > 0 {
			out[i], made = made[0], made[1:]
		}
	}
	return out
}

// AppendWhole adds a shape to the list in the attribute shapes.
func AppendWhole(list []int64, s Shape) []int64 {
	list = append(list, int64(s.Rank()))
	for _, d := range s.Dims() {
		list = append(list, int64(d))
	}
	return list
}

// AllReduce sends a bucket to all ranks and returns what they make of each of its values.
func (b *Builder) AllReduce(attrs Attrs, x ...*Value) []*Value { return b.Emit(OpAllReduce, x, attrs) }

// AllGather joins what all ranks have of each value.
func (b *Builder) AllGather(attrs Attrs, x ...*Value) []*Value { return b.Emit(OpAllGather, x, attrs) }

// ReduceScatter is this rank's part of what all ranks make of each value.
func (b *Builder) ReduceScatter(attrs Attrs, x ...*Value) []*Value {
	return b.Emit(OpReduceScatter, x, attrs)
}
