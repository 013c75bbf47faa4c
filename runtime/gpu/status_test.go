package gpu_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/lower"
	"ampc/runtime/gpu"
)

// TestStatusClasses has a fault for every class of status, of both libraries and the driver, when a Program
// is loaded and in a step: each is told apart, in one line.
func TestStatusClasses(t *testing.T) {
	images := ready(t, "lenet?batch=2&size=8&conv1=8&conv2=8&fc1=8&fc2=6&pad=2", "mixed-f16", "sm_90")[0]
	for _, c := range []struct {
		name  string
		fault sim.Fault
		class error
		want  []string
	}{
		{"cuDNN refuses", sim.Fault{Call: "cudnnBackendFinalize", Code: 3002}, cuda.ErrNotSupported, []string{"lenet: conv ", "NOT_SUPPORTED_SHAPE (3002)", "named .../no"}},
		{"cuDNN fails to prepare", sim.Fault{Call: "cudnnBackendFinalize", Code: 4000}, cuda.ErrInternal, []string{"lenet: conv ", "INTERNAL_ERROR (4000)", "named .../no"}},
		{"cuDNN is incomplete", sim.Fault{Call: "cudnnBackendFinalize", Code: 3009}, cuda.ErrBroken, []string{"lenet: conv ", "SUBLIBRARY_UNAVAILABLE", "see ampc devices", "AMPC_LIBCUDNN"}},
		{"cuDNN has no memory", sim.Fault{Call: "cudnnBackendFinalize", Code: 4004}, cuda.ErrOutOfMemory, []string{"lenet: conv ", "DEVICE_ALLOCATION_FAILED", "the plan: variables "}},
		{"cuDNN fails in a step", sim.Fault{Call: "cudnnBackendExecute", Code: 5000, At: 2}, cuda.ErrInternal, []string{"lenet: step 1: ", "(conv %", "EXECUTION_FAILED (5000)"}},
		{"cuDNN refuses in a step", sim.Fault{Call: "cudnnBackendExecute", Code: 3002, At: 2}, cuda.ErrNotSupported, []string{"lenet: step 1: ", "(conv %", "NOT_SUPPORTED_SHAPE (3002)"}},
		{"cuDNN is incomplete in a step", sim.Fault{Call: "cudnnBackendExecute", Code: 3009}, cuda.ErrBroken, []string{"lenet: step 1: ", "(conv %", "SUBLIBRARY_UNAVAILABLE", "AMPC_LIBCUDNN"}},
		{"cuDNN has no memory in a step", sim.Fault{Call: "cudnnBackendExecute", Code: 4004}, cuda.ErrOutOfMemory, []string{"lenet: step 1: ", "(conv %", "DEVICE_ALLOCATION_FAILED", "the plan: variables "}},
		{"cuBLASLt refuses", sim.Fault{Call: "cublasLtMatmulAlgoGetHeuristic", Code: 15}, cuda.ErrNotSupported, []string{"lenet: gemm ", "NOT_SUPPORTED"}},
		{"cuBLASLt fails to prepare", sim.Fault{Call: "cublasLtMatmulAlgoGetHeuristic", Code: 14}, cuda.ErrInternal, []string{"lenet: gemm ", "INTERNAL_ERROR (14)"}},
		{"cuBLASLt has no memory to prepare", sim.Fault{Call: "cublasLtMatmulAlgoGetHeuristic", Code: 3}, cuda.ErrOutOfMemory, []string{"lenet: gemm ", "ALLOC_FAILED", "the plan: variables "}},
		{"cuBLASLt refuses in a step", sim.Fault{Call: "cublasLtMatmul", Code: 15}, cuda.ErrNotSupported, []string{"lenet: step 1: ", "(gemm %", "NOT_SUPPORTED (15)"}},
		{"cuBLASLt does not work in a step", sim.Fault{Call: "cublasLtMatmul", Code: 1}, cuda.ErrBroken, []string{"lenet: step 1: ", "(gemm %", "NOT_INITIALIZED", "AMPC_LIBCUBLASLT"}},
		{"cuBLASLt does not start", sim.Fault{Call: "cublasLtCreate", Code: 1}, cuda.ErrBroken, []string{"lenet: gemm ", "NOT_INITIALIZED", "AMPC_LIBCUBLASLT"}},
		{"cuBLASLt has no memory", sim.Fault{Call: "cublasLtMatmul", Code: 3}, cuda.ErrOutOfMemory, []string{"lenet: step 1: ", "(gemm %", "ALLOC_FAILED", "the plan: variables "}},
		{"cuBLASLt fails in a step", sim.Fault{Call: "cublasLtMatmul", Code: 14, At: 1}, cuda.ErrInternal, []string{"lenet: step 1: ", "(gemm %", "INTERNAL_ERROR (14)"}},
		{"the driver has no memory", sim.Fault{Call: "cuMemHostAlloc", Code: 2}, cuda.ErrOutOfMemory, []string{"OUT_OF_MEMORY"}},
		{"the driver has no memory in a step", sim.Fault{Call: "cuGraphInstantiateWithFlags", Code: 2}, cuda.ErrOutOfMemory, []string{"lenet: step 2: ", "OUT_OF_MEMORY", "the plan: variables "}},
		{"the context is lost while loading", sim.Fault{Call: "cuModuleLoadDataEx", Code: 719}, nil, []string{"LAUNCH_FAILED", "the context is lost"}},
		{"a kernel faults", sim.Fault{Call: "cuLaunchKernel", Code: 700, At: 3}, nil, []string{"lenet: step 1: ", "ILLEGAL_ADDRESS", "the context is lost"}},
		{"a graph is not made", sim.Fault{Call: "cuGraphInstantiateWithFlags", Code: 1}, nil, []string{"lenet: step 2: capturing the step: ", "INVALID_VALUE"}},
	} {
		err := attempt(t, images, sim.Options{Faults: []sim.Fault{c.fault}}, 1, 1, 1)
		if err == nil {
			t.Errorf("%s: nothing failed", c.name)
			continue
		}
		for _, class := range []error{cuda.ErrNotSupported, cuda.ErrInternal, cuda.ErrBroken, cuda.ErrOutOfMemory} {
			if errors.Is(err, class) != (class == c.class) {
				t.Errorf("%s: is %v: %t: %v", c.name, class, errors.Is(err, class), err)
			}
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want ... %s ...", c.name, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", c.name, err)
		}
		if lost := strings.Contains(err.Error(), "the context is lost"); lost != sticky(err) {
			t.Errorf("%s: the context is lost: %t: %v", c.name, lost, err)
		}
	}
}

