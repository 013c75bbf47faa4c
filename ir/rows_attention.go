package ir

import (
	"fmt"
	"math"
)

var attentionRows = map[Op]Def{
	OpAttention: {
		Name: "attention", Doc: "softmax(q·kᵀ·scale + mask)·v with q[B,H,S,D], k[B,G,T,D], v[B,G,T,E], each of the G heads of k and v serving H/G heads of q; saves the logarithm lse[B,H,S] of the softmax's divisor.",
		In:  in(heads("q"), heads("k"), heads("v"), Operand{Name: "mask", Class: Keep, ReadsLow: true, Optional: true, AsStored: true}),
		Out: out(Result{Name: "y", StoresF32: true, Strided: true}, Result{Name: "lse", Class: Fixed}), Attrs: attentionAttrs,
		Class: Low, Why: "tensor cores", Poles: poleMasked, Infer: inferAttention, Grad: gradAttention, Expand: expandAttention,
		Bound: boundAttention, Cost: func(n *Node) Cost { return Cost{Flops: 2 * n.pairs()} },
		Range: func(n *Node, in []Interval) []Interval {
			inf := math.Inf(1)
			return []Interval{{Lo: in[2].Lo, Hi: in[2].Hi, NaN: true}, {Lo: -inf, Hi: inf, NaN: true}}
		},
	},
	OpAttentionGrad: {
		Name: "attention_grad", Doc: "The gradients of attention in q, k and v, from its saved y and lse.",
		In: in(heads("q"), heads("k"), heads("v"), heads("y"), heads("dy"), Operand{Name: "lse", Class: Fixed},
			Operand{Name: "mask", Class: Keep, ReadsLow: true, Optional: true, AsStored: true}),
		Out: out(Result{Name: "dq", StoresF32: true, Strided: true}, Result{Name: "dk", StoresF32: true, Strided: true}, Result{Name: "dv", StoresF32: true, Strided: true}), Attrs: attentionAttrs,
		Class: Low, Why: "tensor cores", Unit: UnitProduct, GradOf: OpAttention, Infer: inferAttentionGrad, Expand: expandAttentionGrad,
		Bound: boundAttention, Cost: func(n *Node) Cost { return Cost{Flops: 5 * n.pairs()} },
	},
	OpRope: {
		Name: "rope", Nonfinite: added, Doc: "Rotates pairs of the last dimension of x[..,S,D] by angles that grow with the position: pair i by pos·base^(−2i/dims).",
		In:  in(Operand{Name: "x", ReadsLow: true}, Operand{Name: "pos", Kinds: KInt, Class: Fixed, Optional: true}),
		Out: out(Result{Name: "y", StoresLow: true}),
		Attrs: []AttrDef{
			{Name: "base", Kind: AttrFloat, Takes: Above0, Default: 1e4, Doc: "wavelength base"},
			{Name: "dims", Kind: AttrInt, Default: int64(0), Doc: "rotate only the first dims elements; 0: all"},
			{Name: "interleaved", Kind: AttrBool, Doc: "pairs are (2i, 2i+1), not (i, i+dims/2)"},
			{Name: "inverse", Kind: AttrBool, Doc: "rotates back: the gradient"},
		},
		Class: Keep, Why: "angles need f32", Unit: UnitSame, Infer: inferRope,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			return []*Value{b.Rope(d[0], n.operand(1), n.Attrs.only("base", "dims", "interleaved").With("inverse", !n.Flag("inverse"))), nil}
		},
		Bound: func(*Node) Bound { return Bound{ULP: 8, K: 2} }, Cost: flops(0, 6),
		Range: func(_ *Node, in []Interval) []Interval {
			return []Interval{around(math.Sqrt2*in[0].magnitude(), in[0].NaN)}
		},
	},
}

