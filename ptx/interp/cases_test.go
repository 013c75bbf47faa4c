package interp

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// outcome is what a run of a whole case gave.
type outcome struct {
	launch *ptx.Launch
	stats  Stats
	least  int // bytes to move
	err    error
}

// caseRun names a run of a whole case. Several tests want the same one, which is made once.
type caseRun struct {
	name  string
	sm    int
	trial int
}

var outcomes sync.Map // from caseRun to func() outcome

// runCase builds, prints, parses and runs a case with one of its fills, and returns what it counted.
func runCase(t *testing.T, c ptxtest.Case, fl ptx.Flavour, trial int) (*ptx.Launch, Stats, int) {
	t.Helper()
	once, _ := outcomes.LoadOrStore(caseRun{c.Name, fl.SM, trial}, sync.OnceValue(func() outcome { return newOutcome(c, fl, trial) }))
	o := once.(func() outcome)()
	if o.err != nil {
		t.Fatalf("fill %d: %v", trial, o.err)
	}
	return o.launch, o.stats, o.least
}

func newOutcome(c ptxtest.Case, fl ptx.Flavour, trial int) (o outcome) {
	if o.launch, o.err = c.Build(fl); o.err != nil {
		return o
	}
	args, bufs := o.launch.Args, c.Fill(c.Trial(trial))
	before := ptxtest.Snapshot(bufs)
	if len(bufs) != len(args) && c.Link == nil {
		return outcome{err: fmt.Errorf("%d buffers for %d arguments", len(bufs), len(args))}
	}
	for i, b := range bufs {
		if i < len(args) && (b.DType != args[i].DType || int64(b.Len()) < args[i].Elems) {
			return outcome{err: fmt.Errorf("argument %s is %s[%d], the buffer %s[%d]", args[i].Name, args[i].DType, args[i].Elems, b.DType, b.Len())}
		}
		o.least += len(b.Bytes)
	}
	if c.Least > 0 {
		o.least = c.Least
	}
	p, err := parsed(o.launch, fl)
	if err != nil {
		return outcome{err: err}
	}
	if o.stats, o.err = runBuffers(p, o.launch, c, 0, bufs, 0); o.err == nil {
		o.err = c.Check(before, bufs)
	}
	return o
}

// TestCases runs every fill of every case, with -short the first of each.
func TestCases(t *testing.T) {
	for _, c := range ptxtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			for trial := range max(c.Trials, 1) {
				if trial == 0 || !testing.Short() {
					runCase(t, c, ptx.SM80, trial)
				}
			}
		})
	}
}

// TestInPlace runs every kernel that says it may write over its first argument that way.
func TestInPlace(t *testing.T) {
	tried := 0
	for _, c := range ptxtest.Cases() {
		l, err := c.Build(ptx.SM80)
		if err != nil {
			t.Fatal(err)
		}
		w := slices.IndexFunc(l.Args, func(a ptx.Argument) bool { return a.Write })
		if !l.InPlace || w == 0 || l.Args[0].DType.Size() != l.Args[w].DType.Size() || l.Args[0].Elems != l.Args[w].Elems {
			continue
		}
		tried++
		bufs := c.Fill(c.Rand())
		before := ptxtest.Snapshot(bufs)
		bufs[w] = bufs[0] // one memory
		if _, err := runBuffers(compile(t, l, ptx.SM80), l, c, 0, bufs, w); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		} else if err := c.Check(before, bufs); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if tried < 10 {
		t.Errorf("only %d kernels tried", tried)
	}
}

// TestOldTarget runs every case whose kernel differs in the base flavour.
func TestOldTarget(t *testing.T) {
	if testing.Short() {
		t.Skip("the second flavour is left to the full run")
	}
	for _, c := range ptxtest.Cases() {
		if !sameCode(t, c) {
			t.Run(c.Name, func(t *testing.T) { runCase(t, c, ptx.SM70, 0) })
		}
	}
}

// BenchmarkInterpreter runs a fused AdamW update of 16384 elements; its unit is lane instructions.
func BenchmarkInterpreter(b *testing.B) {
	const n = 1 << 14
	l, err := ptxtest.AdamW(n).Build(ptx.SM80)
	if err != nil {
		b.Fatal(err)
	}
	p := compile(b, l, ptx.SM80)
	mem := NewMemory()
	cfg := Config{Grid: l.Grid, Block: l.Block}
	for _, a := range l.Args {
		size := int(a.Elems) * a.DType.Size()
		addr := mem.Alloc(size)
		if err := mem.Fill(addr, 0, size); err != nil {
			b.Fatal(err)
		}
		cfg.Args = append(cfg.Args, addr)
	}
	for _, races := range []bool{false, true} {
		name := "fast"
		if races {
			name = "races"
		}
		b.Run(name, func(b *testing.B) {
			var steps int64
			for b.Loop() {
				st, err := p.Run(mem, cfg, Options{NoRaces: !races})
				if err != nil {
					b.Fatal(err)
				}
				steps += st.Steps
			}
			b.ReportMetric(float64(steps*warpSize)/b.Elapsed().Seconds()/1e6, "Mlanes/s")
		})
	}
}
