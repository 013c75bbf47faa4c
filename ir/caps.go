package ir

import "slices"

// Caps is what the kernels of a target convert themselves, as data. The rows state what is possible
// (ReadsLow, StoresLow, StoresF32, elementwise code). Caps states what a target's kernels do not
// support. The zero Caps, which is the CPU's, excludes nothing.
type Caps struct {
	NoLoad  map[Op]bool // the kernel reads only one dtype
	NoStore map[Op]bool // the kernel stores only the dtype in which it computes
	// SingleStore: the epilogue of a product is at most one bias, one activation and one residual (Extends), and it
	// stores one result. Otherwise the kernel fuses any elementwise work on its result (FusesCluster).
	SingleStore bool
	// PostOps are the rows beside products whose kernels run any elementwise work on blocks of their only
	// result, a float, and store the results of that (FusesCluster).
	PostOps map[Op]bool
	// Layout is the layout of images that window kernels support: NHWC, or "" for both.
	Layout string
	// NoGraphs: no library runs convolutions and attention as graphs of operations (cuDNN); they
	// become products and kernels.
	NoGraphs bool
	// LowFilterGrad reports whether n, the gradient of a convolution's filter, is stored in 16 bits if its
	// operands are; nil: never.
	LowFilterGrad func(n *Node) bool
	// Norms is what the kernel of n runs besides its row. n is a norm over channels or groups of
	// them, or its gradient. nil: nothing.
	Norms func(n *Node) NormFusion
	// Rows is what the kernel of n, a norm over rows, its gradient, or another row that ReadsRows, runs
	// besides its row; nil: nothing.
	Rows func(n *Node) RowFusion
	// Products is what the kernel of product n also computes while it stores its result, in dtypes for
	// which ProductFusion.Fits; nil: nothing.
	Products func(n *Node) ProductFusion
	// ChecksNorms: one kernel runs global norms and the finiteness checks of tensors that they read
	// (RunsChecks).
	ChecksNorms bool
	// JoinsLosses: one kernel runs a loss and its gradient (RunsLoss).
	JoinsLosses bool
	// OmitsUnread: max pools, and losses that count labels, compute only results that something reads.
	OmitsUnread bool
	// RecomputesPools: a max pool stores its positions only if something reads them. The gradient of a
	// max pool that is in its launch searches the image for the positions itself.
	RecomputesPools bool
	// Keeps: a store keeps what prepare computes from variables alone, until one of these is
	// written.
	Keeps bool
	// ItemBytes: a program of one item of a batch runs for each of them where the values of an item
	// take so many bytes and more than the weights; 0: batches run whole.
	ItemBytes int64
	// RoundsInside: matrix units round values between the products of a row to the dtype of its
	// operands (Bound.Inner).
	RoundsInside bool
	// MayKeepTF32: a library may compute a product of math=tf32 with operands that are not rounded.
	// cuBLASLt does where rows are not whole units of 16 bytes, which its tensor cores need.
	MayKeepTF32 bool
	// RequiresDense: no kernel reads strided views (Operand.Strided); every operand is dense.
	RequiresDense bool
	// JoinsInPlace: in inference a kernel stores an operand of a concatenation directly in its result,
	// where the operand is a contiguous part of it.
	JoinsInPlace bool
	// Splits reports whether a product runs as two kernels: one stores its f32 sums, and one reads
	// them and applies the epilogue. nil: no product does.
	Splits func(p Product) bool
	// NoResidual: no kernel of a product adds a tensor of its result's shape.
	NoResidual bool
	// Widens reports whether the device does not multiply operand i, 0 or 1, of product or convolution
	// n where it has dtype d: a kernel makes an f32 copy first. nil: no operand.
	Widens func(n *Node, i int, d DType) bool
	// SplitsConv reports whether convolution n, with the dtypes that its tensors have, runs as two
	// kernels: one stores it without its bias, and one adds the bias. nil: no convolution does.
	SplitsConv func(n *Node) bool
	// Expander is for nodes that the target has no kernel for; nil: it has kernels for all.
	Expander Expander
}

// Product is a matrix product with its epilogue: the dtypes of its operands, bias (Invalid: none)
// and result, and its other epilogue stages.
type Product struct {
	A, B, Bias, Out DType
	Tanh            bool
}

// Take adds node m, which ends epilogue stage s (Extends), to p.
func (p *Product) Take(s EpilogueStage, m *Node) {
	if s == AfterActivation {
		p.Tanh = m.Op == OpTanh
	}
}

