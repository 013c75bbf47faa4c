package main

import (
	"cmp"
	"strconv"
	"strings"

	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

const deviceHelp = "what to run on: cpu, cuda:0 or sim:sm_90 (a simulated GPU, slow)"

// openDevice opens a --device; nil stands for the CPU, which a model opens by itself.
func openDevice(name string) (runtime.Backend, error) {
	kind, which, _ := strings.Cut(name, ":")
	switch kind {
	case "cpu", "":
		return nil, nil
	case "sim":
		return backend(gpu.OpenSim(lower.Target(which)))
	case "cuda":
		number, without, lacking := strings.Cut(which, "/")
		n, err := strconv.Atoi(number)
		if _, known := lower.Target("sm_90/" + without).CUDA(); err != nil || lacking && !known {
			break
		}
		b, err := gpu.Open(n)
		for _, feature := range strings.Split(without, "/") {
			if err == nil && feature != "" {
				b.Without(feature)
			}
		}
		return backend(b, err)
	}
	return nil, usagef("--device %s: there are cpu, cuda:0 (or another number) and sim:sm_70, sim:sm_80, sim:sm_90, each also with /nodnn (without cuDNN) or /noaux", name)
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

// backend keeps a failed open from becoming a Backend that is not nil.
func backend(b *gpu.Backend, err error) (runtime.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