var attentionAttrs = []AttrDef{
	{Name: "causal", Kind: AttrBool, Doc: "query i sees keys up to i + T − S"},
	{Name: "scale", Kind: AttrFloat, Takes: AnyFinite, Default: float64(0), Doc: "factor of the scores; 0: 1/√D"},
}

// heads is an operand [batch, heads, length, width] whose rows may be strided.
func heads(name string) Operand { return Operand{Name: name, Strided: true, AsStored: true} }

// AttentionScale is the factor of the scores of an attention or attention_grad node.
func (n *Node) AttentionScale() float64 {
	if s := n.Float("scale"); s != 0 {
		return s
	}
	return 1 / math.Sqrt(float64(size(n.In[0].Type.Shape.Dim(-1))))
}

// pairs is the number of flops of one product over all query-key pairs.
func (n *Node) pairs() int64 {
	k := n.In[1].Type.Shape
	if k.Rank() != 4 {
		return unknownElements
	}
	p := 2 * count(n.In[0].Type) * size(k.Dim(2))
	if n.Flag("causal") {
		p /= 2
	}
	return p
}

func boundAttention(n *Node) Bound {
	q, k := n.In[0].Type.Shape, n.In[1].Type.Shape
	if q.Rank() != 4 || k.Rank() != 4 {
		return Bound{ULP: 36, K: unknownElements, Inner: 1}
	}
	return Bound{ULP: 36, K: size(q.Dim(3)) + max(size(k.Dim(2)), size(q.Dim(2))), Inner: 1}
}

// attentionShape checks q, k, v and mask and returns y's and lse's shapes.
func attentionShape(n *Node, mask *Value) (y, lse Shape, err error) {
	q, k, v := n.In[0], n.In[1], n.In[2]
	if err := firstError(wantRank("q", q, 4, 4), wantRank("k", k, 4, 4), wantRank("v", v, 4, 4), n.checkOut()); err != nil {
		return y, lse, err
	}
	if !q.Type.Shape.Known() || !k.Type.Shape.Known() || !v.Type.Shape.Known() {
		return y, lse, nil
	}
	qd, kd, vd := q.Type.Shape.Dims(), k.Type.Shape.Dims(), v.Type.Shape.Dims()
	switch {
	case !fits(qd[0], kd[0]) || !fits(qd[3], kd[3]):
		err = fmt.Errorf("q %s has type %s, k %s has type %s: batch and head size must be equal", q, q.Type, k, k.Type)
	case !fits(kd[0], vd[0]) || !fits(kd[1], vd[1]) || !fits(kd[2], vd[2]):
		err = fmt.Errorf("k %s has type %s, v %s has type %s: batch, heads and length must be equal", k, k.Type, v, v.Type)
	case qd[1] > 0 && kd[1] > 0 && qd[1]%kd[1] != 0:
		err = fmt.Errorf("%d heads of q do not share %d heads of k and v evenly", qd[1], kd[1])
	case n.Flag("causal") && qd[2] > kd[2] && kd[2] >= 0:
		err = fmt.Errorf("causal with %d queries and %d keys: the first queries see no key", qd[2], kd[2])
	case mask != nil && mask.Type.Shape.Known():
		scores := MakeShape(qd[0], qd[1], qd[2], kd[2])
		if s, ok := Broadcast(mask.Type.Shape, scores); !ok || s.Rank() != 4 || !sameSizes(s, scores) {
			err = fmt.Errorf("mask %s has type %s, which does not broadcast to %s", mask, mask.Type, dimsString(scores.Dims(), nil))
		}
	}
	return MakeShape(qd[0], qd[1], qd[2], vd[3]), MakeShape(qd[0], qd[1], qd[2]), err
}

// sameSizes reports whether two shapes of one rank can be the same.
func sameSizes(a, b Shape) bool {
	x, y := a.Dims(), b.Dims()
	for i := range x {
		if !fits(x[i], y[i]) {
			return false
		}
	}
	return true
}

