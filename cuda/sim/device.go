// Package sim simulates a CUDA device on the CPU. It implements cuda.Driver and cuda.Blas and
// interprets the PTX text of kernels with ptx/interp. It also reports races and other faults that
// on a real device depend on timing.
//
// Calls execute at once, in program order, in whatever stream. Vector clocks find what a real
// device could reorder: two operations on the same 256-byte page, at least one of which writes,
// must be ordered by a stream, an event or a wait of the host. Otherwise the later one fails with a
// hazard. This includes the host memory of copies: data that a copy writes there arrives when the
// host knows that the copy is done, and data that a copy reads must not change before.
//
// NCCL connects the devices of one process. A collective waits, on the goroutine of its device, for
// the other ranks, and compares their calls: order, counts, types, peers. It fails where they differ, where
// ranks wait for each other on two communicators, where a buffer overlaps another one of the
// operation, and where the first call of a kind is captured.
//
// These fail, too: reads of memory that was never written, accesses outside allocations or outside
// the declared footprint of a step (Limit), library calls that write an operand, and calls that are
// forbidden while a stream is captured, which also invalidate the capture.
package sim

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"ampc/cuda"
	"ampc/ptx"
	"ampc/ptx/interp"
)

// Options describe a device and the faults to inject.
type Options struct {
	Major, Minor int   // compute capability
	Memory       int64 // bytes; 0 means 16 GiB
	Races        bool  // also check for races inside kernels, which is slow
	NoHazards    bool  // skip the checks between operations

	FailAlloc   int  // the number of the allocation, from 1, that fails for lack of memory
	FailLoad    int  // the number of the module load that gives a compiler error
	FailLaunch  int  // the number of the launch that breaks the context
	FailProduct int  // the number of the product that is not issued
	FailGraph   int  // the number of the cuDNN graph that breaks the context
	DropWait    int  // the number of the wait for an event that has no effect
	NoAlgorithm bool // cuBLASLt and cuDNN answer "not supported" to everything
	NoDnn       bool // there is no cuDNN
	NoAux       bool // cuBLASLt has no epilogue that keeps, reads or sums something
	NoAttention bool // cuDNN has no engine for attention
	NoFusion    bool // cuDNN compiles no engines; see notFused
	NoConv      bool // cuDNN has no engine for convolutions
	NoNccl      bool // there is no NCCL

	Faults     []Fault
	Slow       []Slow
	Crowded    float64  // what an operation takes, of its time, that begins while another stream works; 0: 1
	Engines    []Engine // cuDNN's, in the order of its heuristics; nil: defaultEngines
	Parts      int      // multiplies the number of parts in which libraries add; 0: 1
	DnnVersion int      // of cuDNN; 0: that of the rules
	LacksParts []string // parts of cuDNN that are not installed, such as engines_runtime_compiled

	// Stall is how long an operation of NCCL waits for other ranks before it fails, and names them.
	// Zero: until the communicator is aborted, as on a real device.
	Stall time.Duration
}

// Device is a simulated device. Like a bound device, only one goroutine may use it.
type Device struct {
	opt                          Options
	mem                          *interp.Memory
	sizes                        map[cuda.Ptr]int64
	host                         map[*byte][]byte
	used                         int64
	next                         uintptr // handles, never used twice
	lanes                        map[cuda.Stream]*lane
	events                       map[cuda.Event]*event
	mods                         map[cuda.Module]map[string]*interp.Program
	funcs                        map[cuda.Function]*interp.Program
	graphs                       map[cuda.Graph]*graph
	execs                        map[cuda.GraphExec]*graph
	pages                        map[uint64]*page
	flights                      []flight
	held                         *Footprint // of the operations issued now
	ticks                        clock      // of the host: what it knows to be done
	dead                         *cuda.Error
	bound                        map[int]bool // threads, by their numbers
	syncs                        atomic.Int64
	allocs, loads, launches, ids int
	products                     int // issued
	calls                        map[string]int
	done                         work          // of the operation that runs
	hostNow, busy, linkBusy      time.Duration // see spend
	latest                       *lane         // of the operation before
	waits                        *comm         // that an operation waits in; guarded by rooms
	Stats                        Stats
}

// Stats counts what the device did.
type Stats struct {
	Launches, GraphLaunches, Captures, Copies, Fills, Products int
	Waits                                                      int   // of streams, for events
	ToHost                                                     int   // of Copies
	HostAllocs                                                 int   // of page-locked memory
	Graphs                                                     int   // cuDNN's
	Plans                                                      int   // of graphs, compiled
	LoadBytes, StoreBytes                                      int64 // by kernels
}

