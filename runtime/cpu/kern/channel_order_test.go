package kern

import (
	"fmt"
	"slices"
	"testing"
)

// runOn is a norm with its results and those of its gradient, in memory of their own.
func (n ChannelNorm) runOn(m *Machine) *ChannelNorm {
	for _, b := range []*Buf{&n.Y, &n.Copy, &n.DX, &n.DGamma, &n.DBeta} {
		b.Data = slices.Clone(b.Data)
	}
	for _, s := range []*[]float32{&n.Mean, &n.Var, &n.Rstd} {
		*s = make([]float32, n.Stats())
	}
	m.ChannelNorm(&n)
	m.ChannelNormGrad(&n)
	return &n
}

// elements are those operands and results of a norm that are tensors, params those that have an element a channel.
func (n *ChannelNorm) elements() []*Buf {
	return []*Buf{&n.X, &n.Residual, &n.Y, &n.Copy, &n.DY, &n.Sign, &n.DX}
}
func (n *ChannelNorm) params() []*Buf { return []*Buf{&n.Gamma, &n.Beta, &n.DGamma, &n.DBeta} }

// part is the norm of images [i0,i1) and channels [c0,c1), whole groups.
func (n ChannelNorm) part(i0, i1, c0, c1 int) *ChannelNorm {
	from := n
	n.Images, n.Channels = i1-i0, c1-c0
	n.Groups = from.Groups * n.Channels / from.Channels
	for _, b := range n.elements() {
		if !b.absent() {
			all := *b
			*b = zeros(all.Type, n.Images*n.Channels*n.Space)
			n.each(func(i, c, e int) { b.set(n.place(i, c, e), all.get(from.place(i0+i, c0+c, e))) })
		}
	}
	for _, b := range n.params() {
		if !b.absent() {
			*b = Buf{b.Type, b.Data[4*c0 : 4*c1]}
		}
	}
	for _, s := range []*[]float32{&n.Mean, &n.Var, &n.Rstd} {
		if all := *s; from.Groups == 0 && len(all) > 0 {
			*s = all[c0:c1]
		} else if *s = nil; len(all) > 0 {
			for i := i0; i < i1; i++ {
				g0 := i*from.Groups + c0*from.Groups/from.Channels
				*s = append(*s, all[g0:g0+n.Groups]...)
			}
		}
	}
	return &n
}

// turned is the norm in the other layout.
func (n ChannelNorm) turned() *ChannelNorm {
	from := n
	n.ChannelsLast = !n.ChannelsLast
	for _, b := range n.elements() {
		if !b.absent() {
			all := *b
			*b = zeros(all.Type, all.Len())
			n.each(func(i, c, e int) { b.set(n.place(i, c, e), all.get(from.place(i, c, e))) })
		}
	}
	return &n
}

func (n *ChannelNorm) each(f func(image, channel, e int)) {
	for i := range n.Images {
		for c := range n.Channels {
			for e := range n.Space {
				f(i, c, e)
			}
		}
	}
}

func (n *ChannelNorm) place(image, c, e int) int {
	if n.ChannelsLast {
		return (image*n.Space+e)*n.Channels + c
	}
	return (image*n.Channels+c)*n.Space + e
}

// all are the operands and results of a norm.
func (n *ChannelNorm) all() (all []Buf) {
	for _, b := range append(n.elements(), n.params()...) {
		all = append(all, *b)
	}
	return append(all, Floats(n.Mean), Floats(n.Var), Floats(n.Rstd))
}

// sameAs reports where two norms differ.
func (n *ChannelNorm) sameAs(t *testing.T, what string, o *ChannelNorm) {
	t.Helper()
	others := o.all()
	for k, b := range n.all() {
		for at := range b.Len() {
			if x, y := b.get(at), others[k].get(at); !same(x, y) {
				t.Fatalf("%s: element %d of buffer %d is %g and %g; %d images, %d channels of %d elements, %d groups, last=%v, %v", what, at, k, x, y,
					n.Images, n.Channels, n.Space, n.Groups, n.ChannelsLast, n.X.Type)
			}
		}
	}
}

