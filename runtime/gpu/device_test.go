package gpu_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"ampc/runtime/gpu"
)

// onSilicon reports whether tests run on the GPU that AMPC_DEVICE names.
func onSilicon() bool { return os.Getenv("AMPC_DEVICE") != "" }

// open gives a simulated device, or the GPU that AMPC_DEVICE=cuda:0 names, made
// to lack what the target lacks. A target of another generation is skipped there.
func open(t *testing.T, target string) (*gpu.Backend, error) {
	t.Helper()
	name := os.Getenv("AMPC_DEVICE")
	if name == "" {
		return gpu.OpenSim(target)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(name, "cuda:"))
	if err != nil {
		t.Fatalf("AMPC_DEVICE=%s: want cuda:0 or another number", name)
	}
	generation, lacks, _ := strings.Cut(string(target), "/")
	if generation != "sm_90" {
		t.Skipf("%s is for a device of its generation; sm_90 stands for what is at hand", target)
	}
	b, err := gpu.Open(n)
	for feature := range strings.SplitSeq(lacks, "/") {
		if err == nil && feature != "" {
			b.Without(feature)
		}
	}
	return b, err
}
