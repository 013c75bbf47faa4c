package kern

import (
	"fmt"
	"math"
	"testing"
)

// randomConv is a convolution small enough for the definition.
func randomConv(d dice) *Conv {
	c := &Conv{N: 1 + d.IntN(3), Groups: 1 + d.IntN(3)/2*(1+d.IntN(2)), ChannelsLast: d.IntN(2) == 0,
		Weights: WeightOrder(d.IntN(3)), In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, TF32: false}
	c.C, c.K = c.Groups*(1+d.IntN(5)), c.Groups*(1+d.IntN(9))
	if d.IntN(3) == 0 { // depthwise
		c.Groups = c.C
		c.K = c.C
	}
	for a := 3 - (1 + d.IntN(5)/2); a < 3; a++ {
		c.Kernel[a], c.Stride[a], c.Dilation[a], c.Pad[a] = 1+d.IntN(3), 1+d.IntN(3), 1+d.IntN(2), d.IntN(3)
		reach := (c.Kernel[a] - 1) * c.Dilation[a]
		c.In[a] = reach + 1 + d.IntN(8)
		c.Out[a] = (c.In[a]+2*c.Pad[a]-reach-1)/c.Stride[a] + 1
	}
	c.X = d.buf(d.typ(), c.N*c.C*volume(c.In))
	c.W = d.buf(d.typ(), c.K*c.C/c.Groups*volume(c.Kernel))
	c.Y = d.buf(d.typ(), c.N*c.K*volume(c.Out))
	return c
}

func (c *Conv) String() string {
	return fmt.Sprintf("n%d c%d k%d g%d in%v out%v kernel%v stride%v dil%v pad%v last=%v order=%d %v*%v=%v",
		c.N, c.C, c.K, c.Groups, c.In, c.Out, c.Kernel, c.Stride, c.Dilation, c.Pad, c.ChannelsLast, c.Weights, c.X.Type, c.W.Type, c.Y.Type)
}

// image is the element number of channel ch, pixel p of image n.
func (c *Conv) image(n, ch, p, channels, pixels int) int {
	if c.ChannelsLast {
		return (n*pixels+p)*channels + ch
	}
	return (n*channels+ch)*pixels + p
}

// terms calls f for every product of the definition with the element numbers of y, x and w.
func (c *Conv) terms(f func(y, x, w int)) {
	in, per, taps := c.C/c.Groups, c.K/c.Groups, volume(c.Kernel)
	so, si, sx := c.weightStrides()
	nextX := c.image(0, 1, 0, c.C, volume(c.In))
	for n := range c.N {
		for k := range c.K {
			for o := range volume(c.Out) {
				for t := range taps {
					at, ok := c.reads(o, t)
					if !ok {
						continue
					}
					y, x, w := c.image(n, k, o, c.K, volume(c.Out)), c.image(n, k/per*in, at, c.C, volume(c.In)), k*so+t*sx
					for i := range in {
						f(y, x+i*nextX, w+i*si)
					}
				}
			}
		}
	}
}

// reads is the input pixel that output pixel o reads at tap t.
func (c *Conv) reads(o, t int) (at int, ok bool) {
	op := [3]int{o / (c.Out[1] * c.Out[2]), o / c.Out[2] % c.Out[1], o % c.Out[2]}
	tp := [3]int{t / (c.Kernel[1] * c.Kernel[2]), t / c.Kernel[2] % c.Kernel[1], t % c.Kernel[2]}
	for a := range 3 {
		i := op[a]*c.Stride[a] - c.Pad[a] + tp[a]*c.Dilation[a]
		if i < 0 || i >= c.In[a] {
			return 0, false
		}
		at = at*c.In[a] + i
	}
	return at, true
}

// wideConv has rows of whole vectors, which tiles read where they lie.
func wideConv(d dice, typ Type, out, stride, pad int) *Conv {
	c := &Conv{N: 2, C: 5, K: 17, Groups: 1, In: [3]int{1, 4, out * stride}, Out: [3]int{1, 0, out}, Kernel: [3]int{1, 3, 1 + 2*pad},
		Stride: [3]int{1, stride, stride}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, pad}}
	c.Out[1] = (c.In[1]-1)/stride + 1
	c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C*volume(c.Kernel)), d.buf(typ, c.N*c.K*volume(c.Out))
	return c
}

// gappedConv has rows that tiles read together, of 64 columns with the gaps between them: whole tiles.
func gappedConv(d dice, typ Type) *Conv {
	c := &Conv{N: 2, C: 3, K: 17, Groups: 1, In: [3]int{1, 11, 6}, Out: [3]int{1, 11, 4}, Kernel: [3]int{1, 3, 3},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 0}}
	c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C*9), d.buf(F32, c.N*c.K*volume(c.Out))
	return c
}

