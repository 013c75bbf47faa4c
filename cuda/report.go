//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Discover searches for all libraries and devices. It initializes only the driver.
func Discover() *Report { return discover(realPlaces()) }

func discover(w places) *Report {
	r := &Report{}
	driver := w.open(libDriver, 0)
	r.Problem, r.Advice = startDriver(driver)
	newest := newestCUDA(driver)
	f := w.family(newest)
	for _, l := range []*library{driver, f.rtc, f.blas, f.dnn, w.open(libNCCL, newest)} {
		r.Libraries = append(r.Libraries, LibraryReport{Library: l.name, Path: l.path, Version: l.version(), number: l.number(), CUDA: l.cuda(),
			Missing: slices.Concat(l.missing, l.absent), Broken: l.broken, Tried: l.tried})
	}
	if r.Problem == "" {
		r.devices(driver)
	}
	return r
}

// newestCUDA is the newest major version of CUDA whose libraries run here: the driver's, but at
// most 12 if a device has a capability below 7.5, which later versions do not support. 0 means any
// version, if nothing is known.
func newestCUDA(driver *library) int {
	var version, n int32
	if !driver.loaded() || driver.status("cuDriverGetVersion", uintptr(unsafe.Pointer(&version))) != nil {
		return 0
	}
	newest := int(version) / 1000
	if driver.status("cuDeviceGetCount", uintptr(unsafe.Pointer(&n))) != nil {
		return newest
	}
	for i := range n {
		var id, major, minor int32
		err := errors.Join(driver.status("cuDeviceGet", uintptr(unsafe.Pointer(&id)), uintptr(i)),
			driver.status("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&major)), attrMajor, uintptr(id)),
			driver.status("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&minor)), attrMinor, uintptr(id)))
		if err == nil && 10*major+minor < 75 {
			newest = min(newest, 12)
		}
	}
	return newest
}

// devices lists the driver's devices, with warnings about what will not work.
func (r *Report) devices(lib *library) {
	var n int32
	if err := lib.status("cuDeviceGetCount", uintptr(unsafe.Pointer(&n))); err != nil {
		r.Problem = err.Error()
		return
	}
	for i := range int(n) {
		var id int32
		if lib.status("cuDeviceGet", uintptr(unsafe.Pointer(&id)), uintptr(i)) != nil {
			continue
		}
		if info, err := describe(lib, id, i); err == nil {
			r.Devices = append(r.Devices, info)
		}
	}
	if len(r.Devices) == 0 {
		r.Problem, r.Advice = "the driver shows no GPU", startAdvice[codeNoDevice]
		return
	}
	r.Advice = r.libraryAdvice(r.Devices[0])
}

// libraryAdvice checks the libraries found against the driver and the device.
func (r *Report) libraryAdvice(d Info) string {
	blas := 0
	for _, l := range r.Libraries {
		if l.Library == libBlas {
			blas = l.CUDA
		}
		switch {
		case l.Library == libBlas && l.Path == "" && l.newer() && d.Major*10+d.Minor < 75 && d.Driver >= 12000:
			return "this GPU needs the CUDA 12 libraries: install them or set AMPC_CUDA_LIBDIR to them"
		case l.Library == libBlas && l.Path == "" && l.newer():
			return fmt.Sprintf("the CUDA libraries here are newer than the driver: update it (CUDA 13 needs r580), or install those of CUDA %d", d.Driver/1000)
		case l.Library == libBlas && l.Path == "":
			return "install cuBLASLt (CUDA toolkit or the nvidia-cublas wheel) or set AMPC_LIBCUBLASLT"
		case l.Library == libDNN && l.Path == "" && l.newer():
			return fmt.Sprintf("this cuDNN is built for a CUDA newer than the driver's: it is not used, convolution and attention run on slower kernels; install cuDNN for CUDA %d, or update the driver", d.Driver/1000)
		case l.Library == libDNN && l.Path == "":
			return "without cuDNN convolution and attention use slower kernels; install cuDNN or set AMPC_LIBCUDNN"
		case l.Library == libDNN && l.Broken != "":
			return "a part of this cuDNN does not load: install it again, or set AMPC_LIBCUDNN to another"
		case l.Library == libDNN && faultOf(l.number) != "":
			return faultOf(l.number)
		case l.Library == libDNN && mixed(l.CUDA, blas):
			return fmt.Sprintf("this cuDNN is built for CUDA %d, cuBLASLt is of CUDA %d: it is not used, convolution and attention run on slower kernels; install cuDNN for CUDA %d or set AMPC_LIBCUDNN to it", l.CUDA, blas, blas)
		case l.Library == libNCCL && l.Path == "" && len(r.Devices) > 1:
			return "without NCCL these GPUs do not train together; install libnccl2 or set AMPC_LIBNCCL"
		case l.Library == libNCCL && l.Path != "" && l.number < ncclOldest:
			return fmt.Sprintf("this NCCL is too old, and not used: install %s or later", ncclVersion(ncclOldest))
		}
	}
	return ""
}

// newer reports whether an existing file was skipped because it is too new.
func (l *LibraryReport) newer() bool {
	return slices.ContainsFunc(l.Tried, func(a Attempt) bool { return a.newer() && !a.absent() })
}