func inferAttention(n *Node) ([]Type, error) {
	y, lse, err := attentionShape(n, n.operand(3))
	return []Type{{n.lowDType(), y}, {n.statDType(), lse}}, err
}

func inferAttentionGrad(n *Node) ([]Type, error) {
	y, lse, err := attentionShape(n, n.operand(6))
	if err == nil && y.Known() {
		err = firstError(wantShape("y", n.In[3], y.Dims()...), wantShape("dy", n.In[4], y.Dims()...), wantShape("lse", n.In[5], lse.Dims()...))
	}
	d := n.lowDType()
	return []Type{n.In[0].Type.With(d), n.In[1].Type.With(d), n.In[2].Type.With(d)}, err
}

func inferRope(n *Node) ([]Type, error) {
	x, pos := n.In[0], n.operand(1)
	if err := firstError(wantRank("x", x, 2, MaxRank), n.checkOut()); err != nil {
		return nil, err
	}
	t := []Type{{n.keptDType(), x.Type.Shape}}
	if !x.Type.Shape.Known() {
		return t, nil
	}
	last, dims := x.Type.Shape.Dim(-1), Dim(n.Int("dims"))
	if dims == 0 {
		dims = last
	}
	if dims < 0 && last >= 0 || dims > last && last >= 0 || dims > 0 && dims%2 != 0 {
		return nil, fmt.Errorf("cannot rotate %d elements of %s: want an even number up to the last dimension", dims, x.Type)
	}
	if pos == nil || pos.Type.Shape.Rank() < 2 {
		return t, wantShape("pos", pos, x.Type.Shape.Dim(-2))
	}
	return t, wantShape("pos", pos, x.Type.Shape.Dim(0), x.Type.Shape.Dim(-2))
}

// gradAttention emits the fused row. The gradients through lse (second derivatives, losses on it)
// and of a mask that is not a constant are separate nodes.
func gradAttention(b *Builder, n *Node, d []*Value) []*Value {
	g := make([]*Value, len(n.In))
	if d[0] != nil {
		copy(g, b.attentionGrad(n.In[0], n.In[1], n.In[2], n.Out[0], d[0], n.Out[1], n.operand(3), n.Attrs.only("causal", "scale")))
	}
	mask := n.operand(3)
	learned := mask != nil && mask.Kind != Const
	if !learned && d[1] == nil {
		return g
	}
	f := b.openAttention(n, mask)
	if f == nil {
		return g
	}
	p := f.weights(n.Out[1])
	var ds *Value
	if d[0] != nil && learned {
		ds = f.scoreGrad(p, f.split(n.Out[0]), f.split(d[0]))
	}
	if d[1] != nil {
		through := b.Mul(p, b.Unsqueeze(f.split3(d[1]), -1))
		dq, dk := f.inputGrads(through)
		g[0], g[1] = b.plusGrad(g[0], dq), b.plusGrad(g[1], dk)
		ds = b.plusGrad(ds, through)
	}
	if learned {
		g[3] = b.sumTo(f.merge(ds), mask)
	}
	return g
}

// openedAttention is an attention node whose heads are divided into groups that share keys: q is
// [B,G,H/G,S,D], k and v are [B,G,1,T,·]. Without sharing H/G is 1.
type openedAttention struct {
	b       *Builder
	n       *Node
	q, k, v *Value
	mask    *Value // broadcast against [B,G,H/G,S,T], the causal part included; nil: none
	d       []Dim  // q's dimensions
	groups  Dim
	scale   float64
	casts   map[*Value]*Value // to the only other dtype
	low     DType             // the dtype of q, k and v if that is a 16-bit one: products read such operands and keep their sums in f32
}

