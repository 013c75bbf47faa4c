package cpu_test

import (
	"context"
	"math/rand/v2"
	goruntime "runtime"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// following is a backend without a number of workers on so many processors, opened while GOMAXPROCS
// is 1. The test may change GOMAXPROCS.
func following(t *testing.T, processors int) *cpu.Backend {
	t.Helper()
	was := goruntime.GOMAXPROCS(1)
	b := cpu.OpenOn(kern.Paths()[0], 0, kern.Host{Processors: processors})
	t.Cleanup(func() {
		b.Close()
		goruntime.GOMAXPROCS(was)
	})
	return b
}

// opened is a backend of so many workers.
func opened(t *testing.T, threads int) *cpu.Backend {
	t.Helper()
	b, err := cpu.Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// trained runs some steps of p, each after before is called, and returns the variables.
func trained(t *testing.T, b *cpu.Backend, p *lower.Program, steps int, before func(step int)) (e runtime.Exec, state map[string]string) {
	t.Helper()
	s, err := b.NewStore(p.Vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimetest.Initialize(s, p.Vars, 7); err != nil {
		t.Fatal(err)
	}
	if e, err = b.Load(p, s); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 9))
	for i := range steps {
		before(i)
		if _, err := e.Step(context.Background(), []runtime.Feed{feed(p, r)}); err != nil {
			t.Fatal(err)
		}
	}
	state = map[string]string{}
	for i := range p.Vars {
		if p.Vars[i].Kind == ir.Param {
			buf := make([]byte, p.Vars[i].Type.Bytes())
			if err := s.Read(p.Vars[i].Name, buf); err != nil {
				t.Fatal(err)
			}
			state[p.Vars[i].Name] = string(buf)
		}
	}
	return e, state
}

// A step has as many workers as GOMAXPROCS says when it begins, and the bits of a step on one. It
// holds what the plan says for the most workers so far.
func TestStepsFollowGOMAXPROCS(t *testing.T) {
	for _, spec := range []string{"mlp?batch=256", "gpt?layers=1&batch=8&seq=64&dim=64&dropout=0.1", "resnet8?batch=4", "lstm?batch=8&seq=9&dim=32", "unet?batch=1&width=32&size=16&levels=1"} {
		p := compiled(t, spec, "mixed-bf16")
		counts := []int{1, 2, 4, 3, 1, 6, 4}
		_, want := trained(t, opened(t, 1), p, len(counts), func(int) {})
		b := following(t, 4)
		_, got := trained(t, b, p, len(counts), func(step int) {
			goruntime.GOMAXPROCS(counts[step])
			if n := b.Threads(); n != min(counts[step], 4) {
				t.Errorf("GOMAXPROCS %d: %d workers", counts[step], n)
			}
		})
		if len(want) == 0 {
			t.Fatalf("%s has no parameters", spec)
		}
		for name, bits := range want {
			if got[name] != bits {
				t.Errorf("%s: %s differs from steps on one worker", spec, name)
			}
		}
	}
}

// Steps of a process on 64 processors hold for a GOMAXPROCS what they hold where there are no other
// processors, whether it was that from the start or has risen to it.
func TestWorkersToComeHoldNothing(t *testing.T) {
	for _, spec := range []string{"mlp?batch=256", "gpt?layers=1&batch=8&seq=64&dim=64", "resnet8?batch=4"} {
		p := compiled(t, spec, "f32")
		from1 := following(t, 64)
		rises, _ := trained(t, from1, p, 1, func(int) {})
		for _, procs := range []int{1, 2, 4} {
			goruntime.GOMAXPROCS(procs)
			plan, err := cpu.PlanMemory(p, procs)
			if err != nil {
				t.Fatal(err)
			}
			alone, _ := trained(t, opened(t, procs), p, 1, func(int) {})
			many := following(t, 64)
			goruntime.GOMAXPROCS(procs)
			e, _ := trained(t, many, p, 1, func(int) {})
			if _, err := rises.Step(context.Background(), []runtime.Feed{feed(p, rand.New(rand.NewPCG(1, 9)))}); err != nil {
				t.Fatal(err)
			}
			want := cpu.TemporaryOf(alone)
			if n := cpu.TemporaryOf(e); n != want {
				t.Errorf("%s: steps hold %d bytes of temporary memory, want %d as of %d workers alone", spec, n, want, procs)
			}
			if n := cpu.TemporaryOf(rises); n != want {
				t.Errorf("%s: steps hold %d bytes of temporary memory after GOMAXPROCS has risen, want %d as of %d workers alone", spec, n, want, procs)
			}
			if n := want + cpu.ScratchOf(many); n > plan.Scratch+plan.Scratch/100 {
				t.Errorf("%s: %d workers of 64 hold %d bytes, planned are %d", spec, procs, n, plan.Scratch)
			}
		}
	}
}

// rising is a backend whose programs are loaded for one worker and run on four.
type rising struct{ *cpu.Backend }

func (b rising) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	goruntime.GOMAXPROCS(1)
	defer goruntime.GOMAXPROCS(4)
	return b.Backend.Load(p, s)
}

// Kernels with memory for each worker have it for workers that come after they were loaded.
func TestRowsFollowGOMAXPROCS(t *testing.T) {
	runtimetest.RunRows(t, "topk|resize_grad|max_pool|cross_entropy|any_nonfinite|global_norm|cumsum", func(t *testing.T, threads int) runtime.Backend {
		if threads == 1 {
			return opened(t, 1)
		}
		return rising{following(t, threads)}
	})
}
