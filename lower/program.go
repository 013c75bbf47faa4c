// Package lower turns a Ready graph into a Program: buffers with offsets, and steps in three parts.
// A Program is data. It can be printed and verified without the device that it is for.
package lower

import "ampc/ir"

// Part is a sequence of steps that runs as a whole.
type Part uint8

const (
	Prepare  Part = iota // once per optimizer step
	Micro                // forward and backward, once per micro-batch
	Update               // once per optimizer step
	NumParts             // sentinel
)

var partNames = [NumParts]string{"prepare", "micro", "update"}

func (p Part) String() string { return partNames[p] }

var partSections = [NumParts][]ir.Section{
	Prepare: {ir.Prepare},
	Micro:   {ir.Forward, ir.Backward},
	Update:  {ir.Update},
}

var partOf = [ir.NumSections]Part{ir.Prepare: Prepare, ir.Forward: Micro, ir.Backward: Micro, ir.Update: Update}

// Arena is a region of memory with its own lifetime.
type Arena uint8

const (
	InputArena Arena = iota // filled before every micro-batch
	StateArena              // variables and their weight copies; outlives the program
	ConstArena              // filled once, when the program is loaded
	WorkArena               // reused from step to step
	NumArenas               // sentinel
)

var arenaNames = [NumArenas]string{"input", "state", "const", "work"}

func (a Arena) String() string { return arenaNames[a] }

// Align divides every offset.
const Align = 256

// BufferID indexes Program.Buffers. None stands for an absent optional operand.
type BufferID int32

// None is the BufferID of an absent operand.
const None BufferID = -1

// Buffer is a typed range of bytes in an arena. A view shows its Root with another shape, or a part
// of it: the elements from byte At on, Strides elements apart (nil: all elements, contiguous). A
// buffer that is not a view is its own Root. Only attention reads and writes views with strides;
// the elements of a row, along the last dimension, are contiguous.
//
// Offsets in the state arena count the variables of this program only. A store that several
// programs share finds variables by name instead.
type Buffer struct {
	Name    string
	Type    ir.Type
	Arena   Arena
	Root    BufferID
	Offset  int64
	Size    int64   // of its elements, in bytes
	At      int64   // of a view: its first byte in the root
	Strides []int64 // of a view that is not dense
	Live    Span    // of a root in the work arena: first write to last read
}

// Span is an interval of steps, counted through all parts, with both ends included.
type Span struct{ From, To int32 }

// Program is one training (or inference) step, lowered.
type Program struct {
	Name    string
	Target  Target
	Arenas  [NumArenas]int64
	Buffers []Buffer
	Parts   [NumParts][]Step
	Modules []Module // the kernels that launches name
	Events  int

	Vars         []Var            // every declaration, inputs included
	Outputs      []Binding        // what the graph returns, in order
	WeightCopies []WeightCopy     // casts of variables that a store keeps between steps
	Derived      []Derived        // what prepare computes from variables alone and a store keeps between steps
	Written      []string         // variables of the store that have a next value
	Messages     []Message        // to other ranks, in order
	Planned      []PlannedCluster // clusters that the steps run
	Scratch      BufferID         // buffers from here on are a target's (Finish), for what launches of one cluster pass to each other; 0: none

	// MaxLive is the largest number of bytes of work buffers that live at one step. No placement
	// can take fewer. Separate is the sum of their sizes.
	MaxLive, Separate int64
}

// Total is the bytes of all arenas. Micro-batches that run together have inputs and a work arena each.
func (p *Program) Total() (sum int64) {
	for _, n := range p.Arenas {
		sum += n
	}
	return sum + (p.Together()-1)*(p.Arenas[InputArena]+p.Arenas[WorkArena])
}

// Together is how many micro-batches run together, step by step, because messages are among them; 1:
// they run one after the other.
func (p *Program) Together() int64 {
	for i := range p.Parts[Micro] {
		if n := p.Parts[Micro][i].together(); n > 1 {
			return n
		}
	}
	return 1
}

// Var is a declaration and the buffer that holds it.
type Var struct {
	Name   string
	Type   ir.Type
	Kind   ir.VarKind
	Init   *ir.Init
	Attr   ir.Attrs
	Buffer BufferID
}

// Role is the purpose of a variable that the runtime itself fills in or reads: "micro", "seed", ...
func (v *Var) Role() string { s, _ := v.Attr.Get("role").(string); return s }

// PerCall reports whether every call supplies the memory of the variable, as for a cache.
func (v *Var) PerCall() bool { return v.Kind == ir.State && v.Role() == ir.RoleCache }

