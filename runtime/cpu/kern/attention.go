package kern

import "math"

// View is a batch of heads of rows whose elements are contiguous: strides between batch items, heads and rows.
// A zero stride broadcasts.
type View struct {
	Buf
	Stride [3]int
}

// Attention describes y = softmax(scale * q k^T + mask) v and its gradient, without the S x T matrix in memory.
// Query head h reads key head h*KVHeads/Heads. A query that sees no key gives zeros and an LSE of -Inf.
type Attention struct {
	Batch, Heads, KVHeads int
	S, T                  int // queries, keys
	D, DV                 int // width of q and k, of v and y
	Scale                 float32
	Causal                bool // query i sees keys up to i+Offset
	Offset                int
	Q, K, V, Y            View
	Mask                  View      // added to scaled scores, [Batch, Heads, S, T] by its strides; absent if none
	LSE                   []float32 // [Batch, Heads, S]: written forward, read by the gradient

	DY                  View // gradient only, like the next three
	GradQ, GradK, GradV View
}

// Blocks of the score matrix. They fix the order of sums, so they do not depend on the path or the workers.
const (
	attnRows = 64
	attnKeys = 256
)

// attnTask is a running attention: forward a task is a block of queries of one head, backward a key head.
type attnTask struct {
	m    *Machine
	a    Attention
	grad bool
}

// Attention computes Y and, where present, LSE.
func (m *Machine) Attention(a *Attention) {
	t := &m.attn
	t.m, t.a, t.grad = m, *a, false
	work := 2 * a.Batch * a.Heads * a.S * a.T * (a.D + a.DV)
	m.run(work, a.Batch*a.Heads*ceilDiv(a.S, attnRows), t)
}

// AttentionGrad computes GradQ, GradK and GradV from Q, K, V, Y, LSE and DY.
func (m *Machine) AttentionGrad(a *Attention) {
	t := &m.attn
	t.m, t.a, t.grad = m, *a, true
	work := 4 * a.Batch * a.Heads * a.S * a.T * (a.D + a.DV)
	m.run(work, a.Batch*a.KVHeads, t)
}

func (t *attnTask) Run(worker, i int) {
	w := &t.m.worker[worker]
	if t.grad {
		x := attnHead{t: t, w: w, worker: worker, b: i / t.a.KVHeads}
		x.gradHead(i % t.a.KVHeads)
		return
	}
	blocks := ceilDiv(t.a.S, attnRows)
	i, q := i/blocks, i%blocks*attnRows
	x := attnHead{t: t, w: w, worker: worker, b: i / t.a.Heads, h: i % t.a.Heads}
	x.forward(q, min(attnRows, t.a.S-q))
}

// attnHead is the work of one worker on one head.
type attnHead struct {
	t      *attnTask
	w      *worker
	worker int
	b, h   int
}

// mat is the matrix of v for this batch item and head, from row r.
func (v *View) mat(b, h, r int, trans bool) Mat {
	return Mat{Buf: v.From(b*v.Stride[0] + h*v.Stride[1] + r*v.Stride[2]), LD: v.Stride[2], T: trans}
}

func (x *attnHead) kvHead() int { return x.h * x.t.a.KVHeads / x.t.a.Heads }

// seen is how many of the keys [k, k+n) query q sees.
func (x *attnHead) seen(q, k, n int) int {
	if !x.t.a.Causal {
		return n
	}
	return max(0, min(n, q+x.t.a.Offset+1-k))
}

// keys is the number of keys of the block at k that the last of h queries from q sees; 0 ends the loop over blocks.
func (x *attnHead) keys(q, h, k int) int {
	if k >= x.t.a.T {
		return 0
	}
	return x.seen(q+h-1, k, min(attnKeys, x.t.a.T-k))
}

// local is a product inside the task: c (+)= a*b, f32.
func (x *attnHead) local(rows, cols, depth int, a, b Mat, c []float32, ldc int, into bool) {
	x.w.local.rows, x.w.local.cols = rows, cols
	x.w.local.multiplyLocal(x.t.m, x.worker, a, b, depth, c, ldc, into)
}

