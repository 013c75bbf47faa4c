package passes

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ampc/ir"
	"ampc/lower"
)

// randomNetwork has k nodes beside the terminals, some inf edges among them.
func randomNetwork(r *rand.Rand, k int) *network {
	w := newNetwork()
	for range k {
		w.node()
	}
	for range 3 * k {
		from, to := int32(r.IntN(k+2)), int32(r.IntN(k+2))
		c := int64(r.IntN(9))
		if r.IntN(8) == 0 && from > 1 && to > 1 {
			c = inf
		}
		w.arc(from, to, c)
	}
	return w
}

// cost is what the side of every node costs.
func (w *network) cost(sink func(int32) bool) int64 {
	sum := int64(0)
	for _, e := range w.edges {
		if !sink(e.from) && sink(e.to) {
			sum = min(sum+e.cap, inf)
		}
	}
	return sum
}

// The cut is the cheapest of all, and of the cheapest the one with the fewest
// nodes on the sink side: that set is unique.
func TestCutAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 3000 {
		k := 1 + r.IntN(8)
		w := randomNetwork(r, k)
		c := w.solve()
		best, bestSet := inf, 0
		for set := range 1 << k {
			sink := func(v int32) bool { return v == sinkNode || v > 1 && set>>(v-2)&1 == 1 }
			switch x := w.cost(sink); {
			case x < best:
				best, bestSet = x, set
			case x == best:
				bestSet &= set // minimum cuts are closed under intersection
			}
		}
		got := 0
		for v := range k {
			if c.sink[v+2] {
				got |= 1 << v
			}
		}
		if c.cost != best || got != bestSet {
			t.Fatalf("network %d: cost %d side %b, want %d and %b: %+v", i, c.cost, got, best, bestSet, w.edges)
		}
	}
}

func withMincut(p Policy) Policy {
	p.Algorithm, p.Hold = "mincut", 1
	return p
}

// The passes after amp change no bit, and neither cut nor paint
// depends on the order of nodes.
func TestMincutPipeline(t *testing.T) {
	for name, model := range testModels() {
		paint := MixedBF16()
		paint.Algorithm = "paint"
		for _, p := range []Policy{withMincut(MixedF16()), withMincut(MixedBF16()), withMincut(F32()), paint} {
			t.Run(fmt.Sprint(name, "/", p.Name, "/", p.Algorithm), func(t *testing.T) {
				plain, full := trainConfig(p), trainConfig(p)
				plain.Disable = []string{"masks", "castcache", "castelim", "castfold", "fuse", "dce", "order"}
				a, b := mustRun(t, model(), plain), mustRun(t, model(), full)
				env := inputs(a, rand.New(rand.NewPCG(1, 2)), 5)
				if err := same(results(t, a, env), results(t, b, env)); err != nil {
					t.Error(err)
				}
				full.Check = true
				if c := mustRun(t, model(), full); c.String() != b.String() {
					t.Errorf("shuffled\n%s\nplain\n%s", c, b)
				}
			})
		}
	}
}

func TestMincutOnRandomGraphs(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		g := randomGraph(r, 4+r.IntN(30))
		c := g.Clone()
		cfg := Config{Policy: withMincut(MixedF16()), Only: precisionPasses}
		if seed%3 == 0 {
			cfg.Policy.Algorithm = "paint"
		}
		if err := Run(c, cfg); err != nil {
			t.Fatalf("seed %d: %v\n%s\nfrom\n%s", seed, err, c, g)
		}
		d := g.Clone()
		cfg.Check = true
		if err := Run(d, cfg); err != nil || c.String() != d.String() {
			t.Fatalf("seed %d: %v shuffled\n%s\nplain\n%s\nfrom\n%s", seed, err, d, c, g)
		}
	}
}

