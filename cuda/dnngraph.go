package cuda

import "math"

// DnnType is an element type by its cuDNN number.
type DnnType int32

// Element types of graphs.
const (
	DnnFloat    DnnType = 0
	DnnHalf     DnnType = 2
	DnnInt32    DnnType = 4
	DnnBFloat16 DnnType = 9
	DnnBool     DnnType = 11
)

// DnnTensor is an edge of an operation graph. Dimensions are in the order N,C,H,W or B,H,S,D; the
// strides give the memory layout. A virtual tensor has no memory. A by-value tensor is the constant
// Value.
type DnnTensor struct {
	UID           int64
	Type          DnnType
	Dims, Strides []int64
	Virtual       bool
	ByValue       bool
	Value         float32
}

// DnnKind is an operation of a graph.
type DnnKind uint8

// The operations. Conv: y = x*w; ConvData: x (the gradient) from w and y; ConvFilter: w (the gradient)
// from x and y.
const (
	DnnConv DnnKind = iota
	DnnConvData
	DnnConvFilter
	DnnPointwise
	DnnMatmul
	DnnReduction
	DnnReshape
)

// Pointwise modes and reduction operators by their cuDNN numbers.
const (
	PwAdd, PwMul, PwDiv, PwSub, PwExp, PwLog  = 0, 1, 6, 9, 13, 15
	pwIdentity, PwCmpGE, PwGenIndex, PwSelect = 21, 303, 501, 601
	dnnReduceAdd, DnnReduceMax                = 0, 3
)

// DnnNode is one operation: it computes Y from X and, if the operation has them, B and T. A
// convolution's filter is B.
type DnnNode struct {
	Kind       DnnKind
	Mode       int   // pointwise mode or reduction operator
	Axis       int64 // PwGenIndex
	X, B, T, Y *DnnTensor
	Conv       *ConvShape
}

// ConvShape is the geometry of a convolution (cross-correlation), one number for each spatial
// dimension.
type ConvShape struct {
	Pads, EndPads, Strides, Dilations []int64
}

// DnnGraph is a set of operations compiled and run together.
type DnnGraph struct {
	Name  string
	Nodes []DnnNode
	// Feeds are the tensors with memory, in the order Run takes their pointers.
	Feeds []*DnnTensor
	// Consts are the by-value tensors. Like Feeds, each is an operand of a node: the library refuses to
	// run a graph with a value that belongs to none.
	Consts []*DnnTensor
}

// Dnn is cuDNN on one device.
type Dnn interface {
	// Version is the library's, 91501 for 9.15.1.
	Version() int
	// Plans compiles a graph with the engines that the options allow, the best by the library's
	// heuristics first. Without one the error is that of the first engine that did not work, or wraps
	// ErrNotSupported if there was none to try.
	Plans(g *DnnGraph, o DnnOptions) ([]DnnPlan, error)
	Close() error
}

// DnnOptions limit the engines that Plans may use. It never uses engines that round inputs to a
// shorter type than that of the tensors, or sums to a shorter one than f32.
type DnnOptions struct {
	Deterministic bool   // exclude engines whose sums change from run to run
	TF32          bool   // tensor cores may round f32 operands to 10 bits
	Workspace     int64  // bytes at most
	Most          int    // plans at most; 0: one
	Engine        string // only the engine of this name
}

// DnnPlan is a compiled graph.
type DnnPlan interface {
	// Engine names the engine and its settings, for the same graph, library and device.
	Engine() string
	// Varies reports whether sums may change from run to run.
	Varies() bool
	Workspace() int64
	Run(feeds []Ptr, workspace Ptr, s Stream) error
	Close() error
}

// Numerical notes of cuDNN's engines.
const (
	NoteTensorCore       = 0
	NoteDownConvert      = 1
	NoteShortSums        = 2
	NoteNondeterministic = 4
)