// scores computes the scores of h queries from q against n keys from k. What is left to do to them is to multiply
// them by scale: 1 if the mask has been added already.
func (x *attnHead) scores(s []float32, q, h, k, n int) (scale float32) {
	a, p := &x.t.a, x.t.m.Path
	x.local(h, n, a.D, a.Q.mat(x.b, x.h, q, false), a.K.mat(x.b, x.kvHead(), k, true), s, attnKeys, false)
	if a.Mask.absent() && a.Scale > 0 {
		return a.Scale
	}
	for r := range h {
		row := s[r*attnKeys:][:n]
		p.axpb(n, &row[0], &row[0], a.Scale, 0)
		if !a.Mask.absent() {
			mask := x.w.row[0].get(n)
			p.Load(mask, a.Mask.mat(x.b, x.h, q+r, false).From(k))
			p.Binary(Add, row, row, mask)
		}
	}
	return 1
}

// forward computes queries [q,q+h) of the head by the online softmax of Milakov and Gimelshein (2018), keys in blocks.
func (x *attnHead) forward(q, h int) {
	a, w := &x.t.a, x.w
	s, o := w.row[1].get(attnRows*attnKeys), w.row[2].get(h*a.DV)
	clear(o)
	var top, sum [attnRows]float32
	for r := range top {
		top[r] = negInf
	}
	for k, n := 0, x.keys(q, h, 0); n > 0; k, n = k+n, x.keys(q, h, k+n) {
		scale := x.scores(s, q, h, k, n)
		for r := range h {
			x.online(s[r*attnKeys:][:n], o[r*a.DV:][:a.DV], x.seen(q+r, k, n), scale, &top[r], &sum[r])
		}
		x.local(h, a.DV, n, Mat{Buf: Floats(s), LD: attnKeys}, a.V.mat(x.b, x.kvHead(), k, false), o, a.DV, true)
	}
	x.store(q, h, o, &top, &sum)
}

// online turns the scores of a row into exponentials, of which the query sees the first vis, and brings the running
// maximum, the sum and the row of results up to date.
func (x *attnHead) online(row, o []float32, vis int, scale float32, top, sum *float32) {
	p := x.t.m.Path
	mx := max(*top, scale*p.MaxOf(row[:vis]))
	if mx == negInf {
		clear(row)
		return
	}
	clear(row[vis:])
	part := float32(0)
	if vis > 0 {
		p.expAxpb(vis, &row[0], &row[0], scale, -mx)
		part = p.Sum(row[:vis])
	}
	if old := exp32(*top - mx); old != 1 {
		*sum *= old
		p.axpb(len(o), &o[0], &o[0], old, 0)
	}
	*sum, *top = *sum+part, mx
}

