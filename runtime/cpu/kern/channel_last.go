package kern

import "math"

// Norms over channels that are the last dimension. The rows that share statistics are contiguous,
// so a vector of channels, repeated if there are few of them, covers whole rows: nothing is
// gathered. Sums are over blocks, in float32 about the block's own mean. They are joined in float64
// by chunks of rows that depend only on the shape.

const (
	lastVector = 256      // least elements of a repeated vector of channels
	lastRows   = 32       // least rows of a block
	lastBlock  = 1 << 13  // least elements of a block
	lastChunks = maxParts // chunks of all rows
)

// lastTask is a norm with channels last in progress; each chunk is a task.
type lastTask struct {
	m      *Machine
	n      ChannelNorm
	do     func(t *lastTask, w *worker, chunk int)
	sets   int       // images that have statistics of their own, or one for all
	rows   int       // of a set
	block  int       // rows of a block
	chunk  int       // rows of a chunk, whole blocks
	per    int       // chunks of a set
	width  int       // elements of a repeated vector
	sums   []float64 // per chunk: sums of all channels, then of their squares or products
	params []float64 // gradients of scale and bias
	vector []float32 // per set: the four vectors that are combined with its elements
}

// channelsLast divides the work into chunks and calls do for each.
func (m *Machine) channelsLast(n *ChannelNorm) *lastTask {
	t := &m.last
	t.m, t.n, t.sets, t.rows = m, *n, 1, n.Images*n.Space
	if n.Groups > 0 {
		t.sets, t.rows = n.Images, n.Space
	}
	t.width = n.Channels * ceilDiv(lastVector, n.Channels)
	t.block = max(lastRows, ceilDiv(lastBlock, n.Channels))
	t.chunk = t.block * max(1, ceilDiv(t.rows*t.sets, lastChunks*t.block))
	t.per = ceilDiv(t.rows, t.chunk)
	if k := 2 * t.sets * t.per * n.Channels; cap(t.sums) < k {
		t.sums = make([]float64, k)
	} else {
		t.sums = t.sums[:k]
	}
	t.vector = grow(t.vector, 4*t.sets*t.width)
	return t
}

func (t *lastTask) Run(worker, chunk int) { t.do(t, t.m.worker[worker], chunk) }

func (t *lastTask) each(work int, do func(*lastTask, *worker, int)) {
	t.do = do
	t.m.run(work*t.sets*t.rows*t.n.Channels, t.sets*t.per, t)
}

// blocks calls f for each block of a chunk with its start and its number of elements.
func (t *lastTask) blocks(chunk int, f func(at, n int)) {
	c := t.n.Channels
	first, r0 := chunk/t.per*t.rows, chunk%t.per*t.chunk
	for r := r0; r < min(r0+t.chunk, t.rows); r += t.block {
		f((first+r)*c, min(t.block, min(r0+t.chunk, t.rows)-r)*c)
	}
}

// strips calls f for each part of n elements that a repeated vector covers.
func (t *lastTask) strips(n int, f func(lo, hi int)) {
	for lo := 0; lo < n; lo += t.width {
		f(lo, min(lo+t.width, n))
	}
}

// load returns n elements of b as f32: in memory if possible, else copied to row slot.
func (t *lastTask) load(w *worker, slot int, b Buf, at, n int) []float32 {
	if b.Type == F32 {
		return b.f32()[at : at+n]
	}
	x := w.row[slot].get(n)
	t.m.Load(x, b.From(at))
	return x
}

// of returns one of the four vectors of a chunk's set.
func (t *lastTask) of(chunk, k int) []float32 {
	return t.vector[(4*(chunk/t.per)+k)*t.width:][:t.width]
}

// fold adds up the repetitions of channel c.
func (t *lastTask) fold(x []float32, c int) float64 {
	s := 0.0
	for ; c < len(x); c += t.n.Channels {
		s += float64(x[c])
	}
	return s
}

// parts are a chunk's sums.
func (t *lastTask) parts(chunk int) (a, b []float64) {
	c := t.n.Channels
	return t.sums[2*chunk*c : (2*chunk+1)*c], t.sums[(2*chunk+1)*c : 2*(chunk+1)*c]
}

