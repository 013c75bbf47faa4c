package ptx

import "math/bits"

// CrossEntropy is Σ q·(lse - x) for each row of Rows×Cols, with q = (1-s)·1[label] + s/Cols, s the
// label smoothing, times the weight of the class if Weighted. A row whose label is Ignore has loss
// 0; a label outside 0 … Cols-1 gives NaN.
//
// Forward arguments: logits, labels, weights f32[Cols] where there are any, loss f32[Rows], top
// f32[Rows], logsum f32[Rows]: the row's largest logit and log Σ e^(x-top), NaN if top is not
// finite. They are kept apart because for logits in the thousands their f32 sum would lose digits
// of logsum. A row is read once, for maximum and sum together. Backward arguments: logits, labels,
// weights where there are any, top, logsum, dloss f32[] (the loss gradient, scaled), dlogits, with
// dlogits = dloss·(Σ q·softmax - q). It may run in place over the logits.
type CrossEntropy struct {
	Name       string
	Rows, Cols int
	In         DType
	Out        DType // of dlogits; empty means In
	Labels     DType // i32 or i64
	Weighted   bool  // classes have weights
	Smoothing  float32
	Ignore     int64
}

func (s CrossEntropy) layout(fl Flavour, types ...DType) *rows {
	vec := vecFor(s.Cols, types...)
	team := 32
	for team < 1024 && team*vec*2 <= s.Cols {
		team *= 2
	}
	return startRows(fl, s.Name, s.Cols, team, vec, 0)
}

// label reads the row's label and whether it is ignored.
func (s CrossEntropy) label(b *builder, labels, row Reg) (label, ignored Reg) {
	t := map[DType]string{Int32: "s32", Int64: "s64"}[s.Labels]
	raw := b.load(b.at(labels, row, s.Labels.Size()), 0, s.Labels, 1)[0]
	return raw, b.Do("setp.eq."+t, raw, I(s.Ignore))
}

// inRow reports whether the label is a valid column.
func (s CrossEntropy) inRow(b *builder, label Reg) Reg {
	return b.Do(map[Class]string{B32: "setp.lt.u32", B64: "setp.lt.u64"}[label.Class], label, I(s.Cols))
}

// weightOf reads the weight of the label's class. It is 1 if the label is not a valid column.
func (s CrossEntropy) weightOf(b *builder, weights, label Reg) Reg {
	w := b.floatConst(1)
	b.when(s.inRow(b, label), func() {
		b.To(w, "ld.global.f32", Addr{Base: b.at(weights, s.column(b, label), 4)})
	})
	return w
}

// column is a label as a u32.
func (s CrossEntropy) column(b *builder, label Reg) Reg {
	if label.Class == B64 {
		return b.Do("cvt.u32.u64", label)
	}
	return label
}

// spread is the sum of the smoothed target over all classes of a row, divided by the smoothing.
func (s CrossEntropy) spread(r *rows, weights Reg) Reg {
	b, sum := r.b, r.b.floatConst(0)
	b.strided(r.lane, r.team, s.Cols, func(i Reg) {
		b.To(sum, "add.rn.f32", sum, b.Do("ld.global.f32", Addr{Base: b.at(weights, i, 4)}))
	})
	return b.div(r.across(sum, r.join("add.rn.f32")), Fl(float32(s.Cols)))
}

// weights declares the parameter of the classes' weights, if Weighted.
func (s CrossEntropy) weights(p *params) Reg {
	if !s.Weighted {
		return Reg{}
	}
	return p.in("weights", Float32, s.Cols)
}

// vectors runs body over the thread's vectors of a row.
func (s CrossEntropy) vectors(r *rows, base Reg, body func(i, addr Reg)) {
	b := r.b
	b.strided(r.lane, r.team, s.Cols/r.vec, func(i Reg) { body(i, b.at(base, i, r.vec*s.In.Size())) })
}

func (s CrossEntropy) rowBase(b *builder, base, row Reg, d DType) Reg {
	return b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*d.Size()), base)
}

