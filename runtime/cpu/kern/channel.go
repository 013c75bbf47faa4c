package kern

import (
	"math"
	"unsafe"
)

// ChannelNorm describes batch_norm, group_norm or instance_norm over [Images, Channels, Space], or [Images, Space,
// Channels] if ChannelsLast is set, and its gradient.
//
//	xhat = (x - mean) * rstd        rstd = 1/sqrt(var + Eps)
//	y = act(xhat * Gamma + Beta + Residual)
//
// Statistics are those of a channel over all images where Groups is 0, else of each of Groups groups of channels of
// one image; Mean, Var and Rstd hold one f32 a statistic, groups running faster than images. Gamma and Beta, one
// element a channel, and Residual, as X, may be absent. Y may be X or Residual, DX may be DY.
type ChannelNorm struct {
	Images, Channels, Space int
	ChannelsLast            bool
	Groups                  int
	Eps                     float64
	X, Gamma, Beta          Buf
	Mean, Var, Rstd         []float32
	Residual                Buf
	Relu                    bool
	Y                       Buf
	Copy                    Buf // Y once more, in another type; may be absent

	DY, DX        Buf
	Sign          Buf // if present, DY counts only where Sign is greater than zero
	DGamma, DBeta Buf
}

// Stats is the number of statistics.
func (n *ChannelNorm) Stats() int {
	if n.Groups == 0 {
		return n.Channels
	}
	return n.Images * n.Groups
}

// runsChannelsLast reports whether channels are last and there are several.
func (n *ChannelNorm) runsChannelsLast() bool { return n.ChannelsLast && n.Channels > 1 }

// The work of the steps of a norm for each element, see box.
const (
	momentsWork  = 4
	applyWork    = 4
	productsWork = 8
	slopeWork    = 8
	joinWork     = 1 << 8  // for each piece of a channel
	unitWork     = 1 << 11 // for each piece beside its elements
)

// channelPiece is the largest number of elements of a channel that are summed in float32: a multiple of 64.
const channelPiece = 4096

// channelStats are the sums of a norm over channels in progress, and what follows from them. The elements of a channel that share a
// statistic are summed in pieces, each as Path.Sum does, and their sums are joined in float64, in order. The pieces depend on
// the numbers of images and elements that are summed alone, so that a channel has the same bits whatever stands beside it, and in
// both layouts.
type channelStats struct {
	m      *Machine
	n      ChannelNorm
	sets   int                               // images that have statistics of their own, or one for all
	shared int                               // channels that share a statistic
	pieces []piece                           // of a channel of a set
	parts  int                               // pieces of a plane
	sums   []pieceSums                       // by unit
	slopes [2][]float32                      // by statistic, see joinProducts
	join   func(s *channelStats, lo, hi int) // what Run does for a part of all statistics, or of all channels
	part   Parts

	sumMemory   floats
	slopeMemory [2]floats
}

// piece is cols elements from element from on of each of rows consecutive images.
type piece struct{ image, from, rows, cols int }

func (p *piece) count() int { return p.rows * p.cols }

// begin prepares the sums of n.
func (s *channelStats) begin(m *Machine, n *ChannelNorm) {
	s.m, s.n, s.sets, s.shared = m, *n, 1, 1
	images := n.Images
	if n.Groups > 0 {
		s.sets, s.shared, images = n.Images, n.Channels/n.Groups, 1
	}
	s.cut(images)
	units := s.sets * max(1, len(s.pieces)) * n.Channels
	s.sums = unsafe.Slice((*pieceSums)(unsafe.Pointer(unsafe.SliceData(s.sumMemory.get(pieceFloats*units)))), units)
	for i := range s.slopes {
		s.slopes[i] = s.slopeMemory[i].get(n.Stats())
	}
}

// cut lists the pieces of a channel: planes of several images, or parts of a plane, about as large as each other.
func (s *channelStats) cut(images int) {
	n := &s.n
	s.pieces, s.parts = s.pieces[:0], 1
	if n.Space == 0 {
		return
	}
	rows, cols := 1, n.Space
	if n.Space > channelPiece {
		cols = partOf(n.Space)
		s.parts = ceilDiv(n.Space, cols)
	} else {
		rows = even(images, channelPiece/n.Space)
	}
	for i := 0; i < images; i += rows {
		for lo := 0; lo < n.Space; lo += cols {
			s.pieces = append(s.pieces, piece{i, lo, min(rows, images-i), min(cols, n.Space-lo)})
		}
	}
}

