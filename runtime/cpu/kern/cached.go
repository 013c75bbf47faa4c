package kern

import "math"

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
	y := w.attn.o.get(roundUp(a.DV, p.nr))[:c1-c0]
	if clear(y); len(scores) > 0 {
		if t.mode == cachedValues {
			own := w.attn.s.get(roundUp(len(scores), gemvDepth))[:len(scores)]
			copy(own, scores)
			scores = own
		}
		t.attend(w, y, scores, a.V.From(item*a.T*a.DV+c0))
	}
	p.Store(a.Y.From(row*a.DV+c0), y)
}

// attend adds to y, zeros, the softmax of scores times columns of v, block by block of keys as attnHead.forward does.
func (t *cachedTask) attend(w *worker, y, scores []float32, v Buf) {
	p, scale, negZero := t.m.Path, t.a.Scale, float32(math.Copysign(0, -1))
	if scale <= 0 {
		p.Axpb(scores, scores, scale, 0)
		scale = 1
	}
	state := w.attn.state.get(stateRows)
	state[0], state[1] = negInf, 0
	for k := 0; k < len(scores); k += attnKeys {
		s := scores[k:min(k+attnKeys, len(scores))]
		if p.softRow(s, state, scale); state[2] != 1 {
			p.Axpb(y, y, state[2], negZero) // keeps the sign of zeros
		}
		p.addSoft(state, t.sum(w, y, s, v.From(k*t.a.DV)))
	}
	factor := float32(0)
	if state[1] != 0 {
		factor = 1 / state[1]
	}
	p.Axpb(y, y, factor, negZero)
}

// scores multiplies a row of q with the first rows of k, each product one chain, as tiles do.
func (t *cachedTask) scores(w *worker, s []float32, row int, k Buf) {
	p, d := t.m.Path, t.a.D
	if d == 0 || len(s) == 0 {
		clear(s)
		return
	}
	from, q := t.a.Q.From(row*d), w.attn.q.get(roundUp(d, 16))
	clear(q)
	p.Load(q[:d], from)
	switch {
	case p.turned[k.Type] == nil:
		t.tileProducts(w, s, q, k)
	case p.multipliesWords(from.Type, k.Type, d) && !p.anySubnormal(floatsAt(from.at(0), d/2)):
		words := w.words.get(d / 2)
		copy(words, floatsAt(from.at(0), d/2))
		t.products(w, s, q, words, k)
	default:
		t.products(w, s, q, nil, k)
	}
}

// products are those of q, and of its words if they are multiplied in the VNNI layout.
func (t *cachedTask) products(w *worker, s, q, words []float32, k Buf) {
	p, d, n := t.m.Path, t.a.D, len(s)
	if n < p.nr { // the other rows are zeros
		size := d * k.Type.Size()
		rows, all := Floats(w.attn.k.get(p.nr * d)).Data[:p.nr*size], w.tile.get(p.nr)
		clear(rows[copy(rows, k.Data[:n*size]):])
		t.products(w, all, q, words, Buf{k.Type, rows})
		copy(s, all)
		return
	}
	for j := 0; j < n; j += p.nr {
		j = min(j, n-p.nr)
		to, next := s[j:j+p.nr], k.at(min((j+p.nr)*d, k.Len()-1))
		if words == nil {
			p.turned[k.Type][0](d, &q[0], k.at(j*d), d, &to[0], p.nr, 0, next)
		} else if p.vnni.turned[0](d, &words[0], k.at(j*d), d, &to[0], p.nr, 0, next) != 0 {
			t.replaceSubnormal(w, to, q, k.From(j*d))
		}
	}
}

// replaceSubnormal multiplies in f32 those rows of k that have subnormal elements.
func (t *cachedTask) replaceSubnormal(w *worker, s, q []float32, k Buf) {
	p, d, exact := t.m.Path, t.a.D, w.row[0].get(t.m.nr)
	p.turned[k.Type][0](d, &q[0], k.at(0), d, &exact[0], p.nr, 0, k.at(0))
	for i := range s {
		if p.anySubnormal(floatsAt(k.at(i*d), d/2)) {
			s[i] = exact[i]
		}
	}
}

// tileProducts are products of q by a tile of one row, for paths that have no kernels for few rows.
func (t *cachedTask) tileProducts(w *worker, s, q []float32, k Buf) {
	p, d := t.m.Path, t.a.D
	columns, offs := w.attn.k.get(d*p.nr+p.tw), getInts(&w.offs, p.tw)
	for j := 0; j < len(s); j += p.nr {
		n := min(p.nr, len(s)-j)
		for g := 0; g < n; g += p.tw {
			for r := range offs {
				offs[r] = r * d * k.Type.Size()
			}
			p.trans[k.Type](d, min(p.tw, n-g), &columns[g], p.nr, k.at((j+g)*d), &offs[0])
		}
		p.tile[1][0](d, &q[0], &columns[0], p.nr, &s[j], p.nr, n, 0, still(&s[j]), 0)
	}
}

// sum adds the first rows of columns of v, each times its share, to y: in a chain that begins with y, or to which y is added, as
// the tiles of the path do. It returns the sum of the shares, which are added one by one while other products wait for v.
func (t *cachedTask) sum(w *worker, y, share []float32, v Buf) (sum float32) {
	p, d, n, cols := t.m.Path, t.a.DV, len(share), len(y)
	j := 0
	if p.unpacked == nil {
		t.tileSum(w, y, share, v)
		cols = 0
	} else if cols%p.lanes == 0 && cols > 0 {
		for ; j+gemvDepth <= n; j += gemvDepth {
			p.gemv[v.Type][0](cols/p.lanes, &y[0], d, &share[j], v.at(j*d), d)
			for _, e := range share[j:][:gemvDepth] {
				sum += e
			}
		}
	}
	row := w.attn.v.get(cols)
	for ; j < n; j++ {
		if sum += share[j]; cols > 0 {
			p.Load(row, v.From(j*d))
			p.axpy(cols, &y[0], &row[0], &y[0], share[j])
		}
	}
	return sum
}

// tileSum is sum by tiles of one row.
func (t *cachedTask) tileSum(w *worker, y, share []float32, v Buf) {
	p, n := t.m.Path, len(share)
	rows := w.attn.v.get(n * p.nr)
	for c := 0; c < len(y); c += p.nr {
		wide := min(p.nr, len(y)-c)
		p.rows[v.Type](n, wide, &rows[0], p.nr, v.at(c), t.a.DV)
		p.tile[1][0](n, &share[0], &rows[0], p.nr, &y[c], p.nr, wide, 1, still(&y[c]), 0)
	}
}
