package ir

// Class is how a precision policy treats an operand, a result or a row.
type Class uint8

const (
	NoClass  Class = iota
	Low            // operands in the low dtype, computes in f32, result low or f32
	Keep           // computes in f32; reads low if the kernel can; stores f32 unless no reader needs it
	PromoteC       // computes in f32 and never narrows: one f32 operand makes the result f32
	Clear          // moves bits or keeps order: any dtype
	Fixed          // the op's contract fixes its dtypes
	numClasses
)

var classNames = [numClasses]string{"none", "low", "keep", "promote", "clear", "fixed"}

func (c Class) String() string { return classNames[c] }

// ClassOf finds a class by its spelling.
func ClassOf(name string) (Class, bool) {
	for c := Low; c < numClasses; c++ {
		if classNames[c] == name {
			return c, true
		}
	}
	return NoClass, false
}

// Flags are facts about a row, which passes use instead of lists of ops.
type Flags uint32

const (
	Commutative   Flags = 1 << iota
	Moves               // result elements are operand elements, bit for bit: casts may cross
	Random              // draws random numbers; never merged
	NoMerge             // never merged with an equal node (round, random, state writers)
	InPlace             // result 0 may overwrite operand 0 if that is not read later
	View                // result 0 is operand 0's memory under another shape
	Collective          // sends messages to other ranks
	Writer              // belongs to the update: its results are next values of variables
	Convolves           // a convolution or its gradient: kernels may use transforms of tiles instead
	Norm                // normalizes operand 0 by statistics that are results: Builder.NormAgain computes result 0 from them
	Apart               // result i depends on operand i only
	Caches              // works on memory that a call supplies for its sequences (RoleCache); a target says whether its calls do
	Regularizes         // noise for training: in inference, or with p=0, result 0 is operand 0
	MatrixProduct       // matrix product of operands 0 and 1, plus the operand that is a Bias
	FiniteExpand        // Expand computes the row for finite operands only: with Inf and NaN, elements may differ
	External            // computed by foreign code: never merged or repeated; without Grad, a loss that depends on it is an error
	TotalNorm           // one number of all elements of all operands, whose kernel can run Checks of the same tensors
	Checks              // one bool: whether operands have elements that are not finite
	CountsLabels        // a loss whose count, result 1, does not depend on operand 0; a kernel can compute it with its gradient
	Equivariant         // permuting dimensions of operands and results and its axes alike does not change what it computes
	ReadsRows           // what it computes of the elements of operand 0 along its axes depends on no other elements (Node.RowLength)
)

// Kinds of elements an operand accepts.
type Kinds uint8

const (
	KFloat Kinds = 1 << iota // f32 f16 bf16 f64
	KInt                     // i8 to i64, u8 to u64
	KBool
	KAny  = KFloat | KInt | KBool
	KNum  = KFloat | KInt
	KMask = KInt | KBool
)

func (k Kinds) accepts(d DType) bool {
	switch {
	case d.Float():
		return k&KFloat != 0
	case d == Bool:
		return k&KBool != 0
	}
	return k&KInt != 0
}

// Entry is how a number enters the elements of the result.
type Entry uint8

const (
	NoEntry    Entry = iota // in another way: selected, compared, or the operand of a function
	Added                   // to the other operands
	Subtracted              // from the other operands
	Multiplied              // with the other operands
	Divides                 // as the divisor of the other operands
	Reduced                 // in arithmetic whose result may be small although the number is large
	Fills                   // of an attribute: elements of the result are this number
)

// Operand describes one operand of a row.
type Operand struct {
	Name     string
	Kinds    Kinds // zero: KFloat
	Class    Class // differs from the row's class (Fixed: stays f32); zero: the row's
	ReadsLow bool  // the kernel converts on load although the class computes in f32
	Sign     bool  // the row reads only whether an element is above zero
	Optional bool
	Variadic bool // this and all further operands; only the last
	Named    bool // printed as name=%value among the attributes
	Strided  bool // its rows may be strided: they need not be contiguous
	Selects  bool // integers that index the elements of operand 0 along the row's axis, or the first axis
	AsStored bool // the row's expansion reads it in its own dtype: products keep their sums in f32
	Unread   bool // no kernel reads it: a result was computed from it, or takes its shape
	Searched bool // kernels may recompute it from its own operands (Result.Cheap)
	Bias     bool // a vector that is added along the columns, or the channels, of the result
	Entry    Entry
	// NoGrad says why Grad has no gradient for a float operand. A loss that depends on a trained
	// parameter through it is an error. "": it has a gradient.
	NoGrad string
}

