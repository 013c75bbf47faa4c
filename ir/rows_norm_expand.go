package ir

// normView is a view of x in which the statistics of a norm are plain reductions along axes.
type normView struct {
	axes   []int64 // covered by one pair of statistics
	others []int64 // summed for the gradients of scale and bias
	shape  []Dim   // the shape of x with its groups as a dimension; nil: unchanged
	x      Shape
	params []Dim // the shape of scale and bias with their groups as a dimension; nil: unchanged
	after  int   // number of dimensions of the view after those of scale and bias
}

// normView fails where the rank, or a number of channels to split, is not known.
func (b *Builder) normView(n *Node) (v normView, ok bool) {
	s := n.In[0].Type.Shape
	grouped := n.Def().Norm.Over == OverGroups
	if !s.Known() || grouped && n.channels() < 0 {
		b.needsSizes(n.In[0].Type, "%s: needs the rank and the channels of %s, which has type %s", n.Def().Name, n.In[0], b.g.TypeString(n.In[0].Type))
		return v, false
	}
	return n.normView(), true
}

func (n *Node) normView() normView {
	s := n.In[0].Type.Shape
	r := int64(s.Rank())
	last := n.Str("layout") == "NHWC"
	switch n.Def().Norm.Over {
	case OverRows:
		k := r - n.Int("dims")
		return normView{axes: span(k, r), others: span(0, k)}
	case OverChannels:
		v := normView{axes: allBut(r, int64(n.channelAxis(int(r))))}
		v.others = v.axes
		if !last {
			v.after = int(r) - 2
		}
		return v
	}
	g := n.GroupCount()
	batch, c, space := parts(s, last)
	v := normView{x: s, params: []Dim{g, c / max(g, 1)}}
	if last {
		v.shape = append(append([]Dim{batch}, space...), v.params...)
		v.axes, v.others = append(span(1, r-1), r), span(0, r-1)
	} else {
		v.shape = append(append([]Dim{batch}, v.params...), space...)
		v.axes, v.others, v.after = span(2, r+1), append([]int64{0}, span(3, r+1)...), int(r)-2
	}
	return v
}

// span lists lo, lo+1, ..., hi−1.
func span(lo, hi int64) []int64 {
	s := make([]int64, 0, max(hi-lo, 0))
	for i := lo; i < hi; i++ {
		s = append(s, i)
	}
	return s
}

// allBut lists the axes of rank r except one.
func allBut(r, axis int64) []int64 { return append(span(0, axis), span(axis+1, r)...) }

func (v *normView) open(b *Builder, x *Value) *Value {
	if v.shape == nil {
		return x
	}
	return b.reshaped(x, v.shape...)
}

func (v *normView) close(b *Builder, x *Value) *Value {
	if v.shape == nil {
		return x
	}
	return b.reshaped(x, v.x.Dims()...)
}

// stat reshapes a saved statistic so that it broadcasts against the view.
func (v *normView) stat(b *Builder, s *Value) *Value { return b.Unsqueeze(s, v.axes...) }

// param reshapes scale or bias so that it broadcasts against the view.
func (v *normView) param(b *Builder, p *Value) *Value {
	if v.params != nil {
		p = b.reshaped(p, v.params...)
	}
	if v.after == 0 || p == nil {
		return p
	}
	r := int64(p.Type.Shape.Rank())
	return b.Unsqueeze(p, span(r, r+int64(v.after))...)
}

// paramSum sums a view down to scale's shape.
func (v *normView) paramSum(b *Builder, x, like *Value) *Value {
	return b.reshaped(b.sumAxes(x, v.others), like.Type.Shape.Dims()...)
}

// scaled is x·scale + bias in the view; either may be absent.
func (v *normView) scaled(b *Builder, n *Node, x *Value) *Value {
	if s := n.Operand("scale"); s != nil {
		x = b.Mul(x, v.param(b, s))
	}
	if c := n.Operand("bias"); c != nil {
		x = b.Add(x, v.param(b, c))
	}
	return x
}

