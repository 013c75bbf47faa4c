package passes

import (
	"runtime"
	"testing"
)

// TestCompilesAlikeOnAnyProcessors compiles a decoder that is large enough to be divided between
// goroutines on one processor and on three.
func TestCompilesAlikeOnAnyProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var want string
	for _, count := range []int{1, 3} {
		runtime.GOMAXPROCS(count)
		g := gptGraph(320, 2, 8, 16, 2, 32)
		c := trainConfig(MixedF16())
		c.NoVerify = true
		if err := Run(g, c); err != nil {
			t.Fatal(err)
		}
		if g.Small() {
			t.Fatalf("%d nodes are walked by one goroutine", g.NumNodes())
		}
		got := g.String()
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("the step compiled on %d processors is another one", count)
		}
	}
}
