//go:build cuda

package gorgoniacu

import (
	"unsafe"

	"gorgonia.org/cu"

	"ampc/cuda"
	"ampc/runtime/gpu"
)

// Open makes a backend in the context ctx. What a step issues is ordered after
// everything that s held when the step began and before everything put into s
// after it returned; the host does not wait. cu.NoStream is the context's
// default stream.
//
// memory says where parameters and states lie that the caller allocated, by
// their names in the model (cu.MemAlloc's addresses are aligned as they must
// be). A step that declares such a variable writes its initial value there;
// values that the caller copies there later are announced with Touch. All
// other memory the backend allocates in ctx by itself.
//
// The context is current on a thread of the backend's own as well: a cu.Ctx
// keeps its thread. It must outlive the backend.
func Open(ctx cu.CUContext, s cu.Stream, memory map[string]cu.DevicePtr) (*Backend, error) {
	d, err := cuda.Adopt(handle(ctx))
	if err != nil {
		return nil, err
	}
	stream := cuda.Stream(uintptr(unsafe.Pointer(s.C())))
	if s == cu.NoStream {
		stream = cuda.LegacyStream
	}
	b, err := gpu.OpenOn(d, stream)
	if err != nil {
		return nil, err
	}
	return &Backend{Backend: b, memory: addresses(memory)}, nil
}

// handle is the CUcontext itself, which cu shows as text alone.
func handle(ctx cu.CUContext) uintptr { return *(*uintptr)(unsafe.Pointer(&ctx)) }

// A CUContext holds nothing but the handle, or this does not compile.
var _ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.CUContext{})]byte{}

// Feed is one micro-batch whose inputs lie in memory of cu's, for gpu.Exec.StepOn.
func Feed(inputs map[string]cu.DevicePtr) gpu.DeviceFeed { return addresses(inputs) }

func addresses(m map[string]cu.DevicePtr) map[string]cuda.Ptr {
	out := make(map[string]cuda.Ptr, len(m))
	for name, at := range m {
		out[name] = cuda.Ptr(at)
	}
	return out
}
