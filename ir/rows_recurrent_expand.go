package ir

// project multiplies the inputs of a recurrence by w: [S,B,I] to [S,B,D,k·H].
func (b *Builder) project(x, w, r, bias *Value) *Value {
	xp := b.Linear(x, w, bias, false)
	if xp == nil || r == nil {
		return nil
	}
	if x.Type.Shape.Rank() != 3 || r.Type.Shape.Rank() != 3 {
		b.Fail("a recurrence takes x[S,B,I] and r[D,H,·], got %s %s and %s %s", x, x.Type, r, r.Type)
		return nil
	}
	d := x.Type.Shape.Dims()
	return b.reshaped(xp, d[0], d[1], r.Type.Shape.Dim(0), r.Type.Shape.Dim(2))
}

// unnamed returns a builder whose next node names itself.
func (b *Builder) unnamed() *Builder { c := *b; c.next = ""; return &c }

// joinDirections turns [S,B,D,H] into [S,B,D·H].
func (b *Builder) joinDirections(y *Value) *Value {
	d := y.Type.Shape.Dims()
	if len(d) != 4 {
		return y
	}
	return b.reshaped(y, d[0], d[1], mulDims(d[3], d[2]))
}

// sliceAxis is x where the slice takes all of it.
func (b *Builder) sliceAxis(x *Value, axis, from, to int64) *Value {
	if x != nil && from == 0 && to > 0 && x.Type.Shape.Known() && x.Type.Shape.Dim(int(axis)) == Dim(to) {
		return x
	}
	return b.Slice(x, []int64{axis}, []int64{from}, []int64{to})
}

// backwards reports whether direction d of a recurrent node runs from the last step.
func (n *Node) backwards(d int64) bool { return d == 1 || n.Flag("reverse") }

const toEnd = 1 << 31 // a slice's end is clipped to the axis

// lastStep is what each direction of [S,B,D,H] ended with: [D,B,H].
func (b *Builder) lastStep(n *Node, v *Value) *Value {
	if v.Type.Shape.Rank() != 4 {
		b.Fail("%s: the last step of %s needs a known rank", n.Def().Name, v)
		return nil
	}
	var ends []*Value
	for d := range int64(v.Type.Shape.Dim(2)) {
		from, to := int64(-1), int64(toEnd)
		if n.backwards(d) {
			from, to = 0, 1
		}
		last := b.Slice(v, []int64{0, 2}, []int64{from, d}, []int64{to, d + 1})
		ends = append(ends, b.Squeeze(last, 2))
	}
	return b.joined(0, ends)
}

// joined is concat of one value or more.
func (b *Builder) joined(axis int64, v []*Value) *Value {
	if len(v) == 1 {
		return v[0]
	}
	return b.Concat(axis, v...)
}

// before is the state that each step of y[S,B,D,H] began with: y one step
// earlier, and h0 (nil: zeros) at the first.
func (b *Builder) before(n *Node, y, h0 *Value) *Value {
	var all []*Value
	for d := range int64(y.Type.Shape.Dim(2)) {
		one, shift := b.sliceAxis(y, 2, d, d+1), int64(1)
		if n.backwards(d) {
			shift = -1
		}
		switch {
		case h0 == nil:
			one = b.Pad(one, []int64{shift, 0, 0, 0}, []int64{-shift, 0, 0, 0}, 0)
		case shift > 0:
			one = b.Concat(0, b.Unsqueeze(b.sliceAxis(h0, 0, d, d+1), 2), b.sliceAxis(one, 0, 0, -1))
		default:
			one = b.Concat(0, b.sliceAxis(one, 0, 1, toEnd), b.Unsqueeze(b.sliceAxis(h0, 0, d, d+1), 2))
		}
		all = append(all, one)
	}
	return b.joined(2, all)
}

// recurrentWeightGrad is the gradient of r: the states before each step times
// the gradients dg[S,B,D,·] of what h·r was added to.
func (b *Builder) recurrentWeightGrad(n *Node, y, h0, dg *Value) *Value {
	if dg == nil || y.Type.Shape.Rank() != 4 || n.In[1].Type.Shape.Rank() != 3 {
		b.Fail("%s: the gradient needs known ranks", n.Def().Name)
		return nil
	}
	flat := func(v *Value) *Value {
		if v == nil {
			return nil
		}
		d := v.Type.Shape.Dims()
		return b.Reshape(b.Transpose(v, 2, 0, 1, 3), int64(d[2]), -1, int64(d[3]))
	}
	return b.Matmul(flat(b.before(n, y, h0)), flat(dg), true, false)
}