// orderedNorms calls f for norms of many sizes.
func orderedNorms(t *testing.T, f func(t *testing.T, p *Path, d dice, n *ChannelNorm)) {
	channels := []int{1, 2, 3, 6, 12, 16, 24, 48, 70, 130, 288, 520}
	spaces := []int{1, 3, 16, 48, 49, 64, 65, 196, 256, 300, 784, 1024, 1100, 3136, 5000, 6400}
	for _, p := range tested() {
		for seed := range rounds(48) {
			d := newDice(uint64(90 + seed))
			c, space := channels[d.IntN(len(channels))], spaces[d.IntN(len(spaces))]
			images := 1 + d.IntN(max(1, min(40, 1<<17/(c*space))))
			n := randomNormOf(d, d.typ, images, c, space)
			n.ChannelsLast, n.Groups = d.IntN(2) == 0, 0
			if d.IntN(2) == 0 {
				for n.Groups = 1 + d.IntN(c); c%n.Groups > 0; n.Groups++ {
				}
			}
			f(t, p, d, n)
		}
	}
}

// A channel has the same bits whatever channels stand beside it, and an image of a group norm whatever images do.
func TestChannelsApart(t *testing.T) {
	orderedNorms(t, func(t *testing.T, p *Path, d dice, n *ChannelNorm) {
		one, three := New(p, 1), New(p, 3)
		defer one.Close()
		defer three.Close()
		parts := n.Channels
		if n.Groups > 0 {
			parts = n.Groups
		}
		lo := d.IntN(parts)
		hi := lo + 1 + d.IntN(parts-lo)
		c0, c1 := lo*n.Channels/parts, hi*n.Channels/parts
		n.runOn(one).part(0, n.Images, c0, c1).sameAs(t, p.Name()+", channels", n.part(0, n.Images, c0, c1).runOn(three))
		if n.Groups > 0 {
			n.DGamma, n.DBeta = Buf{}, Buf{}
			i0 := d.IntN(n.Images)
			i1 := i0 + 1 + d.IntN(n.Images-i0)
			n.runOn(one).part(i0, i1, 0, n.Channels).sameAs(t, p.Name()+", images", n.part(i0, i1, 0, n.Channels).runOn(three))
		}
	})
}

// Both layouts have the same bits.
func TestChannelLayouts(t *testing.T) {
	orderedNorms(t, func(t *testing.T, p *Path, d dice, n *ChannelNorm) {
		m := New(p, 2)
		defer m.Close()
		n.runOn(m).turned().sameAs(t, p.Name(), n.turned().runOn(m))
	})
}

// All paths have the same bits, whatever their vectors.
func TestChannelPaths(t *testing.T) {
	want := New(goPath(), 1)
	defer want.Close()
	orderedNorms(t, func(t *testing.T, p *Path, d dice, n *ChannelNorm) {
		m := New(p, 2)
		defer m.Close()
		n.runOn(want).sameAs(t, "go and "+p.Name(), n.runOn(m))
	})
}

// Norms have the same bits on any number of workers, however their work is divided.
func TestChannelDivided(t *testing.T) {
	for _, p := range tested() {
		machines := []*Machine{New(p, 1), New(p, 2), New(p, 3), New(p, 8)}
		for _, m := range machines {
			defer m.Close()
		}
		for i, s := range []struct{ images, channels, space, groups int }{
			{1, 64, 3136, 0}, {1, 64, 3136, 2}, {1, 64, 3136, 1}, {2, 6, 12544, 0}, {3, 96, 784, 3}, {40, 64, 49, 0}, {1, 1030, 196, 0}, {4, 64, 1001, 64},
		} {
			d := newDice(uint64(i))
			n := randomNormOf(d, d.typ, s.images, s.channels, s.space)
			n.Groups = s.groups
			for _, n := range []*ChannelNorm{n, n.turned()} {
				want := n.runOn(machines[0])
				for _, m := range machines[1:] {
					want.sameAs(t, fmt.Sprintf("%s, %d workers", p.Name(), m.pool.Workers()), n.runOn(m))
				}
			}
		}
	}
}
