package sim

import (
	"fmt"
	"strings"

	"ampc/cuda"
)

// Fault makes a call of the driver or of a library fail.
type Fault struct {
	Call string // its name, such as cudnnBackendExecute
	At   int    // which of its calls, from 1; 0: every one
	Code int
}

// Slow makes operations that succeed take longer.
type Slow struct {
	What  string // part of the name of the operation: a kernel's, or that of a call with its problem
	Times float64
}

// fault is the error of an injected fault, if this call is to fail.
func (d *Device) fault(call string) error {
	d.calls[call]++
	for _, f := range d.opt.Faults {
		if f.Call == call && (f.At == 0 || f.At == d.calls[call]) {
			return d.status(call, f.Code, "injected fault")
		}
	}
	return nil
}

// status is the error of a call, by the library that its name begins with.
func (d *Device) status(call string, code int, format string, args ...any) error {
	switch {
	case strings.HasPrefix(call, "cublasLt"):
		return blasError(call, code, format, args...)
	case strings.HasPrefix(call, "cudnn"):
		return dnnCallError(call, code, format, args...)
	}
	return d.fail(call, code, format, args...)
}

// lacks reports whether a part of cuDNN is not installed.
func (d *Device) lacks(part string) bool {
	for _, p := range d.opt.LacksParts {
		if p == part {
			return true
		}
	}
	return false
}

var blasStatus = map[int]string{1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", statusInvalid: "CUBLAS_STATUS_INVALID_VALUE",
	8: "CUBLAS_STATUS_ARCH_MISMATCH", statusFailed: "CUBLAS_STATUS_EXECUTION_FAILED", 14: "CUBLAS_STATUS_INTERNAL_ERROR", statusNotSupported: "CUBLAS_STATUS_NOT_SUPPORTED"}

var dnnStatus = map[int]string{1001: "CUDNN_STATUS_NOT_INITIALIZED", 1002: "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", 1008: "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
	3000: "CUDNN_STATUS_NOT_SUPPORTED", 3001: "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN", 3002: "CUDNN_STATUS_NOT_SUPPORTED_SHAPE",
	3003: "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE", 3004: "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT", 3007: "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH",
	3009: "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE", 4000: "CUDNN_STATUS_INTERNAL_ERROR", 4001: "CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED",
	4004: "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", 5000: "CUDNN_STATUS_EXECUTION_FAILED"}

func blasError(call string, code int, format string, args ...any) error {
	return &cuda.Error{Lib: "cublasLt", Call: call, Code: code, Name: blasStatus[code], Text: fmt.Sprintf(format, args...)}
}

func dnnCallError(call string, code int, format string, args ...any) error {
	return &cuda.Error{Lib: "cudnn", Call: call, Code: code, Name: dnnStatus[code], Text: fmt.Sprintf(format, args...)}
}

func dnnError(status int, format string, args ...any) error {
	return dnnCallError("cudnnBackendFinalize", status, format, args...)
}