// unrolled expands a recurrence step by step.
type unrolled struct {
	b       *Builder
	n       *Node
	s, d, h int64
}

// unroll fails where the number of steps or features is not known.
func (b *Builder) unroll(n *Node, gates *Value) (unrolled, bool) {
	r := n.Operand("r").Type.Shape
	if !gates.Type.Shape.Known() || !r.Known() || gates.Type.Shape.Dim(0) < 0 || !r.Static() {
		b.Fail("%s: only a known number of steps and features can be written out", n.Def().Name)
		return unrolled{}, false
	}
	return unrolled{b, n, int64(gates.Type.Shape.Dim(0)), int64(r.Dim(0)), int64(r.Dim(1))}, true
}

// order lists the steps in the order of direction d.
func (u unrolled) order(d int64) []int64 {
	t := span(0, u.s)
	if u.n.backwards(d) {
		for i := range t {
			t[i] = u.s - 1 - t[i]
		}
	}
	return t
}

// at is step t of direction d of v[S,B,D,·]: [B,·]; nil for nil.
func (u unrolled) at(v *Value, t, d int64) *Value {
	if v == nil {
		return nil
	}
	return u.b.Squeeze(u.b.Slice(v, []int64{0, 2}, []int64{t, d}, []int64{t + 1, d + 1}), 0, 2)
}

// of is direction d of v[D,·,·]; nil for nil.
func (u unrolled) of(v *Value, d int64) *Value {
	if v == nil {
		return nil
	}
	return u.b.Squeeze(u.b.sliceAxis(v, 0, d, d+1), 0)
}

// parts splits [B,k·H] into k.
func (u unrolled) parts(v *Value, k int) []*Value {
	if v == nil {
		return make([]*Value, k)
	}
	sizes := make([]int64, k)
	for i := range sizes {
		sizes[i] = u.h
	}
	return u.b.Split(v, 1, sizes...)
}

// steps collects one [B,·] value per direction and step into [S,B,D,·].
type steps [2]map[int64]*Value

func (l *steps) put(d, t int64, v *Value) {
	if l[d] == nil {
		l[d] = map[int64]*Value{}
	}
	l[d][t] = v
}

func (u unrolled) stack(l steps) *Value {
	var all []*Value
	for d := range u.d {
		var one []*Value
		for t := range u.s {
			one = append(one, u.b.Unsqueeze(l[d][t], 0, 2))
		}
		all = append(all, u.b.joined(0, one))
	}
	return u.b.joined(2, all)
}

// starts stacks one [B,H] value per direction into [D,B,H].
func (u unrolled) starts(v []*Value) *Value {
	for i := range v {
		v[i] = u.b.Unsqueeze(v[i], 0)
	}
	return u.b.joined(0, v)
}

// start is direction d of the state v[D,B,H] with which a recurrence begins. An absent state is
// zeros, which are multiplied as well, so that a weight that is not finite has an effect in the
// first step.
func (u unrolled) start(v *Value, d int64) *Value {
	if v != nil {
		return u.of(v, d)
	}
	x := u.n.In[0]
	if a := int64(x.Type.Shape.Dim(1)); a > 0 && u.h > 0 {
		return u.b.Full(x.Type.DType, 0, a, u.h)
	}
	return u.b.zerosLike(u.b.sliceAxis(u.at(x, 0, d), 1, 0, u.h))
}

// product is h·r of direction d.
func (u unrolled) product(h *Value, d int64) *Value {
	return u.times(h, d, false)
}

// times multiplies by r of direction d, which requires its own dtype of the other factor.
func (u unrolled) times(v *Value, d int64, transposed bool) *Value {
	r := u.of(u.n.Operand("r"), d)
	if v == nil || r == nil || v.Type.DType == r.Type.DType {
		return u.b.Matmul(v, r, false, transposed)
	}
	low := u.b.one(OpCast, []*Value{v}, A("to", r.Type.DType))
	return u.b.one(OpMatmul, []*Value{low, r}, A("out", v.Type.DType, "tb", transposed))
}