// openAttention fails, and returns nil, where heads or head sizes are not known.
func (b *Builder) openAttention(n *Node, mask *Value) *openedAttention {
	for _, v := range n.In[:3] {
		if s := v.Type.Shape; !s.Known() || s.Dim(1) < 1 || s.Dim(3) < 1 {
			b.needsSizes(v.Type, "%s: needs the heads and the head size of %s, which has type %s", n.Def().Name, v, b.g.TypeString(v.Type))
			return nil
		}
	}
	f := &openedAttention{b: b, n: n, d: n.In[0].Type.Shape.Dims(), groups: n.In[1].Type.Shape.Dim(1), scale: n.AttentionScale(), casts: map[*Value]*Value{}}
	if d := n.In[0].Type.DType; d.Low() && n.In[1].Type.DType == d && n.In[2].Type.DType == d {
		f.low = d
	}
	f.q, f.k, f.v = f.split(n.In[0]), b.Unsqueeze(n.In[1], 2), b.Unsqueeze(n.In[2], 2)
	f.mask = f.as(f.splitMask(mask), F32)
	if n.Flag("causal") {
		keys := n.In[1].Type.Shape.Dim(2)
		future := b.causalMask(f.d[2], keys)
		if f.mask == nil {
			f.mask = future
		} else {
			f.mask = b.Add(f.mask, future)
		}
	}
	return f
}

// dims are v's dimensions; it fails, and returns nil, if its rank is not known.
func (f *openedAttention) dims(v *Value) []Dim {
	if v != nil && !v.Type.Shape.Known() {
		f.b.Fail("%s: needs the rank of %s", f.n.Def().Name, v)
	}
	if v == nil || f.b.err != nil {
		return nil
	}
	return v.Type.Shape.Dims()
}

// split reshapes [B,H,S,·] to [B,G,H/G,S,·].
func (f *openedAttention) split(v *Value) *Value {
	d := f.dims(v)
	if d == nil {
		return nil
	}
	return f.b.reshaped(v, d[0], f.groups, d[1]/f.groups, d[2], d[3])
}

// split3 reshapes [B,H,S] to [B,G,H/G,S].
func (f *openedAttention) split3(v *Value) *Value {
	d := f.dims(v)
	if d == nil {
		return nil
	}
	return f.b.reshaped(v, d[0], f.groups, d[1]/f.groups, d[2])
}

// merge reshapes [B,G,H/G,S,·] back to [B,H,S,·].
func (f *openedAttention) merge(v *Value) *Value {
	d := f.dims(v)
	if d == nil {
		return nil
	}
	return f.b.reshaped(v, d[0], d[1]*d[2], d[3], d[4])
}

// splitMask splits the heads of a mask that has them; a dimension of 1 stays 1.
func (f *openedAttention) splitMask(m *Value) *Value {
	if m == nil || m.Type.Shape.Rank() < 3 {
		return m
	}
	d := m.Type.Shape.Dims()
	heads := len(d) - 3
	if d[heads] == 1 {
		return f.b.Unsqueeze(m, int64(heads))
	}
	split := append(append([]Dim{}, d[:heads]...), f.groups, d[heads]/f.groups)
	return f.b.reshaped(m, append(split, d[heads+1:]...)...)
}

// product multiplies with f32 sums and returns them in out. If q, k and v have a 16-bit dtype,
// operands are rounded to it, as matrix units require.
func (f *openedAttention) product(x, y *Value, ta, tb bool, out DType) *Value {
	if f.low == Invalid {
		return f.b.Matmul(x, y, ta, tb)
	}
	return f.b.one(OpMatmul, []*Value{f.as(x, f.low), f.as(y, f.low)}, A("ta", ta, "tb", tb, "out", out))
}

// as casts v to dtype d, if products keep their sums in another dtype than their operands.
func (f *openedAttention) as(v *Value, d DType) *Value {
	if f.low == Invalid || v == nil || v.Type.DType == d {
		return v
	}
	if f.casts[v] == nil {
		f.casts[v] = f.b.Cast(v, d)
	}
	return f.casts[v]
}

