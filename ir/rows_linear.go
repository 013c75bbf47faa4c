package ir

import "fmt"

var linearRows = map[Op]Def{
	OpMatmul: {
		Name: "matmul", Nonfinite: added, Doc: "Multiplies matrices a[..,M,K] and b[..,K,N]; leading dimensions broadcast; ta, tb: that operand is stored transposed.",
		In: in(x("a"), x("b")), Out: out(Result{Name: "y", StoresF32: true}),
		Attrs: []AttrDef{{Name: "ta", Kind: AttrBool, Doc: "a is [..,K,M]"}, {Name: "tb", Kind: AttrBool, Doc: "b is [..,N,K]"}},
		Flags: MatrixProduct, Class: Low, Why: "tensor cores", Unit: UnitProduct,
		Aligned: func(*Node) [][]int { return [][]int{{-1, -2}, {-1, -2}} },
		Infer:   inferMatmul, Grad: gradMatmul, Bound: boundMatmul, Range: productRange(func(n *Node) float64 { return sure(MakeShape(n.inner()), int64(n.inner())) }),
		Cost: func(n *Node) Cost { return Cost{Flops: 2 * count(n.Out[0].Type) * size(n.inner())} },
	},
	OpLinear: {
		Name: "linear", Nonfinite: added, Doc: "Applies a weight matrix to the last dimension: x[..,K]·w[K,N] + b[N]; tb: w is [N,K].",
		In: in(x("x"), x("w"), biasIn), Out: out(Result{Name: "y", StoresF32: true}),
		Attrs: []AttrDef{{Name: "tb", Kind: AttrBool, Doc: "w is [N,K]"}},
		Flags: MatrixProduct, Class: Low, Why: "tensor cores", Unit: unitLinear, Aligned: alignedLinear, Items: rowsAreItems,
		Infer: inferLinear, Grad: gradLinear, Bound: boundMatmul, Range: productRange(func(n *Node) float64 { return sure(MakeShape(n.inner()), int64(n.inner())) }),
		Expand: func(b *Builder, n *Node) []*Value {
			y := b.Matmul(n.In[0], n.In[1], false, n.Flag("tb"))
			if c := n.operand(2); c != nil {
				y = b.Add(y, c)
			}
			return []*Value{y}
		},
		Cost: func(n *Node) Cost { return Cost{Flops: 2 * count(n.Out[0].Type) * size(n.inner())} },
	},
	OpEmbedding: {
		Name: "embedding", Doc: "Looks rows of table[V,D] up by ids; an id outside 0..V-1 is an error on the host.",
		In:    in(Operand{Name: "table"}, ids("ids")),
		Out:   out(Result{Name: "y"}),
		Flags: Moves, Class: Clear, Why: "moves rows", Unit: UnitSame,
		Infer: inferEmbedding, Range: within(0), Grad: gradEmbedding,
	},
	OpEmbeddingGrad: {
		Name: "embedding_grad", Nonfinite: addedAsIs, Doc: "Sums the rows of dy into a table[V,D] at their ids, in the order of ids.",
		In:    in(Operand{Name: "dy", ReadsLow: true}, Operand{Name: "ids", Kinds: KInt, Class: Fixed}),
		Out:   out(Result{Name: "dtable", StoresLow: true}),
		Attrs: []AttrDef{{Name: "rows", Kind: AttrInt, Required: true, Doc: "V"}},
		Class: Keep, Why: "long sums lose bits", Unit: UnitSame,
		GradOf: OpEmbedding, Infer: inferEmbeddingGrad,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Embedding(d[0], n.In[1]), nil}
		},
		Bound: func(n *Node) Bound { return Bound{K: count(n.In[1].Type)} },
		Cost:  flops(0, 1), Range: sumRange(func(n *Node) float64 { return sure(n.In[1].Type.Shape, count(n.In[1].Type)) }),
	},
}

// biasIn is the bias of a product or a convolution.
var biasIn = Operand{Name: "b", Optional: true, Bias: true}

// Bias is the operand that a product or a convolution adds to its result; nil if there is none.
func (n *Node) Bias() *Value {
	for i, o := range n.Def().In {
		if o.Bias {
			return n.operand(i)
		}
	}
	return nil
}

