package kern

import (
	"testing"

	"ampc/internal/philox"
)

// TestPhilox: every path gives the words of internal/philox, which the published answers check.
func TestPhilox(t *testing.T) {
	d := newDice(28)
	for _, p := range Paths() {
		for round := range 60 {
			draw := philox.Draw{Seed: int64(d.Uint64()), Site: d.Uint32(), Micro: d.Uint32(), Attempt: d.Uint32()}
			start := uint64(d.IntN(1000))
			if round%3 == 0 {
				start = 1<<34 - 50 // the counter wraps
			}
			dst := make([]int64, d.IntN(300))
			p.Philox(draw, dst, start)
			for i, got := range dst {
				if want := draw.Word(int64(start) + int64(i)); got != int64(want) {
					t.Fatalf("%s: word %d from %d is %#x, want %#x", p.Name(), i, start, got, want)
				}
			}
		}
	}
}

func BenchmarkPhilox(b *testing.B) {
	dst := make([]int64, 1024)
	for _, p := range Paths() {
		b.Run(p.Name(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				p.Philox(philox.Draw{}, dst, 0)
			}
		})
	}
}