// Expander knows how nodes run that a target has no kernel for: as their rows' expansions. The
// methods take a node with the dtypes that its operands and results may have.
type Expander interface {
	// Expands reports whether n runs as the expansion of its row.
	Expands(n *Node) bool
	// Traffic is what the clusters of that expansion move in section s. read marks the results that
	// are read. It returns an error if the target cannot run the expansion either.
	Traffic(n *Node, s Section, read []bool) (*Traffic, error)
}

// Traffic is what the clusters of an expansion move, in bytes per run.
type Traffic struct {
	In, Out []int64 // of each operand and each result; of a value that is several operands at the first one
	Inner   int64   // of tensors that the clusters pass to each other
}

// NormFusion is what the kernel of a norm over channels, or of its gradient, runs besides its row.
type NormFusion struct {
	// Epilogue: a sum with a tensor of the result's shape, then a ReLU, each optional. The kernel
	// stores their result in each form that is read, but not the norm itself.
	Epilogue bool
	// Prologue is the operand that the gradient of a ReLU may compute in the kernel; 0: none.
	Prologue int
	// Operand is the operand that elementwise nodes over dense tensors may compute in the kernel,
	// in their own dtypes. The kernel stores their results that others read. 0: none.
	Operand int
	// Beside: the kernel runs a second norm of the same op and layout: for a gradient, that of another
	// tensor with the same Operand; for a norm, the one whose result its epilogue adds, if nothing else
	// reads that.
	Beside bool
	// Signs: behind a norm, the kernel stores a bit for each element of the ReLU that ends its epilogue,
	// which says whether the element is above zero. Before a gradient, the nodes that compute Operand
	// read such bits in place of the result.
	Signs bool
	// Pools: the kernel of a max pool computes the result of the norm and of the ReLU behind it from what
	// the norm reads (Caps.PooledNorm).
	Pools bool
	// Windows: before a gradient, the nodes that compute Operand read images as sums of outputs of
	// windows (Caps.Spreads), of which at most so many cover a position. 0: they read the images.
	Windows int64
}

// RowFusion is what the kernel of a norm over rows, or of another row that reads rows, runs besides
// its row: elementwise nodes that compute an operand of it (the prologue), and elementwise nodes that
// read its first result (the epilogue). The kernel stores their results that others read.
type RowFusion struct {
	Cols    int64 // elements of a row, which is the last dimensions of the nodes' results; 0: no fusion
	Operand int   // operand that a prologue may compute, -1: none
	// Epilogue: the kernel also stores its first result in each form that is read.
	Epilogue bool
	// Sums: the kernel also adds up all rows of one value of the epilogue, in f32. Example: the gradient
	// of the bias that was added to the trunk in front of the norm, next to the trunk's gradient.
	Sums bool
}

// SumsRows reports whether n adds up all rows of its operand, with cols columns each.
func (n *Node) SumsRows(cols int64) bool {
	if n.Op != OpReduceSum {
		return false
	}
	shape, axes := Sizes(n.In[0].Type.Shape), n.Axes()
	size := int64(1)
	for i, d := range shape {
		if i < len(axes) && !slices.Contains(axes, i) {
			return false
		}
		if i >= len(axes) {
			size *= d
		}
	}
	return len(axes) > 0 && size == cols && n.In[0].Type.DType.Float()
}

// ProductFusion is what the kernel of a product computes besides its row and its epilogue, in one
// launch with nodes that have their own dtypes.
type ProductFusion struct {
	// Gelu: the GELU of the product's result in the tanh form, where the result may also be stored;
	// and the gradient of such a GELU, whose first operand is the product's result, which is not
	// stored.
	Gelu bool
	// Relu: the ReLU of its result, which is not stored.
	Relu bool
	// Sums: the sum over all rows of an operand that the product sums over its rows, such as a
	// bias's gradient next to that of a filter. It excludes other fusions.
	Sums bool
}

// ProductsOf is what the kernel of product n also computes.
func (c Caps) ProductsOf(n *Node) ProductFusion {
	if c.Products == nil || !n.Def().Is(MatrixProduct) {
		return ProductFusion{}
	}
	return c.Products(n)
}

// NormOf is what runs in n's kernel, if n is a norm over channels or groups of them or the gradient of one.
func (c Caps) NormOf(n *Node) NormFusion {
	if r := n.Def().Norm; c.Norms == nil || r == nil || r.Over == OverRows {
		return NormFusion{}
	}
	return c.Norms(n)
}

// RowsOf is what runs in n's kernel, if n is a norm over rows, its gradient, or another row that reads
// rows.
func (c Caps) RowsOf(n *Node) RowFusion {
	if r := n.Def().Norm; c.Rows == nil || (r == nil || r.Over != OverRows) && !n.Def().Is(ReadsRows) {
		return RowFusion{Operand: -1}
	}
	return c.Rows(n)
}

