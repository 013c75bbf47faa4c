package kern

// CachedAttention is attention of S queries a sequence to the filled rows of its cache. Query i of sequence b sees the
// rows 0..Pos[b]+i of K and V, [Batch, KVHeads, T, D] and [Batch, KVHeads, T, DV]; from i = Count[b] on its result is 0.
// Rows that no query sees are not read.
type CachedAttention struct {
	Batch, Heads, KVHeads int
	S, T                  int // queries, rows of the caches
	D, DV                 int // width of q and k, of v and y
	Scale                 float32
	Q, K, V, Y            Buf // Q and Y are [Batch, Heads, S, .]
	Pos, Count            []int
}

// cachedQueries is the smallest number of queries that are computed in tiles, as in Attention.
const cachedQueries = 8

// CachedAttention computes Y.
func (m *Machine) CachedAttention(a *CachedAttention) {
	if a.S >= cachedQueries {
		m.cachedInTiles(a)
		return
	}
	t := &m.cached
	t.m, t.a = m, *a
	work := 0
	for b := range a.Batch {
		work += 2 * a.Heads * a.Count[b] * (a.Pos[b] + a.Count[b]) * (a.D + a.DV)
	}
	m.run(work, a.Batch*a.KVHeads, t)
}

// cachedInTiles computes one sequence after the other.
func (m *Machine) cachedInTiles(a *CachedAttention) {
	rows := func(x Buf, b, heads, n, width int) View {
		return View{Buf: x.From(b * heads * n * width), Stride: [3]int{heads * n * width, n * width, width}}
	}
	for b := range a.Batch {
		y := rows(a.Y, b, a.Heads, a.S, a.DV)
		if a.Count[b] > 0 {
			m.Attention(&Attention{Batch: 1, Heads: a.Heads, KVHeads: a.KVHeads, S: a.Count[b], T: a.Pos[b] + a.Count[b], D: a.D, DV: a.DV,
				Scale: a.Scale, Causal: true, Offset: a.Pos[b], Q: rows(a.Q, b, a.Heads, a.S, a.D), K: rows(a.K, b, a.KVHeads, a.T, a.D),
				V: rows(a.V, b, a.KVHeads, a.T, a.DV), Y: y})
		}
		size := a.Y.Type.Size()
		for h := range a.Heads {
			clear(y.Data[(h*a.S+a.Count[b])*a.DV*size : (h+1)*a.S*a.DV*size])
		}
	}
}

// cachedTask is attention to caches in progress: a task is a head of keys of a sequence, with all queries that read it.
type cachedTask struct {
	m *Machine
	a CachedAttention
}

func (t *cachedTask) Run(worker, i int) {
	a, w, p := &t.a, t.m.worker[worker], t.m.Path
	b, g := i/a.KVHeads, i%a.KVHeads
	k, v := a.K.From(i*a.T*a.D), a.V.From(i*a.T*a.DV)
	depth, wide := roundUp(a.D, 16), roundUp(a.DV, p.lanes)
	q, y := w.attn.q.get(depth), w.attn.o.get(wide)
	clear(q)
	group := a.Heads / a.KVHeads
	for h := g * group; h < (g+1)*group; h++ {
		for s := range a.S {
			row := (b*a.Heads+h)*a.S + s
			clear(y)
			if s < a.Count[b] {
				p.Load(q[:a.D], a.Q.From(row*a.D))
				n := a.Pos[b] + s + 1
				scores := w.attn.s.get(roundUp(n, gemvDepth))
				t.scores(w, scores[:n], q, k)
				p.softmax(scores[:n], a.Scale)
				t.sum(w, y, scores[:n], v)
			}
			p.Store(a.Y.From(row*a.DV), y[:a.DV])
		}
	}
}

// scores multiplies q with the first rows of k.
func (t *cachedTask) scores(w *worker, s, q []float32, k Buf) {
	p, d, n := t.m.Path, t.a.D, len(s)
	j := 0
	if p.dots[k.Type][0] != nil && d%16 == 0 {
		for ; j+4 <= n; j += 4 {
			p.dots[k.Type][0](d, &q[0], d, k.at(j*d), d, &s[j], 4)
		}
	}
	row := w.attn.k.get(d)
	for ; j < n; j++ {
		p.Load(row, k.From(j*d))
		s[j] = p.dot(d, &q[0], &row[0])
	}
}

// softmax turns scores times scale into their share of the sum of exponentials.
func (p *Path) softmax(s []float32, scale float32) {
	n := len(s)
	top := p.max(n, &s[0])
	if scale < 0 {
		top = p.min(n, &s[0])
	}
	if top == negInf {
		top = 0
	}
	p.axpb(n, &s[0], &s[0], 1, -top)
	p.expAxpb(n, &s[0], &s[0], scale, 0)
	p.axpb(n, &s[0], &s[0], 1/p.sum(n, &s[0]), 0)
}

// sum adds the first rows of v, each times its share, to y.
func (t *cachedTask) sum(w *worker, y, share []float32, v Buf) {
	p, d, n := t.m.Path, t.a.DV, len(share)
	j := 0
	if p.gemv[v.Type][0] != nil && d%p.lanes == 0 {
		for ; j+gemvDepth <= n; j += gemvDepth {
			p.gemv[v.Type][0](d/p.lanes, &y[0], d, &share[j], v.at(j*d), d)
		}
	}
	row := w.attn.v.get(d)
	for ; j < n; j++ {
		p.Load(row, v.From(j*d))
		p.axpy(d, &y[0], &row[0], &y[0], share[j])
	}
}