// partOf is the length of all parts of a plane but the last, which has what is left: parts are equal vectors if there are such.
func partOf(n int) int {
	least := ceilDiv(n, channelPiece)
	for k := least; k < 2*least; k++ {
		if n%(columnUnit*k) == 0 {
			return n / k
		}
	}
	return roundUp(even(n, channelPiece), lanes)
}

// even is the size of the largest of as few equal parts of n as have at most so many each.
func even(n, most int) int { return ceilDiv(n, max(1, ceilDiv(n, most))) }

// largest is the number of elements of the largest piece.
func (s *channelStats) largest() int {
	if len(s.pieces) == 0 {
		return 0
	}
	return s.pieces[0].count()
}

// pivot is the mean of the first elements of a piece, up to 64, whose sum is head: deviations from it are summed, because their squares are
// not much larger than those of deviations from the piece's own mean, which would have to be known first. Where that is not finite it is
// zero, so that the mean of infinities is what it is of their sum.
func pivot(head float32, count int) float32 {
	p := float32(float64(head) / float64(min(lanes, count)))
	if p-p != 0 {
		return 0
	}
	return p
}

// momentsAbout are the sum and squared deviations of count elements, from the sums of their deviations from about and of the squares.
func momentsAbout(about, dev, square float32, count int) pieceSums {
	off, n := float64(dev), float64(count)
	return pieceSums{float64(about)*n + off, float64(square) - off*off/n}
}

// pieceSums are the sum and the squared deviations of a piece of a channel, or its sums of dy and of dy*(x-mean): pieceFloats floats.
type pieceSums struct{ sum, dot float64 }

const pieceFloats = 4

// first is the first of the units of channel c of a set that are parts of the planes of piece k. A unit is a piece of a channel of a set.
// They are in the order of memory with channels first.
func (s *channelStats) first(set, c, k int) int {
	return (set*max(1, len(s.pieces))+k)*s.n.Channels + c*s.parts
}

// unitOf is the unit of piece k.
func (s *channelStats) unitOf(set, c, k int) int {
	part := k % s.parts
	return s.first(set, c, k-part) + part
}

// stat is the statistic of a channel of a set.
func (s *channelStats) stat(set, c int) int {
	if s.n.Groups == 0 {
		return c
	}
	return set*s.n.Groups + c/s.shared
}

// share is the set of a statistic and its channels [c0,c1).
func (s *channelStats) share(stat int) (set, c0, c1 int) {
	if s.n.Groups == 0 {
		return 0, stat, stat + 1
	}
	c0 = stat % s.n.Groups * s.shared
	return stat / s.n.Groups, c0, c0 + s.shared
}

// each runs join over n statistics or channels, which take so much work each.
func (s *channelStats) each(work, n int, join func(*channelStats, int, int)) {
	if n > 0 {
		s.join, s.part = join, s.m.Divide(work*n, n, 0)
		s.m.RunParts(&s.part, s)
	}
}

func (s *channelStats) Run(_, task int) {
	lo, hi := s.part.Of(task)
	s.join(s, lo, hi)
}

// joinedWork is the work of joining the sums of a statistic.
func (s *channelStats) joinedWork() int { return joinWork * s.shared * max(1, len(s.pieces)) }

// statistics joins the sums and squared deviations of pieces (Chan, Golub, LeVeque 1979).
func (s *channelStats) statistics(lo, hi int) {
	n := &s.n
	for stat := lo; stat < hi; stat++ {
		set, c0, c1 := s.share(stat)
		var count, sum, sq float64
		for c := c0; c < c1; c++ {
			for i := 0; i < len(s.pieces); i += s.parts {
				for p, of := range s.sums[s.first(set, c, i):][:s.parts] {
					k := float64(s.pieces[i+p].count())
					here, own := of.sum, of.dot
					if count > 0 { // the difference of the means, squared, times count*k/(count+k)
						between := here*count - sum*k
						own += between * between / (count * k * (count + k))
					}
					sum, sq, count = sum+here, sq+own, count+k
				}
			}
		}
		n.Mean[stat], n.Var[stat] = float32(sum/count), float32(max(sq/count, 0))
	}
	s.deviations(lo, hi)
}

