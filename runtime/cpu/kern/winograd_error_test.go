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

// winoFewest are convolutions of as few channels as transforms ask for: of images, of images to more
// channels and of volumes.
var winoFewest = map[string]func() *Conv{
	"images":  func() *Conv { return benchConv(F32, 4, winoDepth, winoDepth, 8, 3, 1, false) },
	"shallow": func() *Conv { return benchConv(F32, 4, winoShallow, winoDepth, 8, 3, 1, false) },
	"volumes": func() *Conv { return benchVolume(F32, 8, winoDepth/3+1, winoDepth, 4, 4) },
}

// data is a convolution over such data.
func (k *winoKind) data(c *Conv) *Conv {
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
		c.W.set(i, float32(k.tap(d, i%volume(c.Kernel))))
	}
	image(c.Y, func(i int) float64 { return k.tap(d, i%9) })
	return c
}

// largest is the largest magnitude among the n pixels along each axis, from a pixel on, of image i of b; none lie outside.
func largest(b Buf, i int, size, from, n [3]int) (v float64) {
	for z := max(0, from[0]); z < min(size[0], from[0]+n[0]); z++ {
		for r := max(0, from[1]); r < min(size[1], from[1]+n[1]); r++ {
			for s := max(0, from[2]); s < min(size[2], from[2]+n[2]); s++ {
				v = max(v, math.Abs(float64(b.get(((i*size[0]+z)*size[1]+r)*size[2]+s))))
			}
		}
	}
	return v
}

// tileSizes are the pixels and the results, step along each axis that has taps, of a tile.
func (c *Conv) tileSizes(step int) (pixels, results [3]int) {
	for a, taps := range c.Kernel {
		pixels[a], results[a] = taps+step-1, step
		if taps == 1 {
			pixels[a], results[a] = 1, 1
		}
	}
	return pixels, results
}

// eachTile calls f with the first result of every tile.
func eachTile(size, step [3]int, f func(at [3]int)) {
	for z := 0; z < size[0]; z += step[0] {
		for y := 0; y < size[1]; y += step[1] {
			for x := 0; x < size[2]; x += step[2] {
				f([3]int{z, y, x})
			}
		}
	}
}

// before is the first pixel that the result at meets.
func before(at, pad [3]int) [3]int { return [3]int{at[0] - pad[0], at[1] - pad[1], at[2] - pad[2]} }

// tileBounds are the sums that the errors of transforms are bounded by: those of magnitudes, as in results, but with the
// largest magnitude of the filter in place of each tap and the largest of a tile's pixels in place of each pixel.
func (c *Conv) tileBounds(step int) (y, x, w []float64) {
	y, x, w = make([]float64, c.Y.Len()), make([]float64, c.X.Len()), make([]float64, c.W.Len())
	pixels, results := c.tileSizes(step)
	taps := volume(c.Kernel)
	filter := func(k, ch int) float64 { return largest(c.W, k*c.C+ch, c.Kernel, [3]int{}, c.Kernel) }
	product := func(out []float64, rows int, size [3]int, in Buf, depth int, from, pad [3]int, filter func(row, ch int) float64) {
		for n := range c.N {
			eachTile(size, results, func(at [3]int) {
				for row := range rows {
					sum := 0.0
					for ch := range depth {
						sum += float64(taps) * filter(row, ch) * largest(in, n*depth+ch, from, before(at, pad), pixels)
					}
					for z := at[0]; z < min(size[0], at[0]+results[0]); z++ {
						for r := at[1]; r < min(size[1], at[1]+results[1]); r++ {
							for s := at[2]; s < min(size[2], at[2]+results[2]); s++ {
								out[(((n*rows+row)*size[0]+z)*size[1]+r)*size[2]+s] = sum
							}
						}
					}
				}
			})
		}
	}
	product(y, c.K, c.Out, c.X, c.C, c.In, c.Pad, filter)
	back := [3]int{c.Kernel[0] - 1 - c.Pad[0], 2 - c.Pad[1], 2 - c.Pad[2]}
	product(x, c.C, c.In, c.Y, c.K, c.Out, back, func(row, ch int) float64 { return filter(ch, row) })
	for n := range c.N {
		eachTile(c.Out, results, func(at [3]int) {
			for i := range c.K * c.C {
				dy := largest(c.Y, n*c.K+i/c.C, c.Out, at, results)
				term := float64(volume(results)) * 9 / 4 * dy * largest(c.X, n*c.C+i%c.C, c.In, before(at, c.Pad), pixels)
				for tap := range taps {
					w[taps*i+tap] += term
				}
			}
		})
	}
	return y, x, w
}

// direction is a convolution, or one of its gradients, with its result in f32, what that is, and the bound of its errors.
type direction struct {
	name  string
	run   func(m *Machine)
	got   Buf
	is    sums
	tiles []float64
	depth int
}

// directions are those of c, with the bounds of tiles of so many results along each axis.
func (c *Conv) directions(step int) []direction {
	y, x, w := c.results()
	ty, tx, tw := c.tileBounds(step)
	forward, dx, dw := *c, *c, *c
	forward.Y, dx.X, dw.W = zeros(F32, c.Y.Len()), zeros(F32, c.X.Len()), zeros(F32, c.W.Len())
	return []direction{
		{"forward", func(m *Machine) { m.Conv(&forward) }, forward.Y, y, ty, volume(c.Kernel) * c.C},
		{"input gradient", func(m *Machine) { m.ConvInputGrad(&dx) }, dx.X, x, tx, volume(c.Kernel) * c.K},
		{"weight gradient", func(m *Machine) { m.ConvWeightGrad(&dw) }, dw.W, w, tw, c.N * volume(c.Out)},
	}
}

// TestWinogradError: on data of many kinds errors are on average no larger than twice the definition's, or than two roundings
// of the results where the definition hardly rounds, and every single one stays within a fiftieth of the bound of transforms,
// which is for the worst case; -v prints both, and the share of the definition's bound.
func TestWinogradError(t *testing.T) {
	for i := range len(winoFewest) * len(winoData) {
		name := []string{"images", "shallow", "volumes"}[i%len(winoFewest)]
		kind := winoData[i/len(winoFewest)]
		c := kind.data(winoFewest[name]())
		directions := c.directions(2)
		for _, p := range Paths() {
			fast := New(p, 2)
			direct := byDefinition(fast)
			for _, way := range directions {
				line := fmt.Sprintf("%s, %s, %s, %s:", p.Name(), way.name, kind.name, name)
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
