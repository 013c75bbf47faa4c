package cpu_test

import (
	"testing"

	"ampc/lower"
	"ampc/passes"
	"ampc/runtime/cpu"
	"ampc/runtime/runtimetest"
)

// Programs for several sizes have one kernel, which stays until the last of them is closed.
func TestProgramsShareKernels(t *testing.T) {
	b := cpu.OpenPath(pathWith(t, composing(t)[0], ""), 2)
	defer b.Close()
	var loaded []*runtimetest.Loaded
	for _, rows := range []int{75, 300} {
		g := fusedGraph(t, composedGraphs["chain"], passes.F32(), lower.CPU.Caps(), rows, 40, 136)
		l := runtimetest.Load(t, b, g, 1)
		if n := cpu.ComposedKernels(l.Exec); n != 1 || cpu.KernelsOf(b) != 1 {
			t.Fatalf("%d kernels of a program, %d of the backend, want one", n, cpu.KernelsOf(b))
		}
		loaded = append(loaded, l)
	}
	want := loaded[1].Step(t, composedFeeds(loaded[1].Graph))
	for i, left := range []int{1, 0} {
		if err := loaded[i].Exec.Close(); err != nil {
			t.Fatal(err)
		}
		if n := cpu.KernelsOf(b); n != left {
			t.Fatalf("%d kernels after closing %d programs, want %d", n, i+1, left)
		}
		if left > 0 {
			for key, x := range loaded[1].Step(t, composedFeeds(loaded[1].Graph)) {
				if !sameBits(x, want[key]) {
					t.Errorf("%s differs after the other program was closed", key)
				}
			}
		}
	}
}