// RowLength is the number of elements in a row that n reads (ReadsRows), if rows are contiguous: n
// reads along the last dimensions, where those of size one do not count. It is 0 for other nodes, for
// unknown sizes and where there are no elements.
func (n *Node) RowLength() int64 {
	if !n.Def().Is(ReadsRows) {
		return 0
	}
	x := n.In[0].Type.Shape
	if !x.Static() || x.Elements() == 0 {
		return 0
	}
	axes := n.Axes()
	if n.Def().attrDef(axesAttr.Name) == nil {
		axes = []int{n.Axis()}
	}
	length, kept := int64(1), false
	for i := x.Rank() - 1; i >= 0; i-- {
		switch d := int64(x.Dim(i)); {
		case d == 1:
		case !slices.Contains(axes, i):
			kept = true
		case kept:
			return 0
		default:
			length *= d
		}
	}
	return length
}

// Loads reports whether n's kernel converts operand i to f32 while reading it.
func (c Caps) Loads(n *Node, i int) bool {
	if c.NoLoad[n.Op] || n.OperandClass(i) == Fixed {
		return false
	}
	return n.Def().Elem != nil || n.OperandDef(i).ReadsLow
}

// StoresLow reports whether n's kernel can store result 0 in 16 bits although
// it computes in f32.
func (c Caps) StoresLow(n *Node) bool {
	if c.NoStore[n.Op] || n.ResultClass(0) == Fixed {
		return false
	}
	return n.Def().Elem != nil || n.Def().Out[0].StoresLow
}

// RunsChecks reports whether n is a global norm or a finiteness check, of which one kernel runs
// several.
func (c Caps) RunsChecks(n *Node) bool { return c.ChecksNorms && isCheck(n) }

// RunsLoss reports whether n is a loss that counts labels, or the gradient of one, and one kernel can
// run both.
func (c Caps) RunsLoss(n *Node) bool { return c.JoinsLosses && n.isLoss() }

func (n *Node) isLoss() bool {
	of := n.Def().GradOf
	return n.Def().Is(CountsLabels) || of != OpInvalid && defs[of].Is(CountsLabels)
}

func isCheck(n *Node) bool { return n.Def().Is(TotalNorm) || n.Def().Is(Checks) }

// cheap reports whether a reader may recompute a result of n.
func (n *Node) cheap() bool {
	return slices.ContainsFunc(n.Def().Out, func(o Result) bool { return o.Cheap })
}

// searches reports whether n may recompute an operand.
func (n *Node) searches() bool {
	return slices.ContainsFunc(n.Def().In, func(o Operand) bool { return o.Searched })
}

// RunsLaunch reports whether the target has a kernel for the launch of which nodes are the members. A
// graph that was compiled for another target may have others.
func (c Caps) RunsLaunch(nodes []*Node) bool {
	for _, n := range nodes {
		switch {
		case isCheck(n):
			return c.ChecksNorms
		case n.isLoss():
			return c.JoinsLosses
		case n.cheap() || n.searches():
			return c.RecomputesPools
		case n.Def().Elem == nil && c.Products == nil && c.RowsOf(n).Cols == 0:
			return false
		}
	}
	return c.Rows != nil || c.Products != nil
}

// DropsUnread reports whether n's kernel stores result i only if something reads it.
func (c Caps) DropsUnread(n *Node, i int) bool {
	if c.OmitsUnread && (n.cheap() || n.Def().Is(CountsLabels)) {
		return true
	}
	return c.RecomputesPools && i < len(n.Def().Out) && n.Def().Out[i].Cheap // a variadic row has more results
}

// Skips reports whether n's kernel does not read operand i: it computes only the count of a loss.
// unread reports whether nothing reads a result.
func (c Caps) Skips(n *Node, i int, unread func(v *Value) bool) bool {
	return c.OmitsUnread && i == 0 && n.Def().Is(CountsLabels) && unread(n.Out[0])
}

// StoresF32 reports whether n's kernel can store result 0 in f32 although its
// operands are low, and no other result with it.
func (c Caps) StoresF32(n *Node) bool {
	for i := 1; i < len(n.Out); i++ {
		if n.ResultClass(i) != Fixed && n.Out[i].Type.DType.Float() {
			return false
		}
	}
	if w := n.Def().Window; w != nil && w.Filter == Out0 && c.LowFilterGrad != nil && c.LowFilterGrad(n) {
		return false
	}
	return !c.NoStore[n.Op] && (n.Def().Elem != nil || n.Def().Out[0].StoresF32)
}