// moments computes a chunk's sums and squared deviations from its own means (Chan, Golub, LeVeque 1979).
func (t *lastTask) moments(w *worker, chunk int) {
	p, c := t.m.Path, t.n.Channels
	sum, sq := t.parts(chunk)
	clear(sum)
	clear(sq)
	count := 0.0
	t.blocks(chunk, func(at, n int) {
		x, k := t.load(w, 0, t.n.X, at, n), float64(n/c)
		s, mean, q, dev := w.row[1].get(t.width), w.row[2].get(t.width), w.row[3].get(t.width), w.row[4].get(t.width)
		clear(s)
		clear(q)
		t.strips(n, func(lo, hi int) { p.Binary(Add, s[:hi-lo], s[:hi-lo], x[lo:hi]) })
		for i := range c {
			mean[i] = float32(t.fold(s, i) / k)
		}
		repeat(mean, c)
		t.strips(n, func(lo, hi int) {
			p.Binary(Sub, dev[:hi-lo], x[lo:hi], mean[:hi-lo])
			p.Ternary(FMA, q[:hi-lo], dev[:hi-lo], dev[:hi-lo], q[:hi-lo])
		})
		for i := range c {
			here := t.fold(s, i)
			off := here/k - float64(mean[i])
			sum[i], sq[i] = joinMoments(count, sum[i], sq[i], k, here, t.fold(q, i)-k*off*off)
		}
		count += k
	})
}

// joinMoments adds k elements with their sum and squared deviation to count others.
func joinMoments(count, sum, sq, k, here, own float64) (float64, float64) {
	if count > 0 {
		between := here/k - sum/count
		own += between * between * count * k / (count + k)
	}
	return sum + here, sq + own
}

// repeat fills x with repetitions of its first c elements.
func repeat(x []float32, c int) {
	for ; c < len(x); c *= 2 {
		copy(x[c:], x[:c])
	}
}

// statistics joins the moments of the chunks, for each channel or each group of channels.
func (t *lastTask) statistics() {
	n := &t.n
	shared := 1 // channels that share statistics
	if n.Groups > 0 {
		shared = n.Channels / n.Groups
	}
	for stat := range n.Stats() {
		set, c0 := 0, stat
		if n.Groups > 0 {
			set, c0 = stat/n.Groups, stat%n.Groups*shared
		}
		var count, sum, sq float64
		for c := c0; c < c0+shared; c++ {
			for i := range t.per {
				k := float64(min(t.chunk, t.rows-i*t.chunk))
				s, q := t.parts(set*t.per + i)
				sum, sq = joinMoments(count, sum, sq, k, s[c], q[c])
				count += k
			}
		}
		n.Mean[stat], n.Var[stat] = float32(sum/count), float32(max(sq/count, 0))
	}
}

// stat is the statistic of a channel of a set.
func (t *lastTask) stat(set, c int) int {
	if t.n.Groups == 0 {
		return c
	}
	return set*t.n.Groups + c/(t.n.Channels/t.n.Groups)
}

// apply computes Y from Mean and Var.
func (t *lastTask) apply() {
	n := &t.n
	for i, v := range n.Var[:n.Stats()] {
		n.Rstd[i] = float32(1 / math.Sqrt(float64(v)+n.Eps))
	}
	for set := range t.sets {
		mean, factor, shift := t.of(set*t.per, 0), t.of(set*t.per, 1), t.of(set*t.per, 2)
		for c := range n.Channels {
			s := t.stat(set, c)
			mean[c], factor[c], shift[c] = n.Mean[s], n.Rstd[s]*orElse(n.Gamma, c, 1), orElse(n.Beta, c, 0)
		}
		for _, v := range [][]float32{mean, factor, shift} {
			repeat(v, n.Channels)
		}
	}
	t.each(4, (*lastTask).applyChunk)
}

func (t *lastTask) applyChunk(w *worker, chunk int) {
	n, p := &t.n, t.m.Path
	mean, factor, shift := t.of(chunk, 0), t.of(chunk, 1), t.of(chunk, 2)
	t.blocks(chunk, func(at, k int) {
		x, y := t.load(w, 0, n.X, at, k), w.row[1].get(k)
		if n.Y.Type == F32 && n.Residual.absent() {
			y = n.Y.f32()[at : at+k]
		}
		t.strips(k, func(lo, hi int) {
			p.Binary(Sub, y[lo:hi], x[lo:hi], mean[:hi-lo])
			p.Ternary(FMA, y[lo:hi], y[lo:hi], factor[:hi-lo], shift[:hi-lo])
		})
		if !n.Residual.absent() {
			p.Binary(Add, y, y, t.load(w, 2, n.Residual, at, k))
		}
		if n.Relu {
			p.Unary(Relu, y, y)
		}
		if n.Y.Type != F32 || !n.Residual.absent() {
			p.Store(n.Y.From(at), y)
		}
		if !n.Copy.absent() {
			p.Store(n.Copy.From(at), y)
		}
	})
}

