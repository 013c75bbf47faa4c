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
	t.m, t.a, t.longest = m, *a, 0
	for b := range a.Batch {
		if a.Count[b] > 0 {
			t.longest = max(t.longest, a.Pos[b]+a.Count[b])
		}
	}
	if t.splits(m.pool.share()) {
		t.ld = roundUp(t.longest, gemvDepth)
		t.all = t.memory.get(a.Batch * a.Heads * a.S * t.ld)
		t.run(cachedKeys)
		t.run(cachedValues)
		return
	}
	t.run(cachedWhole)
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

// cachedTask is attention to caches in progress. A task is a head of keys of a sequence, with all queries that read it, or where
// these are too few for the workers, some keys of one, and then some columns of its values.
type cachedTask struct {
	m       *Machine
	a       CachedAttention
	mode    cachedMode
	part    Division
	longest int       // keys that any query sees
	memory  floats    // for all
	all     []float32 // scores of all queries, ld apart, where keys and values are apart
	ld      int
}

type cachedMode uint8

const (
	cachedWhole  cachedMode = iota // heads
	cachedKeys                     // scores, of some keys
	cachedValues                   // sums, of some columns
)

// cachedUnit is the number of keys of a unit of work, a multiple of those that a kernel multiplies at once.
const cachedUnit = 64

// readCost is what reading a byte that is in no cache costs, see box.
const readCost = 2

// box is the work of a mode. Every part of the columns computes the softmax.
func (t *cachedTask) box(mode cachedMode) box {
	a, queries := &t.a, t.a.Heads/t.a.KVHeads*t.a.S
	b := box{items: a.Batch * a.KVHeads, rows: 1, cols: 1, task: taskCost}
	key := 2*queries + readCost*a.K.Type.Size() // of an element
	if soft := softCost / 4 * queries * t.longest; mode == cachedKeys {
		b.rows = ceilDiv(t.longest, cachedUnit)
		b.cell = cachedUnit * a.D * key
	} else if b.task += soft; mode == cachedValues {
		b.rows = max(1, a.DV/t.vector())
		b.cell = t.longest * a.DV / b.rows * key
	} else {
		b.cell = t.longest * (a.D + a.DV) * key
	}
	return b
}

// splits reports whether keys, and then values, are divided among the workers, because heads would leave some of them idle.
func (t *cachedTask) splits(workers int) bool {
	if workers == 1 || t.longest == 0 {
		return false
	}
	whole := t.m.divide(t.box(cachedWhole), workers)
	if whole.Workers == workers && whole.balance() >= balanced {
		return false
	}
	keys, values := t.m.divide(t.box(cachedKeys), workers), t.m.divide(t.box(cachedValues), workers)
	return keys.Time+values.Time < whole.Time-whole.Time/16
}

// vector is the number of columns of values of a unit of work.
func (t *cachedTask) vector() int {
	if t.a.DV%t.m.lanes > 0 {
		return max(1, t.a.DV)
	}
	return t.m.lanes
}

func (t *cachedTask) run(mode cachedMode) {
	b := t.box(mode)
	if b.items > 0 {
		t.mode, t.part = mode, t.m.divide(b, t.m.pool.share())
		t.m.runDivided(&b, t.part, t)
	}
}