// WrittenEarly lists the buffers of variables that parts before update write: sums over
// micro-batches, and running statistics that one micro-batch passes to the next. It does not list
// weight copies.
func (p *Program) WrittenEarly() []BufferID {
	stored := make([]bool, len(p.Buffers))
	for part := range Update {
		for i := range p.Parts[part] {
			for _, id := range p.Parts[part][i].Out {
				stored[p.Buffers[id].Root] = true
			}
		}
	}
	var list []BufferID
	copied := p.copied()
	for i := range p.Vars {
		v := &p.Vars[i]
		if (v.Kind == ir.Param || v.Kind == ir.State) && stored[v.Buffer] && !v.PerCall() && v.Role() != ir.RoleCopy && !copied[v.Buffer] {
			list = append(list, v.Buffer)
		}
	}
	return list
}

// Binding is a buffer and its name outside of the Program.
type Binding struct {
	Name   string
	Type   ir.Type
	Buffer BufferID
}

// WeightCopy is a 16-bit copy of a variable, which a step of prepare makes. A store may skip the
// step while the variable has not been written since.
type WeightCopy struct {
	Var    string
	DType  ir.DType
	Buffer BufferID
	Step   int // index in Parts[Prepare]; one step may make several copies
}

// StepKind says which description of a Step is set.
type StepKind uint8

const (
	KindGemm StepKind = iota
	KindConv
	KindAttention
	KindCluster
	KindKernel
	KindCopy
	KindFill
	numKinds
)

var kindNames = [numKinds]string{"gemm", "conv", "attention", "cluster", "kernel", "copy", "fill"}

func (k StepKind) String() string { return kindNames[k] }

// EventID is an event that a step records and others wait for.
type EventID int32

// NodeRef says which node a step comes from.
type NodeRef struct {
	Name string
	Pos  ir.Pos
}

// Step is one kernel or library call. In and Out list the buffers in the order to which the
// description refers. An absent operand is None, and so is one that nothing reads (ir.Operand.Unread).
type Step struct {
	Kind   StepKind
	In     []BufferID
	Out    []BufferID
	Stream uint8
	Wait   []EventID
	Record EventID // 0: none; events count from 1
	Node   NodeRef
	Bytes  int64   // bytes that it reads and writes, each buffer once
	Runs   []int32 // indexes of its clusters in Program.Planned

	// Exactly one is set.
	Gemm    *Gemm
	Conv    *Conv
	Attn    *Attention
	Cluster *Cluster
	Kernel  *Kernel
	Moves   *Moves

	// More are clusters with the same code as Cluster, over other tensors: one step updates a whole
	// group of parameters.
	More []*Cluster

	// Epilogue is elementwise work on blocks of the result of a product, a convolution or a kernel
	// of Caps.PostOps. It loads that result, after the description's own epilogue and in f32, as
	// buffer None. The result is stored only if Epilogue stores it. The other operands of Epilogue
	// follow those of the description in In; Out lists the buffers that it stores.
	Epilogue *Cluster

	Launch   *Launch   // GPU targets: how the driver runs the step, in addition to the description; nil for library calls
	Transfer *Transfer // GPU targets: what goes to other ranks, in addition to the description
}

// Clusters lists the clusters of a step.
func (s *Step) Clusters() []*Cluster {
	if s.Cluster == nil {
		return nil
	}
	return append([]*Cluster{s.Cluster}, s.More...)
}

// Access is how a step walks a buffer. Point i of the iteration space is the element at Offset plus
// the sum of i's coordinates times Strides, in elements. A stride of zero repeats elements. Buffer
// None is the result of a product (Step.Epilogue).
type Access struct {
	Buffer  BufferID
	DType   ir.DType
	Offset  int64
	Strides []int64
	Reg     ir.Reg // stores only: the register to store
	// For GPU targets. Again: a gradient of a norm does not load the elements but computes them
	// (ir.Caps.Again). Signs: it does not load them either, but from operand Signs of the step a bit for
	// each, which says whether the element is above zero; 0: it loads them. Bits: the elements are bool,
	// eight in a byte of a u8 buffer. Spread: they are those of images, of which the buffer holds less.
	Again  bool
	Signs  int
	Bits   bool
	Spread *Spread
}

// Spread says how a load over images with channels last reads the outputs of windows over them.
// An element of the images is the sum of the outputs that come from it. Without Taps windows have
// one tap. With Taps the next load is the tap that each output comes from.
type Spread struct {
	Window ir.Window
	Taps   bool
}

// Cluster is fused elementwise work: Code runs for every point of Shape. Instruction PIn reads
// Loads[Int]. A load widens; a store rounds once.
type Cluster struct {
	Shape  []int64
	Loads  []Access
	Stores []Access
	Code   []ir.Instr
}

