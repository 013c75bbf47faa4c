package cuda

import "time"

// Handles. A zero value is no object; a zero Stream is never used.
type (
	Ptr       uint64 // device address
	Stream    uintptr
	Event     uintptr
	Module    uintptr
	Function  uintptr
	Graph     uintptr
	GraphExec uintptr
)

// LegacyStream is CUDA's default stream, which calls without a stream use.
const LegacyStream Stream = 1

// Info describes a device.
type Info struct {
	Ordinal      int
	Name         string
	UUID         string
	Major, Minor int   // compute capability
	Driver       int   // 13000 is 13.0
	Memory       int64 // bytes
	SMs          int
	L2           int64
	SharedOptin  int // largest dynamic shared memory of a block
	ClockKHz     int
	MemClockKHz  int
	BusBits      int
	Steady       bool // work takes the same time whenever it runs: a simulated device's model
}

// Driver is one device.
type Driver interface {
	Info() Info
	// Bind locks the calling goroutine to its thread and makes the device current there.
	Bind() error
	Close() error

	// MemInfo is the free and the total memory in bytes.
	MemInfo() (free, total int64, err error)
	// Alloc reserves device memory, aligned to 256 bytes.
	Alloc(bytes int64) (Ptr, error)
	Free(p Ptr) error
	// HostAlloc reserves page-locked host memory, which asynchronous copies need.
	HostAlloc(bytes int64) ([]byte, error)
	HostFree(mem []byte) error

	// Copies and fills are ordered in the stream and may return before they are done. The host
	// memory of a copy must come from HostAlloc and must not change until the copy is done.
	CopyToDevice(dst Ptr, src []byte, s Stream) error
	CopyToHost(dst []byte, src Ptr, s Stream) error
	Copy(dst, src Ptr, bytes int64, s Stream) error
	// Fill32 writes count 32-bit words.
	Fill32(dst Ptr, word uint32, count int64, s Stream) error
	// Fill8 writes count bytes.
	Fill8(dst Ptr, b byte, count int64, s Stream) error

	NewStream() (Stream, error)
	FreeStream(s Stream) error
	// Synchronize waits until everything in the stream is done.
	Synchronize(s Stream) error
	// NewEvent makes an event. Elapsed accepts only timed events.
	NewEvent(timed bool) (Event, error)
	FreeEvent(e Event) error
	Record(e Event, s Stream) error
	Wait(s Stream, e Event) error
	// Done reports whether the work before the event's last record is finished, without waiting.
	Done(e Event) (bool, error)
	WaitHost(e Event) error
	Elapsed(from, to Event) (time.Duration, error)

	// Load compiles PTX text; the error carries the compiler's log.
	Load(text string) (Module, error)
	Unload(m Module) error
	Function(m Module, name string) (Function, error)
	// Launch starts a kernel whose parameters are all device pointers.
	Launch(f Function, grid [3]int, block, shared int, s Stream, args []Ptr) error

	// BeginCapture turns the calls on the stream, and on streams that join it by events, into nodes
	// of a graph until EndCapture.
	BeginCapture(s Stream) error
	EndCapture(s Stream) (Graph, error)
	// Nodes is the number of nodes of a graph.
	Nodes(g Graph) (int, error)
	Instantiate(g Graph) (GraphExec, error)
	FreeGraph(g Graph) error
	LaunchGraph(e GraphExec, s Stream) error
	FreeExec(e GraphExec) error

	// Syncs counts the calls so far that waited for the device.
	Syncs() int64
}

// DataType is a matrix element type by its cudaDataType number.
type DataType int32

// The types cuBLASLt is asked for.
const (
	R32F  DataType = 0
	R16F  DataType = 2
	R16BF DataType = 14
)

// Size is the bytes of an element.
func (d DataType) Size() int64 {
	if d == R32F {
		return 4
	}
	return 2
}

// Compute is the arithmetic of a product.
type Compute int32

// Accumulation is f32 in both; TF32 rounds f32 operands to 10 bits.
const (
	Compute32F  Compute = 68
	ComputeTF32 Compute = 77
)

