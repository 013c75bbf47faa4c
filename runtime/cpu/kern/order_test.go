package kern

import (
	goflag "flag"
	"slices"
	"testing"
)

// backwards is a machine of two workers of which one never wakes: the first runs its own half of a region's tasks from
// the front, then the other half from the back. A task that writes past its end spoils one that ran before it.
func backwards(p *Path) *Machine {
	m := New(p, 1)
	t := newTeam(2, 0, Host{})
	t.started = 2
	m.pool = newPoolOf(t)
	m.worker = append(m.worker, nil)
	m.Enter()
	return m
}

// smallConvs are convolutions of many small images, whose rows are shorter than a vector.
func smallConvs(d dice) (list []*Conv) {
	for i := range 3 * 5 * 2 * 2 * 2 * 2 {
		typ, size, channels := Type(i%3), 1+i/3%5, []int{32, 6}[i/15%2]
		kernel, stride, last := 1+2*(i/30%2), 1+i/60%2, i/120%2 == 1
		n := 1<<15/(channels*size*size) + 2
		out := (size-1)/stride + 1
		c := &Conv{N: n, C: channels, K: channels, Groups: 1 + d.IntN(2), In: [3]int{1, size, size}, Out: [3]int{1, out, out}, Kernel: [3]int{1, kernel, kernel},
			Stride: [3]int{1, stride, stride}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, kernel / 2, kernel / 2}, ChannelsLast: last}
		if i%4 == 3 { // volumes
			c.N, c.In[0], c.Out[0], c.Kernel[0], c.Stride[0], c.Pad[0] = ceilDiv(n, size), size, out, kernel, stride, kernel/2
		}
		c.X, c.W, c.Y = d.buf(typ, c.N*channels*volume(c.In)), d.buf(typ, channels*channels/c.Groups*volume(c.Kernel)), d.buf(typ, c.N*channels*volume(c.Out))
		list = append(list, c)
	}
	return list
}

// fewImages are convolutions of one or two images, whose planes and rows are divided among workers.
func fewImages(d dice) (list []*Conv) {
	for i := range 3 * 2 * 2 * 2 * 2 {
		typ, n, last, stride, depthwise := Type(i%3), 1+i/3%2, i/6%2 == 1, 1+i/12%2, i/24%2 == 1
		size, channels := 11, 66
		out := (size-1)/stride + 1
		c := &Conv{N: n, C: channels, K: channels, Groups: 1, In: [3]int{1, size, size}, Out: [3]int{1, out, out}, Kernel: [3]int{1, 3, 3},
			Stride: [3]int{1, stride, stride}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}, ChannelsLast: last, Direct: true}
		if depthwise {
			c.Groups = channels
		}
		c.X, c.W, c.Y = d.buf(typ, n*channels*volume(c.In)), d.buf(typ, channels*channels/c.Groups*9), d.buf(typ, n*channels*volume(c.Out))
		list = append(list, c)
	}
	return list
}

// oneImage are convolutions of an image that has enough rows for tasks of its padding. The second
// finds what the first one left in the padded image.
func oneImage(d dice) (list []*Conv) {
	const channels = 64
	for i := range 3 * 2 * 2 {
		typ, size, groups := Type(i%3), 57-i/6, 4
		if i/3%2 == 0 {
			groups = channels
		}
		c := &Conv{N: 1, C: channels, K: channels, Groups: groups, In: [3]int{1, size, size}, Out: [3]int{1, size, size}, Kernel: [3]int{1, 3, 3},
			Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Pad: [3]int{0, 1, 1}, ChannelsLast: true, Direct: true}
		c.X, c.W, c.Y = d.buf(typ, channels*size*size), d.buf(typ, channels*channels/groups*9), d.buf(typ, channels*size*size)
		list = append(list, c)
	}
	return list
}

var everyConv = goflag.Bool("every-conv", false, "TestConvTaskOrder runs all small convolutions on every path")

// TestConvTaskOrder: the tasks of a convolution may run in any order. Without -every-conv each path
// runs another quarter of the small ones.
func TestConvTaskOrder(t *testing.T) {
	small, large := smallConvs(newDice(16)), append(fewImages(newDice(17)), oneImage(newDice(18))...)
	for at, p := range tested() {
		cases := slices.Clone(large)
		for i, c := range small {
			if *everyConv || (i+i/15)%4 == at%4 {
				cases = append(cases, c)
			}
		}
		forth, back := New(p, 1), backwards(p)
		defer forth.Close()
		for i, f := range []func(*Machine, *Conv){(*Machine).Conv, (*Machine).ConvInputGrad, (*Machine).ConvWeightGrad} {
			for _, c := range cases {
				want, got := *c, *c
				result := func(c *Conv) *Buf { return []*Buf{&c.Y, &c.X, &c.W}[i] }
				*result(&want), *result(&got) = zeros(result(c).Type, result(c).Len()), zeros(result(c).Type, result(c).Len())
				f(forth, &want)
				f(back, &got)
				if !slices.Equal(result(&want).Data, result(&got).Data) {
					t.Errorf("%s: direction %d of %v depends on the order of its tasks", p.Name(), i, c)
				}
			}
		}
	}
}
