package ptx

import "fmt"

// heldLoss is Fused for rows of 16-bit logits without label smoothing, which the threads of a block
// hold in registers: each is read once, 16 bytes at a time. Rows whose length is no multiple of 8
// begin anywhere in 16 bytes. What lies before the first whole vector and behind the last is held by
// the first 16 threads, an element each. Registers without a logit hold −∞.
//
// e^(x-top) is computed by ex2.approx, whose error on a GPU is documented as at most 2 units in the
// last place: with the rounding of its operand it is below 2^-22 + |x-top|·2^-23, relative to the
// value. A gradient is e^(x-top)/Σ: its error is below 2^-21 + (1+r)·2^-23 of the gradient of the loss,
// where a sum of n terms adds r = n/threads + 10 roundings.
type heldLoss struct {
	CrossEntropy
	*rows
	head, tail Reg     // elements before the first whole vector, and the first behind the last; the zero Reg: all vectors are whole
	whole      Reg     // number of whole vectors
	words      [][]Reg // by chunk: pairs of logits
	spare      Reg     // the thread's element outside whole vectors
	at         Reg     // its column
	spares     Reg     // predicate that there is one
	c          Reg     // -top·log2(e), rounded
}

const (
	heldVec  = 8 // logits of a vector
	heldMost = 7 // vectors that a thread holds
	heldGood = 4 // if the block has enough threads
	heldLine = 16
)

// held returns the threads that hold a row and the vectors of each, 0 if they do not.
func (s CrossEntropy) held() (threads, vectors int) {
	all := s.Cols / heldVec
	threads = min(maxTeam, ceilDiv(ceilDiv(all, heldGood), 32)*32)
	vectors = ceilDiv(all, max(threads, 1))
	if !s.In.Low() || !s.Out.Low() || s.Smoothing != 0 || all < 32 || vectors > heldMost {
		return 0, 0
	}
	return threads, vectors
}

// fusedHeld is Fused for rows in registers.
func (s CrossEntropy) fusedHeld(fl Flavour, threads, vectors int) (*Launch, error) {
	k := &heldLoss{CrossEntropy: s, rows: startRows(fl, s.Name, s.Cols, threads, heldVec, vectors)}
	b := k.b
	p := params{b: b}
	x, labels := p.in("logits", s.In, s.Rows*s.Cols), p.in("labels", s.Labels, s.Rows)
	weights := s.weights(&p)
	dloss, dx, loss := p.in("dloss", Float32, 1), p.out("dlogits", s.Out, s.Rows*s.Cols), p.out("loss", Float32, s.Rows)
	k.begin()
	k.alone(s.Rows, func(row Reg) {
		stats := rowOfLogits{base: s.rowBase(b, x, row, s.In), labels: labels, weights: weights, row: row}
		k.read(stats.base)
		hit := k.own(stats)
		stats, total := k.statistics(stats)
		logit := k.across(hit, k.join("add.rn.f32"))
		b.when(b.Do("setp.eq.u32", k.lane, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(loss, row, 4)}, s.loss(b, stats, func(Reg) Reg { return logit }))
		})
		k.write(s.rowBase(b, dx, row, s.Out), stats, logit, total, dloss)
	})
	return inPlace(finish(b, k.grid(s.Rows), p.list))
}

// split finds the whole vectors of the row that begins at base.
func (k *heldLoss) split(base Reg) {
	b := k.b
	if k.Cols%heldVec == 0 {
		return
	}
	k.head = b.Do("and.b32", b.Do("sub.u32", I(0), b.Do("shr.u32", b.Do("cvt.u32.u64", base), I(1))), I(heldVec-1))
	inside := b.Do("sub.u32", I(k.Cols), k.head)
	k.whole = b.Do("shr.u32", inside, I(3))
	k.tail = b.Do("mad.lo.u32", k.whole, I(heldVec), k.head)
	before, behind := b.Do("setp.lt.u32", k.lane, k.head), b.Do("sub.u32", k.lane, I(heldVec)) // negative numbers wrap to large ones
	k.spares = b.Do("or.pred", before, b.Do("setp.lt.u32", behind, b.Do("sub.u32", I(k.Cols), k.tail)))
	k.at = b.Do("selp.b32", k.lane, b.iadd(k.tail, behind), before)
}

// line is the address of the thread's first whole vector of a row that begins at base.
func (k *heldLoss) line(base Reg) Reg {
	if k.head.Class != NoClass {
		base = k.b.at(base, k.head, heldLine/heldVec)
	}
	return k.b.at(base, k.lane, heldLine)
}

// valid is the predicate that chunk c of the thread lies in the row; the zero Reg: it does.
func (k *heldLoss) valid(c int) Reg {
	switch {
	case k.head.Class == NoClass:
		return k.chunkValid[c]
	case (c+1)*k.team <= (k.Cols-heldVec+1)/heldVec:
		return Reg{}
	}
	return k.b.Do("setp.lt.u32", k.b.iadd(k.lane, I(c*k.team)), k.whole)
}

// lowest is −∞ of a 16-bit type.
func lowest(d DType) int64 {
	if d == BFloat16 {
		return 0xff80
	}
	return 0xfc00
}

// read reads the row that begins at base.
func (k *heldLoss) read(base Reg) {
	b, d := k.b, k.In
	k.split(base)
	from, below := k.line(base), lowest(d)
	for c := range k.chunks {
		words := b.words(d, heldVec)
		k.words = append(k.words, words)
		valid := k.valid(c)
		if valid.Class != NoClass {
			for _, w := range words {
				b.To(w, "mov.u32", I(below<<16|below))
			}
		}
		b.where(valid, func() { b.loadInto(words, "global", from, c*k.team*heldLine, d) })
	}
	if k.head.Class != NoClass {
		k.spare = b.Do("mov.b16", I(below))
		b.when(k.spares, func() { b.To(k.spare, "ld.global.b16", Addr{Base: b.at(base, k.at, heldLine/heldVec)}) })
	}
}

