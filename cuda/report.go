//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"strings"
	"unsafe"
)

// Discover looks for every library and device, starting nothing but the driver.
func Discover() *Report {
	r := &Report{}
	w := realPlaces()
	var driver *library
	for _, name := range []string{libDriver, libRTC, libBlas, libDNN, libNCCL} {
		l := openLibrary(name, w.candidates(name))
		if name == libDriver {
			driver = l
		}
		r.Libraries = append(r.Libraries, LibraryReport{Library: name, Path: l.path, Version: l.version(), Missing: l.missing, Tried: l.tried})
	}
	if r.Problem, r.Advice = startDriver(driver); r.Problem == "" {
		r.devices(driver)
	}
	return r
}

// devices lists what the driver shows, and warns of what will not work.
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
		r.Problem, r.Advice = "the driver shows no GPU", startAdvice[CodeNoDevice]
		return
	}
	r.Advice = r.libraryAdvice(r.Devices[0])
}

// libraryAdvice checks the libraries found against the driver and the device.
func (r *Report) libraryAdvice(d Info) string {
	for _, l := range r.Libraries {
		switch {
		case l.Library == libBlas && l.Path == "":
			return "install cuBLASLt (CUDA toolkit or the nvidia-cublas wheel) or set AMPC_LIBCUBLASLT"
		case l.Library == libBlas && strings.HasPrefix(l.Version, "13.") && d.Major*10+d.Minor < 75:
			return "this GPU needs the CUDA 12 libraries; set AMPC_CUDA_LIBDIR to them"
		case l.Library == libBlas && strings.HasPrefix(l.Version, "13.") && d.Driver < 13000:
			return "the CUDA 13 libraries need driver r580 or newer"
		case l.Library == libDNN && l.Path == "":
			return "without cuDNN convolution and attention use slower kernels; install cuDNN or set AMPC_LIBCUDNN"
		}
	}
	return ""
}