// Forward generates the losses and the statistics of the rows.
func (s CrossEntropy) Forward(fl Flavour) (*Launch, error) {
	r := s.layout(fl, s.In)
	b := r.b
	p := params{b: b}
	x, labels := p.in("logits", s.In, s.Rows*s.Cols), p.in("labels", s.Labels, s.Rows)
	weights := s.weights(&p)
	loss, tops, sums := p.out("loss", Float32, s.Rows), p.out("top", Float32, s.Rows), p.out("logsum", Float32, s.Rows)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		stats := s.statistics(r, rowOfLogits{base: s.rowBase(b, x, row, s.In), labels: labels, weights: weights, row: row})
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(loss, row, 4)}, s.loss(b, stats, func(label Reg) Reg { return s.logit(b, stats, label) }))
			b.Do("st.global.f32", Addr{Base: b.at(tops, row, 4)}, stats.top)
			b.Do("st.global.f32", Addr{Base: b.at(sums, row, 4)}, stats.logsum)
		})
	})
	return finish(b, r.grid(s.Rows), p.list)
}

// statistics completes a row of logits, which is read once.
func (s CrossEntropy) statistics(r *rows, row rowOfLogits) rowOfLogits {
	b := r.b
	m, sum, plainSum := b.floatConst(float32(-posInf)), b.floatConst(0), b.floatConst(0)
	s.vectors(r, row.base, func(i, addr Reg) {
		v := b.loadF(addr, 0, s.In, r.vec)
		top := m
		for _, e := range v {
			top = b.maxNaN(top, e)
		}
		acc := b.mul(sum, b.expTerm(b.sub(m, top)))
		for _, e := range v {
			acc = b.add(acc, b.expTerm(b.sub(e, top)))
		}
		switch {
		case s.Smoothing == 0:
		case s.Weighted:
			for k, w := range b.loadF(b.at(row.weights, i, r.vec*4), 0, Float32, r.vec) {
				b.To(plainSum, "fma.rn.f32", w, v[k], plainSum)
			}
		default:
			for _, e := range v {
				b.To(plainSum, "add.rn.f32", plainSum, e)
			}
		}
		b.To(sum, "mov.f32", acc)
		b.To(m, "mov.f32", top)
	})
	row.top = r.across(m, b.maxNaN)
	total := r.across(b.mul(sum, b.expTerm(b.sub(m, row.top))), r.join("add.rn.f32"))
	// with infinities or NaN in the row the sum of e^(x-top) is undefined
	row.logsum = b.finiteOr(row.top, b.log(total))
	if s.Smoothing != 0 {
		row.mean = b.div(r.across(plainSum, r.join("add.rn.f32")), Fl(float32(s.Cols)))
		if s.Weighted {
			row.spread = s.spread(r, row.weights)
		}
	}
	return row
}

// Fused generates the losses of the rows and their gradients. Arguments: logits, labels, weights
// where there are any, dloss f32[] (the loss gradient, scaled), dlogits, loss f32[Rows]. A block
// holds its row in registers (see heldLoss) or reads it twice, the second time from a cache if the rows
// that all blocks read at a time fit into one. It may run in place over the logits.
func (s CrossEntropy) Fused(fl Flavour) (*Launch, error) {
	if s.Out == "" {
		s.Out = s.In
	}
	if threads, vectors := s.held(); threads > 0 {
		return s.fusedHeld(fl, threads, vectors)
	}
	r := s.layout(fl, s.In, s.Out)
	b := r.b
	p := params{b: b}
	x, labels := p.in("logits", s.In, s.Rows*s.Cols), p.in("labels", s.Labels, s.Rows)
	weights := s.weights(&p)
	dloss, dx, loss := p.in("dloss", Float32, 1), p.out("dlogits", s.Out, s.Rows*s.Cols), p.out("loss", Float32, s.Rows)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		stats := rowOfLogits{base: s.rowBase(b, x, row, s.In), labels: labels, weights: weights, row: row}
		hit := s.own(r, stats)
		stats = s.statistics(r, stats)
		hit = r.across(hit, r.join("add.rn.f32"))
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(loss, row, 4)}, s.loss(b, stats, func(Reg) Reg { return hit }))
		})
		s.gradients(r, stats, dloss, s.rowBase(b, dx, row, s.Out))
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}

