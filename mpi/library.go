//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is an MPI library. A handle is an address in Open MPI and a 32-bit number in
// MPICH; an uintptr holds either.
type library struct {
	name string // "Open MPI v4.1.4", for messages
	file string
	fn   map[string]uintptr

	world, bytes, errorsReturn uintptr
	statusIgnore, inPlace      uintptr

	began atomic.Int64 // time in nanoseconds when the call began that is under way; 0: none is
}

// functions are the MPI functions that are called.
var functions = []string{
	"MPI_Init_thread", "MPI_Finalize", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_dup", "MPI_Comm_set_errhandler", "MPI_Get_library_version",
	"MPI_Error_string", "MPI_Ialltoallv", "MPI_Iallgatherv", "MPI_Test", "MPI_Isend", "MPI_Iprobe", "MPI_Recv",
}

// quiet are settings of network libraries below MPI. Without them the libraries install signal
// handlers, which the Go runtime needs for itself.
var quiet = [][2]string{{"UCX_ERROR_SIGNALS", ""}, {"IPATH_NO_BACKTRACE", "1"}, {"HFI_NO_BACKTRACE", "1"}}

func openLibrary(files []string) (*library, error) {
	if set, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv"); err == nil {
		for _, s := range quiet {
			name, value := append([]byte(s[0]), 0), append([]byte(s[1]), 0)
			purego.SyscallN(set, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0])), 1)
		}
	}
	var tried []string
	for _, f := range files {
		h, err := purego.Dlopen(f, purego.RTLD_NOW|purego.RTLD_GLOBAL) // plugins of MPI look for the library's symbols
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		l := &library{file: filepath.Base(f), fn: map[string]uintptr{}}
		for _, name := range functions {
			if l.fn[name], err = purego.Dlsym(h, name); err != nil {
				return nil, fmt.Errorf("%w: %s lacks %s", ErrUnavailable, f, name)
			}
		}
		l.handles(h)
		l.version()
		return l, nil
	}
	return nil, fmt.Errorf("%w: %s; install Open MPI or MPICH, or name the library in AMPC_MPI", ErrUnavailable, strings.Join(tried, "; "))
}

// handles distinguishes Open MPI, which exports objects, from MPICH, whose handles are numbers.
func (l *library) handles(h uintptr) {
	if world, err := purego.Dlsym(h, "ompi_mpi_comm_world"); err == nil {
		l.world = world
		l.bytes, _ = purego.Dlsym(h, "ompi_mpi_byte")
		l.errorsReturn, _ = purego.Dlsym(h, "ompi_mpi_errors_return")
		l.inPlace = 1
		return
	}
	l.world, l.bytes, l.errorsReturn, l.statusIgnore, l.inPlace = 0x44000000, 0x4c00010d, 0x54000001, 1, ^uintptr(0)
}

func (l *library) version() {
	text, n := make([]byte, 8192), int32(0)
	l.call("MPI_Get_library_version", uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)))
	first, _, _ := strings.Cut(string(text[:n]), "\n")
	if strings.HasPrefix(first, "MPICH") {
		first = strings.Join(strings.Fields(strings.Replace(first, "Version:", "", 1)), " ")
	}
	first, _, _ = strings.Cut(first, ",")
	l.name = first
}

// call calls a function and turns its code into an error. Pointers to Go memory must be
// converted to uintptr in the call's argument list.
//
//go:uintptrescapes
func (l *library) call(name string, args ...uintptr) error {
	l.began.Store(time.Now().UnixNano())
	r, _, _ := purego.SyscallN(l.fn[name], args...)
	l.began.Store(0)
	if code := int32(r); code != 0 {
		return fmt.Errorf("%s: %s", name, l.errorText(code))
	}
	return nil
}

func (l *library) errorText(code int32) string {
	text, n := make([]byte, 1024), int32(0)
	if r, _, _ := purego.SyscallN(l.fn["MPI_Error_string"], uintptr(uint32(code)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n))); r != 0 || n <= 0 {
		return fmt.Sprintf("error %d", code)
	}
	return strings.Join(strings.Fields(string(text[:n])), " ")
}