// deviations computes Rstd from Var.
func (s *channelStats) deviations(lo, hi int) {
	for i := lo; i < hi; i++ {
		s.n.Rstd[i] = float32(1 / math.Sqrt(float64(s.n.Var[i])+s.n.Eps))
	}
}

// joinProducts joins the sums of dy and of dy*(x-mean) into the slopes that DX is computed with, see gradient. The sums over all pieces
// take the place of those of the first.
func (s *channelStats) joinProducts(lo, hi int) {
	n := &s.n
	for stat := lo; stat < hi; stat++ {
		set, c0, c1 := s.share(stat)
		rstd, count := n.Rstd[stat], 0
		var g, gx float64
		for c := c0; c < c1; c++ {
			var sum, dot float64
			for i := 0; i < len(s.pieces); i += s.parts {
				for p, of := range s.sums[s.first(set, c, i):][:s.parts] {
					sum, dot = sum+of.sum, dot+of.dot*float64(rstd)
					count += s.pieces[i+p].count()
				}
			}
			s.sums[s.first(set, c, 0)] = pieceSums{sum, dot}
			gamma := float64(orElse(n.Gamma, c, 1))
			g, gx = g+gamma*sum, gx+gamma*dot
		}
		s.slopes[0][stat] = -rstd * rstd * float32(gx/float64(count))
		s.slopes[1][stat] = -rstd * float32(g/float64(count))
	}
}

// params computes the gradients of scale and bias of channels.
func (s *channelStats) params(lo, hi int) {
	n := &s.n
	for c := lo; c < hi; c++ {
		var sum, dot float64
		for set := range s.sets {
			all := s.sums[s.first(set, c, 0)]
			sum, dot = sum+all.sum, dot+all.dot
		}
		if !n.DGamma.absent() {
			n.DGamma.set(c, float32(dot))
		}
		if !n.DBeta.absent() {
			n.DBeta.set(c, float32(sum))
		}
	}
}

// ChannelNorm computes Y, Mean, Var and Rstd.
func (m *Machine) ChannelNorm(n *ChannelNorm) {
	if n.runsChannelsLast() {
		t := m.channelsLast(n, false)
		t.blocks(momentsWork, (*lastTask).moments)
		t.each(t.joinedWork(), n.Stats(), (*channelStats).statistics)
		t.rows(applyWork, (*lastTask).apply)
		return
	}
	m.channels(n, channelSteps{
		sum: (*channelTask).moments, rows: (*channelTask).momentsOfRows, join: (*channelStats).statistics, work: momentsWork,
		apply: (*channelTask).apply, scalars: (*channelTask).applyScalars, applyWork: applyWork,
	})
}

// ChannelNormGiven computes Y from the given Mean and Var, and Rstd.
func (m *Machine) ChannelNormGiven(n *ChannelNorm) {
	if n.runsChannelsLast() {
		t := m.channelsLast(n, false)
		t.each(joinWork, n.Stats(), (*channelStats).deviations)
		t.rows(applyWork, (*lastTask).apply)
		return
	}
	m.channels(n, channelSteps{
		join: (*channelStats).deviations, apply: (*channelTask).apply, scalars: (*channelTask).applyScalars, applyWork: applyWork,
	})
}

// ChannelNormGrad computes DX, and of DGamma and DBeta those that are present, from X, DY, Mean and Rstd. With g = dy*gamma,
//
//	dx = rstd * (g - mean(g) - xhat*mean(g*xhat))
func (m *Machine) ChannelNormGrad(n *ChannelNorm) {
	s := &m.channel.channelStats
	if n.runsChannelsLast() {
		t := m.channelsLast(n, true)
		s = &t.channelStats
		t.blocks(productsWork, (*lastTask).products)
		t.each(t.joinedWork(), n.Stats(), (*channelStats).joinProducts)
		t.rows(slopeWork, (*lastTask).gradient)
	} else {
		m.channels(n, channelSteps{
			sum: (*channelTask).sumProducts, rows: (*channelTask).productsOfRows, join: (*channelStats).joinProducts, work: productsWork,
			apply: (*channelTask).gradient, scalars: (*channelTask).gradientScalars, applyWork: slopeWork,
		})
	}
	s.each(joinWork+s.sets, n.Channels, (*channelStats).params)
}

// orElse is element i of b, or x if b is absent.
func orElse(b Buf, i int, x float32) float32 {
	if b.absent() {
		return x
	}
	return b.get(i)
}