// expandNorm expands any norm to sums, squares and one rsqrt.
func expandNorm(b *Builder, n *Node) []*Value {
	v, ok := b.normView(n)
	if !ok {
		return make([]*Value, len(n.Out))
	}
	x := v.open(b, n.In[0])
	var stats []*Value
	centred := x
	if !n.Def().Norm.RMS {
		mean := b.ReduceMean(x, false, v.axes...)
		centred = b.Sub(x, v.stat(b, mean))
		stats = append(stats, mean)
	}
	variance := b.ReduceMean(b.Square(centred), false, v.axes...)
	rstd := b.Rsqrt(b.Affine(variance, 1, n.Float("eps")))
	stats = append(stats, rstd)
	y := v.close(b, v.scaled(b, n, b.Mul(centred, v.stat(b, rstd))))
	if old := n.operand(3); n.Op == OpBatchNorm && old != nil {
		m, unbiased := n.Float("momentum"), b.ReduceVar(x, 1, false, v.axes...)
		if k := float64(n.normCount()); n.In[0].Type.Shape.Static() {
			unbiased = b.Affine(variance, k/max(k-1, 1), 0)
		}
		stats = append(stats, b.Add(old, b.Affine(b.Sub(stats[0], old), m, 0)), b.Add(n.In[4], b.Affine(b.Sub(unbiased, n.In[4]), m, 0)))
	}
	return append([]*Value{y}, stats...)
}

// SharedBatchNorm is batch_norm n by the statistics of several ranks: sum adds a value up over
// them. It returns y, mean, rstd and, where n has running statistics, their next values. The
// variance is the mean square of the distance from the mean over all ranks.
func (b *Builder) SharedBatchNorm(n *Node, ranks int64, sum func(x *Value) *Value) []*Value {
	v, ok := b.normView(n)
	if !ok {
		return make([]*Value, len(n.Out))
	}
	f32, count := b.Pinned(PinF32), float64(ranks*n.normCount())
	mean := f32.Affine(sum(f32.ReduceSum(n.In[0], false, v.axes...)), 1/count, 0)
	centred := f32.Sub(n.In[0], v.stat(b, mean))
	variance := f32.Affine(sum(f32.ReduceSum(f32.Square(centred), false, v.axes...)), 1/count, 0)
	rstd := f32.Rsqrt(f32.Affine(variance, 1, n.Float("eps")))
	out := []*Value{v.scaled(b, n, b.Mul(centred, v.stat(b, rstd))), mean, rstd}
	if old := n.operand(3); old != nil {
		m, unbiased := n.Float("momentum"), f32.Affine(variance, count/max(count-1, 1), 0)
		out = append(out, f32.Add(old, f32.Affine(f32.Sub(mean, old), m, 0)), f32.Add(n.In[4], f32.Affine(f32.Sub(unbiased, n.In[4]), m, 0)))
	}
	return out
}

// expandNormGrad: with x̂ = (x−mean)·rstd and g = dy·scale,
// dx = rstd·(g − mean g − x̂·mean(g·x̂)); rms_norm has no mean and no mean g.
func expandNormGrad(b *Builder, n *Node) []*Value {
	v, ok := b.normView(n)
	if !ok {
		return make([]*Value, len(n.Out))
	}
	x, dy := v.open(b, n.In[0]), v.open(b, n.In[1])
	scale, rstd := n.Operand("scale"), v.stat(b, n.Operand("rstd"))
	if mean := n.Operand("mean"); mean != nil {
		x = b.Sub(x, v.stat(b, mean))
	}
	xhat := b.Mul(x, rstd)
	g := dy
	if scale != nil {
		g = b.Mul(dy, v.param(b, scale))
	}
	dx := b.Sub(g, b.Mul(xhat, v.stat(b, b.ReduceMean(b.Mul(g, xhat), false, v.axes...))))
	if n.Operand("mean") != nil {
		dx = b.Sub(dx, v.stat(b, b.ReduceMean(g, false, v.axes...)))
	}
	out := []*Value{v.close(b, b.Mul(dx, rstd))}
	if scale != nil {
		out = append(out, v.paramSum(b, b.Mul(dy, xhat), scale), v.paramSum(b, dy, scale))
	}
	return out[:min(len(out), len(n.Out))]
}

func expandBatchNormInfer(b *Builder, n *Node) []*Value {
	v, ok := b.normView(n)
	if !ok {
		return []*Value{nil}
	}
	x := b.Sub(n.In[0], v.stat(b, n.In[3]))
	x = b.Mul(x, v.stat(b, b.Rsqrt(b.Affine(n.In[4], 1, n.Float("eps")))))
	return []*Value{v.scaled(b, n, x)}
}

