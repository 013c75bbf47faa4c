package kern

import "testing"

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
	if i%5 == 0 { // no padding behind
		c.Out[1] = max(1, c.Out[1]-c.Pad[1])
	}
	c.X, c.W, c.Y = d.buf(d.typ(), c.N*c.C*volume(c.In)), d.buf(d.typ(), c.K*c.C*9), d.buf(d.typ(), c.N*c.K*volume(c.Out))
	return c
}

// TestWinograd: transforms give what the definition gives, within a bound that does not ask which tap met which pixel.
func TestWinograd(t *testing.T) {
	onPaths(t, func(t *testing.T, m *Machine) {
		forced := *m.Path
		m.Path, forced.winoLeast = &forced, 1
		d := newDice(8)
		for i := range rounds(90) {
			c := winoConv(d, i)
			if m.pairing(c.X.Type, c.W.Type) || m.pairing(c.Y.Type, c.W.Type) {
				c.W = d.buf(F32, c.W.Len())
			}
			checkConv(t, m, c)
			if t.Failed() {
				return
			}
		}
	})
}
