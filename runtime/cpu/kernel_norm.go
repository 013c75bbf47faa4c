package cpu

import (
	"math"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// normKernels normalise: over the last dimensions by kern's row kernels, over
// channels by gathering what shares a mean into one row.
var normKernels = map[string]binder{
	"layer_norm":       bindRowNorm,
	"rms_norm":         bindRowNorm,
	"layer_norm_grad":  bindRowNormGrad,
	"rms_norm_grad":    bindRowNormGrad,
	"batch_norm":       bindChannelNorm,
	"group_norm":       bindChannelNorm,
	"instance_norm":    bindChannelNorm,
	"batch_norm_grad":  bindChannelNormGrad,
	"group_norm_grad":  bindChannelNormGrad,
	"batch_norm_infer": bindBatchNormInfer,
}

// lastDims splits x into rows of the last dims dimensions.
func (c *call) lastDims(x view) (rows, cols int) {
	rows, cols = 1, 1
	d := x.dims()
	for i, n := range d {
		if i < len(d)-int(c.Int("dims")) {
			rows *= n
		} else {
			cols *= n
		}
	}
	return rows, cols
}

// named is the operand with the row's name, absent where the node has none.
func (c *call) named(name string) view {
	for i, o := range c.Def().In {
		if o.Name == name {
			return c.arg(i)
		}
	}
	return view{}
}

// namedOut is the result with the row's name.
func (c *call) namedOut(name string) view {
	for i, o := range c.Def().Out {
		if o.Name == name {
			return c.res(i)
		}
	}
	return view{}
}

func bindRowNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := &kern.Norm{RMS: c.Op == ir.OpRMSNorm, Eps: float32(c.Float("eps")), X: c.in[0].buf(), Y: c.out[0].buf(),
		Gamma: c.named("scale").buf(), Beta: c.named("bias").buf(), Mean: c.namedOut("mean").f32(), Rstd: c.namedOut("rstd").f32()}
	n.Rows, n.Cols = c.lastDims(c.in[0])
	return func() { c.m.Norm(n) }, nil
}

func bindRowNormGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	n := &kern.Norm{RMS: c.Op == ir.OpRMSNormGrad, X: c.in[0].buf(), DY: c.in[1].buf(), DX: c.out[0].buf(),
		Gamma: c.named("scale").buf(), Mean: c.named("mean").f32(), Rstd: c.named("rstd").f32(),
		DGamma: c.namedOut("dscale").buf(), DBeta: c.namedOut("dbias").buf()}
	if n.Rows, n.Cols = c.lastDims(c.in[0]); n.Rows*n.Cols == 0 {
		return func() {
			for _, v := range c.out {
				clear(v.mem)
			}
		}, nil
	}
	return func() { c.m.NormGrad(n) }, nil
}

// channels is the geometry of a norm over channels: planes of space elements
// for every image and channel.
type channels struct {
	images, count, space int
	last                 bool // [N,*,C] rather than [N,C,*]
	groups               int  // statistics per image; 0: one per channel, over all images
}

func (c *call) channels() channels {
	d := c.in[0].dims()
	g := channels{images: d[0], last: c.Str("layout") == "NHWC", space: 1}
	if g.last {
		g.count, d = d[len(d)-1], d[1:len(d)-1]
	} else {
		g.count, d = d[1], d[2:]
	}
	for _, n := range d {
		g.space *= n
	}
	switch c.Op {
	case ir.OpInstanceNorm:
		g.groups = g.count
	case ir.OpGroupNorm, ir.OpGroupNormGrad:
		g.groups = int(c.Int("groups"))
	}
	return g
}

// stats is how many pairs of statistics there are, size how many elements share one.
func (g channels) stats() int {
	if g.groups == 0 {
		return g.count
	}
	return g.images * g.groups
}

func (g channels) size() int {
	if g.stats() == 0 {
		return 0
	}
	return g.images * g.count * g.space / g.stats()
}

// planes calls f for every plane that shares statistics s: its place in the
// gathered row, its channel and partial-sum slot, and where it lies in the tensor.
func (g channels) planes(s int, f func(at, channel, part, offset int)) {
	c0, c1, n0, n1 := s, s+1, 0, g.images
	part := 0
	if g.groups > 0 {
		per := g.count / g.groups
		n0 = s / g.groups
		n1, c0 = n0+1, s%g.groups*per
		c1, part = c0+per, n0
	}
	at := 0
	for c := c0; c < c1; c++ {
		for n := n0; n < n1; n++ {
			offset := (n*g.count + c) * g.space
			if g.last {
				offset = n*g.count*g.space + c
			}
			f(at, c, part*g.count+c, offset)
			at += g.space
		}
	}
}