// statAlong reshapes a saved statistic so that it broadcasts against x. Every channel of a group
// receives the group's statistic.
func (v *normView) statAlong(b *Builder, n *Node, s *Value) *Value {
	if v.shape == nil {
		return v.stat(b, s)
	}
	if per := v.params[1]; per != 1 {
		s = b.Broadcast(b.Unsqueeze(s, 2), -1, -1, int64(per))
		s = b.reshaped(s, v.x.Dim(0), n.channels())
	}
	first := int64(2)
	if v.after == 0 {
		first = 1
	}
	return b.Unsqueeze(s, span(first, first+int64(v.x.Rank())-2)...)
}

// paramAlong reshapes scale or bias so that it broadcasts against x.
func (v *normView) paramAlong(b *Builder, p *Value) *Value {
	if v.after == 0 {
		return p
	}
	return b.Unsqueeze(p, span(1, 1+int64(v.after))...)
}

// NormAgain computes the first result of norm n a second time, elementwise, from
// what n and its gradient keep: (x − mean)·(rstd·scale) + bias, in the order
// (x − mean)·rstd·scale + bias where statistics belong to rows.
func (b *Builder) NormAgain(n *Node) *Value {
	v, ok := b.normView(n)
	if !ok {
		return nil
	}
	x, rstd := n.In[0], n.Out[1]
	if !n.Def().Norm.RMS {
		x, rstd = b.Sub(x, v.statAlong(b, n, n.Out[1])), n.Out[2]
	}
	factor, scale, bias := v.statAlong(b, n, rstd), n.Operand("scale"), n.Operand("bias")
	switch {
	case scale == nil:
	case n.Def().Norm.Over == OverRows:
		x, factor = b.Mul(x, factor), scale
	default:
		factor = b.Mul(factor, v.paramAlong(b, scale))
	}
	y := b.Mul(x, factor)
	if bias != nil {
		y = b.Add(y, v.paramAlong(b, bias))
	}
	return y
}

// FixedNormGrad is the gradient in x of a batch norm by statistics that do not
// depend on x, from the operands of n, the gradient of one by those of its batch:
// dy·rstd·scale.
func (b *Builder) FixedNormGrad(n *Node) *Value {
	v, ok := b.normView(n)
	if !ok {
		return nil
	}
	factor := v.statAlong(b, n, n.Operand("rstd"))
	if scale := n.Operand("scale"); scale != nil {
		factor = b.Mul(factor, v.paramAlong(b, scale))
	}
	return b.Mul(n.In[1], factor)
}

// normGrad emits the gradient row of norm node n and returns dx, dscale, dbias,
// nil where there is none. No gradient arrived for y: all are nil.
func (b *Builder) normGrad(op Op, n *Node, d []*Value, a Attrs) [3]*Value {
	var g [3]*Value
	if d[0] == nil {
		return g
	}
	ops := []*Value{n.In[0], d[0]}
	for i, r := range n.Def().Out {
		if r.Name == "mean" || r.Name == "rstd" {
			ops = append(ops, n.Out[i])
		}
	}
	copy(g[:], b.Emit(op, values(append(ops, n.Operand("scale"))...), a))
	if n.Operand("bias") == nil {
		g[2] = nil
	}
	return g
}

// addStatGrads adds what flows into x through the saved statistics, which only
// second derivatives and losses on the statistics need:
// dx += dmean/n − drstd·rstd³·(x−mean)/n.
func (b *Builder) addStatGrads(n *Node, dx *Value, d []*Value) *Value {
	defs := n.Def().Out
	for i := 1; i < min(len(d), len(defs), 3); i++ {
		if d[i] == nil {
			continue
		}
		v, ok := b.normView(n)
		if !ok {
			return nil
		}
		x := v.open(b, n.In[0])
		part := b.share(v.stat(b, d[i]), x, 0, v.axes)
		if defs[i].Name == "mean" {
			part = b.broadcastLike(part, x)
		} else {
			centred := x
			if defs[1].Name == "mean" {
				centred = b.Sub(x, v.stat(b, n.Out[1]))
			}
			cube := b.Mul(b.Square(n.Out[i]), n.Out[i])
			part = b.Mul(b.Mul(b.Neg(part), v.stat(b, cube)), centred)
		}
		dx = b.plusGrad(dx, v.close(b, part))
	}
	return dx
}
