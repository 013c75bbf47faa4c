package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"ampc/nccl"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

// openDevice opens a --device. The name cuda is this rank's GPU. It returns nil for the CPU, which a model opens by itself.
func openDevice(name string) (runtime.Backend, error) {
	if name == "cpu" || name == "" {
		return nil, nil
	}
	if name == "cuda" {
		name = fmt.Sprintf("cuda:%d", nccl.Device())
	}
	b, err := gpu.OpenNamed(name)
	switch {
	case errors.Is(err, gpu.ErrName):
		return nil, usagef("--device %s: %v, or cpu", name, err)
	case err != nil && strings.HasPrefix(name, "sim:"):
		return nil, usagef("--device %w", err)
	case err != nil: // a nil interface value, not a nil pointer in it
		return nil, err
	}
	return b, nil
}

// onDevice calls f with a --device and then closes the device. f must close what it created on the
// device. A fault of the device becomes f's error, in one line.
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
