//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// NewStream makes a stream that does not synchronize with the default stream.
func (d *device) NewStream() (Stream, error) {
	var s uintptr
	err := d.lib.status("cuStreamCreate", uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return Stream(s), err
}

// FreeStream destroys a stream.
func (d *device) FreeStream(s Stream) error { return d.lib.status("cuStreamDestroy_v2", uintptr(s)) }

// Synchronize waits for the stream.
func (d *device) Synchronize(s Stream) error {
	d.syncs.Add(1)
	return d.lib.status("cuStreamSynchronize", uintptr(s))
}

// NewEvent makes an event.
func (d *device) NewEvent(timed bool) (Event, error) {
	flags := uintptr(eventDisableTiming)
	if timed {
		flags = 0
	}
	var e uintptr
	err := d.lib.status("cuEventCreate", uintptr(unsafe.Pointer(&e)), flags)
	return Event(e), err
}

// FreeEvent destroys an event.
func (d *device) FreeEvent(e Event) error { return d.lib.status("cuEventDestroy_v2", uintptr(e)) }

// Record records the event at the current end of the stream.
func (d *device) Record(e Event, s Stream) error {
	return d.lib.status("cuEventRecord", uintptr(e), uintptr(s))
}

// Wait makes the stream wait until the event's record is reached.
func (d *device) Wait(s Stream, e Event) error {
	return d.lib.status("cuStreamWaitEvent", uintptr(s), uintptr(e), 0)
}

// Done reports whether the event has been reached.
func (d *device) Done(e Event) (bool, error) {
	err := d.lib.status("cuEventQuery", uintptr(e))
	var ce *Error
	if errors.As(err, &ce) && ce.Code == codeNotReady {
		return false, nil
	}
	return err == nil, err
}

// WaitHost waits for the event.
func (d *device) WaitHost(e Event) error {
	d.syncs.Add(1)
	return d.lib.status("cuEventSynchronize", uintptr(e))
}

// Elapsed is the time between two timed events, both reached.
func (d *device) Elapsed(from, to Event) (time.Duration, error) {
	name := "cuEventElapsedTime_v2"
	if !d.lib.has(name) {
		name = "cuEventElapsedTime"
	}
	var ms float32
	err := d.lib.status(name, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	return time.Duration(math.Round(float64(ms) * 1e6)), err
}

// JIT options of cuModuleLoadDataEx.
const (
	jitInfoLog, jitInfoSize, jitErrorLog, jitErrorSize, jitVerbose = 3, 4, 5, 6, 12
	jitLogBytes                                                    = 16 << 10
)

// Load compiles PTX; an error contains the compiler's log.
func (d *device) Load(text string) (Module, error) {
	image := append([]byte(text), 0)
	errLog, infoLog := make([]byte, jitLogBytes), make([]byte, jitLogBytes)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&errLog[0])
	pin.Pin(&infoLog[0])
	options := []int32{jitErrorLog, jitErrorSize, jitInfoLog, jitInfoSize, jitVerbose}
	values := []uintptr{uintptr(unsafe.Pointer(&errLog[0])), jitLogBytes, uintptr(unsafe.Pointer(&infoLog[0])), jitLogBytes, 0}
	var m uintptr
	err := d.lib.status("cuModuleLoadDataEx", uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	runtime.KeepAlive(image)
	var ce *Error
	if errors.As(err, &ce) {
		log, _, _ := strings.Cut(string(errLog), "\x00")
		ce.Text = jitAdvice(ce.Code) + strings.TrimSpace(log)
	}
	return Module(m), err
}

func jitAdvice(code int) string {
	switch code {
	case codeUnsupportedPTX:
		return "the driver is too old for this PTX; update it. "
	case 221:
		return "libnvidia-ptxjitcompiler is missing beside libcuda. "
	}
	return ""
}

// Unload drops a module.
func (d *device) Unload(m Module) error { return d.lib.status("cuModuleUnload", uintptr(m)) }

// Function finds a kernel.
func (d *device) Function(m Module, name string) (Function, error) {
	text := append([]byte(name), 0)
	var f uintptr
	err := d.lib.status("cuModuleGetFunction", uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0])))
	var ce *Error
	if errors.As(err, &ce) {
		ce.Text = "kernel " + name
	}
	return Function(f), err
}

// maxPlainShared is the size of dynamic shared memory that a kernel may use without setting an
// attribute.
const maxPlainShared = 48 << 10

// Markers of cuLaunchKernel's extra list.
const extraEnd, extraBuffer, extraSize = 0, 1, 2

// Launch starts a kernel.
func (d *device) Launch(f Function, grid [3]int, block, shared int, s Stream, args []Ptr) error {
	if shared > maxPlainShared {
		if err := d.lib.status("cuFuncSetAttribute", uintptr(f), funcMaxDynamicShared, uintptr(shared)); err != nil {
			return err
		}
	}
	if len(args) == 0 {
		return fmt.Errorf("cuda: launch without arguments")
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	size := uint64(8 * len(args))
	pin.Pin(&args[0])
	pin.Pin(&size)
	extra := [5]uintptr{extraBuffer, uintptr(unsafe.Pointer(&args[0])), extraSize, uintptr(unsafe.Pointer(&size)), extraEnd}
	return d.lib.status("cuLaunchKernel", uintptr(f), uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(block), 1, 1, uintptr(shared), uintptr(s), 0, uintptr(unsafe.Pointer(&extra[0])))
}

// BeginCapture starts recording a graph.
func (d *device) BeginCapture(s Stream) error {
	return d.lib.status("cuStreamBeginCapture_v2", uintptr(s), captureThreadLoc)
}

// EndCapture ends it.
func (d *device) EndCapture(s Stream) (Graph, error) {
	var g uintptr
	err := d.lib.status("cuStreamEndCapture", uintptr(s), uintptr(unsafe.Pointer(&g)))
	return Graph(g), err
}

// Nodes counts a graph's nodes.
func (d *device) Nodes(g Graph) (int, error) {
	var n uint64
	err := d.lib.status("cuGraphGetNodes", uintptr(g), 0, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// Instantiate makes a graph launchable.
func (d *device) Instantiate(g Graph) (GraphExec, error) {
	var e uintptr
	err := d.lib.status("cuGraphInstantiateWithFlags", uintptr(unsafe.Pointer(&e)), uintptr(g), 0)
	return GraphExec(e), err
}

// FreeGraph destroys a graph; executables made from it remain valid.
func (d *device) FreeGraph(g Graph) error { return d.lib.status("cuGraphDestroy", uintptr(g)) }

// LaunchGraph runs a graph in a stream.
func (d *device) LaunchGraph(e GraphExec, s Stream) error {
	return d.lib.status("cuGraphLaunch", uintptr(e), uintptr(s))
}

// FreeExec destroys an executable graph.
func (d *device) FreeExec(e GraphExec) error { return d.lib.status("cuGraphExecDestroy", uintptr(e)) }