func (f *openedAttention) scores() *Value {
	s := f.b.Affine(f.product(f.q, f.k, false, true, F32), f.scale, 0)
	if f.mask != nil {
		s = f.b.Add(s, f.mask)
	}
	return s
}

// weights are the softmax from the saved logarithm of its divisor.
func (f *openedAttention) weights(lse *Value) *Value {
	return f.b.Exp(f.b.Sub(f.scores(), f.b.Unsqueeze(f.split3(lse), -1)))
}

// scoreGrad is the gradient of the scores: p·(dy·vᵀ − Σ dy·y).
func (f *openedAttention) scoreGrad(p, y, dy *Value) *Value {
	b := f.b
	dots := b.sumOver(b.Mul(f.as(dy, F32), f.as(y, F32)), true, 4)
	return b.Mul(p, b.Sub(f.product(dy, f.v, false, true, F32), dots))
}

// inputGrads are dq and dk from the gradient of the scores.
func (f *openedAttention) inputGrads(ds *Value) (dq, dk *Value) {
	b := f.b
	ds = b.Affine(ds, f.scale, 0)
	return f.merge(f.product(ds, f.k, false, false, f.kept(0))), f.overGroup(f.product(ds, f.q, true, false, f.kept(1)))
}

// kept is the dtype in which the product for operand i's gradient is stored: f32 if heads that
// share keys are summed after it.
func (f *openedAttention) kept(i int) DType {
	if f.d[1] != f.groups && i > 0 || f.n.Op != OpAttentionGrad {
		return F32
	}
	return f.n.Out[i].Type.DType
}

// overGroup sums [B,G,H/G,T,·] over the heads that share keys.
func (f *openedAttention) overGroup(v *Value) *Value {
	if f.d[1] == f.groups {
		return f.b.Squeeze(v, 2)
	}
	return f.b.sumOver(v, false, 2)
}

func expandAttention(b *Builder, n *Node) []*Value {
	f := b.openAttention(n, n.operand(3))
	if f == nil {
		return make([]*Value, 2)
	}
	s := f.scores()
	top := b.maxOver(s, 4)
	lse := b.Add(top, b.Log(b.sumOver(b.Exp(b.Sub(s, top)), true, 4)))
	y := f.merge(f.product(b.Exp(b.Sub(s, lse)), f.v, false, false, n.Out[0].Type.DType))
	return []*Value{y, b.Squeeze(f.merge(lse), -1)}
}

func expandAttentionGrad(b *Builder, n *Node) []*Value {
	f := b.openAttention(n, n.operand(6))
	if f == nil {
		return make([]*Value, 3)
	}
	y, dy := f.split(n.In[3]), f.split(n.In[4])
	p := f.weights(n.In[5])
	dq, dk := f.inputGrads(f.scoreGrad(p, y, dy))
	return []*Value{dq, dk, f.overGroup(f.product(p, dy, true, false, f.kept(2)))}
}

// Attention is softmax(q·kᵀ·scale + mask)·v over [B,H,S,D] operands; k and v
// may have fewer heads. mask (nil: none) is added to the scores. Attributes:
// causal, scale.
func (b *Builder) Attention(q, k, v, mask *Value, a Attrs) *Value {
	return b.one(OpAttention, values(q, k, v, mask), a)
}

// attentionGrad returns dq, dk, dv of Attention, from its results y and lse.
func (b *Builder) attentionGrad(q, k, v, y, dy, lse, mask *Value, a Attrs) []*Value {
	return b.Emit(OpAttentionGrad, values(q, k, v, y, dy, lse, mask), a)
}

// Rope rotates pairs of the last dimension of x[..,S,D] by the positions pos
// ([S] or [B,S]; nil: 0, 1, 2, ...). Attributes: base, dims, interleaved.
func (b *Builder) Rope(x, pos *Value, a Attrs) *Value {
	return b.one(OpRope, values(x, pos), a)
}
