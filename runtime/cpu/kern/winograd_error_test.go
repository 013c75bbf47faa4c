package kern

import (
	"fmt"
	"math"
	"testing"
)

// winoKind is a kind of images and weights, one value at a time; the weights are the gradients of results, too.
type winoKind struct {
	name  string
	image func(d dice) float64
	tap   func(d dice, t int) float64
	wild  bool // magnitudes lie so far apart that a result may be small beside what its tile mixes in
}

func lognormal(d dice, sigma float64) float64 { return math.Exp(sigma * d.NormFloat64()) }

func sign(d dice) float64 { return float64(1 - 2*d.IntN(2)) }

var winoData = []winoKind{
	{"normal", func(d dice) float64 { return d.NormFloat64() }, func(d dice, _ int) float64 { return d.NormFloat64() }, false},
	{"uniform", func(d dice) float64 { return d.Float64() }, func(d dice, _ int) float64 { return d.Float64() }, false},
	{"after relu", func(d dice) float64 { return max(0, d.NormFloat64()) }, func(d dice, _ int) float64 { return d.NormFloat64() }, false},
	{"one tap 64 times as large", func(d dice) float64 { return max(0, d.NormFloat64()) },
		func(d dice, t int) float64 { return d.NormFloat64() * map[bool]float64{true: 64, false: 1}[t == 0] }, false},
	{"lognormal", func(d dice) float64 { return lognormal(d, 1) }, func(d dice, _ int) float64 { return sign(d) * lognormal(d, 1) }, false},
	{"lognormal, sigma 2", func(d dice) float64 { return lognormal(d, 2) }, func(d dice, _ int) float64 { return sign(d) * lognormal(d, 2) }, true},
}

// TestWinogradError: on data of many kinds errors are on average no larger than twice the definition's, and stay within the
// bound of a chain of multiply-adds unless the data are wild; -v prints both.
func TestWinogradError(t *testing.T) {
	for _, kind := range winoData {
		c := benchConv(F32, 4, winoDepth, winoDepth, 8, 3, 1, false)
		d := newDice(11)
		fill := func(b Buf, f func(i int) float64) {
			for i := range b.Len() {
				b.set(i, float32(f(i)))
			}
		}
		fill(c.X, func(int) float64 { return kind.image(d) })
		fill(c.W, func(i int) float64 { return kind.tap(d, i%9) })
		fill(c.Y, func(i int) float64 { return kind.tap(d, i%9) })
		y, x, w := c.results()
		for _, p := range Paths() {
			fast := New(p, 2)
			direct := byDefinition(fast)
			for name, f := range map[string]func(m *Machine) (Buf, sums, int){
				"forward": func(m *Machine) (Buf, sums, int) {
					r := *c
					r.Y = zeros(F32, c.Y.Len())
					m.Conv(&r)
					return r.Y, y, 9 * c.C
				},
				"input gradient": func(m *Machine) (Buf, sums, int) {
					r := *c
					r.X = zeros(F32, c.X.Len())
					m.ConvInputGrad(&r)
					return r.X, x, 9 * c.K
				},
				"weight gradient": func(m *Machine) (Buf, sums, int) {
					r := *c
					r.W = zeros(F32, c.W.Len())
					m.ConvWeightGrad(&r)
					return r.W, w, c.N * volume(c.Out)
				},
			} {
				line := fmt.Sprintf("%s, %s, %s:", p.Name(), name, kind.name)
				least, used := errorsOf(f(direct))
				rms, share := errorsOf(f(fast))
				t.Logf("%s %.2g (%.1f%% of the bound) by definition, %.2g (%.1f%%) by transforms", line, least, 100*used, rms, 100*share)
				if rms > 2*least || share > 1 && !kind.wild {
					t.Errorf("%s too large", line)
				}
			}
			fast.Close()
			direct.Close()
		}
	}
}

// errorsOf are the root of the mean square error of a result, as a part of that of its values, and the largest share of the
// bound of sums of depth terms.
func errorsOf(got Buf, s sums, depth int) (rms, share float64) {
	var sum, all float64
	for i, w := range s.want {
		e := math.Abs(float64(got.get(i)) - w)
		sum, all = sum+e*e, all+w*w
		share = max(share, e/(s.mag[i]*float64(depth)*0x1p-23))
	}
	return math.Sqrt(sum / all), share
}