// slope is n elements of DY, with zeros where Sign is not above zero.
func (t *lastTask) slope(w *worker, at, n int) []float32 {
	dy := t.load(w, 1, t.n.DY, at, n)
	if t.n.Sign.absent() {
		return dy
	}
	masked := w.row[1].get(n)
	t.m.Binary(ReluGrad, masked, t.load(w, 3, t.n.Sign, at, n), dy)
	return masked
}

// products computes a chunk's sums of dy and of dy*(x-mean).
func (t *lastTask) products(w *worker, chunk int) {
	p, c, mean := t.m.Path, t.n.Channels, t.of(chunk, 0)
	sum, dot := t.parts(chunk)
	clear(sum)
	clear(dot)
	t.blocks(chunk, func(at, n int) {
		x, dy := t.load(w, 0, t.n.X, at, n), t.slope(w, at, n)
		s, q, dev := w.row[2].get(t.width), w.row[4].get(t.width), w.row[5].get(t.width)
		clear(s)
		clear(q)
		t.strips(n, func(lo, hi int) {
			p.Binary(Add, s[:hi-lo], s[:hi-lo], dy[lo:hi])
			p.Binary(Sub, dev[:hi-lo], x[lo:hi], mean[:hi-lo])
			p.Ternary(FMA, q[:hi-lo], dy[lo:hi], dev[:hi-lo], q[:hi-lo])
		})
		for i := range c {
			sum[i] += t.fold(s, i)
			dot[i] += t.fold(q, i)
		}
	})
}

// gradient computes DX, DGamma and DBeta.
func (t *lastTask) gradient() {
	n := &t.n
	for set := range t.sets {
		mean := t.of(set*t.per, 0)
		for c := range n.Channels {
			mean[c] = n.Mean[t.stat(set, c)]
		}
		repeat(mean, n.Channels)
	}
	t.each(8, (*lastTask).products)
	t.slopes()
	t.each(8, (*lastTask).gradientChunk)
}

// slopes joins the sums of the chunks: into the vectors that DX is computed from, for each set, and into the gradients
// of scale and bias, over all sets.
func (t *lastTask) slopes() {
	n := &t.n
	shared, count := 1, float64(t.rows)
	if n.Groups > 0 {
		shared = n.Channels / n.Groups
		count *= float64(shared)
	}
	if cap(t.params) < 2*n.Channels {
		t.params = make([]float64, 2*n.Channels)
	}
	gamma, beta := t.params[:n.Channels], t.params[n.Channels:2*n.Channels]
	clear(gamma)
	clear(beta)
	for set := range t.sets {
		byDev, factor, shift := t.of(set*t.per, 1), t.of(set*t.per, 2), t.of(set*t.per, 3)
		for c0 := 0; c0 < n.Channels; c0 += shared {
			rstd := n.Rstd[t.stat(set, c0)]
			var g, gx float64
			for c := c0; c < c0+shared; c++ {
				var sum, dot float64
				for i := range t.per {
					s, q := t.parts(set*t.per + i)
					sum, dot = sum+s[c], dot+q[c]*float64(rstd)
				}
				scale := float64(orElse(n.Gamma, c, 1))
				g, gx = g+scale*sum, gx+scale*dot
				gamma[c], beta[c] = gamma[c]+dot, beta[c]+sum
			}
			for c := c0; c < c0+shared; c++ {
				byDev[c], shift[c], factor[c] = -rstd*rstd*float32(gx/count), -rstd*float32(g/count), rstd*orElse(n.Gamma, c, 1)
			}
		}
		for _, v := range [][]float32{byDev, factor, shift} {
			repeat(v, n.Channels)
		}
	}
	for c := range n.Channels {
		if !n.DGamma.absent() {
			n.DGamma.set(c, float32(gamma[c]))
		}
		if !n.DBeta.absent() {
			n.DBeta.set(c, float32(beta[c]))
		}
	}
}

func (t *lastTask) gradientChunk(w *worker, chunk int) {
	n, p := &t.n, t.m.Path
	mean, byDev, factor, shift := t.of(chunk, 0), t.of(chunk, 1), t.of(chunk, 2), t.of(chunk, 3)
	t.blocks(chunk, func(at, k int) {
		x, dy, dx := t.load(w, 0, n.X, at, k), t.slope(w, at, k), w.row[2].get(k)
		t.strips(k, func(lo, hi int) {
			p.Binary(Sub, dx[lo:hi], x[lo:hi], mean[:hi-lo])
			p.Ternary(FMA, dx[lo:hi], dx[lo:hi], byDev[:hi-lo], shift[:hi-lo])
			p.Ternary(FMA, dx[lo:hi], dy[lo:hi], factor[:hi-lo], dx[lo:hi])
		})
		p.Store(n.DX.From(at), dx)
	})
}