var _ cuda.Driver = (*Device)(nil)

// Open makes a device. Compute capability below 7.0 is refused as on a real one.
func Open(opt Options) (*Device, error) {
	if _, err := ptx.FlavourFor(opt.Major, opt.Minor); err != nil {
		return nil, fmt.Errorf("%w: %w", cuda.ErrUnavailable, err)
	}
	if opt.Memory == 0 {
		opt.Memory = 16 << 30
	}
	d := &Device{
		opt: opt, mem: interp.NewMemory(), sizes: map[cuda.Ptr]int64{}, host: map[*byte][]byte{}, next: 0x1000,
		lanes: map[cuda.Stream]*lane{}, events: map[cuda.Event]*event{}, mods: map[cuda.Module]map[string]*interp.Program{},
		funcs: map[cuda.Function]*interp.Program{}, graphs: map[cuda.Graph]*graph{}, execs: map[cuda.GraphExec]*graph{},
		pages: map[uint64]*page{}, ticks: clock{}, calls: map[string]int{},
	}
	d.lanes[cuda.LegacyStream] = d.newLane("the legacy stream")
	return d, nil
}

func (d *Device) handle() uintptr { d.next += 16; return d.next }

// fail makes a driver error. Codes that break a context also break this device's.
func (d *Device) fail(call string, code int, format string, args ...any) error {
	e := &cuda.Error{Lib: "cuda", Call: call, Code: code, Name: codeNames[code], Text: fmt.Sprintf(format, args...)}
	if e.Sticky() && d.dead == nil {
		d.dead = e
	}
	return e
}

// Codes the simulator adds to those of package cuda.
const (
	codeInvalidContext     = 201
	codeCaptureUnsupported = 900
	codeCaptureIsolation   = 905
	codeCapturedEvent      = 907
	codeHazard             = cuda.CodeLaunchFailed
)

var codeNames = map[int]string{
	cuda.CodeInvalidValue: "CUDA_ERROR_INVALID_VALUE", cuda.CodeOutOfMemory: "CUDA_ERROR_OUT_OF_MEMORY",
	cuda.CodeInvalidPTX: "CUDA_ERROR_INVALID_PTX", codeInvalidContext: "CUDA_ERROR_INVALID_CONTEXT", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU", cuda.CodeInvalidHandle: "CUDA_ERROR_INVALID_HANDLE",
	cuda.CodeMissing: "CUDA_ERROR_NOT_FOUND", cuda.CodeIllegalAddress: "CUDA_ERROR_ILLEGAL_ADDRESS", 716: "CUDA_ERROR_MISALIGNED_ADDRESS",
	cuda.CodeLaunchFailed: "CUDA_ERROR_LAUNCH_FAILED", codeCaptureUnsupported: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	cuda.CodeCaptureInvalid: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", cuda.CodeCaptureUnjoined: "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
	codeCaptureIsolation: "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", codeCapturedEvent: "CUDA_ERROR_CAPTURED_EVENT",
}

// Info describes the device.
func (d *Device) Info() cuda.Info {
	return cuda.Info{
		Name: fmt.Sprintf("simulated sm_%d%d", d.opt.Major, d.opt.Minor), Major: d.opt.Major, Minor: d.opt.Minor,
		Driver: 12040, Memory: d.opt.Memory, SMs: 4, L2: 4 << 20, SharedOptin: 227 << 10, Steady: true,
	}
}

// Bind locks the goroutine to its thread and makes the device current there. From then on calls of
// other threads fail as on a real device, on systems where threads can be told apart.
func (d *Device) Bind() error {
	runtime.LockOSThread()
	if d.bound == nil {
		d.bound = map[int]bool{}
	}
	d.bound[thread()] = true
	return nil
}

// Close returns an error that lists what was not freed.
func (d *Device) Close() error {
	if n := len(d.sizes); n > 0 {
		return fmt.Errorf("cuda/sim: closed with %d allocations not freed", n)
	}
	return nil
}

// Syncs counts the calls that waited for the device.
func (d *Device) Syncs() int64 { return d.syncs.Load() }

// ready returns an error if the context is broken, or belongs to other threads than that of the call.
func (d *Device) ready(call string) error {
	if d.dead != nil {
		return d.dead
	}
	if len(d.bound) > 0 && !d.bound[thread()] {
		return d.fail(call, codeInvalidContext, "the device was bound to other threads")
	}
	return nil
}

