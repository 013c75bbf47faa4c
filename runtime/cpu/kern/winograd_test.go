package kern

import (
	"slices"
	"testing"
)

// winoConv is a convolution that transforms can do, of any size.
func winoConv(d dice, i int) *Conv {
	c := &Conv{N: 1 + d.IntN(3), C: 12 + d.IntN(12), K: 12 + d.IntN(30), Groups: 1, ChannelsLast: d.IntN(2) == 0, Weights: WeightOrder(i % 3),
		In: [3]int{1, 1 + d.IntN(9), 1 + d.IntN(11)}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}}
	if i%4 == 0 {
		c.In[2] += d.IntN(70)
	}
	for a := 1; a < 3; a++ {
		c.Pad[a] = d.IntN(3)
		c.In[a] = max(c.In[a], 3-2*c.Pad[a])
		c.Out[a] = c.In[a] + 2*c.Pad[a] - 2
	}
	if i%5 == 0 { // no padding behind, but where a tap would meet no pixel: its gradient is 0 to the last bit by the definition alone
		c.Out[1] = min(c.Out[1], max(c.Pad[1]+1, c.Out[1]-c.Pad[1]))
	}
	if i%2 == 0 { // volumes
		c.Kernel[0], c.Pad[0] = 1+d.IntN(3), d.IntN(3)
		if i%4 == 2 { // of cubes
			c.Kernel[0] = 3
		}
		c.In[0] = max(1+d.IntN(4), c.Kernel[0]-2*c.Pad[0])
		c.Out[0] = c.In[0] + 2*c.Pad[0] - c.Kernel[0] + 1
		c.In[2], c.Out[2] = min(c.In[2], 24), min(c.In[2], 24)+2*c.Pad[2]-2
	}
	c.X, c.W, c.Y = d.buf(d.typ(), c.N*c.C*volume(c.In)), d.buf(d.typ(), c.K*c.C*volume(c.Kernel)), d.buf(d.typ(), c.N*c.K*volume(c.Out))
	return c
}

// transforming is m with transforms for as few channels, and tiles of weights' gradients, as keep the bound.
func transforming(m *Machine) *Machine {
	forced := *m.Path
	forced.winoLeast.depth, forced.winoLeast.rows, forced.winoLeast.tiles, forced.winoLeast.cubes = 10, 1, 1, 1
	return New(&forced, m.pool.Workers())
}

// TestWinograd: transforms give what the definition gives, within the same bound.
func TestWinograd(t *testing.T) {
	d, list := newDice(8), make([]*Conv, rounds(48))
	for i := range list {
		list[i] = winoConv(d, i)
	}
	cases := solve(list)
	onPaths(t, func(t *testing.T, m *Machine) {
		m = transforming(m)
		defer m.Close()
		for _, c := range cases {
			if m.usesVNNI(c.X.Type, c.W.Type) || m.usesVNNI(c.Y.Type, c.W.Type) || m.canUseSix(c.Conv, c.X.Type, c.Y.Type) || m.canUseSix(c.Conv, c.X.Type, c.W.Type) || m.canUseSix(c.Conv, c.Y.Type, c.W.Type) {
				continue // by the definition, or by larger tiles
			}
			c.check(t, m)
			if t.Failed() {
				return
			}
		}
	})
}

// TestWinogradFollows: what follows a result gets every element of it once, through an epilogue or without.
func TestWinogradFollows(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		m = transforming(m)
		defer m.Close()
		d := newDice(9)
		for i := range rounds(30) {
			c := winoConv(d, i)
			c.follows(t, m, d, i%3 == 0, F16)
		}
	})
}

// follows checks a post-op of the result, with a bias and an activation if so wanted, and of the gradient of x.
func (c *Conv) follows(t *testing.T, m *Machine, d dice, bias bool, grad Type) {
	what := c.String()
	c.Y = zeros(F32, c.Y.Len())
	if bias {
		c.Bias, c.Act = d.buf(F16, c.K), ActRelu
	}
	withPostOp(t, m, what, &c.Y, c.Y.Len(), &c.PostOp, func() { m.Conv(c) })
	c.Epilogue = Epilogue{}
	c.X, c.Y = zeros(F32, c.X.Len()), d.buf(grad, c.Y.Len())
	withPostOp(t, m, what+" input gradient", &c.X, c.X.Len(), &c.PostOp, func() { m.ConvInputGrad(c) })
}

// TestWinogradWorkers: results depend neither on how the work is cut nor on the width of vectors.
func TestWinogradWorkers(t *testing.T) {
	var wide [][][]float32 // of the first path
	for _, p := range Paths() {
		one, divided := transforming(&Machine{Path: p, pool: startPool(1, Host{})}), false
		many := []*Machine{transforming(&Machine{Path: blocksOfChain(p), pool: startPool(5, Host{})}), transforming(&Machine{Path: p, pool: startPool(60, Host{})})}
		d := newDice(10)
		for i := range rounds(12) {
			c := winoConv(d, i)
			c.C += i % 2 * 70 // several panels
			c.X, c.W, c.Y = d.buf(F16, c.N*c.C*volume(c.In)), d.buf(F32, c.K*c.C*volume(c.Kernel)), zeros(F32, c.Y.Len())
			grad := *c
			grad.Y, grad.X, grad.W = d.buf(F32, c.Y.Len()), zeros(F32, c.X.Len()), c.W
			weights := *c
			weights.Y, weights.W = grad.Y, zeros(F32, c.W.Len())
			run := func(m *Machine) [][]float32 {
				m.Conv(c)
				m.ConvInputGrad(&grad)
				m.ConvWeightGrad(&weights)
				return [][]float32{slices.Clone(c.Y.f32()), slices.Clone(grad.X.f32()), slices.Clone(weights.W.f32())}
			}
			want := run(one)
			if len(wide) == i {
				wide = append(wide, want)
			}
			if p.lanes > 1 {
				want = wide[i]
			}
			for _, m := range many {
				got := run(m)
				for k := range want {
					if !slices.Equal(want[k], got[k]) {
						t.Fatalf("%s: %v: result %d with %d workers is not that of 1, or not that of %s", p.Name(), c, k, m.pool.Workers(), Paths()[0].Name())
					}
				}
				divided = divided || m.winoGradRun.mode == winoTapsMode && m.winoGradRun.part.cols > 1
			}
		}
		one.Close()
		for _, m := range many {
			m.Close()
		}
		if p.lanes > 1 && !divided {
			t.Errorf("%s: no taps were divided along the input channels", p.Name())
		}
	}
}

// TestWinogradDirect: a convolution that asks for its definition gets it, bit for bit, in all three directions.
func TestWinogradDirect(t *testing.T) {
	for _, p := range Paths() {
		m := New(p, 2)
		plain := byDefinition(m)
		var got [2][]Buf
		for i, m := range []*Machine{m, plain} {
			c := benchConv(F32, 4, winoDepth, winoDepth, 8, 3, 1, false)
			c.Direct = m.wino != nil
			y, x, w := *c, *c, *c
			y.Y, x.X, w.W = zeros(F32, c.Y.Len()), zeros(F32, c.X.Len()), zeros(F32, c.W.Len())
			m.Conv(&y)
			m.ConvInputGrad(&x)
			m.ConvWeightGrad(&w)
			got[i] = []Buf{y.Y, x.X, w.W}
		}
		for k := range got[0] {
			if string(got[0][k].Data) != string(got[1][k].Data) {
				t.Errorf("%s: result %d is not that of the definition", p.Name(), k)
			}
		}
		m.Close()
		plain.Close()
	}
}