// own is the logit of the label in the thread that will store a gradient over it, and 0 in others.
func (s CrossEntropy) own(r *rows, row rowOfLogits) Reg {
	b, hit := r.b, r.b.floatConst(0)
	label, _ := s.label(b, row.labels, row.row)
	b.when(s.inRow(b, label), func() {
		vector := b.Do("shr.u32", s.column(b, label), I(bits.TrailingZeros(uint(r.vec))))
		b.when(b.Do("setp.eq.u32", b.Do("and.b32", vector, I(r.team-1)), r.lane), func() {
			b.To(hit, "mov.f32", s.logit(b, row, label))
		})
	})
	return hit
}

// rowOfLogits is a row with its statistics: the mean of its logits and the mean of the weights.
// With class weights, the first is a weighted mean.
type rowOfLogits struct{ base, labels, weights, row, top, logsum, mean, spread Reg }

// logit is the logit of a label that is a valid column.
func (s CrossEntropy) logit(b *builder, r rowOfLogits, label Reg) Reg {
	return b.loadF(b.at(r.base, s.column(b, label), s.In.Size()), 0, s.In, 1)[0]
}

// loss is (top - x[label]) + logsum, weighted and smoothed, with x[label] from logit.
func (s CrossEntropy) loss(b *builder, r rowOfLogits, logit func(label Reg) Reg) Reg {
	label, ignored := s.label(b, r.labels, r.row)
	out := b.floatConst(0)
	b.unless(ignored, func() {
		b.To(out, "mov.f32", b.floatConst(float32(nan64)))
		b.when(s.inRow(b, label), func() {
			l := b.add(b.sub(r.top, logit(label)), r.logsum)
			if s.Weighted {
				l = b.mul(l, b.Do("ld.global.f32", Addr{Base: b.at(r.weights, s.column(b, label), 4)}))
			}
			if s.Smoothing != 0 {
				l = b.add(b.mul(l, Fl(1-s.Smoothing)), b.mul(s.spreadLoss(b, r), Fl(s.Smoothing)))
			}
			b.To(out, "mov.f32", l)
		})
	})
	return out
}

// spreadLoss is the part of the loss from the uniform part of the smoothed target.
func (s CrossEntropy) spreadLoss(b *builder, r rowOfLogits) Reg {
	if !s.Weighted {
		return b.add(b.sub(r.top, r.mean), r.logsum)
	}
	return b.add(b.sub(b.mul(r.spread, r.top), r.mean), b.mul(r.spread, r.logsum))
}

// Backward generates dlogits.
func (s CrossEntropy) Backward(fl Flavour) (*Launch, error) {
	if s.Out == "" {
		s.Out = s.In
	}
	r := s.layout(fl, s.In, s.Out)
	b := r.b
	p := params{b: b}
	x, labels := p.in("logits", s.In, s.Rows*s.Cols), p.in("labels", s.Labels, s.Rows)
	weights := s.weights(&p)
	tops, sums := p.in("top", Float32, s.Rows), p.in("logsum", Float32, s.Rows)
	dloss, dx := p.in("dloss", Float32, 1), p.out("dlogits", s.Out, s.Rows*s.Cols)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		stats := rowOfLogits{base: s.rowBase(b, x, row, s.In), labels: labels, weights: weights, row: row}
		if s.Weighted && s.Smoothing != 0 {
			stats.spread = s.spread(r, weights)
		}
		stats.top = b.Do("ld.global.f32", Addr{Base: b.at(tops, row, 4)})
		stats.logsum = b.Do("ld.global.f32", Addr{Base: b.at(sums, row, 4)})
		s.gradients(r, stats, dloss, s.rowBase(b, dx, row, s.Out))
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}

// gradients stores the gradients of a row's logits from address to on.
func (s CrossEntropy) gradients(r *rows, row rowOfLogits, dloss, to Reg) {
	b := r.b
	label, ignored := s.label(b, row.labels, row.row)
	q := shares{label: s.column(b, label), hit: Fl(1 - s.Smoothing)} // columns are compared as u32; an ignored label never matches one
	g := b.Do("selp.f32", Fl(0), b.Do("ld.global.f32", Addr{Base: dloss}), ignored)
	if s.Weighted {
		w := s.weightOf(b, row.weights, label)
		if s.Smoothing == 0 {
			g = b.mul(g, w)
		} else {
			q.hit = b.mul(w, q.hit)
			q.total = b.fma(row.spread, Fl(s.Smoothing), q.hit)
		}
	}
	s.vectors(r, row.base, func(i, addr Reg) {
		v := b.loadF(addr, 0, s.In, r.vec)
		first, each := b.imul(i, I(r.vec)), make([]Reg, r.vec)
		if s.Weighted && s.Smoothing != 0 {
			each = b.loadF(b.at(row.weights, i, r.vec*4), 0, Float32, r.vec)
		}
		for k := range v {
			v[k] = b.Do("selp.f32", Fl(0), b.mul(s.gradient(b, b.sub(b.sub(v[k], row.top), row.logsum), b.iadd(first, I(k)), each[k], q), g), ignored)
		}
		b.storeF(b.at(to, i, r.vec*s.Out.Size()), 0, s.Out, v)
	})
}

