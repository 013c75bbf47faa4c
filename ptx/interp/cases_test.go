package interp

import (
	"slices"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// runCase builds, prints, parses and runs a case, and returns what it counted.
func runCase(t *testing.T, c ptxtest.Case, fl ptx.Flavour) (Stats, int64) {
	t.Helper()
	l, err := c.Build(fl)
	if err != nil {
		t.Fatal(err)
	}
	bufs := c.Fill(c.Rand())
	before := ptxtest.Snapshot(bufs)
	if len(bufs) != len(l.Args) {
		t.Fatalf("%d buffers for %d arguments", len(bufs), len(l.Args))
	}
	var raw [][]byte
	var least int64
	for i, b := range bufs {
		if b.DType != l.Args[i].DType || int64(b.Len()) < l.Args[i].Elems {
			t.Fatalf("argument %s is %s[%d], the buffer %s[%d]", l.Args[i].Name, l.Args[i].DType, l.Args[i].Elems, b.DType, b.Len())
		}
		raw = append(raw, b.Bytes)
		least += int64(len(b.Bytes))
	}
	st, err := execute(compile(t, l, fl), l, c.Partial, 0, raw)
	if err == nil {
		err = c.Check(before, bufs)
	}
	if err != nil {
		t.Error(err)
	}
	return st, least
}

func TestCases(t *testing.T) {
	for _, c := range ptxtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			st, least := runCase(t, c, ptx.SM80)
			if !c.Streams {
				return
			}
			if moved := st.LoadBytes + st.StoreBytes; float64(moved) > 1.05*float64(least) {
				t.Errorf("moves %d bytes, the least is %d", moved, least)
			}
			if wide := 16 * (st.LoadWidths[16] + st.StoreWidths[16]); float64(wide) < 0.9*float64(least) {
				t.Errorf("moves %d of %d bytes in 16-byte accesses", wide, least)
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
		mem, cfg := NewMemory(), Config{Grid: l.Grid, Block: l.Block}
		for i, b := range bufs {
			addr := mem.Alloc(len(b.Bytes))
			if i == w {
				addr = cfg.Args[0]
			}
			if l.Args[i].Read {
				if err := mem.Write(addr, b.Bytes); err != nil {
					t.Fatal(err)
				}
			}
			cfg.Args = append(cfg.Args, addr)
		}
		if _, err := compile(t, l, ptx.SM80).Run(mem, cfg, Options{}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i, b := range bufs {
			if l.Args[i].Write {
				if err := mem.Read(b.Bytes, cfg.Args[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.Check(before, bufs); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if tried < 10 {
		t.Errorf("only %d kernels tried", tried)
	}
}

// TestOldTarget runs every case in the base flavour, whose conversions differ.
func TestOldTarget(t *testing.T) {
	if testing.Short() {
		t.Skip("the second flavour is left to the full run")
	}
	for _, c := range ptxtest.Cases() {
		t.Run(c.Name, func(t *testing.T) { runCase(t, c, ptx.SM70) })
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
