package kern

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

// The path is there exactly where the tile registers are, and runs where it is the only one asked for.
func TestTileRegistersMakeThePath(t *testing.T) {
	if got := slices.ContainsFunc(Paths(), func(p *Path) bool { return p.Name() == "amx" }); got != TileRegisters().Usable {
		t.Errorf("path %t, tile registers %+v", got, TileRegisters())
	}
	if !TileRegisters().Usable {
		t.Skipf("no tile registers to test: %+v", TileRegisters())
	}
	p, err := Detect(func(name string) string { return map[string]string{"AMPC_CPU": "amx"}[name] })
	if err != nil || p.amx == nil {
		t.Errorf("AMPC_CPU=amx gives %v, %v", p, err)
	}
}

// TestTilesUnderSignals: goroutines that are preempted and collected keep their tile registers, which no call leaves
// behind: machines side by side compute the same bits as one alone.
func TestTilesUnderSignals(t *testing.T) {
	if !TileRegisters().Usable {
		t.Skipf("no tile registers to test: %+v", TileRegisters())
	}
	const n = 256
	d := newDice(77)
	a, b := d.buf(BF16, n*n), d.buf(BF16, n*n)
	product := func() []byte {
		m := New(amxPath(), 1)
		defer m.Close()
		c := zeros(F32, n*n)
		m.Gemm(&Gemm{M: n, N: n, K: n, A: Mat{Buf: a, LD: n}, B: Mat{Buf: b, LD: n}, C: Mat{Buf: c, LD: n}})
		return c.Data
	}
	want := string(product())
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for range 20 {
				if string(product()) != want {
					t.Error("a product changes beside others")
					return
				}
				runtime.GC() // stops the world by signals
			}
		})
	}
	wg.Wait()
}