// alignedLinear pads nothing along the rows of operands of more than two dimensions.
func alignedLinear(n *Node) [][]int {
	rows := []int{-1}
	if n.In[0].Type.Shape.Rank() == 2 {
		rows = []int{-1, -2}
	}
	return [][]int{rows, {-1, -2}, {-1}}
}

// inner is the contracted dimension of matmul and linear.
func (n *Node) inner() Dim {
	s := n.In[0].Type.Shape
	if s.Rank() < 1 {
		return UnknownDim
	}
	if n.Flag("ta") {
		return s.Dim(-2)
	}
	return s.Dim(-1)
}

// matrix returns the last two dimensions of v as a matrix operand, transposed if so required.
func matrix(v *Value, transposed bool) (rows, cols Dim) {
	rows, cols = v.Type.Shape.Dim(-2), v.Type.Shape.Dim(-1)
	if transposed {
		rows, cols = cols, rows
	}
	return rows, cols
}

func inferMatmul(n *Node) ([]Type, error) {
	a, b := n.In[0], n.In[1]
	if err := firstError(wantRank("operand", a, 2, MaxRank), wantRank("operand", b, 2, MaxRank), n.checkOut()); err != nil {
		return nil, err
	}
	t := Type{DType: n.lowDType()}
	if !a.Type.Shape.Known() || !b.Type.Shape.Known() {
		return []Type{t}, nil
	}
	m, k := matrix(a, n.Flag("ta"))
	k2, cols := matrix(b, n.Flag("tb"))
	if !fits(k, k2) {
		return nil, fmt.Errorf("inner dims differ: %s x %s", a.Type, b.Type)
	}
	batch, ok := Broadcast(leading(a, 2), leading(b, 2))
	if !ok {
		return nil, fmt.Errorf("leading dims do not broadcast: %s %s, %s %s", a, a.Type, b, b.Type)
	}
	t.Shape = MakeShape(append(batch.Dims(), m, cols)...)
	return []Type{t}, nil
}

// leading is v's shape without its last k dimensions.
func leading(v *Value, k int) Shape {
	d := v.Type.Shape.Dims()
	return MakeShape(d[:len(d)-k]...)
}

// gradMatmul is two products: da = dy·bᵀ and db = aᵀ·dy, each in the order that stores its
// operand's own transposition, and summed along broadcast dimensions.
func gradMatmul(b *Builder, n *Node, d []*Value) []*Value {
	x, w, dy := n.In[0], n.In[1], d[0]
	ta, tb := n.Flag("ta"), n.Flag("tb")
	var dx, dw *Value
	if ta {
		dx = b.Matmul(w, dy, tb, true)
	} else {
		dx = b.Matmul(dy, w, false, !tb)
	}
	switch {
	case !ta && w.Type.Shape.Rank() == 2 && x.Type.Shape.Rank() > 2: // one product over all rows, not a sum of products
		dw = b.weightGrad(x, dy, tb)
	case tb:
		dw = b.Matmul(dy, x, true, ta)
	default:
		dw = b.Matmul(x, dy, !ta, false)
	}
	return []*Value{b.sumTo(dx, x), b.sumTo(dw, w)}
}

// weightGrad is xᵀ·dy over all leading dimensions together: [K,N], or [N,K] where tb.
func (b *Builder) weightGrad(x, dy *Value, tb bool) *Value {
	x, dy = b.rows(x), b.rows(dy)
	if tb {
		return b.Matmul(dy, x, true, false)
	}
	return b.Matmul(x, dy, true, false)
}

func boundMatmul(n *Node) Bound { return Bound{K: size(n.inner()) + 1} }

// sumRange is the range of a sum of up to k elements of operand 0.
func sumRange(k func(n *Node) float64) func(*Node, []Interval) []Interval {
	return func(n *Node, in []Interval) []Interval {
		return []Interval{around(k(n)*in[0].magnitude(), in[0].NaN)}
	}
}

// unitLinear is the product of x and w; the bias must carry the same unit.
func unitLinear(n *Node) (Unit, error) {
	u := n.In[0].Unit.times(n.In[1].Unit, 1)
	if c := n.operand(2); c != nil && c.Unit != u {
		return "", fmt.Errorf("the product has scale unit %s and meets %s, which has scale unit %s", u, at(c), c.Unit)
	}
	return u, nil
}

