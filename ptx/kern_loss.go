package ptx

// CrossEntropy is -log softmax(logits)[label] for each row of Rows×Cols, with label smoothing:
// (1-s)·(lse - x[label]) + s·(lse - mean(x)). A row whose label is Ignore counts nothing; a label
// outside 0 … Cols-1 gives NaN.
//
// Forward arguments: logits, labels, loss f32[Rows], top f32[Rows], logsum f32[Rows]: the row's largest
// logit and log Σ e^(x-top), NaN where top is not finite. They are two numbers because their sum would
// lose the digits that logits in the thousands leave it. A row is read once (maximum and sum together).
// Backward arguments: logits, labels, top, logsum, dloss f32[] (the loss gradient, scaled), dlogits, with
// dlogits = dloss·(softmax - (1-s)·1[label] - s/Cols). It may run in place over the logits.
type CrossEntropy struct {
	Name       string
	Rows, Cols int
	In         DType
	Out        DType // of dlogits; empty means In
	Labels     DType // i32 or i64
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
func (s CrossEntropy) label(b *Builder, labels, row Reg) (label, ignored Reg) {
	t := map[DType]string{Int32: "s32", Int64: "s64"}[s.Labels]
	raw := b.load(b.at(labels, row, s.Labels.Size()), 0, s.Labels, 1)[0]
	return raw, b.Do("setp.eq."+t, raw, I(s.Ignore))
}

// inRow reports whether the label is a column.
func (s CrossEntropy) inRow(b *Builder, label Reg) Reg {
	return b.Do(map[Class]string{B32: "setp.lt.u32", B64: "setp.lt.u64"}[label.Class], label, I(s.Cols))
}

// vectors runs body over the thread's vectors of a row.
func (s CrossEntropy) vectors(r *rows, base Reg, body func(i, addr Reg)) {
	b := r.b
	b.strided(r.lane, r.team, s.Cols/r.vec, func(i Reg) { body(i, b.at(base, i, r.vec*s.In.Size())) })
}

func (s CrossEntropy) rowBase(b *Builder, base, row Reg, d DType) Reg {
	return b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*d.Size()), base)
}

// Forward generates the losses and the statistics of the rows.
func (s CrossEntropy) Forward(fl Flavour) (*Launch, error) {
	r := s.layout(fl, s.In)
	b := r.b
	p := params{b: b}
	x, labels := p.in("logits", s.In, s.Rows*s.Cols), p.in("labels", s.Labels, s.Rows)
	loss, tops, sums := p.out("loss", Float32, s.Rows), p.out("top", Float32, s.Rows), p.out("logsum", Float32, s.Rows)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		base := s.rowBase(b, x, row, s.In)
		m, sum, plainSum := b.konst(float32(-posInf)), b.konst(0), b.konst(0)
		s.vectors(r, base, func(_, addr Reg) {
			v := b.loadF(addr, 0, s.In, r.vec)
			top := m
			for _, e := range v {
				top = b.maxNaN(top, e)
			}
			acc := b.mul(sum, b.expTerm(b.sub(m, top)))
			for _, e := range v {
				acc = b.add(acc, b.expTerm(b.sub(e, top)))
			}
			if s.Smoothing != 0 {
				for _, e := range v {
					b.To(plainSum, "add.rn.f32", plainSum, e)
				}
			}
			b.To(sum, "mov.f32", acc)
			b.To(m, "mov.f32", top)
		})
		top := r.across(m, b.maxNaN)
		total := r.across(b.mul(sum, b.expTerm(b.sub(m, top))), r.join("add.rn.f32"))
		// Infinities and NaN in the row: the sum of e^(x-top) has no value.
		l := b.finiteOr(top, b.log(total))
		var mean Reg
		if s.Smoothing != 0 {
			mean = b.div(r.across(plainSum, r.join("add.rn.f32")), Fl(float32(s.Cols)))
		}
		b.If(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			b.Do("st.global.f32", Addr{Base: b.at(loss, row, 4)}, s.loss(b, base, labels, row, top, l, mean))
			b.Do("st.global.f32", Addr{Base: b.at(tops, row, 4)}, top)
			b.Do("st.global.f32", Addr{Base: b.at(sums, row, 4)}, l)
		})
	})
	return finish(b, r.grid(s.Rows), p.list)
}