// vnniConv has bf16 operands with even numbers of channels in each group.
func vnniConv(d dice, stride, dilation, groups int) *Conv {
	size := func() int { return 2*dilation + 1 + d.IntN(40) }
	c := &Conv{N: 2, C: 2 * groups * (1 + d.IntN(3)), K: 2 * groups * (1 + d.IntN(9)), Groups: groups, In: [3]int{1 + d.IntN(2), size(), size()},
		Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 3, 1 + d.IntN(3)}, Stride: [3]int{1, stride, stride}, Dilation: [3]int{1, dilation, dilation}, Pad: [3]int{0, d.IntN(3), d.IntN(3)}}
	for a := range 3 {
		c.Out[a] = (c.In[a]+2*c.Pad[a]-(c.Kernel[a]-1)*c.Dilation[a]-1)/c.Stride[a] + 1
	}
	c.X, c.W, c.Y = d.buf(BF16, c.N*c.C*volume(c.In)), d.buf(BF16, c.K*c.C/c.Groups*volume(c.Kernel)), d.buf(BF16, c.N*c.K*volume(c.Out))
	return c
}

// turnedConv has as many channels as the gradient of weights turns images for.
func turnedConv(d dice, x, y Type, groups int) *Conv {
	c := &Conv{N: 2, C: groups * (32 + 16*d.IntN(2)), K: groups * (1 + d.IntN(20)), Groups: groups, In: [3]int{1, 5 + d.IntN(3), 4 + d.IntN(6)},
		Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 2, 3}, Stride: [3]int{1, 1 + d.IntN(2), 1 + d.IntN(2)}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, d.IntN(2), d.IntN(3)}}
	for a := 1; a < 3; a++ {
		c.Out[a] = (c.In[a]+2*c.Pad[a]-c.Kernel[a])/c.Stride[a] + 1
	}
	c.X, c.W, c.Y = d.buf(x, c.N*c.C*volume(c.In)), d.buf(d.typ(), c.K*c.C/groups*6), d.buf(y, c.N*c.K*volume(c.Out))
	return c
}

// manyConvs are random ones, wide ones and ones of many channels.
func manyConvs(d dice) (list []*Conv) {
	for i := range 12 {
		list = append(list, turnedConv(d, Type(i%3), Type(i%3), 1+i/9))
	}
	list = append(list, turnedConv(d, F16, F32, 2), turnedConv(d, F32, BF16, 1))
	for range rounds(120) {
		list = append(list, randomConv(d))
	}
	for i := range 16 {
		list = append(list, vnniConv(d, 1+i%2, 1+i/2%2, 1+i/8))
	}
	for _, typ := range []Type{F32, F16, BF16} {
		list = append(list, gappedConv(d, typ))
		for _, out := range []int{8, 16, 32} {
			list = append(list, wideConv(d, typ, out, 1, 1), wideConv(d, typ, out, 2, 1), wideConv(d, typ, out, 2, 0))
		}
	}
	return list
}

func TestConv(t *testing.T) {
	cases := solve(manyConvs(newDice(6)))
	onPaths(t, func(t *testing.T, m *Machine) {
		for _, c := range cases {
			c.check(t, m)
			if t.Failed() {
				return
			}
		}
	})
}

// sums are the elements of a result, and the sums of the magnitudes of their terms.
type sums struct{ want, mag []float64 }

// results are those of c and its gradients by the definition.
func (c *Conv) results() (y, x, w sums) {
	for b, s := range map[*Buf]*sums{&c.Y: &y, &c.X: &x, &c.W: &w} {
		s.want, s.mag = make([]float64, b.Len()), make([]float64, b.Len())
	}
	ofY, ofX, ofW := c.Y.wide(), c.X.wide(), c.W.wide()
	c.terms(func(iy, ix, iw int) {
		vy, vx, vw := ofY[iy], ofX[ix], ofW[iw]
		y.add(iy, vx*vw)
		x.add(ix, vy*vw)
		w.add(iw, vx*vy)
	})
	return y, x, w
}

func (s *sums) add(i int, v float64) {
	s.want[i] += v
	s.mag[i] += math.Abs(v)
}

// solvedConv is a convolution with its results by the definition, which take longer than the kernels of every path.
type solvedConv struct {
	*Conv
	y, x, w sums
}

func solve(list []*Conv) []solvedConv {
	solved := make([]solvedConv, len(list))
	for i, c := range list {
		solved[i].Conv = c
		solved[i].y, solved[i].x, solved[i].w = c.results()
	}
	return solved
}