func inferLinear(n *Node) ([]Type, error) {
	x, w := n.In[0], n.In[1]
	if err := firstError(wantRank("x", x, 2, MaxRank), wantRank("w", w, 2, 2), n.checkOut()); err != nil {
		return nil, err
	}
	t := Type{DType: n.lowDType()}
	if !x.Type.Shape.Known() || !w.Type.Shape.Known() {
		return []Type{t}, nil
	}
	k, cols := matrix(w, n.Flag("tb"))
	if !fits(x.Type.Shape.Dim(-1), k) {
		return nil, fmt.Errorf("inner dims differ: %s x %s", x.Type, w.Type)
	}
	t.Shape = MakeShape(append(leading(x, 1).Dims(), cols)...)
	return []Type{t}, wantShape("bias", n.operand(2), cols)
}

func gradLinear(b *Builder, n *Node, d []*Value) []*Value {
	x, w, dy, tb := n.In[0], n.In[1], d[0], n.Flag("tb")
	g := []*Value{b.Matmul(dy, w, false, !tb), b.weightGrad(x, dy, tb), nil}
	if n.operand(2) != nil {
		g[2] = b.sumBut(dy, -1)
	}
	return g
}

func inferEmbedding(n *Node) ([]Type, error) {
	table, ids := n.In[0], n.In[1]
	if err := firstError(wantRank("table", table, 2, 2), wantRank("ids", ids, 0, MaxRank-1)); err != nil {
		return nil, err
	}
	t := Type{DType: table.Type.DType}
	if table.Type.Shape.Known() && ids.Type.Shape.Known() {
		t.Shape = MakeShape(append(ids.Type.Shape.Dims(), table.Type.Shape.Dim(1))...)
	}
	return []Type{t}, nil
}

func gradEmbedding(b *Builder, n *Node, d []*Value) []*Value {
	rows := n.In[0].Type.Shape.Dim(0)
	if rows < 0 {
		b.Fail("embedding: the gradient of %s needs a known number of rows", n.In[0])
		return []*Value{nil, nil}
	}
	return []*Value{b.embeddingGrad(d[0], n.In[1], int64(rows)), nil}
}

func inferEmbeddingGrad(n *Node) ([]Type, error) {
	dy, ids := n.In[0], n.In[1]
	rows := n.Int("rows")
	if rows < 0 {
		return nil, fmt.Errorf("rows=%d, want zero or more", rows)
	}
	if err := firstError(wantRank("dy", dy, 1, MaxRank), n.checkOut()); err != nil {
		return nil, err
	}
	t := Type{DType: n.keptDType()}
	if !dy.Type.Shape.Known() {
		return []Type{t}, nil
	}
	t.Shape = MakeShape(Dim(rows), dy.Type.Shape.Dim(-1))
	return []Type{t}, wantShape("ids", ids, leading(dy, 1).Dims()...)
}

// Matmul multiplies a[..,M,K] by b[..,K,N] with broadcast leading dimensions;
// ta and tb say that the operand is stored transposed.
func (b *Builder) Matmul(x, y *Value, ta, tb bool) *Value {
	return b.one(OpMatmul, []*Value{x, y}, A("ta", ta, "tb", tb))
}

// Linear is x[..,K]·w[K,N] + bias[N]; bias may be nil. With tb the weight is
// stored [N,K], as an embedding table tied to the head is.
func (b *Builder) Linear(x, w, bias *Value, tb bool) *Value {
	return b.one(OpLinear, values(x, w, bias), A("tb", tb))
}

// Embedding looks rows of table[V,D] up: the result has shape [ids..,D].
func (b *Builder) Embedding(table, ids *Value) *Value {
	return b.one(OpEmbedding, []*Value{table, ids}, nil)
}

// embeddingGrad sums dy[ids..,D] into a table of the given number of rows.
func (b *Builder) embeddingGrad(dy, ids *Value, rows int64) *Value {
	return b.one(OpEmbeddingGrad, []*Value{dy, ids}, A("rows", rows))
}