// IsProduct reports whether register r is the result of the product before the cluster
// (Step.Epilogue).
func (g *Cluster) IsProduct(r ir.Reg) bool {
	i := &g.Code[r]
	return i.Op == ir.PIn && g.Loads[i.Int].Buffer == None
}

// Matrix is the layout of a product's operand. Rows are LD elements apart (columns if T). Batch
// items are Strides apart, with one stride for each batch level.
type Matrix struct {
	LD      int64
	Strides []int64
	T       bool
}

// Gemm is C = epilogue(A·B) for every item of a batch. In[0] is A, In[1] is B, then the epilogue's
// operands follow. Out[0] is C.
type Gemm struct {
	M, N, K  int64
	Batch    []int64 // sizes of the batch levels, outermost first
	A, B, C  Matrix
	TF32     bool // operands are rounded to tf32, with a mantissa of 10 bits
	Epilogue Epilogue
}

// Epilogue is applied to a product before it is stored, in the order of the fields and in f32. Bias
// and Residual index Step.In; 0 means absent, because In[0] is a factor.
type Epilogue struct {
	Bias     int // one element for each column, of a convolution for each channel
	Act      Act
	Residual int // shaped as C

	// For GPU targets. An activation stores Aux, the value that its gradient reads, as
	// Step.Out[Aux]; 0: it is not stored. The product of a gradient reads it as Step.In[Aux]. Aux
	// is the operand of a gelu, in the shape of C. Step.Out[BiasGrad] takes the column sums of
	// operand Summed, in C's dtype.
	Aux, BiasGrad int
	Summed        int
}

// Act is an activation of an epilogue, or the factor with which an activation's gradient
// multiplies.
type Act uint8

// The activations. Gelu is the tanh form. Gelu and its gradient are for GPU targets only.
const (
	NoAct Act = iota
	Relu
	Tanh
	Gelu
	GeluGrad
	numActs
)

var actNames = [numActs]string{"none", "relu", "tanh", "gelu", "gelu_grad"}

func (a Act) String() string { return actNames[a] }

// Gradient reports whether a is the factor of a gradient, which reads Aux.
func (a Act) Gradient() bool { return a == GeluGrad }

// ConvDir says which of a convolution's three tensors is computed.
type ConvDir uint8

const (
	ConvForward ConvDir = iota // y from x, w
	ConvGradX                  // dx from dy, w
	ConvGradW                  // dw from x, dy
	numDirs
)

var dirNames = [numDirs]string{"forward", "grad_x", "grad_w"}

func (d ConvDir) String() string { return dirNames[d] }

// Conv is a convolution or one of its gradients. Window is the geometry of the convolution itself
// in all three cases. In is x, w (forward), dy, w (grad_x) or x, dy (grad_w), then the epilogue's
// operands.
type Conv struct {
	Dir      ConvDir
	Window   ir.Window
	TF32     bool
	Direct   bool // computed by the definition: the CPU uses no transforms
	Epilogue Epilogue
}

// Attention is softmax(Scale·Q·Kᵀ + mask)·V for every head, or its gradient. Operands and results
// are those of the rows attention and attention_grad. Tensors are [batch, heads, length, width].
type Attention struct {
	Backward              bool
	Batch, Heads, KVHeads int64
	Queries, Keys         int64
	Width, VWidth         int64 // of q and k, of v and y
	Scale                 float64
	Causal                bool // query i attends to keys up to i + Keys - Queries
	Mask                  int  // operand number of the mask, 0: none
	MaskStrides           []int64
	TF32                  bool
}

// Kernel is any other op, named as its row. Node has the op, its attributes and the types of its
// operands and results. It is detached from the graph.
type Kernel struct {
	Name string
	Node *ir.Node
	// InPlace says that result 0 may overwrite operand 0.
	InPlace bool
	// Pool is the window of the max_pool that made the index of this max_pool_grad, where that is
	// known. On the CPU operand 1 may then be the pooled image in place of the index.
	Pool *ir.Window
	// Fusion is the prologue and epilogue of a norm, which elementwise nodes of its cluster
	// specify.
	Fusion NormFusion
	// Sums are the registers of Fusion.Prologue whose channels a GPU's kernel adds up.
	Sums []ir.Reg
	// Parts are the nodes that the kernel runs if these are several: global norms and the checks of
	// the tensors that they read, or a loss and its gradient. Name and Node are those of the first one.
	Parts []*KernelPart
}

// Moves copies elements without changing them. If Filled, Out[0] is first set to Value as a whole.
type Moves struct {
	Filled bool
	Value  float64
	List   []Move
}

// Move copies the points of Shape from In[From] to Out[To].
type Move struct {
	Shape    []int64
	From, To int
	Src, Dst Access
}