// check checks c and its gradients against the definition.
func (c solvedConv) check(t *testing.T, m *Machine) {
	t.Helper()
	name := c.String()
	check := func(what string, got Buf, s sums, depth int) {
		what += " " + name
		for i, want := range s.want {
			if !near(t, what, got.Type, i, got.get(i), want, s.mag[i]*float64(depth)*0x1p-23) {
				return
			}
		}
	}
	fwd, dx, dw := *c.Conv, *c.Conv, *c.Conv
	fwd.Y, dx.X, dw.W = zeros(c.Y.Type, c.Y.Len()), zeros(c.X.Type, c.X.Len()), zeros(c.W.Type, c.W.Len())
	m.Conv(&fwd)
	m.ConvInputGrad(&dx)
	m.ConvWeightGrad(&dw)
	check("y", fwd.Y, c.y, c.C/c.Groups*volume(c.Kernel))
	check("dx", dx.X, c.x, c.K/c.Groups*volume(c.Kernel))
	check("dw", dw.W, c.w, c.N*volume(c.Out))
}

// TestConvEnds: one subnormal element, of the image or of the weights, counts as what it is, and one infinity stays with
// the pixels that read it.
func TestConvEnds(t *testing.T) {
	const huge, subnormal = 0x1p120, 0x1p-130
	onPaths(t, func(t *testing.T, m *Machine) {
		for _, atX := range []bool{true, false} {
			c := &Conv{N: 2, C: 4, K: 18, Groups: 1, In: [3]int{1, 6, 32}, Out: [3]int{1, 6, 32}, Kernel: [3]int{1, 3, 3},
				Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}}
			c.X, c.W, c.Y = zeros(BF16, c.N*c.C*volume(c.In)), zeros(BF16, c.K*c.C*9), zeros(F32, c.N*c.K*volume(c.Out))
			x, w := float32(subnormal), float32(huge)
			if !atX {
				x, w = w, x
			}
			c.X.set(c.image(1, 3, 2*32+9, c.C, volume(c.In)), x)
			for k := range c.K {
				c.W.set(k*36+3*9+4, w) // the middle tap of the last channel
			}
			c.X.set(c.image(0, 2, 31, c.C, volume(c.In)), float32(math.Inf(1)))
			c.W.set(5*36+2*9+4, 1)
			m.Conv(c)
			for n := range c.N {
				for k := range c.K {
					for p := range volume(c.Out) {
						want := float32(0)
						switch {
						case n == 1 && p == 2*32+9:
							want = subnormal * huge
						case n == 0 && reads(c, p, 31):
							want = c.Y.get(c.image(n, k, p, c.K, volume(c.Out))) // infinity times weights that are zero
							if k == 5 && p == 31 && !(want > math.MaxFloat32 || want != want) {
								t.Fatalf("the infinity got lost: %g", want)
							}
							continue
						}
						if got := c.Y.get(c.image(n, k, p, c.K, volume(c.Out))); got != want {
							t.Fatalf("subnormal in x %t: image %d channel %d pixel %d is %g, want %g", atX, n, k, p, got, want)
						}
					}
				}
			}
		}
	})
}

// TestConvTinyImages: rows are copied a vector at a time, past the end of planes that are smaller than one, and
// never into the image of another worker.
func TestConvTinyImages(t *testing.T) {
	d := newDice(11)
	var list []*Conv
	for _, typ := range []Type{F16, BF16, F32} {
		c := &Conv{N: 256, C: 32, K: 2, Groups: 1, In: [3]int{1, 2, 2}, Out: [3]int{1, 2, 2}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}}
		c.X, c.W, c.Y = d.buf(typ, c.N*c.C*4), d.buf(typ, c.K*c.C*9), d.buf(typ, c.N*c.K*4)
		list = append(list, c)
	}
	cases := solve(list)
	onPaths(t, func(t *testing.T, m *Machine) {
		for _, c := range cases {
			if c.check(t, m); t.Failed() {
				return
			}
		}
	})
}

// reads says whether an output pixel reads an input pixel at any tap.
func reads(c *Conv, o, pixel int) bool {
	for tap := range volume(c.Kernel) {
		if at, ok := c.reads(o, tap); ok && at == pixel {
			return true
		}
	}
	return false
}

func TestConvBias(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(7)
		for range 20 {
			c := randomConv(d)
			c.Y.Type, c.Y = F32, zeros(F32, c.Y.Len())
			with := *c
			with.Y, with.Bias, with.Act = zeros(F32, c.Y.Len()), d.buf(F32, c.K), ActRelu
			m.Conv(c)
			m.Conv(&with)
			for n := range c.N {
				for k := range c.K {
					for p := range volume(c.Out) {
						i := c.image(n, k, p, c.K, volume(c.Out))
						if got, want := with.Y.get(i), max(0, c.Y.get(i)+with.Bias.get(k)); got != want {
							t.Fatalf("%v: image %d channel %d: %g, want %g", c, n, k, got, want)
						}
					}
				}
			}
		}
	})
}