// Result describes one result of a row.
type Result struct {
	Name      string
	Class     Class // differs from the row's class; zero: the row's
	StoresLow bool  // the out attribute may choose a low dtype although the row computes in f32
	StoresF32 bool  // the out attribute may choose f32 although the operands are low
	Optional  bool  // a trailing result that a node may omit
	Strided   bool  // its rows may be stored strided: they need not be contiguous
	Finite    bool  // no element is Inf or NaN, for any operands
	Cheap     bool  // backward may recompute it from operand 0 instead of keeping it
}

// Cost is the flops and bytes of running a node, from its types. Bytes count every operand once and
// every result once, in their stored dtypes.
type Cost struct {
	Flops       int64
	Read, Write int64
}

// Bound is the largest error of an inexact row compared with the evaluator, in addition to the
// rounding to the stored dtype: ULP units in the last place of f32, plus K·2⁻²³·Σ|a·b| for rows
// that sum K products (Σ is over the magnitudes of the operands). Tensor cores multiply 16-bit
// operands: a GPU may round intermediate values of such a row to the dtype of its operands, which
// adds Inner half units of that dtype times Σ|a·b|.
type Bound struct {
	ULP   float64
	K     int64
	Inner int64
}

// Interval is a closed range that contains a value. NaN says that the value may also be NaN.
type Interval struct {
	Lo, Hi float64
	NaN    bool
}

// Def is everything that the compiler knows about an op without tensors, kernels and devices.
type Def struct {
	Name   string // spelling in the text form
	Doc    string // one sentence; copied into docs/ops.md
	Family string // heading in docs/ops.md
	In     []Operand
	Out    []Result
	Attrs  []AttrDef
	Flags  Flags
	Class  Class
	Why    string // the class's reason, shown in dumps
	Poles  string // for the doctor: when a result is not finite although the operands are

	// Infer checks operands and attributes. It returns the result types, or an error of one
	// sentence that names the operands and their types.
	Infer func(n *Node) ([]Type, error)
	// Grad returns the gradient of each operand (nil: none) from those of the results (nil: none).
	// It builds them with rows that have gradients themselves.
	Grad func(b *Builder, n *Node, d []*Value) []*Value
	// NoGrad says why there is no gradient, if Grad and Expand are nil.
	NoGrad string
	// Expand computes the same op with simpler rows: for second derivatives, as fallback, in tests
	// and for export.
	Expand func(b *Builder, n *Node) []*Value
	// Elem makes the row elementwise: it emits the code that computes one element
	// of every result from one element of every operand (operands broadcast).
	// The evaluator, the CPU and PTX all run this code.
	Elem func(c *Code, n *Node) []Reg
	// GradOf is the row whose gradient this is, or OpInvalid.
	GradOf Op
	// Batch is set if training normalizes by the batch and inference by running statistics.
	Batch *BatchRows
	// Norm is set for norms with statistics and for their gradients.
	Norm *NormRow
	// Part is set for rows that only select or reorder elements in ways that strides express.
	Part *PartRow
	// Window is set for rows that slide windows over images: convolutions, pools and their
	// gradients.
	Window *WindowRow
	// Steps is set for recurrences: the first dimension of operand 0 is their steps.
	Steps bool
	// Items reports whether item i of the results, along the first dimension, depends on item i of
	// operand 0 and on nothing else that is a batch (Graph.OneItem). nil: rows with Window of an
	// image, with Elem, and those that join along another axis do; no others are known to.
	Items func(n *Node) bool
	// Aligned lists, by operand, the dimensions (negative: from the end) that tensor cores read at
	// full speed if they are multiples of DType.Multiple. Padding them with zeros changes no
	// element of a result, although the result may become longer. nil or an empty result: there are
	// none.
	Aligned func(n *Node) [][]int
	Unit    UnitRule // nil: UnitOne
	// Bound is the largest error of the row. It is nil for rows whose Elem is exact and for rows
	// that only move elements.
	Bound func(n *Node) Bound
	Range func(n *Node, in []Interval) []Interval
	// Nonfinite returns what an element x of operand i, one kind of Inf or NaN, surely leaves in
	// some element of a float result, whatever the other elements are (see Node.HandsOn). nil: the
	// row's code determines it; without code it may be lost.
	Nonfinite func(n *Node, i int, x Numbers) Numbers
	Cost      func(n *Node) Cost // nil: one flop per result element of an elementwise row, none for others

	// Kernel is the Go implementation of a custom op: flat row-major f32 (or
	// int) data in, data out. Nil for built-in rows.
	Kernel CustomKernel
}