// Avoids reports whether an engine with these notes is not used for g.
func (o DnnOptions) Avoids(g *DnnGraph, notes []int32) bool {
	for _, n := range notes {
		switch n {
		case NoteDownConvert, NoteShortSums:
			return true
		case NoteNondeterministic:
			if o.Deterministic {
				return true
			}
		case NoteTensorCore:
			if g.Feeds[0].Type == DnnFloat && !o.TF32 {
				return true
			}
		}
	}
	return false
}

// FirstPlan is the best plan by the library's heuristics.
func FirstPlan(n Dnn, g *DnnGraph, o DnnOptions) (DnnPlan, error) {
	o.Most = 1
	plans, err := n.Plans(g, o)
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

// dnnBuilder numbers the tensors of a graph.
type dnnBuilder struct{ g *DnnGraph }

func packed(dims []int64) []int64 {
	st := make([]int64, len(dims))
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		st[i] = n
		n *= dims[i]
	}
	return st
}

func (b *dnnBuilder) tensor(t DnnType, dims, strides []int64) *DnnTensor {
	if strides == nil {
		strides = packed(dims)
	}
	return &DnnTensor{UID: int64(len(b.g.Feeds)+len(b.g.Consts)+len(b.g.Nodes)) + 1, Type: t, Dims: dims, Strides: strides}
}

// feed adds a tensor with memory.
func (b *dnnBuilder) feed(t DnnType, dims, strides []int64) *DnnTensor {
	x := b.tensor(t, dims, strides)
	b.g.Feeds = append(b.g.Feeds, x)
	return x
}

// scalarConst adds a scalar of rank n.
func (b *dnnBuilder) scalarConst(v float32, n int) *DnnTensor {
	ones := make([]int64, n)
	for i := range ones {
		ones[i] = 1
	}
	x := b.tensor(DnnFloat, ones, ones)
	x.ByValue, x.Value = true, v
	b.g.Consts = append(b.g.Consts, x)
	return x
}

// node adds an operation; a nil y becomes a virtual tensor of the given type and dimensions.
func (b *dnnBuilder) node(n DnnNode, t DnnType, dims []int64) *DnnTensor {
	if n.Y == nil {
		n.Y = b.tensor(t, dims, nil)
		n.Y.Virtual = true
	}
	b.g.Nodes = append(b.g.Nodes, n)
	return n.Y
}

func (b *dnnBuilder) pointwise(mode int, x, y *DnnTensor) *DnnTensor {
	return b.node(DnnNode{Kind: DnnPointwise, Mode: mode, X: x, B: y}, DnnFloat, x.Dims)
}

func (b *dnnBuilder) matmul(x, y *DnnTensor) *DnnTensor {
	d := x.Dims
	return b.node(DnnNode{Kind: DnnMatmul, X: x, B: y}, DnnFloat, []int64{d[0], d[1], d[2], y.Dims[3]})
}

// Conv describes a convolution of images: X is N,C,…, W is K,C/groups,…, Y is N,K,…, of two or three
// spatial dimensions. With Bias, Kind is DnnConv and a vector of K elements of type BiasType is added
// before the result is rounded.
type Conv struct {
	Kind     DnnKind
	Type     DnnType // of all three tensors but the result
	Out      DnnType // of the result
	X, W, Y  []int64 // dimensions
	NHWC     bool
	Shape    ConvShape
	Bias     bool
	BiasType DnnType
}

// strides lays out an image or a filter: channels second, or last.
func (c Conv) strides(d []int64) []int64 {
	if !c.NHWC {
		return packed(d)
	}
	st := packed(append(append([]int64{d[0]}, d[2:]...), d[1]))
	return append([]int64{st[0], 1}, st[1:len(st)-1]...)
}