// own is the logit of the label in the thread that will store its gradient, and 0 in others.
func (k *heldLoss) own(row rowOfLogits) Reg {
	b, hit := k.b, k.b.floatConst(0)
	label, _ := k.label(b, row.labels, row.row)
	k.owner(label, func() { b.To(hit, "mov.f32", k.logit(b, row, label)) })
	return hit
}

// owner runs body in the thread that holds the logit of a label that is a valid column.
func (k *heldLoss) owner(label Reg, body func()) {
	b := k.b
	b.when(k.inRow(b, label), func() {
		col := k.column(b, label)
		at := col
		if k.head.Class != NoClass {
			at = b.Do("sub.u32", col, k.head)
		}
		_, lane := b.divmod(b.Do("shr.u32", at, I(3)), k.team)
		if k.head.Class != NoClass {
			behind := b.Do("setp.ge.u32", col, k.tail)
			lane = b.Do("selp.b32", b.iadd(b.Do("sub.u32", col, k.tail), I(heldVec)), lane, behind)
			lane = b.Do("selp.b32", col, lane, b.Do("setp.lt.u32", col, k.head))
		}
		b.when(b.Do("setp.eq.u32", lane, k.lane), body)
	})
}

// statistics completes a row. total is Σ 2^(x·log2(e) + c), which differs from Σ e^(x-top) by the
// rounding of c.
func (k *heldLoss) statistics(row rowOfLogits) (_ rowOfLogits, total Reg) {
	b := k.b
	m := b.floatConst(float32(-posInf))
	k.eachLogit(func(x Reg) { b.To(m, "mov.f32", b.maxNaN(m, x)) })
	row.top = k.across(m, b.maxNaN)
	k.c = b.mul(row.top, Fl(-log2e))
	sum := b.floatConst(0)
	k.eachLogit(func(x Reg) { b.To(sum, "add.rn.f32", sum, k.exp(x)) })
	total = k.across(sum, k.join("add.rn.f32"))
	off := b.fma(row.top, Fl(log2e), k.c)
	// with infinities or NaN in the row the sum is undefined
	row.logsum = b.finiteOr(row.top, b.fma(off, Fl(-0.693147182), b.log(total)))
	return row, total
}

// eachLogit runs body for every logit that the thread holds.
func (k *heldLoss) eachLogit(body func(x Reg)) {
	for _, words := range k.words {
		for _, w := range words {
			lo, hi := k.b.pair(w, k.In)
			body(lo)
			body(hi)
		}
	}
	if k.head.Class != NoClass {
		body(k.b.widen(k.spare, k.In))
	}
}

// exp is e^(x-top), except for the rounding of c.
func (k *heldLoss) exp(x Reg) Reg {
	return k.b.Do("ex2.approx.ftz.f32", k.b.fma(x, Fl(log2e), k.c))
}

// write stores the gradients of a row that begins at to.
func (k *heldLoss) write(to Reg, row rowOfLogits, logit, total, dloss Reg) {
	b := k.b
	label, ignored := k.label(b, row.labels, row.row)
	g := b.Do("ld.global.f32", Addr{Base: dloss})
	if k.Weighted {
		g = b.mul(g, k.weightOf(b, row.weights, label))
	}
	share, into := b.div(g, total), k.line(to)
	for c, words := range k.words {
		out := make([]Reg, len(words))
		for i, w := range words {
			lo, hi := b.pair(w, k.In)
			packed := b.pack(b.mul(k.exp(lo), share), b.mul(k.exp(hi), share), k.Out)
			out[i] = b.Do("selp.b32", I(0), packed, ignored)
		}
		b.where(k.valid(c), func() { b.storeTo("global", into, c*k.team*heldLine, Int32, out) })
	}
	if k.head.Class != NoClass {
		b.when(k.spares, func() {
			v := b.Do("selp.f32", Fl(0), b.mul(k.exp(b.widen(k.spare, k.In)), share), ignored)
			b.storeF(b.at(to, k.at, k.Out.Size()), 0, k.Out, []Reg{v})
		})
	}
	k.owner(label, func() {
		counts := func() {
			p := b.div(k.exp(logit), total)
			b.storeF(b.at(to, k.column(b, label), k.Out.Size()), 0, k.Out, []Reg{b.mul(b.sub(p, Fl(1)), g)})
		}
		if k.Ignore >= 0 && k.Ignore < int64(k.Cols) {
			b.unless(ignored, counts)
		} else {
			counts()
		}
	})
}

// pair widens the two 16-bit floats of a word.
func (b *builder) pair(w Reg, d DType) (lo, hi Reg) {
	if d == BFloat16 {
		return b.float(b.Do("shl.b32", w, I(16))), b.float(b.Do("and.b32", w, I(0xffff0000)))
	}
	halves := b.split(w, d)
	return b.widen(halves[0], d), b.widen(halves[1], d)
}

// pack rounds two values to a word of 16-bit floats.
func (b *builder) pack(lo, hi Reg, d DType) Reg {
	if b.fl.has(since.ampere) {
		return b.Do(fmt.Sprintf("cvt.rn.%sx2.f32", d), hi, lo)
	}
	return b.join([]Reg{b.narrow(lo, d), b.narrow(hi, d)})
}
