package file

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// Guard runs f, which reads memory of Map: where a file has become shorter
// meanwhile, the fault is an error and not the end of the process.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			if _, rt := r.(runtime.Error); !ok || !rt {
				panic(r)
			}
			_ = fault.Addr()
			err = errors.New("the file was made shorter while it was read")
		}
	}()
	return f()
}
