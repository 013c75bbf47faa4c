package cpu

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// buf is a buffer as kern sees it; an absent one is the zero Buf.
func (e *exec) buf(id lower.BufferID) kern.Buf {
	if id == lower.None {
		return kern.Buf{}
	}
	return kern.Buf{Type: kernTypes[e.p.Buffers[id].Type.DType], Data: e.mem[id]}
}

var actOf = map[lower.Act]kern.Act{
	lower.NoAct: kern.NoAct, lower.Relu: kern.ActRelu, lower.Tanh: kern.ActTanh,
}

func (e *exec) epilogue(s *lower.Step, p *lower.Epilogue) kern.Epilogue {
	out := kern.Epilogue{Act: actOf[p.Act]}
	if p.Bias != 0 {
		out.Bias = e.buf(s.In[p.Bias])
	}
	if p.Residual != 0 {
		out.Residual.Buf = e.buf(s.In[p.Residual])
	}
	return out
}

// gemm binds a product. If there are more than two batch dimensions, the outer ones become a loop
// of calls.
func (e *exec) gemm(s *lower.Step) func() {
	g := s.Gemm
	k := &kern.Gemm{M: int(g.M), N: int(g.N), K: int(g.K), TF32: g.TF32, Epilogue: e.epilogue(s, &g.Epilogue)}
	outer := max(0, len(g.Batch)-2)
	mats := [3]*kern.Mat{&k.A, &k.B, &k.C}
	for i, m := range []*lower.Matrix{&g.A, &g.B, &g.C} {
		mats[i].LD, mats[i].T = int(m.LD), m.T
		for l, d := 1, len(m.Strides)-1; l >= 0 && d >= 0; l, d = l-1, d-1 {
			mats[i].Stride[l] = int(m.Strides[d])
			k.Batch[l] = int(g.Batch[d])
		}
	}
	if k.Residual.Data != nil {
		k.Residual.LD, k.Residual.Stride = k.C.LD, k.C.Stride
	}
	post, c := e.postOp(s)
	k.PostOp = post.kern()
	a, b, r := e.buf(s.In[0]), e.buf(s.In[1]), k.Residual.Buf
	m, sizes := e.machine(), g.Batch[:outer]
	if outer == 0 {
		k.A.Buf, k.B.Buf, k.C.Buf = a, b, c
		k.A.Fixed, k.B.Fixed = e.fixed(s.In[0]), e.fixed(s.In[1])
		e.reads[s] = []*kern.Buf{&k.A.Buf, &k.B.Buf}
		return func() { post.begin(); m.Gemm(k) }
	}
	items := int64(1)
	for _, n := range sizes {
		items *= n
	}
	return func() {
		post.begin()
		for item := range items {
			rest, at := item, [3]int64{}
			for d := outer - 1; d >= 0; d-- {
				x := rest % sizes[d]
				rest /= sizes[d]
				at[0] += x * g.A.Strides[d]
				at[1] += x * g.B.Strides[d]
				at[2] += x * g.C.Strides[d]
			}
			k.A.Buf, k.B.Buf = a.From(int(at[0])), b.From(int(at[1]))
			if post.from(int(at[2])); c.Data != nil {
				k.C.Buf = c.From(int(at[2]))
			}
			if r.Data != nil {
				k.Residual.Buf = r.From(int(at[2]))
			}
			m.Gemm(k)
		}
	}
}

// spatial3 pads one to three spatial numbers at the front to three.
func spatial3(x []int64, rest int) (y [3]int) {
	y = [3]int{rest, rest, rest}
	for i, v := range x {
		y[3-len(x)+i] = int(v)
	}
	return y
}