// shares are the label's column, its share of the target, and the sum of the target over all
// classes.
type shares struct {
	label, total Reg
	hit          Arg
}

// gradient is the gradient of the logit in column col, where x is the logarithm of its softmax and
// w the weight of its class.
func (s CrossEntropy) gradient(b *builder, x, col, w Reg, q shares) Reg {
	p := b.expDown(x)
	switch share := Fl(s.Smoothing / float32(s.Cols)); {
	case s.Smoothing == 0:
	case s.Weighted:
		p = b.sub(b.mul(p, q.total), b.mul(w, share))
	default:
		p = b.sub(p, share)
	}
	hit := b.Do("setp.eq.u32", col, q.label)
	return b.sub(p, b.Do("selp.f32", q.hit, Fl(0), hit))
}

// LossSum adds up the losses of the rows, and counts the rows as LabelCount does. It is one block.
// Arguments: loss f32[Rows], labels, weights where there are any, sum f32[], count f32[].
func (s CrossEntropy) LossSum(fl Flavour) (*Launch, error) { return s.totals(fl, true) }

// LabelCount counts the rows whose label is not Ignore or, if Weighted, adds up their weights (0 if
// that sum is not finite). It is one block. Arguments: labels, weights where there are any, count
// f32[].
func (s CrossEntropy) LabelCount(fl Flavour) (*Launch, error) { return s.totals(fl, false) }

func (s CrossEntropy) totals(fl Flavour, losses bool) (*Launch, error) {
	const threads = 512
	b := newBuilder(fl, s.Name, threads)
	b.counts("rows", s.Rows)
	p := params{b: b}
	var loss, sum, acc Reg
	if losses {
		loss = p.in("loss", Float32, s.Rows)
	}
	labels := p.in("labels", s.Labels, s.Rows)
	weights := s.weights(&p)
	if losses {
		sum, acc = p.out("sum", Float32, 1), b.floatConst(0)
	}
	count := p.out("count", Float32, 1)
	tid := b.special("%tid.x")
	n := b.Do("mov.u32", I(0)) // number of rows, or sum of the weights of their labels, an f32
	if s.Weighted {
		n = b.floatConst(0)
	}
	b.strided(tid, threads, s.Rows, func(i Reg) {
		if losses {
			b.To(acc, "add.rn.f32", acc, b.Do("ld.global.f32", Addr{Base: b.at(loss, i, 4)}))
		}
		label, ignored := s.label(b, labels, i)
		if s.Weighted {
			b.To(n, "add.rn.f32", n, b.Do("selp.f32", Fl(0), s.weightOf(b, weights, label), ignored))
		} else {
			b.To(n, "add.u32", n, b.Do("selp.b32", I(0), I(1), ignored))
		}
	})
	plus := func(x, y Reg) Reg { return b.add(x, y) }
	var total, rows Reg
	if losses {
		total = b.blockFold(acc, tid, threads, "sums", plus)
	}
	if s.Weighted {
		rows = b.blockFold(n, tid, threads, "counts", plus)
		rows = b.Do("selp.f32", rows, Fl(0), b.Do("testp.finite.f32", rows))
	} else {
		rows = b.blockFold(n, tid, threads, "counts", func(x, y Reg) Reg { return b.iadd(x, y) })
	}
	b.when(b.Do("setp.eq.u32", tid, I(0)), func() {
		if losses {
			b.Do("st.global.f32", Addr{Base: sum}, total)
		}
		if !s.Weighted {
			rows = b.Do("cvt.rn.f32.u32", rows)
		}
		b.Do("st.global.f32", Addr{Base: count}, rows)
	})
	return finish(b, [3]int{1, 1, 1}, p.list)
}
