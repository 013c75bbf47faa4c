//go:build amd64 || arm64

package kern

import (
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"sync"
	"testing"
	"time"
)

// mishText is a formula of many instructions.
const mishText = "l0:f32 r0=exp(l0) r1=log1p(r0) r2=tanh(r1) r3=mul(l0,r2) r4=neg(r3) r5=add(r4,u0) s0:f32=r3 s1:bf16=r5"

// TestComposedInterrupted runs a composed kernel on several goroutines while the process is profiled and traced and
// collects garbage: signals find it in code that Go knows nothing of.
func TestComposedInterrupted(t *testing.T) {
	composing(t)
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Skip("the process is profiled already: ", err)
	}
	defer pprof.StopCPUProfile()
	if !trace.IsEnabled() {
		if err := trace.Start(io.Discard); err == nil {
			defer trace.Stop()
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	for _, p := range composing(t) {
		interrupt(t, compose(t, p, parseFormula(mishText)))
	}
}

// interrupt runs k for 200 ms while the memory is collected and stacks are read.
func interrupt(t *testing.T, k *Fused) {
	const n = 1 << 14
	x := newDice(36).buf(F32, n)
	bufs := func() []Buf { return []Buf{x, zeros(F32, n), zeros(BF16, n)} }
	want := bufs()
	k.Run(&Call{}, want, []float32{1}, 0, n, false)
	end := time.Now().Add(200 * time.Millisecond)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			c := &Call{}
			for time.Now().Before(end) {
				got := bufs()
				k.Run(c, got, []float32{1}, 0, n, false)
				for i := 1; i < len(got); i++ {
					if string(got[i].Data) != string(want[i].Data) {
						t.Error("an interrupted kernel gives other results")
						return
					}
				}
			}
		})
	}
	for time.Now().Before(end) {
		runtime.GC()
		runtime.Stack(make([]byte, 1<<16), true)
	}
	running.Wait()
}

// TestExecutableRefused wants no kernel where the system refuses executable memory, and one where it only refuses to make
// written pages executable.
func TestExecutableRefused(t *testing.T) {
	p := composing(t)[0]
	defer func(all []func([]byte) ([]byte, error)) { executables = all }(executables)
	refuse := func([]byte) ([]byte, error) { return nil, errors.New("refused") }
	f := parseFormula(mishText)
	executables = []func([]byte) ([]byte, error){refuse, mappedTwice}
	testFormula(t, p, compose(t, p, f), mishText, newDice(37), 100)
	executables = []func([]byte) ([]byte, error){refuse, refuse}
	if p.Compose(f) != nil {
		t.Error("a kernel was composed without executable memory")
	}
}

// TestCodeIsUnmapped composes and closes a kernel often.
func TestCodeIsUnmapped(t *testing.T) {
	p := composing(t)[0]
	f := parseFormula(mishText)
	for range 200 {
		k := p.Compose(f)
		if k == nil {
			t.Fatal("no kernel")
		}
		k.Close()
		if k.composed.code.mem != nil {
			t.Fatal("a closed kernel keeps its pages")
		}
	}
}
