package cuda

import (
	"errors"
	"fmt"
)

// ErrUnavailable is wrapped by the error of Open if there is no library, no device or no support in
// this build. The error's text says which, and what to do.
var ErrUnavailable = errors.New("cuda: not available")

// ErrOutOfMemory is wrapped by the error of an allocation that does not fit.
var ErrOutOfMemory = errors.New("out of device memory")

// ErrNotSupported is wrapped when a library has no algorithm for a problem.
var ErrNotSupported = errors.New("not supported by the library")

// Error is a failed library call.
type Error struct {
	Lib  string // cuda, cublasLt, cudnn, nccl
	Call string
	Code int
	Name string // of the code, if known
	Text string // detail: a JIT log, a library's own message
}

func (e *Error) Error() string {
	of := "cuda"
	if e.Lib == "nccl" {
		of = e.Lib
	}
	s := fmt.Sprintf("%s: %s: error %d", of, e.Call, e.Code)
	if e.Name != "" {
		s = fmt.Sprintf("%s: %s: %s (%d)", of, e.Call, e.Name, e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap gives the class of the error, if it has one.
func (e *Error) Unwrap() error {
	switch {
	case e.Lib == "cuda" && e.Code == CodeOutOfMemory:
		return ErrOutOfMemory
	case e.Lib == "cublasLt" && e.Code == blasNotSupported, e.Lib == "cudnn" && e.Code/1000 == 3:
		return ErrNotSupported
	}
	return nil
}

// Sticky reports whether the context is lost: every later call fails in the same way, and only a
// new process helps.
func (e *Error) Sticky() bool { return e.Lib == "cuda" && sticky[e.Code] }

// Driver codes the package acts on.
const (
	CodeInvalidValue    = 1
	CodeOutOfMemory     = 2
	codeNoDevice        = 100
	CodeInvalidPTX      = 218
	codeUnsupportedPTX  = 222
	CodeInvalidHandle   = 400
	codeNotReady        = 600
	CodeIllegalAddress  = 700
	CodeMisaligned      = 716
	CodeLaunchFailed    = 719
	CodeCaptureInvalid  = 901
	CodeCaptureUnjoined = 904
	CodeMissing         = 500 // also: the library lacks the function
	blasNotSupported    = 15
)

var sticky = map[int]bool{
	214: true, 700: true, 710: true, 714: true, 715: true, 716: true, 717: true, 718: true, 719: true,
}

// startAdvice says what to do about the codes cuInit gives.
var startAdvice = map[int]string{
	34:  "the library found is a stub; remove stub folders from the search path",
	46:  "the device is in use or in a bad state: see nvidia-smi",
	100: "the driver works but shows no GPU: check CUDA_VISIBLE_DEVICES and the container's flags",
	802: "the fabric manager is not running: start nvidia-fabricmanager",
	803: "driver and library versions differ: reboot, or fix the container's mounts",
	804: "the compatibility library does not support this GPU: take the cuda-compat folder out of the search path, or update the driver",
	999: "the driver is in a bad state: see the kernel log, reboot",
}