// loss is (top - x[label]) + logsum, smoothed.
func (s CrossEntropy) loss(b *Builder, base, labels, row, top, logsum, mean Reg) Reg {
	label, ignored := s.label(b, labels, row)
	out := b.konst(0)
	b.Unless(ignored, func() {
		b.To(out, "mov.f32", b.konst(float32(nan64)))
		b.If(s.inRow(b, label), func() {
			at := label
			if at.Class == B64 {
				at = b.Do("cvt.u32.u64", at)
			}
			l := b.add(b.sub(top, b.loadF(b.at(base, at, s.In.Size()), 0, s.In, 1)[0]), logsum)
			if s.Smoothing != 0 {
				l = b.add(b.mul(l, Fl(1-s.Smoothing)), b.mul(b.add(b.sub(top, mean), logsum), Fl(s.Smoothing)))
			}
			b.To(out, "mov.f32", l)
		})
	})
	return out
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
	tops, sums := p.in("top", Float32, s.Rows), p.in("logsum", Float32, s.Rows)
	dloss, dx := p.in("dloss", Float32, 1), p.out("dlogits", s.Out, s.Rows*s.Cols)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		label, ignored := s.label(b, labels, row)
		if label.Class == B64 { // columns are compared as u32; an ignored label never matches one
			label = b.Do("cvt.u32.u64", label)
		}
		g := b.Do("selp.f32", Fl(0), b.Do("ld.global.f32", Addr{Base: dloss}), ignored)
		top := b.Do("ld.global.f32", Addr{Base: b.at(tops, row, 4)})
		l := b.Do("ld.global.f32", Addr{Base: b.at(sums, row, 4)})
		from, to := s.rowBase(b, x, row, s.In), s.rowBase(b, dx, row, s.Out)
		s.vectors(r, from, func(i, addr Reg) {
			v := b.loadF(addr, 0, s.In, r.vec)
			first := b.imul(i, I(r.vec))
			for k := range v {
				v[k] = b.Do("selp.f32", Fl(0), s.gradient(b, b.sub(v[k], top), l, g, label, b.iadd(first, I(k))), ignored)
			}
			b.storeF(b.at(to, i, r.vec*s.Out.Size()), 0, s.Out, v)
		})
	})
	return inPlace(finish(b, r.grid(s.Rows), p.list))
}

// gradient is that of a logit which lies below the row's largest by -x.
func (s CrossEntropy) gradient(b *Builder, x, logsum, g, label, col Reg) Reg {
	p := b.expDown(b.sub(x, logsum))
	if s.Smoothing != 0 {
		p = b.sub(p, Fl(s.Smoothing/float32(s.Cols)))
	}
	hit := b.Do("setp.eq.u32", col, label)
	p = b.sub(p, b.Do("selp.f32", Fl(1-s.Smoothing), Fl(0), hit))
	return b.mul(p, g)
}

// LossSum adds the per-row losses and counts the rows whose label is not Ignore, in one block.
// Arguments: loss f32[Rows], labels, sum f32[], count f32[].
func (s CrossEntropy) LossSum(fl Flavour) (*Launch, error) {
	const threads = 512
	b := NewBuilder(fl, s.Name, threads)
	p := params{b: b}
	loss, labels := p.in("loss", Float32, s.Rows), p.in("labels", s.Labels, s.Rows)
	sum, count := p.out("sum", Float32, 1), p.out("count", Float32, 1)
	tid := b.special("%tid.x")
	acc, n := b.konst(0), b.Do("mov.u32", I(0))
	b.strided(tid, threads, s.Rows, func(i Reg) {
		b.To(acc, "add.rn.f32", acc, b.Do("ld.global.f32", Addr{Base: b.at(loss, i, 4)}))
		_, ignored := s.label(b, labels, i)
		b.To(n, "add.u32", n, b.Do("selp.b32", I(0), I(1), ignored))
	})
	total := b.blockFold(acc, tid, threads, "sums", func(x, y Reg) Reg { return b.add(x, y) })
	rows := b.blockFold(n, tid, threads, "counts", func(x, y Reg) Reg { return b.iadd(x, y) })
	b.If(b.Do("setp.eq.u32", tid, I(0)), func() {
		b.Do("st.global.f32", Addr{Base: sum}, total)
		b.Do("st.global.f32", Addr{Base: count}, b.Do("cvt.rn.f32.u32", rows))
	})
	return finish(b, [3]int{1, 1, 1}, p.list)
}
