package gputest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc"
	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/models"
	"ampc/passes"
)

// lowered are the training steps of the two models of the speed comparison, small on the simulator.
func (g *gpu) lowered(t *testing.T) (list []*lower.Program) {
	t.Helper()
	specs := []string{"gpt2?vocab=50304", "resnet50"}
	if g.simulated() {
		specs = []string{"gpt2?layers=1&batch=1&seq=128&dim=32&heads=2&vocab=64", "resnet50?batch=2&size=32&width=4&classes=4&blocks1=1&blocks2=1&blocks3=0&blocks4=0"}
	}
	target := sm.Must(fmt.Sprintf("sm_%d%d", g.Info().Major, g.Info().Minor))
	for _, spec := range specs {
		z, err := models.Open(spec)
		g.must(t, err)
		c := z.Steps[0].Config
		c.Policy, c.Compile.WeightCopies = ampc.MixedBF16(), true
		for _, l := range z.Steps[0].Losses {
			if !slices.Contains(z.Model.Graph().Return, l.Value.IR()) {
				z.Model.IR().Return(l.Value.IR())
			}
		}
		graph, cfg, err := z.Model.Source(c, z.Steps[0].Losses...)
		g.must(t, err)
		cfg.Caps = target.Caps()
		g.must(t, passes.Run(graph, cfg))
		p, err := lower.Lower(graph, target)
		g.must(t, err)
		list = append(list, p)
		g.must(t, z.Model.Close())
	}
	return list
}

// TestBandwidth prints the bytes over time of every distinct launch of GPT-2 and ResNet-50, those that
// move most first, beside a device copy in the same run. Floats are ordinary numbers, everything else is
// zero.
func TestBandwidth(t *testing.T) {
	g := open(t)
	if g.simulated() && testing.Short() {
		t.Skip("without -short the kernels run once on the simulator, in small")
	}
	_, ceiling := g.copyRate(t, g.of(cuda.CopyBytes, 1<<16))
	for _, p := range g.lowered(t) {
		functions := map[string]cuda.Function{}
		for _, m := range sm.Modules(p) {
			mod, err := g.Load(m.Text())
			g.must(t, err)
			defer g.Unload(mod)
			for _, k := range m.Kernels {
				functions[k.Name], err = g.Function(mod, k.Name)
				g.must(t, err)
			}
		}
		calls := map[string]int{}
		var distinct []*lower.Step
		for _, s := range slices.Concat(p.Parts[:]...) {
			if s.Launch == nil {
				continue
			}
			if calls[s.Launch.Kernel]++; calls[s.Launch.Kernel] == 1 {
				distinct = append(distinct, &s)
			}
		}
		slices.SortFunc(distinct, func(a, b *lower.Step) int { return cmp.Compare(b.Bytes, a.Bytes) })
		fmt.Printf("%s: %d launches of %d kernels\n", p.Name, len(slices.Concat(p.Parts[:]...)), len(distinct))
		for _, s := range distinct {
			l := s.Launch
			args, free := g.arguments(t, p, l)
			sec := g.seconds(t, func() error { return g.Launch(functions[l.Kernel], l.Grid, l.Block, 0, g.s, args) })
			rate := float64(s.Bytes) / sec
			fmt.Printf("%-24s %4d x %8.4f ms  %9.2f MB  %6.0f GB/s  %3.0f%% of copy\n", l.Kernel, calls[l.Kernel], sec*1e3, float64(s.Bytes)/1e6, rate/1e9, math.Round(100*rate/ceiling))
			free()
		}
	}
}

// arguments allocates what a launch reads and writes.
func (g *gpu) arguments(t *testing.T, p *lower.Program, l *lower.Launch) (args []cuda.Ptr, free func()) {
	t.Helper()
	at := map[lower.BufferID]cuda.Ptr{}
	place := func(id lower.BufferID) cuda.Ptr {
		if at[id] != 0 {
			return at[id]
		}
		n := (max(p.Buffers[id].Reach(), p.Buffers[id].Size, 1) + 3) / 4
		ptr, err := g.Alloc(4 * n)
		g.must(t, err)
		word := uint32(0)
		if d := p.Buffers[id].Type.DType; d == ir.F32 || d.Low() {
			word = 0x3c9d3c23 // an ordinary number in each dtype
		}
		g.must(t, g.Fill32(ptr, word, n, g.s))
		at[id] = ptr
		return ptr
	}
	for _, id := range l.Args {
		args = append(args, place(id))
	}
	if len(l.Table) > 0 {
		var raw []byte
		for _, w := range l.Table {
			v := uint64(w.Value)
			if w.Buffer != lower.None {
				v = uint64(place(w.Buffer))
			}
			raw = binary.LittleEndian.AppendUint64(raw, v)
		}
		mem, err := g.HostAlloc(int64(len(raw)))
		g.must(t, err)
		copy(mem, raw)
		g.must(t, g.CopyToDevice(args[0], mem, g.s))
		g.must(t, g.Synchronize(g.s))
		g.must(t, g.HostFree(mem))
	}
	return args, func() {
		g.must(t, g.Synchronize(g.s))
		for _, ptr := range at {
			g.must(t, g.Free(ptr))
		}
	}
}
