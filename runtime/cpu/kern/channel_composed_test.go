package kern

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestComposedNorms compares norms over channels whose kernels are composed with those that run in passes, to the bit, for all
// types of operands and results.
func TestComposedNorms(t *testing.T) {
	for _, p := range tested() {
		if ok, _ := p.Composes(); !ok {
			continue
		}
		passes := *p
		passes.composes = false
		with, without := New(p, 2), New(&passes, 2)
		defer with.Close()
		defer without.Close()
		types := []Type{F32, F16, BF16}
		for seed := range rounds(60) {
			d := newDice(uint64(50 + seed))
			pick := func() Type { return types[d.IntN(3)] }
			n := randomNorm(d, pick, []int{1, 8, 16, 24, 48, 49, 64, channelPiece + 16}[d.IntN(8)])
			t.Run(fmt.Sprintf("%s/%d", p.Name(), seed), func(t *testing.T) {
				compareNorms(t, with, without, n, false)
				compareNorms(t, with, without, n, true)
			})
		}
	}
}

// randomNorm is a norm and its gradient with random types, epilogue and groups.
func randomNorm(d dice, pick func() Type, space int) *ChannelNorm {
	n := randomNormOf(d, pick, 1+d.IntN(9), []int{1, 6, 6, 48}[d.IntN(4)], space)
	if d.IntN(4) == 0 && n.Channels > 1 {
		n.Groups = 3
	}
	for _, s := range []*[]float32{&n.Mean, &n.Var, &n.Rstd} {
		*s = make([]float32, n.Stats())
	}
	n.ChannelsLast = d.IntN(2) == 0
	n.Gamma.set(0, float32(math.Copysign(0, -1)))
	return n
}

// randomNormOf is one without groups, of a size.
func randomNormOf(d dice, pick func() Type, images, channels, space int) *ChannelNorm {
	size := images * channels * space
	buf := func() Buf { return d.buf(pick(), size) }
	maybe := func(b Buf) Buf {
		if d.IntN(2) == 0 {
			return Buf{}
		}
		return b
	}
	return &ChannelNorm{Images: images, Channels: channels, Space: space, Eps: 1e-5, X: buf(), Gamma: d.buf(F32, channels), Beta: d.buf(F32, channels),
		Residual: maybe(buf()), Relu: d.IntN(2) == 0, Y: buf(), Copy: maybe(buf()), DY: buf(), DX: buf(), Sign: maybe(buf()), DGamma: zeros(F32, channels), DBeta: zeros(F32, channels)}
}

func compareNorms(t *testing.T, with, without *Machine, n *ChannelNorm, inPlace bool) {
	var results [2][]Buf
	for i, m := range []*Machine{with, without} {
		own := *n
		if inPlace {
			own.Y, own.DX = own.X, own.DY
		}
		for _, b := range []*Buf{&own.Y, &own.Copy, &own.DX, &own.DGamma, &own.DBeta} {
			b.Data = slices.Clone(b.Data)
		}
		if inPlace {
			own.X, own.DY = own.Y, own.DX
		}
		for _, s := range []*[]float32{&own.Mean, &own.Var, &own.Rstd} {
			*s = slices.Clone(*s)
		}
		m.ChannelNorm(&own)
		m.ChannelNormGrad(&own)
		results[i] = []Buf{Floats(own.Mean), Floats(own.Var), own.Y, own.Copy, own.DX, own.DGamma, own.DBeta}
	}
	for k, want := range results[1] {
		for e := range want.Len() {
			if got, want := results[0][k].get(e), want.get(e); !same(got, want) {
				t.Fatalf("result %d of %d images, %d channels, %d elements, %d groups: %g at %d, in passes %g", k, n.Images, n.Channels, n.Space, n.Groups, got, e, want)
			}
		}
	}
}