// EpilogueStage is the last stage of an epilogue so far.
type EpilogueStage uint8

// An epilogue is at most one bias, one activation and one residual, in this order.
const (
	NoEpilogue EpilogueStage = iota // not a product with an epilogue
	AfterProduct
	AfterBias
	AfterActivation
	AfterResidual
	// The epilogue of a norm is at most one sum and one ReLU, in this order.
	AfterNorm
	AfterNormSum
	AfterNormRelu
)

// FusesCluster reports whether n's kernel runs any elementwise work on its result as an
// epilogue, and stores the results of that: a product, a convolution or one of PostOps.
func (c Caps) FusesCluster(n *Node) bool {
	return (!c.SingleStore || c.PostOps[n.Op]) && c.EpilogueOf(n) != NoEpilogue && !c.FusesNormEpilogue(n)
}

// FusesNormEpilogue reports whether n is a channel norm whose kernel has an epilogue.
func (c Caps) FusesNormEpilogue(n *Node) bool { return c.NormOf(n).Epilogue }

// Chains reports whether n's kernel supports only a fixed epilogue or prologue (Extends, Prologue).
// Each node of its cluster then reads the previous one, which no other node reads, and no cast is
// one of its loads.
func (c Caps) Chains(n *Node) bool {
	return c.EpilogueOf(n) != NoEpilogue && !c.FusesCluster(n) || c.NormOf(n).Prologue > 0
}

// StoresOnce reports whether n's kernel stores the result of its epilogue in one form only.
func (c Caps) StoresOnce(n *Node) bool {
	return c.SingleStore && !c.PostOps[n.Op] && c.EpilogueOf(n) != NoEpilogue && !c.FusesNormEpilogue(n)
}

// Prologue is the node that computes an operand of n in n's kernel, if no other node reads it;
// otherwise nil.
func (c Caps) Prologue(n *Node) *Node {
	i := c.NormOf(n).Prologue
	if i == 0 || n.In[i] == nil || n.In[i].Def == nil {
		return nil
	}
	m, shape := n.In[i].Def, n.In[0].Type.Shape
	if m.Op != OpReluGrad || m.Out[0].Next != nil || !shape.Known() || m.In[0].Type.Shape != shape || m.In[1].Type.Shape != shape {
		return nil
	}
	return m
}

// EpilogueOf returns the stage of the product's own kernel before any epilogue node. It is
// NoEpilogue for rows whose kernels have no epilogue.
func (c Caps) EpilogueOf(n *Node) EpilogueStage {
	d := n.Def()
	switch {
	case c.FusesNormEpilogue(n):
		return AfterNorm
	case c.PostOps[n.Op]: // post-ops are all that may follow
		if d := n.Out[0].Type.DType; !d.Float() || d == F64 {
			return NoEpilogue
		}
		return AfterResidual
	case !c.SingleStore && d.Is(Convolves) && d.Window.Filter != Out0:
		return AfterBias // the row itself has the bias of channels
	case !d.Is(MatrixProduct):
		return NoEpilogue
	case n.Bias() != nil:
		return AfterBias
	}
	return AfterProduct
}

// Extends returns the stage after node n, which reads y, the product or norm so far. It is
// NoEpilogue if the kernel cannot also run n. relu and tanh give the same bits fused or not.
func (c Caps) Extends(s EpilogueStage, n *Node, y *Value) EpilogueStage {
	if s >= AfterNorm {
		return extendsNorm(s, n, y)
	}
	switch n.Op {
	case OpRelu, OpTanh:
		if s < AfterActivation {
			return AfterActivation
		}
	case OpAdd:
		other := n.In[0]
		if other == y {
			other = n.In[1]
		}
		shape := y.Type.Shape
		switch {
		case other == y || !other.Type.DType.Float() || other.Type.DType == F64 || !shape.Known() || shape.Rank() < 2:
		case other.Type.Shape == shape && s < AfterResidual && !c.NoResidual:
			return AfterResidual
		case other.Type.Shape == MakeShape(shape.Dim(-1)) && s == AfterProduct:
			return AfterBias
		}
	}
	return NoEpilogue
}

func extendsNorm(s EpilogueStage, n *Node, y *Value) EpilogueStage {
	switch {
	case n.Op == OpRelu && s < AfterNormRelu:
		return AfterNormRelu
	case n.Op == OpAdd && s == AfterNorm && n.In[0] != n.In[1]:
		other := n.In[0]
		if other == y {
			other = n.In[1]
		}
		if d := other.Type.DType; other.Type.Shape == y.Type.Shape && d.Float() && d != F64 {
			return AfterNormSum
		}
	}
	return NoEpilogue
}