// Graph is the convolution with its bias. Feeds: x, w, y (one of which is computed), then the bias.
func (c Conv) Graph() *DnnGraph {
	b := &dnnBuilder{&DnnGraph{Name: "conv"}}
	types := [...]DnnType{c.Type, c.Type, c.Type}
	types[map[DnnKind]int{DnnConvData: 0, DnnConvFilter: 1, DnnConv: 2}[c.Kind]] = c.Out
	x, w, y := b.feed(types[0], c.X, c.strides(c.X)), b.feed(types[1], c.W, c.strides(c.W)), b.feed(types[2], c.Y, c.strides(c.Y))
	n := DnnNode{Kind: c.Kind, X: x, B: w, Y: y, Conv: &c.Shape}
	if !c.Bias {
		b.node(n, 0, nil)
		return b.g
	}
	ones := make([]int64, len(c.Y))
	for i := range ones {
		ones[i] = 1
	}
	ones[1] = c.Y[1]
	bias := b.feed(c.BiasType, ones, c.strides(ones))
	n.Y = nil
	sum := b.node(n, DnnFloat, c.Y)
	sum.Strides = c.strides(c.Y)
	b.node(DnnNode{Kind: DnnPointwise, Mode: PwAdd, X: sum, B: bias, Y: y}, 0, nil)
	return b.g
}

// Attention describes scaled dot-product attention over B,H,S,D tensors with any strides, of which
// the last is 1.
type Attention struct {
	Type             DnnType
	B, H, Sq, Skv, D int64
	// Strides of the operands and the result, of the incoming gradient and of the outgoing ones;
	// nil: contiguous.
	QStrides, KStrides, VStrides, OStrides     []int64
	DOStrides, DQStrides, DKStrides, DVStrides []int64
	Scale                                      float32
	Causal                                     bool
	Version                                    int // of the library; before 9.10 the mask is -FLT_MAX
}

func (a Attention) dims(s, d int64) []int64 { return []int64{a.B, a.H, s, d} }

// masked is the value that replaces a masked score.
func (a Attention) masked() float32 {
	if a.Version > 0 && a.Version < 91000 {
		return -math.MaxFloat32
	}
	return float32(math.Inf(-1))
}

// swapped describes the transpose of the last two dimensions of a tensor in the same memory.
func swapped(t *DnnTensor) *DnnTensor {
	x := *t
	x.Dims = []int64{t.Dims[0], t.Dims[1], t.Dims[3], t.Dims[2]}
	x.Strides = []int64{t.Strides[0], t.Strides[1], t.Strides[3], t.Strides[2]}
	return &x
}

// mask replaces the scores above the diagonal by masked, if attention is causal.
func (a Attention) mask(b *dnnBuilder, s *DnnTensor) *DnnTensor {
	if !a.Causal {
		return s
	}
	hidden := b.scalarConst(a.masked(), 4)
	row := b.node(DnnNode{Kind: DnnPointwise, Mode: PwGenIndex, Axis: 2, X: s}, DnnInt32, s.Dims)
	col := b.node(DnnNode{Kind: DnnPointwise, Mode: PwGenIndex, Axis: 3, X: s}, DnnInt32, s.Dims)
	keep := b.node(DnnNode{Kind: DnnPointwise, Mode: PwCmpGE, X: row, B: col}, DnnBool, s.Dims)
	return b.node(DnnNode{Kind: DnnPointwise, Mode: PwSelect, X: s, B: hidden, T: keep}, DnnFloat, s.Dims)
}

// Forward is the composite graph that flash-attention engines recognize. Feeds: q, k, v, o and the
// row statistics max + log Σ exp, f32 of B,H,Sq,1.
func (a Attention) Forward() *DnnGraph {
	b := &dnnBuilder{&DnnGraph{Name: "attention"}}
	q := b.feed(a.Type, a.dims(a.Sq, a.D), a.QStrides)
	k := swapped(b.feed(a.Type, a.dims(a.Skv, a.D), a.KStrides))
	v := b.feed(a.Type, a.dims(a.Skv, a.D), a.VStrides)
	b.g.Feeds[1] = k // described transposed, same memory
	o := b.feed(a.Type, a.dims(a.Sq, a.D), a.OStrides)
	stats := b.feed(DnnFloat, a.dims(a.Sq, 1), nil)
	scale := b.scalarConst(a.Scale, 4)
	s := a.mask(b, b.pointwise(PwMul, b.matmul(q, k), scale))
	row := a.dims(a.Sq, 1)
	top := b.node(DnnNode{Kind: DnnReduction, Mode: DnnReduceMax, X: s}, DnnFloat, row)
	e := b.pointwise(PwExp, b.pointwise(PwSub, s, top), nil)
	sum := b.node(DnnNode{Kind: DnnReduction, Mode: dnnReduceAdd, X: e}, DnnFloat, row)
	b.node(DnnNode{Kind: DnnPointwise, Mode: PwAdd, X: top, B: b.pointwise(PwLog, sum, nil), Y: stats}, 0, nil)
	p := b.node(DnnNode{Kind: DnnPointwise, Mode: PwDiv, X: e, B: sum}, a.Type, e.Dims)
	b.node(DnnNode{Kind: DnnMatmul, X: p, B: v, Y: o}, 0, nil)
	return b.g
}