// back is g·rᵀ of direction d: the gradient of the previous state.
func (u unrolled) back(g *Value, d int64) *Value {
	return u.times(g, d, true)
}

func expandLSTM(b *Builder, n *Node) []*Value {
	u, ok := b.unroll(n, n.In[0])
	if !ok {
		return make([]*Value, 3)
	}
	var y, cells, gates steps
	for d := range u.d {
		h, c := u.start(n.operand(2), d), u.start(n.operand(3), d)
		for _, t := range u.order(d) {
			p := u.parts(b.Add(u.at(n.In[0], t, d), u.product(h, d)), 4)
			i, f, g, o := b.Sigmoid(p[0]), b.Sigmoid(p[1]), b.Tanh(p[2]), b.Sigmoid(p[3])
			c = b.Add(b.Mul(f, c), b.Mul(i, g))
			h = b.Mul(o, b.Tanh(c))
			y.put(d, t, h)
			cells.put(d, t, c)
			gates.put(d, t, b.Concat(1, i, f, g, o))
		}
	}
	return []*Value{u.stack(y), u.stack(cells), u.stack(gates)}
}

func expandLSTMGrad(b *Builder, n *Node) []*Value {
	gates, cells := n.In[1], n.In[2]
	u, ok := b.unroll(n, gates)
	if !ok {
		return make([]*Value, 3)
	}
	var dxp steps
	var dh0, dc0 []*Value
	for d := range u.d {
		var dh, dc *Value
		order := u.order(d)
		for k := len(order) - 1; k >= 0; k-- {
			t := order[k]
			before := u.of(n.operand(3), d)
			if k > 0 {
				before = u.at(cells, order[k-1], d)
			}
			var da *Value
			da, dc = u.lstmStep(t, d, before, dh, dc)
			dxp.put(d, t, da)
			dh = u.back(da, d)
		}
		dh0, dc0 = append(dh0, dh), append(dc0, dc)
	}
	return []*Value{u.stack(dxp), u.starts(dh0), u.starts(dc0)}
}

// noFlow is zeros of v's shape in the unit of the gradients that exist.
func (u unrolled) noFlow(v *Value, flows ...*Value) *Value {
	zero := u.b.zerosLike(v)
	for _, f := range flows {
		if f != nil {
			return u.b.Mul(f, zero)
		}
	}
	return zero
}

// lstmStep is one step of the gradient: from the gradients of h and c after the step (nil: zero) to
// those of the four sums and of c before it.
func (u unrolled) lstmStep(t, d int64, before, dh, dc *Value) (da, dcBefore *Value) {
	b, n := u.b, u.n
	p, ext := u.parts(u.at(n.In[1], t, d), 4), u.parts(u.at(n.operand(6), t, d), 4)
	c := u.at(n.In[2], t, d)
	i, f, g, o := p[0], p[1], p[2], p[3]
	tc := b.Tanh(c)
	dh = b.plusGrad(u.at(n.operand(4), t, d), dh)
	dc = b.plusGrad(u.at(n.operand(5), t, d), dc)
	zero := u.noFlow(c, dh, dc, ext[0])
	do := zero
	if dh != nil {
		do = b.Mul(dh, tc)
		dc = b.plusGrad(dc, b.tanhGrad(b.Mul(dh, o), tc))
	}
	if dc == nil {
		dc = zero
	}
	df := zero
	if before != nil {
		df = b.Mul(dc, before)
	}
	da = b.Concat(1,
		b.sigmoidGrad(b.plusGrad(b.Mul(dc, g), ext[0]), i), b.sigmoidGrad(b.plusGrad(df, ext[1]), f),
		b.tanhGrad(b.plusGrad(b.Mul(dc, i), ext[2]), g), b.sigmoidGrad(b.plusGrad(do, ext[3]), o))
	return da, b.Mul(dc, f)
}