func (t *cachedTask) Run(worker, i int) {
	a, w := &t.a, t.m.worker[worker]
	item, part := i/t.part.rows, i%t.part.rows
	b, g := item/a.KVHeads, item%a.KVHeads
	units := ceilDiv(t.longest, cachedUnit)
	k0, k1, c0, c1 := 0, t.longest, 0, a.DV
	switch t.mode {
	case cachedKeys:
		k0, k1 = bound(part, t.part.rows, units)*cachedUnit, bound(part+1, t.part.rows, units)*cachedUnit
	case cachedValues:
		units = max(1, a.DV/t.vector())
		c0, c1 = bound(part, t.part.rows, units)*t.vector(), min(bound(part+1, t.part.rows, units)*t.vector(), a.DV)
	}
	group := a.Heads / a.KVHeads
	for h := g * group; h < (g+1)*group; h++ {
		for s := range a.S {
			row, n := (b*a.Heads+h)*a.S+s, 0
			if s < a.Count[b] {
				n = a.Pos[b] + s + 1
			}
			var all []float32 // scores of the row
			if t.mode != cachedWhole {
				all = t.all[row*t.ld:][:n]
			}
			if t.mode != cachedValues && k0 < n {
				if all == nil {
					all = w.attn.s.get(roundUp(n, gemvDepth))[:n]
				}
				t.scores(w, all[k0:min(k1, n)], row, a.K.From((item*a.T+k0)*a.D))
			}
			if t.mode != cachedKeys {
				t.results(w, row, all, item, c0, c1)
			}
		}
	}
}

// results computes columns [c0,c1) of a row of y from its scores, which may be another worker's, too.
func (t *cachedTask) results(w *worker, row int, scores []float32, item, c0, c1 int) {
	a, p := &t.a, t.m.Path
	y := w.attn.o.get(roundUp(a.DV, p.lanes))[:c1-c0]
	if clear(y); len(scores) > 0 {
		if t.mode == cachedValues {
			own := w.attn.s.get(roundUp(len(scores), gemvDepth))[:len(scores)]
			copy(own, scores)
			scores = own
		}
		p.softmax(scores, a.Scale)
		t.sum(w, y, scores, a.V.From(item*a.T*a.DV+c0))
	}
	p.Store(a.Y.From(row*a.DV+c0), y)
}

// scores multiplies a row of q with the first rows of k.
func (t *cachedTask) scores(w *worker, s []float32, row int, k Buf) {
	p, d, n := t.m.Path, t.a.D, len(s)
	q := w.attn.q.get(roundUp(d, 16))
	clear(q)
	p.Load(q[:d], t.a.Q.From(row*d))
	if n > 0 && p.turned[k.Type] != nil {
		t.products(w, s, q, k)
		return
	}
	key := w.attn.k.get(d)
	for j := range n {
		p.Load(key, k.From(j*d))
		s[j] = p.dot(d, &q[0], &key[0])
	}
}

// products multiplies q with the first rows of k, each product in chains as in Gemm.
func (t *cachedTask) products(w *worker, s, q []float32, k Buf) {
	p, d, n := t.m.Path, t.a.D, len(s)
	if n < p.nr { // the other rows are zeros
		size := d * k.Type.Size()
		rows, all := Floats(w.attn.k.get(p.nr * d)).Data[:p.nr*size], w.tile.get(p.nr)
		clear(rows[copy(rows, k.Data[:n*size]):])
		t.products(w, all, q, Buf{k.Type, rows})
		copy(s, all)
		return
	}
	for j := 0; j < n; j += p.nr {
		j = min(j, n-p.nr)
		next := min((j+p.nr)*d, k.Len()-1)
		for i := 0; i < d; i += p.chain {
			p.turned[k.Type][0](min(p.chain, d-i), &q[i], k.at(j*d+i), d, &s[j], p.nr, i, k.at(next))
		}
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
	p.axpb(n, &s[0], &s[0], 1/p.Sum(s), 0)
}

// sum adds the first rows of columns of v, each times its share, to y.
func (t *cachedTask) sum(w *worker, y, share []float32, v Buf) {
	p, d, n, cols := t.m.Path, t.a.DV, len(share), len(y)
	j := 0
	if p.gemv[v.Type][0] != nil && cols%p.lanes == 0 && cols > 0 {
		for ; j+gemvDepth <= n; j += gemvDepth {
			p.gemv[v.Type][0](cols/p.lanes, &y[0], d, &share[j], v.at(j*d), d)
		}
	}
	row := w.attn.v.get(cols)
	for ; j < n; j++ {
		p.Load(row, v.From(j*d))
		p.axpy(cols, &y[0], &row[0], &y[0], share[j])
	}
}
