package kern

import (
	"fmt"
	"math"
	"testing"
)

// winoData are kinds of images and weights, one value at a time.
var winoData = []struct {
	name  string
	image func(d dice) float64
	tap   func(d dice, t int) float64
}{
	{"normal", func(d dice) float64 { return d.NormFloat64() }, func(d dice, _ int) float64 { return d.NormFloat64() }},
	{"uniform", func(d dice) float64 { return d.Float64() }, func(d dice, _ int) float64 { return d.Float64() }},
	{"after relu", func(d dice) float64 { return max(0, d.NormFloat64()) }, func(d dice, _ int) float64 { return d.NormFloat64() }},
	{"lognormal", func(d dice) float64 { return math.Exp(2 * d.NormFloat64()) }, func(d dice, _ int) float64 { return math.Exp(2*d.NormFloat64()) * float64(1-2*d.IntN(2)) }},
	{"one tap 64 times as large", func(d dice) float64 { return max(0, d.NormFloat64()) },
		func(d dice, t int) float64 { return d.NormFloat64() * map[bool]float64{true: 64, false: 1}[t == 0] }},
}

// TestWinogradError: on data of many kinds results stay within the bound of a chain of multiply-adds; -v prints the errors
// beside those of the definition.
func TestWinogradError(t *testing.T) {
	for _, channels := range []int{winoDepth, 3 * winoDepth}[:1+rounds(3)/3] {
		for _, kind := range winoData {
			c := benchConv(F32, 1, channels, channels, 8, 3, 1, false)
			d := newDice(11)
			for i := range c.X.Len() {
				c.X.set(i, float32(kind.image(d)))
			}
			for i := range c.W.Len() {
				c.W.set(i, float32(kind.tap(d, i%9)))
			}
			want, mag := make([]float64, c.Y.Len()), make([]float64, c.Y.Len())
			c.terms(func(y, x, w int) {
				v := float64(c.X.get(x)) * float64(c.W.get(w))
				want[y] += v
				mag[y] += math.Abs(v)
			})
			for _, p := range Paths() {
				line := fmt.Sprintf("%s, %d channels, %s:", p.Name(), channels, kind.name)
				fast := New(p, 2)
				for _, m := range []*Machine{byDefinition(fast), fast} {
					m.Conv(c)
					m.Close()
					rms, share := c.errors(want, mag)
					line += fmt.Sprintf(" %.2g (%.1f%% of the bound)", rms, 100*share)
					if share > 1 {
						t.Errorf("%s the bound is passed", line)
					}
				}
				t.Log(line)
			}
		}
	}
}

// errors are the root of the mean square error of y, as a part of that of the values, and the largest share of the bound.
func (c *Conv) errors(want, mag []float64) (rms, share float64) {
	var sum, all float64
	for i, w := range want {
		e := math.Abs(float64(c.Y.get(i)) - w)
		sum, all = sum+e*e, all+w*w
		share = max(share, e/(mag[i]*float64(9*c.C)*0x1p-23))
	}
	return math.Sqrt(sum / all), share
}
