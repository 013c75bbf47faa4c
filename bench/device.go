package main

import (
	"errors"
	"fmt"

	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
)

// device is a backend with what results say of it.
type device struct {
	runtime.Backend
	name    string
	threads int                   // of a CPU
	syncs   func() int64          // how often the host has waited so far
	inUse   func() (int64, error) // bytes of the device's memory
}

// openDevice opens cpu with so many threads, or a GPU by its name. The CPU
// never waits for itself, and its memory in use is not measured.
func openDevice(name string, threads int) (device, error) {
	if name == "cpu" {
		b, err := cpu.Open(threads)
		if err != nil {
			return device{}, err
		}
		return device{b, fmt.Sprintf("%s (threads: %d)", b.Name(), b.Threads()), b.Threads(), func() int64 { return 0 }, func() (int64, error) { return 0, nil }}, nil
	}
	b, err := gpu.OpenNamed(name)
	switch {
	case errors.Is(err, gpu.ErrName):
		return device{}, fmt.Errorf("%w, or cpu", err)
	case err != nil:
		return device{}, err
	}
	inUse := func() (int64, error) {
		free, total, err := b.MemInfo()
		return total - free, err
	}
	return device{b, b.Info().Name, 0, b.Syncs, inUse}, nil
}