// Backward is the composite graph of the gradients. Feeds: q, k, v, o, do, stats, then dq, dk, dv and
// two f32 buffers the engine needs: the row sums of do·o (B,H,Sq,1) and the accumulator of dq
// (B,H,Sq,D, zeroed by the caller before cuDNN 9.6).
func (a Attention) Backward() *DnnGraph {
	b := &dnnBuilder{&DnnGraph{Name: "attention_backward"}}
	tq, tk := a.dims(a.Sq, a.D), a.dims(a.Skv, a.D)
	q, k, v := b.feed(a.Type, tq, a.QStrides), b.feed(a.Type, tk, a.KStrides), b.feed(a.Type, tk, a.VStrides)
	o, do := b.feed(a.Type, tq, a.OStrides), b.feed(a.Type, tq, a.DOStrides)
	row := a.dims(a.Sq, 1)
	stats := b.feed(DnnFloat, row, nil)
	dq, dk, dv := b.feed(a.Type, tq, a.DQStrides), b.feed(a.Type, tk, a.DKStrides), b.feed(a.Type, tk, a.DVStrides)
	total, acc := b.feed(DnnFloat, row, nil), b.feed(DnnFloat, tq, nil)
	kt, vt := swapped(k), swapped(v)
	b.g.Feeds[1], b.g.Feeds[2] = kt, vt
	scale, one := b.scalarConst(a.Scale, 4), b.scalarConst(1, 4)

	products := b.pointwise(PwMul, do, o)
	products.Strides = []int64{a.H * a.Sq * a.D, a.Sq * a.D, a.H * a.D, 1} // as NVIDIA's frontend has them; no memory is behind
	dots := b.node(DnnNode{Kind: DnnReduction, Mode: dnnReduceAdd, X: products}, DnnFloat, row)
	b.node(DnnNode{Kind: DnnPointwise, Mode: PwMul, X: dots, B: one, Y: total}, 0, nil)
	s := b.pointwise(PwSub, b.pointwise(PwMul, b.matmul(q, kt), scale), stats)
	p := b.pointwise(PwExp, a.mask(b, s), nil)
	b.node(DnnNode{Kind: DnnMatmul, X: a.turn(b, p), B: do, Y: dv}, 0, nil)
	dp := b.pointwise(PwSub, b.matmul(do, vt), total)
	ds := b.pointwise(PwMul, b.pointwise(PwMul, dp, p), scale)
	b.node(DnnNode{Kind: DnnMatmul, X: a.turn(b, ds), B: q, Y: dk}, 0, nil)
	plainK := b.node(DnnNode{Kind: DnnReshape, X: kt}, DnnFloat, tk)
	plainK.Strides = k.Strides
	b.node(DnnNode{Kind: DnnMatmul, X: ds, B: plainK, Y: acc}, 0, nil)
	b.node(DnnNode{Kind: DnnPointwise, Mode: pwIdentity, X: acc, Y: dq}, 0, nil)
	return b.g
}

// turn reshapes scores B,H,Sq,Skv into their transpose, rounded to the type of the inputs.
func (a Attention) turn(b *dnnBuilder, p *DnnTensor) *DnnTensor {
	t := b.node(DnnNode{Kind: DnnReshape, X: p}, a.Type, a.dims(a.Skv, a.Sq))
	t.Strides = []int64{a.H * a.Sq * a.Skv, a.Sq * a.Skv, 1, a.Skv}
	return t
}