// CustomKernel computes a custom op on host data. in and out hold one slice
// per operand and result, in row-major order: []float32 for the float dtypes
// (already widened; results are rounded when stored), []int64 for all others.
type CustomKernel func(n *Node, in []any, out []any) error

// BatchRows are the rows of a norm over the batch.
type BatchRows struct {
	Train Op // normalizes by the statistics of the batch, and updates the running ones
	Infer Op // normalizes by the running statistics
	Grad  Op // gradient of Train
}

// NormRow is what a norm, or the gradient of one, normalizes.
type NormRow struct {
	Over NormOver
	RMS  bool // divides by the root mean square, without subtracting a mean
}

// NormOver is the set of elements that share the statistics of a norm.
type NormOver uint8

const (
	OverRows     NormOver = iota // the elements of the last dims dimensions
	OverChannels                 // each channel, over all images and positions
	OverGroups                   // each group of channels of each image (Node.GroupCount)
)

// Arg is an operand or a result of a row.
type Arg uint8

const (
	NoArg Arg = iota
	In0
	In1
	Out0
)

// arg is the value of n that a denotes, nil for NoArg.
func (n *Node) arg(a Arg) *Value {
	switch a {
	case In0, In1:
		return n.In[a-In0]
	case Out0:
		return n.Out[0]
	}
	return nil
}

// WindowRow is the roles of the operands and results of a row with windows. A gradient has the
// roles of its row, a transposed convolution those of the convolution that it transposes.
type WindowRow struct {
	Image  Arg // what windows slide over: the larger side
	Places Arg // one element for each position of a window
	Filter Arg // NoArg for a pool
}

// ResultsOf lists the results that depend on operand i.
func (n *Node) ResultsOf(i int) []*Value {
	if n.Def().Is(Apart) && i < len(n.Out) {
		return n.Out[i : i+1]
	}
	return n.Out
}

// OperandsOf lists the operands that result k depends on, with nil for absent ones, and the index
// of the first.
func (n *Node) OperandsOf(k int) (list []*Value, first int) {
	if n.Def().Is(Apart) && k < len(n.In) {
		return n.In[k : k+1], k
	}
	return n.In, 0
}

// Is reports whether the row has all the given flags.
func (d *Def) Is(f Flags) bool { return d.Flags&f == f }

// HasAttr reports whether the row of n has an attribute.
func (n *Node) HasAttr(name string) bool {
	for _, a := range n.Def().Attrs {
		if a.Name == name {
			return true
		}
	}
	return false
}

// OperandClass returns the class of operand i.
func (n *Node) OperandClass(i int) Class {
	if c := n.OperandDef(i).Class; c != NoClass {
		return c
	}
	return n.Def().Class
}

// ResultClass returns the class of result i.
func (n *Node) ResultClass(i int) Class {
	d := n.Def()
	if i < len(d.Out) && d.Out[i].Class != NoClass {
		return d.Out[i].Class
	}
	return d.Class
}

// NodeCost returns the row's cost: bytes by the stored types, flops by the row. Symbolic dimensions
// have their nominal size.
func (g *Graph) NodeCost(n *Node) Cost {
	var c Cost
	if f := n.Def().Cost; f != nil {
		c = f(n)
	} else if n.Def().Elem != nil {
		for _, v := range n.Out {
			c.Flops += g.Elements(v.Type)
		}
	}
	if c.Read == 0 {
		for _, v := range n.In {
			if v != nil {
				c.Read += g.Elements(v.Type) * v.Type.DType.Size()
			}
		}
	}
	if c.Write == 0 && !n.Shares() {
		for _, v := range n.Out {
			c.Write += g.Elements(v.Type) * v.Type.DType.Size()
		}
	}
	if n.Shares() {
		c.Read = 0
	}
	return c
}
