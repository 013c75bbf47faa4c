//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"
)

// device is a GPU through libcuda. It implements Driver.
type device struct {
	lib     *library
	id      int32
	context uintptr
	foreign bool // another owner's context
	info    Info
	syncs   atomic.Int64
	host    map[*byte]uintptr // HostAlloc's memory
}

var _ Driver = (*device)(nil)

// Open initializes a device. The error wraps ErrUnavailable if there is none.
func Open(ordinal int) (Driver, error) {
	lib := realPlaces().open(libDriver, 0)
	d, err := openDevice(lib, ordinal)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func openDevice(lib *library, ordinal int) (*device, error) {
	problem, advice := startDriver(lib)
	if problem != "" {
		return nil, fmt.Errorf("%w: %s; %s", ErrUnavailable, problem, advice)
	}
	var n int32
	if err := lib.status("cuDeviceGetCount", uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= int(n) {
		return nil, fmt.Errorf("%w: device %d asked for, there are %d; check CUDA_VISIBLE_DEVICES", ErrUnavailable, ordinal, n)
	}
	d := &device{lib: lib, host: map[*byte]uintptr{}}
	if err := lib.status("cuDeviceGet", uintptr(unsafe.Pointer(&d.id)), uintptr(ordinal)); err != nil {
		return nil, err
	}
	var err error
	if d.info, err = describe(lib, d.id, ordinal); err != nil {
		return nil, err
	}
	if d.info.Major < 7 {
		return nil, fmt.Errorf("%w: %s has compute capability %d.%d, 7.0 is the oldest supported", ErrUnavailable, d.info.Name, d.info.Major, d.info.Minor)
	}
	if err := lib.status("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&d.context)), uintptr(d.id)); err != nil {
		return nil, err
	}
	return d, nil
}

// Adopt makes a driver for a context that the caller owns: a CUcontext, primary or not. Everything
// made through the driver belongs to that context; Close does not destroy it.
func Adopt(context uintptr) (Driver, error) {
	d, err := adopt(realPlaces().open(libDriver, 0), context)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func adopt(lib *library, context uintptr) (*device, error) {
	if problem, advice := startDriver(lib); problem != "" {
		return nil, fmt.Errorf("%w: %s; %s", ErrUnavailable, problem, advice)
	}
	runtime.LockOSThread() // the context is current to this thread from push to pop
	defer runtime.UnlockOSThread()
	if err := lib.status("cuCtxPushCurrent_v2", context); err != nil {
		return nil, err
	}
	d := &device{lib: lib, context: context, foreign: true, host: map[*byte]uintptr{}}
	err := lib.status("cuCtxGetDevice", uintptr(unsafe.Pointer(&d.id)))
	if err == nil {
		d.info, err = describe(lib, d.id, int(d.id))
	}
	var popped uintptr
	return d, errors.Join(err, lib.status("cuCtxPopCurrent_v2", uintptr(unsafe.Pointer(&popped))))
}

// startDriver initializes the driver. Its error says why that failed and what to do.
func startDriver(lib *library) (problem, advice string) {
	if !lib.loaded() && len(lib.missing) > 0 {
		return "the NVIDIA driver library lacks functions; tried " + summary(lib.tried), "update the driver: r520 is the oldest that runs these kernels"
	}
	if !lib.loaded() {
		return "no NVIDIA driver library (libcuda.so.1); tried " + summary(lib.tried),
			"install the driver, or set AMPC_LIBCUDA to the file"
	}
	if code := int(int32(lib.call("cuInit", 0))); code != 0 {
		advice = startAdvice[code]
		if advice == "" {
			advice = "see the driver's documentation for this code"
		}
		return fmt.Sprintf("the driver does not start: %v", lib.failure("cuInit", code)), advice
	}
	return "", ""
}

// Attribute numbers of cuDeviceGetAttribute.
const (
	attrClock, attrSMs, attrMemClock, attrBusWidth, attrL2  = 13, 16, 36, 37, 38
	attrMajor, attrMinor, attrSharedOptin                   = 75, 76, 97
	funcMaxDynamicShared                                    = 8
	eventDisableTiming, streamNonBlocking, captureThreadLoc = 2, 1, 1
)

func describe(lib *library, id int32, ordinal int) (Info, error) {
	info := Info{Ordinal: ordinal}
	name := make([]byte, 256)
	if err := lib.status("cuDeviceGetName", uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(id)); err != nil {
		return info, err
	}
	info.Name, _, _ = strings.Cut(string(name), "\x00")
	var total uint64
	if err := lib.status("cuDeviceTotalMem_v2", uintptr(unsafe.Pointer(&total)), uintptr(id)); err != nil {
		return info, err
	}
	info.Memory = int64(total)
	var version int32
	if err := lib.status("cuDriverGetVersion", uintptr(unsafe.Pointer(&version))); err != nil {
		return info, err
	}
	info.Driver = int(version)
	if lib.has("cuDeviceGetUuid_v2") {
		var u [16]byte
		if lib.status("cuDeviceGetUuid_v2", uintptr(unsafe.Pointer(&u[0])), uintptr(id)) == nil {
			info.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
		}
	}
	var l2 int
	for _, a := range []struct {
		attr int
		to   *int
		need bool // others are shown only, and stay 0 where the driver does not know them
	}{
		{attrMajor, &info.Major, true}, {attrMinor, &info.Minor, true}, {attrSMs, &info.SMs, false}, {attrSharedOptin, &info.SharedOptin, false},
		{attrClock, &info.ClockKHz, false}, {attrMemClock, &info.MemClockKHz, false}, {attrBusWidth, &info.BusBits, false}, {attrL2, &l2, false},
	} {
		var v int32
		err := lib.status("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&v)), uintptr(a.attr), uintptr(id))
		if err != nil && a.need {
			return info, err
		}
		if err == nil {
			*a.to = int(v)
		}
	}
	info.L2 = int64(l2)
	return info, nil
}

// Info describes the device.
func (d *device) Info() Info { return d.info }

// Syncs counts the calls that waited for the device.
func (d *device) Syncs() int64 { return d.syncs.Load() }

// Bind locks the goroutine to its thread and makes the device current there.
func (d *device) Bind() error {
	runtime.LockOSThread()
	return d.lib.status("cuCtxSetCurrent", d.context)
}

// Close releases the context and all objects made on the device. An adopted context remains.
func (d *device) Close() error {
	if d.foreign {
		return nil
	}
	return d.lib.status("cuDevicePrimaryCtxRelease_v2", uintptr(d.id))
}

// MemInfo is the free and the total memory in bytes.
func (d *device) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = d.lib.status("cuMemGetInfo_v2", uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}

// Alloc reserves device memory.
func (d *device) Alloc(bytes int64) (Ptr, error) {
	var p uint64
	err := d.lib.status("cuMemAlloc_v2", uintptr(unsafe.Pointer(&p)), uintptr(bytes))
	return Ptr(p), err
}

// Free releases device memory.
func (d *device) Free(p Ptr) error { return d.lib.status("cuMemFree_v2", uintptr(p)) }

// HostAlloc reserves page-locked memory.
func (d *device) HostAlloc(bytes int64) ([]byte, error) {
	var p uintptr
	if err := d.lib.status("cuMemHostAlloc", uintptr(unsafe.Pointer(&p)), uintptr(bytes), 0); err != nil {
		return nil, err
	}
	mem := cBytes(p, bytes)
	d.host[&mem[0]] = p
	return mem, nil
}

// HostFree releases what HostAlloc gave.
func (d *device) HostFree(mem []byte) error {
	if len(mem) == 0 || d.host[&mem[0]] == 0 {
		return fmt.Errorf("cuda: HostFree of memory that HostAlloc did not give")
	}
	p := d.host[&mem[0]]
	delete(d.host, &mem[0])
	return d.lib.status("cuMemFreeHost", p)
}

// CopyToDevice copies host memory to the device.
func (d *device) CopyToDevice(dst Ptr, src []byte, s Stream) error {
	if len(src) == 0 {
		return nil
	}
	return d.lib.status("cuMemcpyHtoDAsync_v2", uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)), uintptr(s))
}

// CopyToHost copies device memory to the host.
func (d *device) CopyToHost(dst []byte, src Ptr, s Stream) error {
	if len(dst) == 0 {
		return nil
	}
	return d.lib.status("cuMemcpyDtoHAsync_v2", uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst)), uintptr(s))
}

// Copy copies within the device.
func (d *device) Copy(dst, src Ptr, bytes int64, s Stream) error {
	return d.lib.status("cuMemcpyDtoDAsync_v2", uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

// Fill32 writes count words.
func (d *device) Fill32(dst Ptr, word uint32, count int64, s Stream) error {
	return d.lib.status("cuMemsetD32Async", uintptr(dst), uintptr(word), uintptr(count), uintptr(s))
}

// Fill8 writes count bytes.
func (d *device) Fill8(dst Ptr, b byte, count int64, s Stream) error {
	return d.lib.status("cuMemsetD8Async", uintptr(dst), uintptr(b), uintptr(count), uintptr(s))
}
