package kern

import (
	"fmt"
	"math"
	"testing"
)

// winoKind is a kind of images and weights, one value at a time; the weights are the gradients of results, too. Pixels of one
// row of each image are rowTimes as large, where that is not 0.
type winoKind struct {
	name     string
	image    func(d dice) float64
	tap      func(d dice, t int) float64
	rowTimes float64
}

func lognormal(d dice, sigma float64) float64 { return math.Exp(sigma * d.NormFloat64()) }

func sign(d dice) float64 { return float64(1 - 2*d.IntN(2)) }

func normal(d dice) float64 { return d.NormFloat64() }

func normalTap(d dice, _ int) float64 { return d.NormFloat64() }

var winoData = []winoKind{
	{"normal", normal, normalTap, 0},
	{"uniform", func(d dice) float64 { return d.Float64() }, func(d dice, _ int) float64 { return d.Float64() }, 0},
	{"after relu", func(d dice) float64 { return max(0, d.NormFloat64()) }, normalTap, 0},
	{"one tap 64 times as large", func(d dice) float64 { return max(0, d.NormFloat64()) },
		func(d dice, t int) float64 { return d.NormFloat64() * map[bool]float64{true: 64, false: 1}[t == 0] }, 0},
	{"lognormal", func(d dice) float64 { return lognormal(d, 1) }, func(d dice, _ int) float64 { return sign(d) * lognormal(d, 1) }, 0},
	{"lognormal, sigma 2", func(d dice) float64 { return lognormal(d, 2) }, func(d dice, _ int) float64 { return sign(d) * lognormal(d, 2) }, 0},
	{"1% dense", func(d dice) float64 { return d.NormFloat64() * float64(d.IntN(100)/99) }, normalTap, 0},
	{"one row 1e5 times as large", normal, normalTap, 1e5},
}

// data is a convolution of 64 channels over such data.
func (k *winoKind) data() *Conv {
	c := benchConv(F32, 4, winoDepth, winoDepth, 8, 3, 1, false)
	d := newDice(11)
	image := func(b Buf, value func(i int) float64) {
		for i := range b.Len() {
			v := value(i)
			if k.rowTimes != 0 && i/c.In[2]%c.In[1] == 3 {
				v *= k.rowTimes
			}
			b.set(i, float32(v))
		}
	}
	image(c.X, func(int) float64 { return k.image(d) })
	for i := range c.W.Len() {
		c.W.set(i, float32(k.tap(d, i%9)))
	}
	image(c.Y, func(i int) float64 { return k.tap(d, i%9) })
	return c
}

// largest is the largest magnitude among the pixels [y,y+n) x [x,x+n) of image i of b, rows x cols; none lie outside.
func largest(b Buf, i, rows, cols, y, x, n int) (v float64) {
	for r := max(0, y); r < min(rows, y+n); r++ {
		for s := max(0, x); s < min(cols, x+n); s++ {
			v = max(v, math.Abs(float64(b.get((i*rows+r)*cols+s))))
		}
	}
	return v
}

// tileBounds are the sums that the errors of transforms are bounded by: those of magnitudes, as in results, but with the
// largest magnitude of the filter in place of each tap and the largest of a tile's 4 x 4 pixels in place of each pixel.
func (c *Conv) tileBounds() (y, x, w []float64) {
	y, x, w = make([]float64, c.Y.Len()), make([]float64, c.X.Len()), make([]float64, c.W.Len())
	filter := func(k, ch int) float64 { return largest(c.W, k*c.C+ch, 3, 3, 0, 0, 3) }
	product := func(out []float64, rows int, size [3]int, in Buf, depth int, from [3]int, pad int, filter func(row, ch int) float64) {
		for n := range c.N {
			for ty := 0; ty < size[1]; ty += 2 {
				for tx := 0; tx < size[2]; tx += 2 {
					for row := range rows {
						sum := 0.0
						for ch := range depth {
							sum += 9 * filter(row, ch) * largest(in, n*depth+ch, from[1], from[2], ty-pad, tx-pad, 4)
						}
						for i := range 4 {
							if at := [2]int{ty + i/2, tx + i%2}; at[0] < size[1] && at[1] < size[2] {
								out[((n*rows+row)*size[1]+at[0])*size[2]+at[1]] = sum
							}
						}
					}
				}
			}
		}
	}
	product(y, c.K, c.Out, c.X, c.C, c.In, c.Pad[1], filter)
	product(x, c.C, c.In, c.Y, c.K, c.Out, 2-c.Pad[1], func(row, ch int) float64 { return filter(ch, row) })
	for n := range c.N {
		for ty := 0; ty < c.Out[1]; ty += 2 {
			for tx := 0; tx < c.Out[2]; tx += 2 {
				for i := range c.K * c.C {
					dy := largest(c.Y, n*c.K+i/c.C, c.Out[1], c.Out[2], ty, tx, 2)
					term := 9 * dy * largest(c.X, n*c.C+i%c.C, c.In[1], c.In[2], ty-c.Pad[1], tx-c.Pad[2], 4)
					for tap := range 9 {
						w[9*i+tap] += term
					}
				}
			}
		}
	}
	return y, x, w
}

// TestWinogradError: on data of many kinds errors are on average no larger than twice the definition's, or than two roundings
// of the results where the definition hardly rounds, and every single one stays within a fiftieth of the bound of transforms,
// which is for the worst case; -v prints both, and the share of the definition's bound.
func TestWinogradError(t *testing.T) {
	for _, kind := range winoData {
		c := kind.data()
		y, x, w := c.results()
		ty, tx, tw := c.tileBounds()
		for _, p := range Paths() {
			fast := New(p, 2)
			direct := byDefinition(fast)
			forward, dx, dw := *c, *c, *c
			forward.Y, dx.X, dw.W = zeros(F32, c.Y.Len()), zeros(F32, c.X.Len()), zeros(F32, c.W.Len())
			for _, way := range []struct {
				name  string
				run   func(m *Machine)
				got   Buf
				is    sums
				tiles []float64
				depth int
			}{
				{"forward", func(m *Machine) { m.Conv(&forward) }, forward.Y, y, ty, 9 * c.C},
				{"input gradient", func(m *Machine) { m.ConvInputGrad(&dx) }, dx.X, x, tx, 9 * c.K},
				{"weight gradient", func(m *Machine) { m.ConvWeightGrad(&dw) }, dw.W, w, tw, c.N * volume(c.Out)},
			} {
				line := fmt.Sprintf("%s, %s, %s:", p.Name(), way.name, kind.name)
				way.run(direct)
				least, used := errorsOf(way.got, way.is, way.depth)
				way.run(fast)
				rms, share := errorsOf(way.got, way.is, way.depth)
				_, of := errorsOf(way.got, sums{way.is.want, way.tiles}, way.depth)
				t.Logf("%s %.2g (%.1f%% of the bound) by definition, %.2g (%.1f%%; %.2f%% of the transforms' bound) by transforms", line, least, 100*used, rms, 100*share, 100*of)
				if rms > 2*max(least, 0x1p-23) || of > 1./50 {
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
		if e > 0 {
			share = max(share, e/(s.mag[i]*float64(depth)*0x1p-23))
		}
	}
	return math.Sqrt(sum / all), share
}