// TestConvResidual: what is added to a result, by the definition or by transforms, is added after the activation.
func TestConvResidual(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		d := newDice(8)
		wino := transforming(m)
		defer wino.Close()
		for i := range rounds(60) {
			c, m := randomConv(d), m
			if i%3 == 0 {
				c, m = winoConv(d, i), wino
			}
			c.Y = zeros(F32, c.Y.Len())
			with := *c
			with.Y, with.Bias, with.Residual.Buf = zeros(F32, c.Y.Len()), d.buf(F32, c.K), d.buf(Type(i%2), c.Y.Len())
			with.Act, with.Last = []Act{NoAct, ActRelu}[i%2], []Act{NoAct, ActRelu}[i/2%2]
			m.Conv(c)
			m.Conv(&with)
			act := func(a Act, x float32) float32 {
				if a == ActRelu {
					return max(0, x)
				}
				return x
			}
			for n := range c.N {
				for k := range c.K {
					for p := range volume(c.Out) {
						i := c.image(n, k, p, c.K, volume(c.Out))
						want := act(with.Last, act(with.Act, c.Y.get(i)+with.Bias.get(k))+with.Residual.get(i))
						if got := with.Y.get(i); got != want {
							t.Fatalf("%v: image %d channel %d: %g, want %g", c, n, k, got, want)
						}
					}
				}
			}
		}
	})
}

// TestConvFirst: each direction may be the first thing that a machine does, strided single pixels among them.
func TestConvFirst(t *testing.T) {
	for _, p := range Paths() {
		for _, typ := range []Type{F32, F16, BF16} {
			for _, kernel := range []int{1, 3} {
				for i, f := range []func(*Machine, *Conv){(*Machine).Conv, (*Machine).ConvInputGrad, (*Machine).ConvWeightGrad} {
					d := newDice(8)
					c := &Conv{N: 2, C: 4, K: 6, Groups: 1, In: [3]int{1, 7, 9}, Out: [3]int{1, 4, 5}, Kernel: [3]int{1, kernel, kernel},
						Stride: [3]int{1, 2, 2}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, kernel / 2, kernel / 2}}
					c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C*volume(c.Kernel)), d.buf(typ, c.N*c.K*volume(c.Out))
					first, again := *c, *c
					result := func(c *Conv) *Buf { return []*Buf{&c.Y, &c.X, &c.W}[i] }
					*result(&first), *result(&again) = zeros(typ, result(c).Len()), zeros(typ, result(c).Len())
					m := New(p, 1)
					defer m.Close()
					f(m, &first)
					between := *c
					between.Y = zeros(typ, c.Y.Len())
					m.Conv(&between)
					f(m, &again)
					for e := range result(&first).Len() {
						if got, want := result(&first).get(e), result(&again).get(e); got != want {
							t.Fatalf("%s: direction %d of %d x %d taps in %v: element %d is %g, later %g", p.Name(), i, kernel, kernel, typ, e, got, want)
						}
					}
				}
			}
		}
	}
}

// TestWeightGradEnds: one subnormal element of an image or of its gradient counts as what it is.
func TestWeightGradEnds(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		for i := range 8 {
			c := &Conv{N: 3, C: 64, K: 18, Groups: 1, In: [3]int{1, 6, 8}, Out: [3]int{1, 6, 8}, Kernel: [3]int{1, 3, 3},
				Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}}
			if i >= 4 { // of stride 2
				c.In, c.Stride = [3]int{1, 12, 16}, [3]int{1, 2, 2}
			}
			c.X, c.W, c.Y = zeros(BF16, c.N*c.C*volume(c.In)), zeros(F32, c.K*c.C*9), zeros(BF16, c.N*c.K*48)
			x, dy := float32(0x1p-130), float32(0x1p120)
			if i%2 > 0 {
				x, dy = dy, x
			}
			image, o := 1+i/2%2, 2*8+3
			pixel, _ := c.reads(o, 4) // the middle tap
			c.X.set(c.image(image, 5, pixel, c.C, volume(c.In)), x)
			c.Y.set(c.image(image, 7, o, c.K, 48), dy)
			m.ConvWeightGrad(c)
			for e := range c.W.Len() {
				want := float32(0)
				if e == (7*c.C+5)*9+4 {
					want = x * dy
				}
				if got := c.W.get(e); got != want {
					t.Fatalf("%v: element %d is %g, want %g", c, e, got, want)
				}
			}
		}
	})
}
