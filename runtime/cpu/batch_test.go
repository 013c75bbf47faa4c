package cpu

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// TestBatch updates parameters of many sizes in one step, on every path: by a formula that has a kernel (sgd), and by
// one that has none.
func TestBatch(t *testing.T) {
	sizes := []int{3, 700, 1, 40000, 17}
	bodies := map[string]struct {
		update string
		want   func(w, g, lr float32) float32
	}{
		"kernel": {"%%w%[1]d' = sgd %%w%[1]d, %%g%[1]d {lr=%%lr}\n",
			func(w, g, lr float32) float32 { return w - float32(lr*g) }},
		"none": {"%%a%[1]d = abs %%g%[1]d {cluster=%[2]d} : f32[%[3]d]\n%%b%[1]d = div %%a%[1]d, %%r {cluster=%[2]d} : f32[%[3]d]\n%%w%[1]d' = sub %%w%[1]d, %%b%[1]d {cluster=%[2]d}\n",
			func(w, g, lr float32) float32 { return w - float32(math.Abs(float64(g)))/(lr+lr) }},
	}
	for name, body := range bodies {
		vars, update := "input %lr : f32[]\n", "%r = add %lr, %lr : f32[]\n"
		for i, n := range sizes {
			vars += fmt.Sprintf("input %%g%d : f32[%d]\nparam %%w%[1]d : f32[%[2]d]\n", i, n)
			update += fmt.Sprintf(body.update, i, i+1, n)
		}
		for _, path := range kern.Paths() {
			for _, threads := range []int{1, 3} {
				b := OpenPath(path, threads)
				p, s, e := loaded(t, b, "graph @many {\n"+vars+"update:\n"+update+"}\n")
				joined := 0
				for i := range p.Parts[2] {
					joined = max(joined, len(p.Parts[2][i].Clusters()))
				}
				if joined != 4 {
					t.Fatalf("%s: %d tensors in one step, want the 4 of more than one element", name, joined)
				}
				f := feedFor(p)
				f["lr"] = runtime.Tensor{Type: f["lr"].Type, Data: []byte{0, 0, 0, 0x3e}} // 0.125
				for i, n := range sizes {
					for j, g := range slice[float32](f[fmt.Sprint("g", i)].Data) {
						slice[float32](f[fmt.Sprint("g", i)].Data)[j] = g + float32(j%101) - 50
					}
					w := make([]float32, n)
					for j := range w {
						w[j] = float32(j%7) / 3
					}
					if err := s.Write(fmt.Sprint("w", i), kern.Floats(w).Data); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := e.Step(context.Background(), []runtime.Feed{f}); err != nil {
					t.Fatal(err)
				}
				for i, n := range sizes {
					w := make([]float32, n)
					if err := s.Read(fmt.Sprint("w", i), kern.Floats(w).Data); err != nil {
						t.Fatal(err)
					}
					for j := range w {
						if want := body.want(float32(j%7)/3, float32(j%101)-50, 0.125); w[j] != want {
							t.Fatalf("%s on %s, %d threads: w%d[%d] is %g, want %g", name, path.Name(), threads, i, j, w[j], want)
						}
					}
				}
				b.Close()
			}
		}
	}
}

// TestNormChecks holds that a finite check whose operands a norm has read still sees every one of them, and only what
// is not finite itself: a square that overflows is none.
func TestNormChecks(t *testing.T) {
	const graph = `graph @norm {
  input %mul : f32[]
  input %g : f32[3000]
  input %h : f16[50]
  input %alone : f32[4]
update:
  %n = global_norm %mul, %g, %h {launch=1} : f32[]
  %bad = any_nonfinite %g, %h, %alone {launch=1} : bool[]
  return %bad
}
`
	inf := []byte{0, 0, 0x80, 0x7f}
	for _, c := range []struct {
		name, input string
		at          int
		value       []byte
		want        byte
	}{
		{"finite", "g", 0, []byte{0, 0, 0, 0}, 0}, {"large", "g", 2999, []byte{0, 0, 0x7f, 0x7f}, 0},
		{"inf in a norm", "g", 2999, inf, 1}, {"half inf", "h", 49, []byte{0, 0x7c}, 1}, {"inf beside", "alone", 3, inf, 1},
	} {
		p, _, e := loaded(t, open(t, 2), graph)
		f := feedFor(p)
		copy(f[c.input].Data[c.at*len(c.value):], c.value)
		x, err := e.Step(context.Background(), []runtime.Feed{f})
		if err != nil {
			t.Fatal(err)
		}
		var got [1]byte
		if err := x.Read(0, got[:]); err != nil {
			t.Fatal(err)
		}
		if s := p.Parts[2][0]; len(s.Kernel.Parts) != 2 || s.Bytes != 4+4*3000+2*50+4*4+4+1 {
			t.Fatalf("%d parts and %d bytes: want a norm with its check, and each tensor once", len(s.Kernel.Parts), s.Bytes)
		}
		if got[0] != c.want {
			t.Errorf("%s: bad is %d, want %d", c.name, got[0], c.want)
		}
	}
}

// TestSpread holds that every chunk of every tensor is there once, and that a worker's share has its part of each tensor, one chunk
// more or less, in order.
func TestSpread(t *testing.T) {
	for _, chunks := range [][]int{{}, {1}, {8, 8}, {40, 1, 20, 3, 0, 7}, {5, 5, 5}} {
		for _, workers := range []int{1, 2, 3, 7} {
			order := spread(chunks, workers)
			seen := map[chunk]bool{}
			for w := range workers {
				share := shareOf(order, w, workers)
				for i, c := range share {
					if n := chunks[c.tensor]; seen[c] || c.at >= n || c.at < w*n/workers-1 || c.at > ((w+1)*n+workers-1)/workers {
						t.Errorf("%v: worker %d of %d has chunk %d of tensor %d", chunks, w, workers, c.at, c.tensor)
					}
					if seen[c] = true; i > 0 && (share[i-1].tensor > c.tensor || share[i-1].tensor == c.tensor && share[i-1].at != c.at-1) {
						t.Errorf("%v: worker %d of %d goes from %v to %v", chunks, w, workers, share[i-1], c)
					}
				}
			}
			want := 0
			for _, n := range chunks {
				want += n
			}
			if len(order) != want || len(seen) != want {
				t.Errorf("%v: %d chunks, want %d", chunks, len(order), want)
			}
		}
	}
}

// TestBatchParts holds that the tasks of a batch have every element once, as many as others have except for a unit, and that a worker's
// tasks go from tensor to tensor.
func TestBatchParts(t *testing.T) {
	for _, sizes := range [][]int{{1}, {70000}, {100000, 3, 64, 700, 300001, 1}, {2000, 2000, 2000}, {600 * 512, 512, 1 << 20, 512, 5120, 10}} {
		for _, workers := range []int{1, 2, 3, 7, 64} {
			b := &batchStep{}
			for i, n := range sizes {
				b.members, b.n = append(b.members, &clusterStep{n: n, unit: clusterUnit << (i % 2)}), b.n+n
			}
			b.m = kern.NewPlanner(kern.Paths()[0], workers, nil)
			b.tasks = b.m.Divide(1000*b.n, (b.n+clusterUnit-1)/clusterUnit, taskElems/clusterUnit)
			parts, seen, once := b.cut(), make([]int, len(sizes)), map[stretch]bool{}
			if len(parts) != b.tasks.Tasks() {
				t.Fatalf("%v: %d parts of %d tasks", sizes, len(parts), b.tasks.Tasks())
			}
			for w := range b.tasks.Workers() {
				last := stretch{}
				for _, part := range shareOf(parts, w, b.tasks.Workers()) {
					n := 0
					for _, s := range part {
						if s.from >= s.to || s.member < last.member || s.member == last.member && s.from < last.to {
							t.Errorf("%v: worker %d of %d goes from %v to %v", sizes, w, workers, last, s)
						}
						if s.from%b.members[s.member].unit > 0 {
							t.Errorf("%v: %v does not begin with a unit", sizes, s)
						}
						n, last = n+s.to-s.from, s
						for at := s.from; at < s.to; at += clusterUnit {
							once[stretch{s.member, at, min(at+clusterUnit, s.to)}] = true
						}
						seen[s.member] += s.to - s.from
					}
					if even := float64(b.n) / float64(len(parts)); float64(n) > even+4*clusterUnit {
						t.Errorf("%v: a task of worker %d of %d has %d elements, %.0f are even", sizes, w, workers, n, even)
					}
				}
			}
			units := 0
			for _, n := range sizes {
				units += (n + clusterUnit - 1) / clusterUnit
			}
			if !slices.Equal(seen, sizes) || len(once) != units {
				t.Errorf("%v on %d workers: elements %v, %d units, want %d", sizes, workers, seen, len(once), units)
			}
		}
	}
}