// store divides the rows by their sums and stores them and their LSE.
func (x *attnHead) store(q, h int, o []float32, top, sum *[attnRows]float32) {
	a, p := &x.t.a, x.t.m.Path
	for r := range h {
		row, inv := o[r*a.DV:][:a.DV], 1/sum[r]
		if sum[r] == 0 {
			inv = 0
		}
		p.axpb(a.DV, &row[0], &row[0], inv, 0)
		if a.LSE != nil {
			a.LSE[(x.b*a.Heads+x.h)*a.S+q+r] = top[r] + float32(math.Log(float64(sum[r])))
		}
	}
	a.Y.put(p, x.b, x.h, q, h, a.DV, o)
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

// gradHead computes the gradients of one key head and of the query heads that read it.
func (x *attnHead) gradHead(kv int) {
	a, w := &x.t.a, x.w
	dk, dv := w.row[3].get(a.T*a.D), w.row[4].get(a.T*a.DV)
	clear(dk)
	clear(dv)
	for x.h = range a.Heads {
		if x.kvHead() != kv {
			continue
		}
		for q := 0; q < a.S; q += attnRows {
			x.gradQueries(q, min(attnRows, a.S-q), dk, dv)
		}
	}
	a.GradK.put(x.t.m.Path, x.b, kv, 0, a.T, a.D, dk)
	a.GradV.put(x.t.m.Path, x.b, kv, 0, a.T, a.DV, dv)
}

// gradQueries adds what queries [q,q+h) give to dk and dv and stores their dq: with P the softmax,
//
//	dV += P^T dY    dP = dY V^T    dS = P*(dP - rowsum(dY*Y))*scale    dQ = dS K    dK += dS^T Q
func (x *attnHead) gradQueries(q, h int, dk, dv []float32) {
	a, p, w := &x.t.a, x.t.m.Path, x.w
	s, ds, dq := w.row[1].get(attnRows*attnKeys), w.row[2].get(attnRows*attnKeys), w.row[5].get(h*a.D)
	clear(dq)
	var delta [attnRows]float32
	x.deltas(q, h, &delta)
	dy := a.DY.mat(x.b, x.h, q, false)
	for k, n := 0, x.keys(q, h, 0); n > 0; k, n = k+n, x.keys(q, h, k+n) {
		scale := x.scores(s, q, h, k, n)
		x.local(h, n, a.DV, dy, a.V.mat(x.b, x.kvHead(), k, true), ds, attnKeys, false)
		for r := range h {
			row, g := s[r*attnKeys:][:n], ds[r*attnKeys:][:n]
			lse, vis := a.LSE[(x.b*a.Heads+x.h)*a.S+q+r], x.seen(q+r, k, n)
			if lse == negInf {
				vis = 0
			}
			clear(row[vis:])
			clear(g[vis:])
			if vis > 0 {
				p.expAxpb(vis, &row[0], &row[0], scale, -lse)
				p.softGrad(vis, &g[0], &g[0], &row[0], a.Scale, -delta[r])
			}
		}
		probs, grads := Mat{Buf: Floats(s), LD: attnKeys}, Mat{Buf: Floats(ds), LD: attnKeys}
		x.local(h, a.D, n, grads, a.K.mat(x.b, x.kvHead(), k, false), dq, a.D, true)
		probs.T, grads.T = true, true
		x.local(n, a.DV, h, probs, dy, dv[k*a.DV:], a.DV, true)
		x.local(n, a.D, h, grads, a.Q.mat(x.b, x.h, q, false), dk[k*a.D:], a.D, true)
	}
	a.GradQ.put(p, x.b, x.h, q, h, a.D, dq)
}

// deltas computes rowsum(dY*Y) of h queries from q.
func (x *attnHead) deltas(q, h int, delta *[attnRows]float32) {
	a, p := &x.t.a, x.t.m.Path
	y := a.Y.rows(p, &x.w.row[0], x.b, x.h, q, h, a.DV)
	dy := a.DY.rows(p, &x.w.row[1], x.b, x.h, q, h, a.DV)
	for r := range h {
		delta[r] = p.Dot(y.row(r, a.DV), dy.row(r, a.DV))
	}
}

// wideRows are rows of f32, step apart.
type wideRows struct {
	x    []float32
	step int
}

func (w wideRows) row(r, n int) []float32 { return w.x[r*w.step:][:n] }

// rows shows n elements of each of h rows from q in f32: where they lie, or widened into mem.
func (v *View) rows(p *Path, mem *floats, b, head, q, h, n int) wideRows {
	m := v.mat(b, head, q, false)
	if m.Type == F32 {
		return wideRows{m.f32(), m.LD}
	}
	w := wideRows{mem.get(h * n), n}
	if m.LD == n {
		p.Load(w.x, m.Buf)
		return w
	}
	for r := range h {
		p.Load(w.row(r, n), m.From(r*m.LD))
	}
	return w
}

// put stores h rows of n elements from q.
func (v *View) put(p *Path, b, head, q, h, n int, x []float32) {
	m := v.mat(b, head, q, false)
	if m.LD == n {
		p.Store(m.Buf, x[:h*n])
		return
	}
	for r := range h {
		p.Store(m.From(r*m.LD), x[r*n:(r+1)*n])
	}
}
