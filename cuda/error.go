package cuda

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnavailable is wrapped by the error of Open if there is no library, no device or no support in
// this build. The error's text says which, and what to do.
var ErrUnavailable = errors.New("cuda: not available")

// Classes of failed calls. An Error wraps one of them, or none; see also Error.Sticky.
var (
	// ErrOutOfMemory: an allocation does not fit, or a library could not allocate what it needs.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrNotSupported: a library has no algorithm for a problem.
	ErrNotSupported = errors.New("not supported by the library")
	// ErrBroken: a library does not work as it is installed.
	ErrBroken = errors.New("the library is not installed correctly")
	// ErrInternal: a library has failed in a call that it supports. The context may be lost or not.
	ErrInternal = errors.New("the library has failed")
)

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
	if class := e.Unwrap(); class == ErrBroken {
		s += fmt.Sprintf("; %s is incomplete, or its parts are of different versions: see ampc devices, install it again, or set %s", e.Lib, variable(e.Lib))
	}
	return s
}

// variable is the environment variable that names a library's file or folder.
func variable(lib string) string { return "AMPC_LIB" + strings.ToUpper(lib) }

// statusClass is the class of a range of a library's codes. The first range that has a code counts.
type statusClass struct {
	lib      string
	from, to int
	class    error
}

// statusClasses has the codes of cuDNN 8 (below 1000) and 9. Libraries report wrong arguments for
// calls that they do not support.
var statusClasses = []statusClass{
	{libDriver, CodeOutOfMemory, CodeOutOfMemory, ErrOutOfMemory},
	{libBlas, 1, 1, ErrBroken},       // not initialized
	{libBlas, 3, 3, ErrOutOfMemory},  // allocation failed
	{libBlas, 7, 8, ErrNotSupported}, // invalid value, architecture
	{libBlas, blasNotSupported, blasNotSupported, ErrNotSupported},
	{libBlas, 16, 16, ErrBroken}, // license
	{libBlas, 11, 14, ErrInternal},

	{libDNN, 1, 1, ErrBroken},
	{libDNN, 2, 2, ErrOutOfMemory},
	{libDNN, 3, 3, ErrNotSupported}, // bad parameter
	{libDNN, 5, 6, ErrNotSupported}, // invalid value, architecture
	{libDNN, 9, 9, ErrNotSupported},
	{libDNN, 10, 11, ErrBroken}, // license, a library is missing
	{libDNN, 14, 14, ErrBroken}, // versions differ
	{libDNN, 4, 13, ErrInternal},
	{libDNN, 1006, 1007, ErrInternal},
	{libDNN, 1000, 1999, ErrBroken},
	{libDNN, 2000, 2999, ErrNotSupported}, // bad parameter
	{libDNN, 3005, 3006, ErrBroken},       // the driver or the runtime does not fit
	{libDNN, 3008, 3009, ErrBroken},       // a library that it loads is missing
	{libDNN, 3000, 3999, ErrNotSupported},
	{libDNN, 4003, 4004, ErrOutOfMemory}, // of the host, of the device
	{libDNN, 4000, 5999, ErrInternal},
}

// Unwrap gives the class of the error, if it has one.
func (e *Error) Unwrap() error {
	for _, c := range statusClasses {
		if c.lib == e.Lib && c.from <= e.Code && e.Code <= c.to {
			return c.class
		}
	}
	return nil
}

// Sticky reports whether the context is lost: every later call fails in the same way, and only a
// new process helps.
func (e *Error) Sticky() bool { return e.Lib == libDriver && sticky[e.Code] }

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

// sticky are uncorrectable errors of memory and links, faults of kernels, a kernel that ran too long,
// a context that was destroyed, and the driver's unknown error.
var sticky = map[int]bool{
	214: true, 220: true, 700: true, 702: true, 709: true, 710: true, 714: true, 715: true, 716: true, 717: true, 718: true, 719: true, 721: true, 999: true,
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
