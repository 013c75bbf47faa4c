package main

import (
	"cmp"
	"errors"
	"strings"

	"ampc/runtime"
	"ampc/runtime/gpu"
)

// openDevice opens a --device; nil stands for the CPU, which a model opens by itself.
func openDevice(name string) (runtime.Backend, error) {
	if name == "cpu" || name == "" {
		return nil, nil
	}
	b, err := gpu.OpenNamed(name)
	switch {
	case errors.Is(err, gpu.ErrName):
		return nil, usagef("--device %s: %v, or cpu", name, err)
	case err != nil && strings.HasPrefix(name, "sim:"):
		return nil, usagef("--device %w", err)
	case err != nil: // a Backend that is nil
		return nil, err
	}
	return b, nil
}

// onDevice runs f with a --device and closes the device after it: f closes what
// it made there. A fault of the device is f's error, in one line.
func onDevice(name string, f func(b runtime.Backend) error) error {
	b, err := openDevice(name)
	if err != nil {
		return err
	}
	if b == nil {
		return f(nil)
	}
	err = f(b)
	return cmp.Or(err, b.Close())
}
