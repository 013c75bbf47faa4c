//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is an opened shared library with its functions resolved.
type library struct {
	name, path string
	fn         map[string]uintptr
	missing    []string // required functions it lacks
	absent     []string // parts of cuDNN that its folder lacks
	broken     string   // why a part of cuDNN does not load
	tried      []Attempt
}

// openLibrary opens the first candidate that loads and has what is required. Libraries that others
// find by name are opened globally. The library is never closed.
func openLibrary(name string, files []string) *library {
	runtime.LockOSThread() // the loader keeps what went wrong by thread
	defer runtime.UnlockOSThread()
	l := &library{name: name, fn: map[string]uintptr{}}
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if name == libRTC || name == libBlas {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	for _, f := range files {
		if name == libDNN {
			l.absent, l.broken = openParts(f)
		}
		h, err := purego.Dlopen(f, mode)
		if err != nil {
			l.tried = append(l.tried, Attempt{name, f, err.Error()})
			continue
		}
		fn, missing := resolve(name, h)
		if len(missing) > 0 {
			l.tried = append(l.tried, Attempt{name, f, "lacks " + strings.Join(missing, ", ")})
			l.missing = missing
			continue
		}
		l.fn, l.missing, l.path = fn, nil, loadedPath(f)
		switch {
		case name == libRTC:
			openBuiltins(l.path)
		case name == libDNN && l.path != f: // found by name
			l.absent, l.broken = openParts(l.path)
		}
		return l
	}
	return l
}

// openBuiltins opens the library of builtins that NVRTC loads by name when it compiles. If it is
// missing, compiling fails.
func openBuiltins(path string) {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so.*"))
	for _, f := range files {
		_, _ = purego.Dlopen(f, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	}
}

// resolve looks up the library's rows of the table.
func resolve(name string, handle uintptr) (fn map[string]uintptr, missing []string) {
	fn = map[string]uintptr{}
	for _, s := range symbols {
		if s.lib != name {
			continue
		}
		if p, err := purego.Dlsym(handle, s.name); err == nil {
			fn[s.name] = p
		} else if !s.optional {
			missing = append(missing, s.name)
		}
	}
	return fn, missing
}

// loadedPath is where the loader found a library opened by its bare name.
func loadedPath(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return name
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if i := strings.IndexByte(sc.Text(), '/'); i >= 0 && strings.Contains(sc.Text()[i:], "/"+strings.TrimRight(name, "0123456789.")) {
			return sc.Text()[i:]
		}
	}
	return name
}

func (l *library) loaded() bool { return l.path != "" }

func (l *library) has(name string) bool { return l.fn[name] != 0 }

// call calls a function. It returns CodeMissing if the library lacks the function. Pointers to Go
// memory must be converted to uintptr in the call's argument list.
//
//go:uintptrescapes
func (l *library) call(name string, args ...uintptr) uintptr {
	fn := l.fn[name]
	if fn == 0 {
		return CodeMissing
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// status calls a function that returns a status, and turns a failure into an error.
//
//go:uintptrescapes
func (l *library) status(name string, args ...uintptr) error {
	fn := l.fn[name]
	if fn == 0 {
		return &Error{Lib: l.name, Call: name, Code: CodeMissing, Name: "not in this library", Text: l.path}
	}
	r, _, _ := purego.SyscallN(fn, args...)
	if code := int(int32(r)); code != 0 {
		return l.failure(name, code)
	}
	return nil
}

// failure asks the library for the name of a code.
func (l *library) failure(call string, code int) error {
	e := &Error{Lib: l.name, Call: call, Code: code}
	switch l.name {
	case libDriver:
		var text uintptr
		if l.call("cuGetErrorName", uintptr(uint32(code)), uintptr(unsafe.Pointer(&text))) == 0 {
			e.Name = cString(text)
		}
	case libBlas:
		if l.has("cublasLtGetStatusString") {
			e.Name = cString(l.call("cublasLtGetStatusString", uintptr(uint32(code))))
		}
	case libDNN:
		e.Name = cString(l.call("cudnnGetErrorString", uintptr(uint32(code))))
		if l.has("cudnnGetLastErrorString") {
			buf := make([]byte, 1024)
			l.call("cudnnGetLastErrorString", uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
			e.Text, _, _ = strings.Cut(string(buf), "\x00")
		}
	case libNCCL:
		e.Name = cString(l.call("ncclGetErrorString", uintptr(uint32(code))))
	}
	return e
}

// cString copies a NUL-terminated string out of C memory.
func cString(p uintptr) string {
	if p == 0 {
		return ""
	}
	var b []byte
	for {
		c := *(*byte)(pointer(p + uintptr(len(b))))
		if c == 0 || len(b) == 1<<16 {
			return string(b)
		}
		b = append(b, c)
	}
}

// pointer reads an address that C gave; going through memory keeps vet's rule about Go pointers.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// cBytes views n bytes of C memory.
func cBytes(p uintptr, n int64) []byte { return unsafe.Slice((*byte)(pointer(p)), n) }

// cuda is the major version of CUDA that a library was built for; 0: unknown.
func (l *library) cuda() int {
	switch {
	case !l.loaded():
	case l.name == libBlas:
		return int(l.call("cublasLtGetVersion")) / 10000
	case l.name == libDNN && l.has("cudnnGetCudartVersion"):
		return int(l.call("cudnnGetCudartVersion")) / 1000
	}
	return 0
}

// version is the library's own number, as text.
func (l *library) version() string {
	if !l.loaded() {
		return ""
	}
	switch l.name {
	case libDriver:
		var v int32
		l.call("cuDriverGetVersion", uintptr(unsafe.Pointer(&v)))
		return fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10)
	case libBlas:
		v := l.call("cublasLtGetVersion")
		return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
	case libDNN:
		return dnnVersion(l.number())
	case libRTC:
		var major, minor int32
		l.call("nvrtcVersion", uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
		return fmt.Sprintf("%d.%d", major, minor)
	case libNCCL:
		return ncclVersion(l.number())
	}
	return ""
}

// number is the version of NCCL and cuDNN as they count them; 0 for other libraries.
func (l *library) number() int {
	var v int32
	switch {
	case !l.loaded():
	case l.name == libNCCL:
		l.call("ncclGetVersion", uintptr(unsafe.Pointer(&v)))
	case l.name == libDNN:
		return int(l.call("cudnnGetVersion"))
	}
	return int(v)
}

func ncclVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }
