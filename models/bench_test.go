package models_test

import (
	"context"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"ampc"
	"ampc/internal/cputime"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/models"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

// The models whose training steps docs/performance.md has: the first four it compares with PyTorch's.
var compared = []struct {
	name, spec string
	optimizer  ampc.Optimizer
}{
	{"mlp", "mlp?batch=128&hidden=512&layers=2", ampc.SGD(0)},
	{"lenet", "lenet?batch=32&conv1=20&conv2=50&pad=0&fc1=500&fc2=0", ampc.SGD(0)},
	{"gpt", "gpt?layers=4&dim=256&heads=8&seq=128&batch=8&vocab=256", ampc.Adam()},
	{"resnet18", "resnet?batch=32", ampc.SGD(0.9)},
	{"lstm", "lstm?batch=32&seq=64&dim=256", ampc.Adam()},
	{"unet", "unet", ampc.Adam()},
	{"unet3d", "unet3d", ampc.Adam()},
	{"convlstm", "convlstm", ampc.Adam()},
}

// BenchmarkStep times training steps on one thread, in its processor time, under f32 and both mixed
// policies (16-bit copies of weights written by
// the update) in turn, so that neighbours slow all alike, with the multiply-add
// probe beside them: for each policy GFLOP/s of the median step, and how often
// f32's step takes that time. Gflop is the work of a step's matrix products.
// Steps take four batches in turn, as one alone would be learnt by heart.
// Short steps run several in a row, of which the first is not counted: it finds
// another policy's data in the caches, a training loop finds its own.
func BenchmarkStep(b *testing.B) {
	for _, c := range compared {
		b.Run(c.name, func(b *testing.B) {
			goruntime.LockOSThread() // whose time cputime tells
			defer goruntime.UnlockOSThread()
			policies := []ampc.Policy{ampc.F32Only(), ampc.MixedF16(), ampc.MixedBF16()}
			var steps []*stepper
			for _, p := range policies {
				steps = append(steps, newStepper(b, c.spec, ampc.TrainConfig{Optimizer: c.optimizer, LR: ampc.Constant(1e-4), Policy: p, Compile: ampc.CompileOptions{WeightCopies: p.Mixed()}}))
			}
			path := kern.Paths()[0]
			const iters = 20000
			var probe []float64
			b.ReportAllocs()
			for b.Loop() {
				start := cputime.Thread()
				flop := path.Probe(iters)
				probe = append(probe, flop/float64(cputime.Thread()-start))
				for _, s := range steps {
					s.block(b)
				}
			}
			peak := middle(probe)
			b.ReportMetric(float64(steps[0].p.Flops())/1e9, "Gflop")
			b.ReportMetric(peak, "peak")
			for i, s := range steps {
				rate, name := float64(s.p.Flops())/middle(s.took), policies[i].Name
				b.ReportMetric(rate, name)
				b.ReportMetric(rate/peak, name+"/peak")
				if i > 0 {
					b.ReportMetric(middle(steps[0].took)/middle(s.took), name+"/f32")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// stepper runs one compiled step on a backend of one thread.
type stepper struct {
	p     *lower.Program
	exec  runtime.Exec
	feeds [][]runtime.Feed // of the steps, in turn
	steps int
	took  []float64 // nanoseconds
}

func newStepper(b *testing.B, spec string, c ampc.TrainConfig) *stepper {
	b.Helper()
	z, err := models.Open(spec)
	if err != nil {
		b.Fatal(err)
	}
	one, err := cpu.Open(1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { one.Close() })
	if err := z.Model.Set(ampc.On(one)); err != nil {
		b.Fatal(err)
	}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		b.Fatal(err)
	}
	p := step.Program()
	store, err := one.NewStore(p.Vars)
	if err != nil {
		b.Fatal(err)
	}
	if err := runtimetest.Initialize(store, p.Vars, 1); err != nil {
		b.Fatal(err)
	}
	s := &stepper{p: p, took: make([]float64, 0, 1<<16)}
	for seed := range uint64(4) {
		batch := runtime.Feed{}
		for name, x := range feed(z.Model.Graph(), seed+1) {
			t := z.Model.Graph().Value(name).Type
			batch[name] = runtime.Tensor{Type: t, Data: storage(t, x)}
		}
		s.feeds = append(s.feeds, []runtime.Feed{batch})
	}
	if s.exec, err = one.Load(p, store); err != nil {
		b.Fatal(err)
	}
	for range 2 {
		s.run(b)
	}
	s.took = s.took[:0]
	return s
}

// block runs a step, or as many as take some tens of milliseconds and one before them.
func (s *stepper) block(b *testing.B) {
	const short = 50 * time.Millisecond
	start := cputime.Thread()
	s.run(b)
	if cputime.Thread()-start >= short {
		return
	}
	s.took = s.took[:len(s.took)-1]
	for cputime.Thread()-start < short {
		s.run(b)
	}
}

func (s *stepper) run(b *testing.B) {
	start := cputime.Thread()
	if _, err := s.exec.Step(context.Background(), s.feeds[s.steps%len(s.feeds)]); err != nil {
		b.Fatal(err)
	}
	s.steps++
	s.took = append(s.took, float64(cputime.Thread()-start))
}

// storage lays out what feed drew.
func storage(t ir.Type, x any) []byte {
	e := eval.New(t)
	switch x := x.(type) {
	case []float64:
		copy(e.F, x)
	case []int:
		for i, n := range x {
			e.I[i] = int64(n)
		}
	}
	return e.Bytes()
}

func middle(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
