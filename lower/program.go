// Package lower turns a Ready graph into a Program: buffers with offsets and
// steps in three parts. A Program is data for any target; it can be printed and
// verified where no device is.
package lower

import "ampc/ir"

// Part is a stretch of a step that runs as a whole.
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

// Arena is a region of memory with a life of its own.
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

// Align is what every offset is a multiple of.
const Align = 256

// BufferID indexes Program.Buffers. None stands for an absent optional operand.
type BufferID int32

// None is the BufferID of an absent operand.
const None BufferID = -1

// Buffer is a typed stretch of an arena. A view shows its Root under another
// shape, or a part of it: the elements from At bytes on that lie Strides elements
// apart (nil: one after the other, all of them). A buffer that is none is its own
// Root. Attention alone reads and writes views with strides; its rows, along the
// last dimension, lie together.
//
// Offsets in the state arena lay out this program's variables alone: a store
// that several programs share finds them by name instead.
type Buffer struct {
	Name    string
	Type    ir.Type
	Arena   Arena
	Root    BufferID
	Offset  int64
	Size    int64   // of its elements
	At      int64   // of a view: where it begins in its root
	Strides []int64 // of a view that is not dense
	Live    Span    // of a root in the work arena: first write to last read
}

// Span is an interval of steps, numbered through all parts, both ends included.
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
	Written      []string         // variables of the store that have a next value
	Messages     []Message        // to other ranks, in order
	Planned      []PlannedCluster // what the steps run; nil where a target has rewritten them

	// MaxLive is the largest number of bytes of work buffers that live at one
	// step: no plan can be smaller. Separate is their sum.
	MaxLive, Separate int64
}

// Total is the bytes of all arenas.
func (p *Program) Total() (sum int64) {
	for _, n := range p.Arenas {
		sum += n
	}
	return sum
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

// Role returns what a runtime fills in or reads by itself: "micro", "seed", ...
func (v *Var) Role() string { s, _ := v.Attr.Get("role").(string); return s }

// PerCall reports whether every call brings the memory of the variable: a cache.
func (v *Var) PerCall() bool { return v.Kind == ir.State && v.Role() == ir.RoleCache }

// WrittenEarly lists the buffers of variables that parts before update write:
// sums over micro-batches, running statistics that pass from one micro-batch to
// the next. Weight copies are not among them.
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
	for i := range p.Vars {
		v := &p.Vars[i]
		if (v.Kind == ir.Param || v.Kind == ir.State) && stored[v.Buffer] && !v.PerCall() && v.Role() != ir.RoleCopy && !p.copied(v.Buffer) {
			list = append(list, v.Buffer)
		}
	}
	return list
}

// Binding names a buffer.
type Binding struct {
	Name   string
	Type   ir.Type
	Buffer BufferID
}

// WeightCopy is a 16-bit copy of a variable, made by a step of prepare. While the
// variable has not been written since, a store may skip the step.
type WeightCopy struct {
	Var    string
	DType  ir.DType
	Buffer BufferID
	Step   int // in Parts[Prepare]; several copies may come from one
}

// StepKind says which of a Step's descriptions is set.
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

// Step is one launch. In and Out list the buffers in the order that the
// description refers to; an absent operand is None.
type Step struct {
	Kind   StepKind
	In     []BufferID
	Out    []BufferID
	Stream uint8
	Wait   []EventID
	Record EventID // 0: none; events count from 1
	Node   NodeRef
	Bytes  int64   // read and written, each buffer once
	Runs   []int32 // clusters of Program.Planned

	// Exactly one is set.
	Gemm    *Gemm
	Conv    *Conv
	Attn    *Attention
	Cluster *Cluster
	Kernel  *Kernel
	Moves   *Moves

	// More are clusters of the same code over other tensors, beside Cluster: one
	// step holds a whole group of parameters.
	More []*Cluster

	// Epilogue is elementwise work that follows a product, a convolution or a kernel of Caps.PostOps,
	// block by block. It loads what the description's own epilogue leaves, in f32, as buffer
	// None; that is not stored but by a store of Epilogue. Its other operands follow
	// those of the description in In, Out lists what it stores.
	Epilogue *Cluster

	Launch *Launch // GPU targets: how the driver runs it, beside the description; nil where a library does
}

// Clusters lists the clusters of a step.
func (s *Step) Clusters() []*Cluster {
	if s.Cluster == nil {
		return nil
	}
	return append([]*Cluster{s.Cluster}, s.More...)
}