func expandGRU(b *Builder, n *Node) []*Value {
	u, ok := b.unroll(n, n.In[0])
	if !ok {
		return make([]*Value, 2)
	}
	var y, gates steps
	for d := range u.d {
		h, bn := u.start(n.operand(3), d), u.of(n.operand(2), d)
		for _, t := range u.order(d) {
			x, s := u.parts(u.at(n.In[0], t, d), 3), u.parts(u.product(h, d), 3)
			q := s[2]
			if bn != nil {
				q = b.Add(q, bn)
			}
			r, z := b.Sigmoid(b.Add(x[0], s[0])), b.Sigmoid(b.Add(x[1], s[1]))
			new := b.Tanh(b.Add(x[2], b.Mul(r, q)))
			h = b.Add(b.Mul(b.Affine(z, -1, 1), new), b.Mul(z, h))
			y.put(d, t, h)
			gates.put(d, t, b.Concat(1, r, z, new, q))
		}
	}
	return []*Value{u.stack(y), u.stack(gates)}
}

func expandGRUGrad(b *Builder, n *Node) []*Value {
	u, ok := b.unroll(n, n.In[1])
	if !ok {
		return make([]*Value, 3)
	}
	var dxp, dq steps
	var dh0 []*Value
	for d := range u.d {
		var dh *Value
		order := u.order(d)
		for k := len(order) - 1; k >= 0; k-- {
			t := order[k]
			before := u.of(n.operand(3), d)
			if k > 0 {
				before = u.at(n.In[2], order[k-1], d)
			}
			var da, q *Value
			da, q, dh = u.gruStep(t, d, before, dh)
			dxp.put(d, t, da)
			dq.put(d, t, q)
		}
		dh0 = append(dh0, dh)
	}
	return []*Value{u.stack(dxp), u.stack(dq), u.starts(dh0)}
}

// gruStep is one step of the gradient: from the gradient of h after the step (nil: zero) to those
// of the three sums, of q, and of h before it.
func (u unrolled) gruStep(t, d int64, before, dh *Value) (da, dq, dhBefore *Value) {
	b, n := u.b, u.n
	p, ext := u.parts(u.at(n.In[1], t, d), 4), u.parts(u.at(n.operand(5), t, d), 4)
	r, z, new, q := p[0], p[1], p[2], p[3]
	if dh = b.plusGrad(u.at(n.operand(4), t, d), dh); dh == nil {
		dh = u.noFlow(r, ext[0])
	}
	minus := b.Neg(new)
	if before != nil {
		minus = b.Sub(before, new)
	}
	dz := b.sigmoidGrad(b.plusGrad(b.Mul(dh, minus), ext[1]), z)
	dn := b.tanhGrad(b.plusGrad(b.Mul(dh, b.Affine(z, -1, 1)), ext[2]), new)
	dr := b.sigmoidGrad(b.plusGrad(b.Mul(dn, q), ext[0]), r)
	dq = b.plusGrad(b.Mul(dn, r), ext[3])
	return b.Concat(1, dr, dz, dn), dq, b.Add(b.Mul(dh, z), u.back(b.Concat(1, dr, dz, dq), d))
}

func expandRNN(b *Builder, n *Node) []*Value {
	u, ok := b.unroll(n, n.In[0])
	if !ok {
		return make([]*Value, 1)
	}
	var y steps
	for d := range u.d {
		h := u.start(n.operand(2), d)
		for _, t := range u.order(d) {
			if h = b.Add(u.at(n.In[0], t, d), u.product(h, d)); n.Str("activation") == "relu" {
				h = b.Relu(h)
			} else {
				h = b.Tanh(h)
			}
			y.put(d, t, h)
		}
	}
	return []*Value{u.stack(y)}
}

func expandRNNGrad(b *Builder, n *Node) []*Value {
	u, ok := b.unroll(n, n.In[1])
	if !ok {
		return make([]*Value, 2)
	}
	var dxp steps
	var dh0 []*Value
	for d := range u.d {
		var dh *Value
		order := u.order(d)
		for k := len(order) - 1; k >= 0; k-- {
			t := order[k]
			dh = b.plusGrad(u.at(n.In[2], t, d), dh)
			if y := u.at(n.In[1], t, d); n.Str("activation") == "relu" {
				dh = b.reluGrad(dh, y)
			} else {
				dh = b.tanhGrad(dh, y)
			}
			dxp.put(d, t, dh)
			dh = u.back(dh, d)
		}
		dh0 = append(dh0, dh)
	}
	return []*Value{u.stack(dxp), u.starts(dh0)}
}