// conv binds a convolution or one of its gradients.
func (e *exec) conv(s *lower.Step) func() {
	w := &s.Conv.Window
	k := &kern.Conv{N: int(w.N), C: int(w.C), K: int(w.O), Groups: int(w.Groups),
		In: spatial3(w.In, 1), Out: spatial3(w.Out, 1), Kernel: spatial3(w.Kernel, 1), Stride: spatial3(w.Stride, 1),
		Dilation: spatial3(w.Dilation, 1), Pad: spatial3(w.Begin, 0), ChannelsLast: w.Last, Weights: kern.OIX,
		TF32: s.Conv.TF32, Direct: s.Conv.Direct, Epilogue: e.epilogue(s, &s.Conv.Epilogue)}
	if w.Last {
		k.Weights = kern.OXI
	}
	if w.N == 0 || len(e.mem[s.Out[0]]) == 0 { // no images: there are no results, and the gradient of the weights is zero
		return e.fillBuffer(s.Out[0], 0)
	}
	var post *clusterPostOp
	out, ends := kern.Buf{}, false
	if s.Conv.Dir == lower.ConvForward && k.Groups == 1 {
		out, ends = e.intoEpilogue(s, &k.Epilogue)
	}
	if !ends {
		post, out = e.postOp(s)
		k.PostOp = post.kern()
	}
	m, a, b := e.machine(), e.buf(s.In[0]), e.buf(s.In[1])
	if s.Conv.Dir != lower.ConvGradW {
		k.Fixed = e.fixed(s.In[1])
	}
	switch s.Conv.Dir {
	case lower.ConvForward:
		k.X, k.W, k.Y = a, b, out
		e.reads[s] = []*kern.Buf{&k.X, &k.W}
		return func() { post.begin(); m.Conv(k) }
	case lower.ConvGradX:
		k.Y, k.W, k.X = a, b, out
		e.reads[s] = []*kern.Buf{&k.Y, &k.W}
		return func() { post.begin(); m.ConvInputGrad(k) }
	}
	k.X, k.Y, k.W = a, b, out
	e.reads[s] = []*kern.Buf{&k.X, &k.Y}
	return func() { m.ConvWeightGrad(k) }
}

// heads returns a [batch, heads, length, width] tensor as a view for kern.
func (e *exec) heads(id lower.BufferID) kern.View {
	if id == lower.None {
		return kern.View{}
	}
	d, st := e.p.Buffers[id].Type.Shape.Dims(), e.p.Buffers[id].Strides
	if st != nil {
		return kern.View{Buf: e.buf(id), Stride: [3]int{int(st[0]), int(st[1]), int(st[2])}}
	}
	row := int(d[3])
	return kern.View{Buf: e.buf(id), Stride: [3]int{int(d[1]) * int(d[2]) * row, int(d[2]) * row, row}}
}

// attention binds attention or its gradient.
func (e *exec) attention(s *lower.Step) func() {
	a := s.Attn
	k := &kern.Attention{Batch: int(a.Batch), Heads: int(a.Heads), KVHeads: int(a.KVHeads), S: int(a.Queries), T: int(a.Keys),
		D: int(a.Width), DV: int(a.VWidth), Scale: float32(a.Scale), Causal: a.Causal, Offset: int(a.Keys - a.Queries),
		Q: e.heads(s.In[0]), K: e.heads(s.In[1]), V: e.heads(s.In[2])}
	spread := func() {}
	if a.Mask != 0 && s.In[a.Mask] != lower.None {
		k.Mask, spread = e.mask(s.In[a.Mask], a)
	}
	m := e.machine()
	if a.Batch*a.Heads*a.Queries*a.Keys == 0 {
		return e.clearAll(s.Out)
	}
	if !a.Backward {
		k.Y = e.heads(s.Out[0])
		if len(s.Out) > 1 {
			k.LSE = slice[float32](e.mem[s.Out[1]])
		}
		return func() { spread(); m.Attention(k) }
	}
	in := e.namedIn(s)
	k.Y, k.DY = e.heads(in["y"]), e.heads(in["dy"])
	k.LSE = slice[float32](e.mem[in["lse"]])
	k.GradQ, k.GradK, k.GradV = e.heads(s.Out[0]), e.heads(s.Out[1]), e.heads(s.Out[2])
	return func() { spread(); m.AttentionGrad(k) }
}

// clearAll sets results to zero, which is the result of attention without keys.
func (e *exec) clearAll(out []lower.BufferID) func() {
	return func() {
		for _, id := range out {
			clear(e.mem[id])
		}
	}
}

// mask returns an additive mask as a view. A mask that is broadcast along the keys is expanded
// first, because kern reads whole rows.
func (e *exec) mask(id lower.BufferID, a *lower.Attention) (v kern.View, spread func()) {
	st, keys := a.MaskStrides, int(a.Keys)
	v = kern.View{Buf: e.buf(id), Stride: [3]int{int(st[0]), int(st[1]), int(st[2])}}
	if st[3] != 0 || keys == 1 {
		return v, func() {}
	}
	one := v.Buf
	rows := e.scratch.whole(one.Len() * keys)
	v.Buf = kern.Floats(rows)
	for i := range v.Stride {
		v.Stride[i] *= keys
	}
	return v, func() {
		for i := range one.Len() {
			fill(rows[i*keys:(i+1)*keys], loadOne(one, i))
		}
	}
}

// namedIn finds attention_grad's operands by the names of its row.
func (e *exec) namedIn(s *lower.Step) map[string]lower.BufferID {
	named := map[string]lower.BufferID{}
	for i, o := range ir.OpAttentionGrad.Def().In {
		if i < len(s.In) {
			named[o.Name] = s.In[i]
		}
	}
	return named
}