// Access is how a step walks a buffer: element i of the iteration space lies
// at Offset + the sum of i's coordinates times Strides, in elements. A stride
// of zero repeats. Buffer None is what a product has computed (Step.Epilogue).
type Access struct {
	Buffer  BufferID
	DType   ir.DType
	Offset  int64
	Strides []int64
	Reg     ir.Reg // stores only: the register that is stored
}

// Cluster is fused elementwise work: Code runs for every point of Shape. A PIn
// instruction reads Loads[Int]; a load widens, a store rounds once.
type Cluster struct {
	Shape  []int64
	Loads  []Access
	Stores []Access
	Code   []ir.Instr
}

// IsProduct reports whether register r is what a product has computed (Step.Epilogue).
func (g *Cluster) IsProduct(r ir.Reg) bool {
	i := &g.Code[r]
	return i.Op == ir.PIn && g.Loads[i.Int].Buffer == None
}

// Matrix is an operand of a product: rows LD elements apart (columns where T),
// batch items Strides apart, one stride per batch level.
type Matrix struct {
	LD      int64
	Strides []int64
	T       bool
}

// Gemm is C = epilogue(A·B) for every item of a batch: In[0] is A, In[1] is B,
// then the epilogue's operands; Out[0] is C.
type Gemm struct {
	M, N, K  int64
	Batch    []int64 // sizes of the batch levels, outermost first
	A, B, C  Matrix
	TF32     bool // operands are rounded to a 10-bit mantissa
	Epilogue Epilogue
}

// Epilogue is what happens to a product before it is stored, in this order and
// in f32. Bias and Residual index Step.In; 0 means absent (In[0] is an operand).
type Epilogue struct {
	Bias     int // one element per column (conv: per channel)
	Act      Act
	Residual int // as C

	// GPU targets. Aux is what the gradient of Act reads: an activation stores it, at this place of
	// Step.Out (0: it is not kept), and a gradient's product reads it, at this place of Step.In: the
	// sum before a gelu, as C. BiasGrad is the place in Step.Out of the column sums of operand Summed, in
	// C's dtype.
	Aux, BiasGrad int
	Summed        int
}

// Act is an activation of an epilogue, or the factor by which a gradient
// passes through one.
type Act uint8

// The activations. Gelu is the tanh form; it and its gradient are for GPU targets.
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

// Gradient reports whether a is the factor of a gradient, which needs Aux.
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

// Conv is a convolution, or one of its gradients: Window has the geometry of
// the convolution itself. In is x, w (forward), dy, w (grad_x) or x, dy
// (grad_w), then the epilogue's operands.
type Conv struct {
	Dir      ConvDir
	Window   ir.Window
	TF32     bool
	Direct   bool // by the definition: on the CPU no transforms
	Epilogue Epilogue
}

// Attention is softmax(Scale·Q·Kᵀ + mask)·V for every head, or its gradient.
// Operands and results are those of the rows attention and attention_grad;
// tensors are [batch, heads, length, width].
type Attention struct {
	Backward              bool
	Batch, Heads, KVHeads int64
	Queries, Keys         int64
	Width, VWidth         int64 // of q and k, of v and y
	Scale                 float64
	Causal                bool // query i sees keys up to i + Keys - Queries
	Mask                  int  // operand number of the mask, 0: none
	MaskStrides           []int64
	TF32                  bool
}

// Kernel is any other op, run under the name of its row. Node carries the op,
// its attributes and its operands' and results' types; it is cut off from the graph.
type Kernel struct {
	Name string
	Node *ir.Node
	// InPlace says that result 0 may lie where operand 0 lies.
	InPlace bool
	// Pool is of a max_pool_grad whose index comes straight from a max_pool: that one's window. On the CPU operand 1
	// may then be the image that was pooled instead of the index.
	Pool *ir.Window
	// Fusion is of a norm: its epilogue or prologue, which elementwise nodes beside it say.
	Fusion NormFusion
	// Sums are the registers of Fusion.Prologue whose channels a pass adds up, on a GPU.
	Sums []ir.Reg
	// Seen are operands of any_nonfinite that an earlier global_norm of the part
	// reads: on the CPU it looks for what is not finite on its way. Bytes counts
	// them all the same, as the price of a cut does.
	Seen []BufferID
}

// Moves copies elements without changing them. Where Filled, the whole of
// Out[0] is first set to Value.
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
