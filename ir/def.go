package ir

// Class is how a precision policy treats an operand, a result or a whole row.
type Class uint8

const (
	NoClass  Class = iota
	Low            // operands to the low dtype, f32 inside, result low or f32
	Keep           // f32 inside; reads low where the kernel can; stores f32 unless every reader is happy with low
	PromoteC       // f32 inside and never narrows: one f32 operand makes the result f32
	Clear          // moves bits or keeps order: takes what it is given
	Fixed          // dtypes are the op's contract
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

// Flags are facts that passes ask for instead of listing ops.
type Flags uint32

const (
	Commutative   Flags = 1 << iota
	Moves               // result elements are operand elements, bit for bit: casts may cross
	Random              // draws numbers; never merged
	NoMerge             // never merged with an equal node (round, random, state writers)
	InPlace             // result 0 may overwrite operand 0 where that dies here
	View                // result 0 is operand 0's memory under another shape
	Collective          // talks to other ranks
	Writer              // belongs to the update: its results are next values of variables
	Convolves           // a convolution or a gradient of one: kernels may transform tiles instead
	Norm                // operand 0 by statistics that are results: Builder.NormAgain makes result 0 of them
	Apart               // result i is made of operand i and of no other
	Caches              // works on the memory that a call brings for its sequences (RoleCache): a target says whether it does
	Regularizes         // noise of training: outside it, or with p=0, result 0 is operand 0
	MatrixProduct       // the matrix product of operands 0 and 1, plus the operand that is a Bias
	FiniteExpand        // Expand computes the row of finite operands only: Inf and NaN leave other elements
	External            // computed by code of its own: never merged or repeated; without Grad, a loss that depends on it is an error
	Equivariant         // means the same when dimensions of operands and results, and the axes it names, are permuted alike
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

// Entry is how a number goes into an element of the result.
type Entry uint8

const (
	NoEntry    Entry = iota // as none of these: chosen, compared, under a function
	Added                   // to the other operands
	Subtracted              // from the other operands
	Multiplied              // with the other operands
	Divides                 // the other operands are divided by it
	Reduced                 // in arithmetic that may make a small number of a large one
	Fills                   // of an attribute: elements of the result are it
)

// Operand describes one operand of a row.
type Operand struct {
	Name     string
	Kinds    Kinds // zero: KFloat
	Class    Class // differs from the row's class (Fixed: stays f32); zero: the row's
	ReadsLow bool  // the kernel converts on load although the class computes in f32
	Sign     bool  // only whether an element is above zero is read
	Optional bool
	Variadic bool // this and all further operands; only the last
	Named    bool // printed as name=%value among the attributes
	Strided  bool // its rows are walked by strides: they need not lie one after the other
	Selects  bool // integers that number the elements of operand 0 along the row's axis, the first where it names none
	AsStored bool // the row's expansion reads it in the dtype it has: products keep their sums in f32
	Unread   bool // no kernel reads it: it names what a result was computed from
	Searched bool // kernels may compute it again from what it was computed from (Result.Cheap)
	Bias     bool // a vector that is added along the columns, or the channels, of the result
	Entry    Entry
	// NoGrad says why Grad gives a float operand no gradient; a loss that depends on
	// a trained parameter through it is an error. "": it has one.
	NoGrad string
}

// Result describes one result of a row.
type Result struct {
	Name      string
	Class     Class // differs from the row's class; zero: the row's
	StoresLow bool  // the out attribute may choose a low dtype although the row computes in f32
	StoresF32 bool  // the out attribute may choose f32 although the operands are low
	Optional  bool  // trailing results that a node may leave out
	Strided   bool  // its rows are stored by strides: they need not lie one after the other
	Finite    bool  // no element is Inf or NaN, whatever the operands hold
	Cheap     bool  // backward computes it again from operand 0 rather than keep it
}

// Cost is what one execution of a node does, from types alone. Bytes count
// every operand read once and every result written once, as stored.
type Cost struct {
	Flops       int64
	Read, Write int64
}

// Bound is the error a bounded row may have against the evaluator, beyond the
// rounding to the stored dtype: ULP units in the last place of f32, plus
// K·2⁻²³·Σ|a·b| for rows that sum K products (Σ taken over the operands' magnitudes).
// Matrix units take 16-bit operands: a GPU may round what such a row keeps inside
// to the dtype of its operands, which adds Inner half units of that dtype times Σ|a·b|.
type Bound struct {
	ULP   float64
	K     int64
	Inner int64
}

// Interval is a closed range a value is known to lie in; NaN reports that a
// NaN is possible as well.
type Interval struct {
	Lo, Hi float64
	NaN    bool
}

// Def is everything the compiler knows about an op that needs no tensor,
// kernel or device.
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
	Poles  string // what it does where its result is not finite and its operands are, for the doctor

	// Infer checks operands and attributes and returns the result types, or one
	// sentence that names the operands and their types.
	Infer func(n *Node) ([]Type, error)
	// Grad returns the gradient of each operand (nil: none flows) given those of
	// the results (nil: none arrives). It builds with rows that have gradients.
	Grad func(b *Builder, n *Node, d []*Value) []*Value
	// NoGrad says why there is no gradient, where Grad and Expand are nil.
	NoGrad string
	// Expand is the same op in simpler rows: second derivatives, fallback, test, export.
	Expand func(b *Builder, n *Node) []*Value
	// Elem makes the row elementwise: it emits the code that computes one element
	// of every result from one element of every operand (operands broadcast).
	// The evaluator, the CPU and PTX all run this code.
	Elem func(c *Code, n *Node) []Reg
	// GradOf is the row whose gradient this is; OpInvalid: this is no such row.
	GradOf Op
	// Batch is set where training normalizes by the batch and inference by running statistics.
	Batch *BatchRows
	// Norm is set for norms with statistics and for their gradients.
	Norm *NormRow
	// Part is set for rows that only select or reorder elements, in ways that strides express.
	Part *PartRow
	// Window is set for what slides windows over images: convolutions, pools and their gradients.
	Window *WindowRow
	// Aligned lists, by operand, the dimensions (negative: from the end) that tensor cores read at full
	// speed in multiples of DType.Multiple. Zeros behind them change no element of a result, which may
	// become longer. nil, or a nil result: there are none.
	Aligned func(n *Node) [][]int
	Unit    UnitRule // nil: UnitOne
	// Bound is the error the row may have; nil for rows whose Elem is exact and
	// for rows that only move elements.
	Bound func(n *Node) Bound
	Range func(n *Node, in []Interval) []Interval
	// Nonfinite says what an element of operand i that is x, one kind of Inf or
	// NaN, leaves in some element of some float result, whatever stands beside it
	// (see Node.HandsOn). nil: the row's code says it; without code it may be lost.
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
	Train Op // by the statistics of the batch, which it moves the running ones by
	Infer Op // by the running statistics
	Grad  Op // the gradient of Train
}

// NormRow says what a norm, or the gradient of one, normalizes.
type NormRow struct {
	Over NormOver
	RMS  bool // by the root of the mean square: no mean is subtracted
}

// NormOver is what shares the statistics of a norm.
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

// Arg is the value of n that a stands for, nil for NoArg.
func (n *Node) Arg(a Arg) *Value {
	switch a {
	case In0, In1:
		return n.In[a-In0]
	case Out0:
		return n.Out[0]
	}
	return nil
}

// WindowRow says what slides over what in a row with windows. A gradient has the roles of the row whose
// gradient it is, a transposed convolution those of the convolution that it transposes.
type WindowRow struct {
	Image  Arg // what windows slide over: the side with more detail
	Places Arg // one element for each place of a window
	Filter Arg // NoArg: a pool
}

// ResultsOf lists the results that operand i goes into.
func (n *Node) ResultsOf(i int) []*Value {
	if n.Def().Is(Apart) && i < len(n.Out) {
		return n.Out[i : i+1]
	}
	return n.Out
}

// OperandsOf lists the operands that result k is made of, nil for absent ones, and the
// number of the first.
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

// OperandClass returns the class operand i is treated by.
func (n *Node) OperandClass(i int) Class {
	if c := n.OperandDef(i).Class; c != NoClass {
		return c
	}
	return n.Def().Class
}

// ResultClass returns the class result i is treated by.
func (n *Node) ResultClass(i int) Class {
	d := n.Def()
	if i < len(d.Out) && d.Out[i].Class != NoClass {
		return d.Out[i].Class
	}
	return d.Class
}

// NodeCost returns the row's cost: bytes from the stored types, flops from the
// row. Symbolic dimensions count at their nominal size.
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
