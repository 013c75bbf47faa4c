package cpu_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/runtimetest"
)

// compiled takes a model of the zoo through passes and lowering.
func compiled(t *testing.T, spec, policy string) *lower.Program {
	t.Helper()
	return lowered(t, ready(t, spec, policy))
}

// ready takes a model of the zoo through the passes.
func ready(t *testing.T, spec, policy string) *ir.Graph {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := z.Steps[0].Config
	if c.Policy, err = ampc.PolicyNamed(policy); err != nil {
		t.Fatal(err)
	}
	g, p, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	if err := passes.Run(g, p); err != nil {
		t.Fatal(err)
	}
	return g
}

func lowered(t *testing.T, g *ir.Graph) *lower.Program {
	t.Helper()
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// feed draws small numbers for every input.
func feed(p *lower.Program, r *rand.Rand) runtime.Feed {
	f := runtime.Feed{}
	for i := range p.Vars {
		v := &p.Vars[i]
		if v.Kind != ir.Input || v.Role() == runtime.RoleMicro {
			continue
		}
		b := make([]byte, v.Type.Bytes())
		size := int(v.Type.DType.Size())
		for at := 0; at < len(b); at += size {
			if v.Type.DType.Float() {
				b[at+size-2], b[at+size-1] = byte(r.IntN(256)), 0x3e+byte(r.IntN(2))<<7
			} else {
				b[at] = byte(r.IntN(2))
			}
		}
		f[v.Name] = runtime.Tensor{Type: v.Type, Data: b}
	}
	return f
}

// state runs a few steps with two micro-batches where the model allows and
// returns the bytes of every variable.
func state(t *testing.T, p *lower.Program, threads int) map[string]string {
	t.Helper()
	b, err := cpu.Open(threads)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return stateOn(t, b, p)
}

func stateOn(t *testing.T, b *cpu.Backend, p *lower.Program) map[string]string {
	t.Helper()
	vars, err := runtime.Variables(p)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewStore(vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimetest.Initialize(s, vars, 7); err != nil {
		t.Fatal(err)
	}
	e, err := b.Load(p, s)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 9))
	for range 3 {
		if _, err := e.Step(context.Background(), []runtime.Feed{feed(p, r)}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for i := range vars {
		buf := make([]byte, vars[i].Type.Bytes())
		if err := s.Read(vars[i].Name, buf); err != nil {
			t.Fatal(err)
		}
		got[vars[i].Name] = string(buf)
	}
	return got
}

// small are the models of the zoo at sizes that train in a blink, some in two forms.
var small = []string{"mlp?batch=16", "gpt?layers=1&batch=4&seq=40&dim=64&dropout=0.1", "gpt2?layers=1&batch=2&seq=24&dim=48&vocab=90&heads=3", "lenet?batch=8",
	"resnet8?batch=4", "resnet?batch=3&width=8&size=16", "resnet50?batch=2&width=4&size=32&classes=5", "lstm?batch=4&seq=9&dim=32", "bert?batch=2&layers=1&dim=48&seq=20&vocab=70",
	"unet?batch=1&width=8", "unet?batch=1&width=32&size=16&levels=1", "vit?batch=2&layers=1", "gan?batch=8",
	"unet3d?batch=1&depth=7&size=9&width=8", "unet3d?batch=1&depth=4&size=8&width=64&levels=1", "convlstm?batch=2&seq=3&ahead=2&size=8&width=16"}

// Every variable of every model of the zoo has the same bits after some steps whatever the number of threads, more than there
// are processors and more than one wakes alone included.
func TestModelsDoNotDependOnThreads(t *testing.T) {
	for _, m := range models.Names() {
		if !slices.ContainsFunc(small, func(spec string) bool { return strings.HasPrefix(spec, m[0]+"?") }) {
			t.Errorf("no small %s", m[0])
		}
	}
	counts := []int{3, 16}
	if !testing.Short() {
		counts = append(counts, 2, 7, 33)
	}
	for _, spec := range small {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			t.Run(spec+"/"+policy, func(t *testing.T) {
				p := compiled(t, spec, policy)
				want := state(t, p, 1)
				for _, threads := range counts {
					for name, b := range state(t, p, threads) {
						if b != want[name] {
							t.Errorf("%s differs between 1 and %d threads", name, threads)
						}
					}
				}
			})
		}
	}
}

// Fusion changes speed, never a bit: a program whose clusters fall apart into
// single nodes leaves the same variables behind.
func TestFusionChangesNoBit(t *testing.T) {
	for _, spec := range []string{"mlp?batch=16", "gpt?layers=1&batch=2&seq=24&dim=64&dropout=0.1", "resnet8?batch=2", "vit?batch=2&layers=1", "unet?batch=2&width=8", "unet3d?batch=1&depth=6&size=8&width=8", "convlstm?batch=2&seq=2&ahead=2&size=8&width=8"} {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			g := ready(t, spec, policy)
			fused := lowered(t, g)
			want := state(t, fused, 2)
			for _, n := range g.Nodes {
				n.Why.Cluster = 0
			}
			single := lowered(t, g)
			if len(single.Parts[lower.Micro]) <= len(fused.Parts[lower.Micro]) {
				t.Errorf("%s under %s: %d steps fused, %d single: nothing was fused", spec, policy, len(fused.Parts[lower.Micro]), len(single.Parts[lower.Micro]))
			}
			for name, b := range state(t, single, 2) {
				if b != want[name] {
					t.Errorf("%s under %s: %s differs without fusion", spec, policy, name)
				}
			}
		}
	}
}

// The plan of every model stays within five per cent of what lives at most.
func TestModelsPackTightly(t *testing.T) {
	for _, spec := range []string{"mlp", "gpt", "lenet", "resnet8", "resnet", "lstm", "bert", "unet", "unet3d", "convlstm", "vit"} {
		for _, policy := range []string{"f32", "mixed-f16", "mixed-bf16"} {
			p := compiled(t, spec, policy)
			if got := p.Arenas[lower.WorkArena]; got*100 > p.MaxLive*105 {
				t.Errorf("%s under %s: work arena %d, %d live at most: %.1f%% above", spec, policy, got, p.MaxLive, 100*float64(got)/float64(p.MaxLive)-100)
			}
		}
	}
}