// stride is the distance of neighbours in a plane.
func (g channels) stride() int {
	if g.last {
		return g.count
	}
	return 1
}

func (c *call) loadRun(dst []float32, v view, offset, stride int) {
	if stride == 1 {
		c.m.Load(dst, v.buf().From(offset))
		return
	}
	for i := range dst {
		dst[i] = v.float(offset + i*stride)
	}
}

func (c *call) storeRun(v view, offset, stride int, src []float32) {
	if stride == 1 {
		c.m.Store(v.buf().From(offset), src)
		return
	}
	for i, x := range src {
		v.set(offset+i*stride, x)
	}
}

// normChunk is how many elements of a plane go through the vector primitives at
// a time; constants are vectors of that length.
const normChunk = 1024

// inChunks calls f for pieces of [0,n) of at most normChunk elements.
func inChunks(n int, f func(lo, hi int)) {
	for lo := 0; lo < n; lo += normChunk {
		f(lo, min(lo+normChunk, n))
	}
}

// moments are mean and variance of row; tmp and level hold a chunk each.
func (c *call) moments(row, tmp, level []float32) (mean, variance float32) {
	mean = float32(float64(c.m.Sum(row)) / float64(len(row)))
	c.m.Fill(level, mean)
	var off, sq float64
	inChunks(len(row), func(lo, hi int) {
		t := tmp[:hi-lo]
		c.m.Binary(kern.Sub, t, row[lo:hi], level[:hi-lo])
		off += float64(c.m.Sum(t))
		sq += float64(c.m.SumSq(t))
	})
	off /= float64(len(row)) // what rounding the mean left; its square is taken off again
	return mean, float32(sq/float64(len(row)) - off*off)
}

// or1 and or0 are a parameter of channel i, or what its absence means.
func or1(v view, i int) float32 {
	if v.absent() {
		return 1
	}
	return v.float(i)
}

func or0(v view, i int) float32 {
	if v.absent() {
		return 0
	}
	return v.float(i)
}

func bindChannelNorm(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	g := c.channels()
	n := g.size()
	x, scale, bias, y := c.in[0], c.named("scale"), c.named("bias"), c.out[0]
	mean, rstd, eps := c.namedOut("mean").f32(), c.namedOut("rstd").f32(), c.Float("eps")
	row, consts := c.scratch(n), c.scratch(4*normChunk)
	variance := make([]float32, g.stats())
	st := g.stride()
	run := c.parallel(g.stats(), 8*max(n, 1), func(w, s int) {
		r, k := row[w], consts[w]
		tmp, level, factor, shift := k[:normChunk], k[normChunk:2*normChunk], k[2*normChunk:3*normChunk], k[3*normChunk:]
		g.planes(s, func(at, _, _, off int) { c.loadRun(r[at:at+g.space], x, off, st) })
		mean[s], variance[s] = c.moments(r, tmp, level)
		rstd[s] = float32(1 / math.Sqrt(float64(variance[s])+eps))
		last := -1
		g.planes(s, func(at, ch, _, off int) {
			if ch != last {
				last = ch
				c.m.Fill(factor, rstd[s]*or1(scale, ch))
				c.m.Fill(shift, or0(bias, ch))
			}
			part := r[at : at+g.space]
			inChunks(g.space, func(lo, hi int) {
				p, n := part[lo:hi], hi-lo
				c.m.Binary(kern.Sub, p, p, level[:n])
				c.m.Ternary(kern.MulAdd, p, p, factor[:n], shift[:n])
			})
			c.storeRun(y, off, st, part)
		})
	})
	newMean, newVar := c.namedOut("new_mean"), c.namedOut("new_var")
	if newMean.absent() {
		return run, nil
	}
	oldMean, oldVar, momentum := c.named("running_mean"), c.named("running_var"), float32(c.Float("momentum"))
	return func() {
		run()
		for ch := range g.count {
			unbiased := variance[ch] * float32(float64(n)/math.Max(float64(n-1), 1))
			newMean.set(ch, oldMean.float(ch)+float32(momentum*(mean[ch]-oldMean.float(ch))))
			newVar.set(ch, oldVar.float(ch)+float32(momentum*(unbiased-oldVar.float(ch))))
		}
	}, nil
}

