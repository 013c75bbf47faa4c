package kern

import (
	"math"
	"testing"
)

// TestChannelMoments holds mean and variance of images whose own means are far apart, planes of one row and of several,
// against sums in float64: whatever a norm sums about, what cancels may not be more than what is left.
func TestChannelMoments(t *testing.T) {
	const images, channels = 21, 3
	for _, p := range Paths() {
		m := New(p, 2)
		defer m.Close()
		for _, space := range []int{16, 64, 4*channelPiece + 32} {
			for name, mean := range map[string]func(image int) float64{
				"first":  func(i int) float64 { return 1e4 * float64(1-min(i, 1)) },
				"last":   func(i int) float64 { return 1e4 * float64(i/(images-1)) },
				"all":    func(int) float64 { return 1e3 },
				"rising": func(i int) float64 { return 100 * float64(i) },
			} {
				d := newDice(9)
				x := zeros(F32, images*channels*space)
				for i := range x.Len() {
					x.set(i, float32(mean(i/(channels*space))+d.NormFloat64()))
				}
				stats := func() []float32 { return make([]float32, channels) }
				n := &ChannelNorm{Images: images, Channels: channels, Space: space, X: x, Y: zeros(F32, x.Len()), Mean: stats(), Var: stats(), Rstd: stats()}
				m.ChannelNorm(n)
				for c := range channels {
					sum, sq, count := 0.0, 0.0, float64(images*space)
					each := func(f func(v float64)) {
						for i := range images * space {
							f(float64(x.get((i/space*channels+c)*space + i%space)))
						}
					}
					each(func(v float64) { sum += v })
					each(func(v float64) { sq += (v - sum/count) * (v - sum/count) })
					if got := float64(n.Mean[c]); math.Abs(got-sum/count) > 1e-6*math.Abs(sum/count)+1e-6 {
						t.Errorf("%s: %s, planes of %d: mean %g, want %g", p.Name(), name, space, got, sum/count)
					}
					if got, want := float64(n.Var[c]), sq/count; math.Abs(got-want) > 5e-6*want {
						t.Errorf("%s: %s, planes of %d: variance %g, want %g", p.Name(), name, space, got, want)
					}
				}
			}
		}
	}
}