// capturing reports whether any stream is being captured.
func (d *Device) capturing() bool {
	for _, l := range d.lanes {
		if l.graph != nil {
			return true
		}
	}
	return false
}

// outside returns an error for a call that is not allowed during a capture, and invalidates the
// capture.
func (d *Device) outside(call string) error {
	if err := d.ready(call); err != nil {
		return err
	}
	if d.capturing() {
		return d.spoil(nil, call, codeCaptureUnsupported, "not allowed while a stream is captured")
	}
	return nil
}

// spoil invalidates a capture (nil: all captures), which then fails when it ends.
func (d *Device) spoil(g *graph, call string, code int, format string, args ...any) error {
	for _, l := range d.lanes {
		if l.graph != nil && (g == nil || l.graph == g) {
			l.graph.spoiled = call
		}
	}
	return d.fail(call, code, format, args...)
}

// MemInfo is the free and the total memory.
func (d *Device) MemInfo() (free, total int64, err error) {
	return d.opt.Memory - d.used, d.opt.Memory, d.ready("cuMemGetInfo_v2")
}

// Alloc reserves memory that reads as uninitialized.
func (d *Device) Alloc(bytes int64) (cuda.Ptr, error) {
	const call = "cuMemAlloc_v2"
	if err := d.outside(call); err != nil {
		return 0, err
	}
	if err := d.fault(call); err != nil {
		return 0, err
	}
	d.allocs++
	switch {
	case bytes <= 0:
		return 0, d.fail(call, cuda.CodeInvalidValue, "%d bytes", bytes)
	case d.used+bytes > d.opt.Memory || d.allocs == d.opt.FailAlloc:
		return 0, d.fail(call, cuda.CodeOutOfMemory, "%d bytes asked for, %d free", bytes, d.opt.Memory-d.used)
	}
	p := cuda.Ptr(d.mem.Alloc(int(bytes)))
	d.sizes[p] = bytes
	d.used += bytes
	return p, nil
}

// Free releases memory. It is a hazard if work on the memory has not been waited for.
func (d *Device) Free(p cuda.Ptr) error {
	const call = "cuMemFree_v2"
	if err := d.outside(call); err != nil {
		return err
	}
	size, ok := d.sizes[p]
	if !ok {
		return d.fail(call, cuda.CodeInvalidValue, "%#x is not an allocation", uint64(p))
	}
	for a := uint64(p); a < uint64(p)+uint64(size); a += interp.PageSize {
		if pg := d.pages[a]; pg != nil && !d.opt.NoHazards {
			if who := pg.unordered(d.ticks, true); who != "" {
				return d.fail(call, codeHazard, "page %#x is still used by %s", a, who)
			}
		}
		delete(d.pages, a)
	}
	delete(d.sizes, p)
	d.used -= size
	return d.mem.Free(uint64(p))
}

// HostAlloc gives memory filled with a pattern.
func (d *Device) HostAlloc(bytes int64) ([]byte, error) {
	if err := errors.Join(d.outside("cuMemHostAlloc"), d.fault("cuMemHostAlloc")); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, d.fail("cuMemHostAlloc", cuda.CodeInvalidValue, "%d bytes", bytes)
	}
	d.Stats.HostAllocs++
	mem := make([]byte, bytes)
	for i := range mem {
		mem[i] = 0xa5
	}
	d.host[&mem[0]] = mem
	return mem, nil
}

// HostFree releases what HostAlloc gave.
func (d *Device) HostFree(mem []byte) error {
	if err := d.outside("cuMemFreeHost"); err != nil {
		return err
	}
	if len(mem) == 0 || d.host[&mem[0]] == nil {
		return d.fail("cuMemFreeHost", cuda.CodeInvalidValue, "not memory of HostAlloc")
	}
	if d.flying(mem) && !d.opt.NoHazards {
		return d.fail("cuMemFreeHost", codeHazard, "a copy from or to the memory is not known to be done")
	}
	delete(d.host, &mem[0])
	return nil
}

// pinned reports whether b lies in memory of HostAlloc.
func (d *Device) pinned(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	for _, mem := range d.host {
		if inside(b, mem) {
			return true
		}
	}
	return false
}

// inside reports whether b, of one byte at least, is a part of mem.
func inside(b, mem []byte) bool {
	at, lo := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&mem[0]))
	return at >= lo && at+uintptr(len(b)) <= lo+uintptr(len(mem))
}