// Epilogue is what is applied to the product before it is stored. GELU is the tanh form.
type Epilogue uint32

// The epilogues by their cublasLt numbers.
const (
	EpilogueNone        Epilogue = 1
	EpilogueRelu        Epilogue = 2
	EpilogueBias        Epilogue = 4
	EpilogueReluBias    Epilogue = 6
	EpilogueGelu        Epilogue = 32
	EpilogueGeluBias    Epilogue = 36
	EpilogueReluAux     Epilogue = 130
	EpilogueReluAuxBias Epilogue = 134
	EpilogueGeluAux     Epilogue = 160
	EpilogueGeluAuxBias Epilogue = 164
	EpilogueDRelu       Epilogue = 136
	EpilogueDReluBgrad  Epilogue = 152
	EpilogueDGelu       Epilogue = 192
	EpilogueDGeluBgrad  Epilogue = 208
	EpilogueBgradA      Epilogue = 256
	EpilogueBgradB      Epilogue = 512
)

// HasBias reports whether the epilogue reads a bias or writes a bias gradient.
func (e Epilogue) HasBias() bool {
	return e&4 != 0 || e&16 != 0 || e == EpilogueBgradA || e == EpilogueBgradB
}

// HasAux reports whether the epilogue writes or reads the auxiliary matrix.
func (e Epilogue) HasAux() bool { return e&128 != 0 }

// MasksAux reports whether the auxiliary matrix is a bit mask, as for ReLU: one bit for each
// element, set if the element is not negative. For GELU it holds the elements.
func (e Epilogue) MasksAux() bool {
	return e == EpilogueReluAux || e == EpilogueReluAuxBias || e == EpilogueDRelu || e == EpilogueDReluBgrad
}

// Matrix is the layout of one operand: column-major with leading dimension Ld, and for batches the
// distance between matrices, in elements.
type Matrix struct {
	Type   DataType
	Ld     int64
	Stride int64
}

// Matmul is D = epilogue(alpha·op(A)·op(B) + beta·C) in cuBLAS's column-major terms; op(A) is M×K,
// op(B) K×N, C and D M×N.
type Matmul struct {
	M, N, K        int64
	TransA, TransB bool
	A, B, C, D     Matrix
	Batch          int // 0 or 1: one product
	Compute        Compute
	Epilogue       Epilogue
	BiasType       DataType
	AuxLd          int64 // in elements, of a mask in bits
	AuxStride      int64
	AuxType        DataType
	Align          int64 // alignment of A, B, C and D in bytes; 0: 256
}

// RowMajor describes row-major D[m,n] = op(A)·op(B) in cuBLAS's terms by exchanging the operands:
// the caller passes B's pointer as A and A's pointer as B.
func RowMajor(m, n, k int64, transA, transB bool, a, b, d Matrix, compute Compute) Matmul {
	return Matmul{M: n, N: m, K: k, TransA: transB, TransB: transA, A: b, B: a, C: d, D: d, Compute: compute, Epilogue: EpilogueNone}
}

// Algo is one algorithm for a problem. Its words are opaque; they may be stored and reused with the
// same library version and GPU.
type Algo struct {
	Words     [8]uint64
	Workspace int64
	Waves     float32
}

// Operands are the pointers of one product.
type Operands struct {
	A, B, C, D, Bias, Aux Ptr
	Workspace             Ptr
	WorkspaceBytes        int64
}

// Blas is cuBLASLt on one device.
type Blas interface {
	// Version is the library's, 130100 for 13.1.
	Version() int
	// Plan prepares a problem.
	Plan(m Matmul) (BlasPlan, error)
	Close() error
}

// BlasPlan is a prepared problem.
type BlasPlan interface {
	// Algos returns up to n algorithms that need at most workspace bytes of workspace, the best by
	// the library's heuristics first.
	Algos(workspace int64, n int) ([]Algo, error)
	Run(algo Algo, alpha, beta float32, o Operands, s Stream) error
	Close() error
}