// counted compiles g and returns the bytes the cut reports and those of the
// lowered program's steps.
func counted(t *testing.T, g *ir.Graph, cfg Config) (cut, program int64, err error) {
	cfg.After = func(e Event) { cut += int64(e.Counters["cut_bytes"]) }
	mustRun(t, g, cfg)
	p, err := lower.Lower(g, lower.CPU)
	if err != nil {
		return 0, 0, err
	}
	for part, steps := range p.Parts {
		times := int64(1)
		if lower.Part(part) == lower.Micro {
			times = int64(max(cfg.Micro, 1))
		}
		for _, s := range steps {
			program += times * s.Bytes
		}
	}
	return cut, program, nil
}

// What the cut reports is what the lowered program moves, to the byte.
func TestCutBytesAreTheProgramsBytes(t *testing.T) {
	for name, model := range testModels() {
		for _, micro := range []int{1, 4} {
			cfg := trainConfig(withMincut(MixedF16()))
			cfg.Micro = micro
			cut, program, err := counted(t, model(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if cut != program {
				t.Errorf("%s, %d micro-batches: the cut says %d bytes, the program moves %d", name, micro, cut, program)
			}
		}
	}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 11))
		g := randomGraph(r, 4+r.IntN(30), ir.OpCast) // a cast by hand is the user's to price
		source := g.String()
		cut, program, err := counted(t, g, Config{Policy: MixedF16(), Only: precisionPasses, Micro: int(seed % 4)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if cut != program {
			t.Errorf("seed %d: the cut says %d bytes, the program moves %d\n%s\nfrom\n%s", seed, cut, program, g, source)
		}
	}
}

// choices lists the variables that nothing forces.
func (m *cutModel) choices() (xs []int32) {
	c := m.net.solve()
	for x := int32(2); x < m.net.nodes; x++ {
		if v := m.owner[x]; v != nil && m.v[v.ID] == x && c.forcedBy[x] == x {
			xs = append(xs, x)
		}
	}
	return xs
}

// Of all assignments of a small graph's free values, each compiled and counted
// as a program, none moves fewer bytes than the cut's.
func TestCutAgainstAllPrograms(t *testing.T) {
	program := func(g *ir.Graph, algorithm string, look func(*cutModel)) (bytes int64, legal bool) {
		cfg := Config{Policy: MixedF16(), Only: precisionPasses, flip: &flip{look: look}}
		cfg.Policy.Algorithm = algorithm
		legal = true
		cfg.After = func(e Event) { legal = legal && int64(e.Counters["cut_bytes"]) < inf }
		g = g.Clone()
		mustRun(t, g, cfg)
		p, err := lower.Lower(g, lower.CPU)
		if err != nil {
			t.Fatal(err)
		}
		for _, steps := range p.Parts {
			for _, s := range steps {
				bytes += s.Bytes
			}
		}
		return bytes, legal
	}
	graphs, programs, missed := 0, 0, 0
	for seed := uint64(0); graphs < 60; seed++ {
		r := rand.New(rand.NewPCG(seed, 13))
		g := randomGraph(r, 10+r.IntN(20), ir.OpCast, ir.OpRound, ir.OpSlice, ir.OpSplit, ir.OpConcat)
		dropUnreached(g)
		var free []int32
		best, _ := program(g, "mincut", func(m *cutModel) { free = m.choices() })
		if len(free) < 2 || len(free) > 6 {
			continue
		}
		graphs++
		if local, _ := program(g, "local", nil); local > best {
			missed++
		}
		for set := range 1 << len(free) {
			bytes, legal := program(g, "mincut", func(m *cutModel) {
				for i, x := range free {
					if set>>i&1 == 1 {
						m.net.arc(x, sinkNode, inf)
					} else {
						m.net.arc(srcNode, x, inf)
					}
				}
			})
			if !legal {
				continue
			}
			programs++
			if bytes < best {
				t.Errorf("seed %d: the cut's program moves %d bytes, assignment %b moves %d\n%s", seed, best, set, bytes, g)
				break
			}
		}
	}
	t.Logf("%d graphs, %d programs; local misses the least on %d graphs", graphs, programs, missed)
}
