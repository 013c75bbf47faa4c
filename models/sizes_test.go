package models_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/models"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
	"ampc/runtime/runtimetest"
)

var (
	randomSizes     = flag.Int("random-sizes", 4, "models of random sizes that TestRandomSizes trains")
	randomSizesFrom = flag.Uint64("random-sizes-from", 1, "seed of the first of them")
)

// sizesOf are models with the largest value of each option that is drawn: dim in twelves, so that heads, which are drawn among its
// divisors, divide it.
var sizesOf = map[string]map[string]int{
	"mlp":      {"batch": 300, "in": 2100, "hidden": 1500, "layers": 2, "classes": 70},
	"lenet":    {"batch": 20, "size": 50, "conv1": 70, "conv2": 90, "fc1": 700, "fc2": 90},
	"resnet8":  {"batch": 20, "size": 40, "width": 70, "classes": 30},
	"gpt":      {"batch": 5, "seq": 200, "vocab": 2100, "layers": 1, "heads": 6, "dim": 90},
	"lstm":     {"batch": 40, "seq": 9, "vocab": 300, "dim": 300},
	"bert":     {"batch": 4, "seq": 150, "vocab": 1500, "layers": 1, "heads": 6, "dim": 90},
	"unet":     {"batch": 4, "size": 40, "width": 40},
	"unet3d":   {"batch": 2, "depth": 12, "size": 16, "width": 20},
	"convlstm": {"batch": 4, "size": 20, "width": 40, "kernel": 5},
	"vit":      {"batch": 6, "size": 40, "patch": 8, "layers": 1, "heads": 4, "dim": 70},
}

// TestRandomSizes trains models of random sizes for a step, and wants the gradients that plain Go computes.
func TestRandomSizes(t *testing.T) {
	paths := kern.Paths()
	for i := range uint64(*randomSizes) {
		r := rand.New(rand.NewPCG(*randomSizesFrom+i, 9))
		spec := randomSpec(r)
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1 << 20), Policy: []ampc.Policy{ampc.F32Only(), ampc.F32Only(), ampc.MixedBF16(), ampc.MixedF16()}[r.IntN(4)]}
		want := gradientsOf(t, paths[len(paths)-1], 1, spec, c)
		for _, p := range paths[:len(paths)-1] {
			if want == nil {
				break
			}
			got := gradientsOf(t, p, 1+r.IntN(3), spec, c)
			for name, e := range differences(got, want) {
				if !(e <= 0.01 || c.Policy.Mixed() && e <= 0.1) {
					t.Errorf("-random-sizes-from %d: %s under %s on %s: the gradient of %s differs by %.2g", *randomSizesFrom+i, spec, c.Policy.Name, p.Name(), name, e)
				}
			}
		}
	}
}

// randomSpec is a model with random options. Some combinations are refused.
func randomSpec(r *rand.Rand) string {
	names := slices.Sorted(maps.Keys(sizesOf))
	name := names[r.IntN(len(names))]
	var options []string
	for _, o := range slices.Sorted(maps.Keys(sizesOf[name])) {
		n := int(math.Pow(float64(sizesOf[name][o])+0.9, max(r.Float64(), r.Float64()))) // large ones more often
		switch o {
		case "kernel":
			n |= 1
		case "hidden", "conv1", "conv2", "fc1", "fc2", "in":
			n = max(n, 5) // gradients of fewer channels are often small differences
		case "classes", "vocab":
			n = max(n, 10)
		case "dim":
			n *= 12
		case "heads":
			n = []int{1, 2, 3, 4, 6, 12}[r.IntN(6)]
		case "width":
			if n = max(n, 5); name == "unet" {
				n = (n + 7) &^ 7
			}
		case "size", "depth":
			n = max(8, n) &^ 7
		}
		options = append(options, fmt.Sprintf("%s=%d", o, n))
	}
	if name == "bert" {
		options = append(options, "dropout=0")
	}
	return name + "?" + strings.Join(options, "&")
}

// differences are the norms of the differences of two sets of gradients, divided by those of want. Gradients that are
// small beside the largest one are left out: those of biases before norms are nothing but rounding errors.
func differences(got, want map[string]*eval.Tensor) map[string]float64 {
	norms, differ, largest := map[string]float64{}, map[string]float64{}, 0.0
	for name, w := range want {
		for k, x := range w.F {
			d := got[name].F[k] - x
			differ[name] += d * d
			norms[name] += x * x
		}
		largest = max(largest, norms[name])
	}
	for name := range differ {
		if differ[name] = math.Sqrt(differ[name] / norms[name]); norms[name] < 1e-4*largest {
			delete(differ, name)
		}
	}
	return differ
}

// gradientsOf are the variables after a step of a huge rate on a path; nil if the spec is refused or large.
func gradientsOf(t *testing.T, p *kern.Path, threads int, spec string, c ampc.TrainConfig) map[string]*eval.Tensor {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Log(err)
		return nil
	}
	b := cpu.OpenPath(p, threads)
	defer b.Close()
	if err := z.Model.Set(ampc.On(b)); err != nil {
		t.Fatal(err)
	}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(spec, err)
	}
	prog := step.Program()
	if prog.Flops() > 1e9 {
		return nil
	}
	store, err := b.NewStore(prog.Vars)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := runtimetest.Initialize(store, prog.Vars, 1); err != nil {
		t.Fatal(err)
	}
	exec, err := b.Load(prog, store)
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	batch := runtime.Feed{}
	for name, x := range feed(z.Model.Graph(), 1) {
		typ := z.Model.Graph().Value(name).Type
		batch[name] = runtime.Tensor{Type: typ, Data: storage(typ, x)}
	}
	if _, err := exec.Step(context.Background(), []runtime.Feed{batch}); err != nil {
		t.Fatal(spec, err)
	}
	vars := map[string]*eval.Tensor{}
	for _, v := range prog.Vars {
		if v.Kind != ir.Param {
			continue
		}
		data := make([]byte, v.Type.Bytes())
		if err := store.Read(v.Name, data); err != nil {
			t.Fatal(err)
		}
		if vars[v.Name], err = eval.FromBytes(v.Type, data); err != nil {
			t.Fatal(err)
		}
	}
	return vars
}