// TestDnnThatDoesNotWork: a device whose cuDNN is broken is not opened, and the error names it without.
func TestDnnThatDoesNotWork(t *testing.T) {
	for _, opt := range []sim.Options{{LacksParts: []string{"graph"}}, {Faults: []sim.Fault{{Call: "cudnnCreate", Code: 1002}}}} {
		opt.Major = 9
		b, err := gpu.OpenSimulator(opt)
		if !errors.Is(err, cuda.ErrBroken) || !strings.HasSuffix(err.Error(), "without it: sim:sm_90/nodnn") {
			t.Errorf("opened %v, %v", b, err)
		}
	}
}

// TestEqualPlansOnce: steps with equal graphs share a plan, and with measurements the fastest engine that
// keeps the contract: sums in f32, the same in every run.
func TestEqualPlansOnce(t *testing.T) {
	t.Parallel()
	g := ready(t, "gpt?layers=2&batch=1&seq=128&dim=16&heads=2&vocab=16", "mixed-f16", "sm_90")[0]
	for _, tuned := range []bool{false, true} {
		d, b := device(t, sim.Options{})
		if tuned {
			b.Tune("")
		}
		p, err := lower.Lower(g, b.Target())
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		for _, s := range slices.Concat(p.Parts[:]...) {
			if s.Kind == lower.KindAttention {
				steps++
			}
		}
		store, err := b.NewStore(p.Vars)
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.Load(p, store)
		if err != nil {
			t.Fatal(err)
		}
		graphs, users := 0, 0
		for _, c := range b.Chosen() {
			if !strings.HasPrefix(c.Problem, "attention") {
				continue
			}
			graphs++
			users += c.Steps
			if want := map[bool]string{false: "a1:12", true: "a2:13"}[tuned]; c.Name != want || tuned && (c.Tried != 3 || c.Other == 0) {
				t.Errorf("tuned %t: %+v, want engine %s", tuned, c, want)
			}
		}
		if steps != 4 || users != steps || graphs != 2 || !tuned && d.Stats.Plans != graphs {
			t.Errorf("tuned %t: %d graphs, %d plans for %d of %d steps", tuned, graphs, d.Stats.Plans, users, steps)
		}
		if err := errors.Join(e.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}