func bindChannelNormGrad(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	g := c.channels()
	n := g.size()
	x, dy, scale, dx := c.in[0], c.in[1], c.named("scale"), c.out[0]
	mean, rstd := c.named("mean").f32(), c.named("rstd").f32()
	xs, gs, consts := c.scratch(n), c.scratch(n), c.scratch(4*normChunk)
	parts := 1
	if g.groups > 0 {
		parts = g.images
	}
	dscale, dbias := make([]float64, parts*g.count), make([]float64, parts*g.count)
	st := g.stride()
	run := c.parallel(g.stats(), 16*max(n, 1), func(w, s int) {
		h, d, k := xs[w], gs[w], consts[w]
		level, a, b, shift := k[:normChunk], k[normChunk:2*normChunk], k[2*normChunk:3*normChunk], k[3*normChunk:]
		c.m.Fill(level, mean[s])
		c.m.Fill(a, rstd[s])
		var sumG, sumGH float64
		last := -1
		g.planes(s, func(at, ch, part, off int) {
			hp, dp := h[at:at+g.space], d[at:at+g.space]
			c.loadRun(hp, x, off, st)
			c.loadRun(dp, dy, off, st)
			if ch != last {
				last = ch
				dbias[part], dscale[part] = 0, 0
			}
			inChunks(g.space, func(lo, hi int) { // h becomes the normalised x
				c.m.Binary(kern.Sub, hp[lo:hi], hp[lo:hi], level[:hi-lo])
				c.m.Binary(kern.Mul, hp[lo:hi], hp[lo:hi], a[:hi-lo])
			})
			sum, dot := float64(c.m.Sum(dp)), float64(c.m.Dot(dp, hp))
			dbias[part] += sum
			dscale[part] += dot
			sumG += float64(or1(scale, ch)) * sum
			sumGH += float64(or1(scale, ch)) * dot
		})
		// dx = rstd·(scale·dy − mean(scale·dy) − h·mean(scale·dy·h))
		c.m.Fill(b, -rstd[s]*float32(sumGH/float64(n)))
		c.m.Fill(shift, -rstd[s]*float32(sumG/float64(n)))
		last = -1
		g.planes(s, func(at, ch, _, off int) {
			if ch != last {
				last = ch
				c.m.Fill(a, rstd[s]*or1(scale, ch))
			}
			hp, dp := h[at:at+g.space], d[at:at+g.space]
			inChunks(g.space, func(lo, hi int) {
				n := hi - lo
				c.m.Ternary(kern.MulAdd, hp[lo:hi], hp[lo:hi], b[:n], shift[:n])
				c.m.Ternary(kern.MulAdd, dp[lo:hi], dp[lo:hi], a[:n], hp[lo:hi])
			})
			c.storeRun(dx, off, st, dp)
		})
	})
	ds, db := c.namedOut("dscale"), c.namedOut("dbias")
	return func() {
		run()
		for ch := range g.count {
			var a, b float64
			for p := range parts {
				a += dscale[p*g.count+ch]
				b += dbias[p*g.count+ch]
			}
			if !ds.absent() {
				ds.set(ch, float32(a))
			}
			if !db.absent() {
				db.set(ch, float32(b))
			}
		}
	}, nil
}

func bindBatchNormInfer(c *call) (func(), error) {
	if err := c.onlyFloats(); err != nil {
		return nil, err
	}
	g := c.channels()
	x, scale, bias, y := c.in[0], c.named("scale"), c.named("bias"), c.out[0]
	mean, variance, eps := c.named("mean"), c.named("var"), c.Float("eps")
	row, tmp := c.scratch(g.space), c.scratch(g.space)
	st := g.stride()
	return c.parallel(g.count, 4*g.images*max(g.space, 1), func(w, ch int) {
		r, t := row[w], tmp[w]
		k := float32(1/math.Sqrt(float64(variance.float(ch))+eps)) * or1(scale, ch)
		g.planes(ch, func(_, _, _, off int) {
			c.loadRun(r, x, off, st)
			c.m.Fill(t, mean.float(ch))
			c.m.Binary(kern.Sub, r, r, t)
			c.m.Fill(t, k)
			c.m.Binary(kern.Mul, r, r, t)
			c.m.Fill(t, or0(bias, ch))
			c.m.Binary(kern.Add, r, r, t)
			c.storeRun(y, off, st, r)
		})
	}), nil
}
