package kern

// View is a batch of heads of rows. The elements of a row are contiguous; the strides are those between batch items,
// heads and rows. A zero stride broadcasts.
type View struct {
	Buf
	Stride [3]int
}

// Attention describes y = softmax(scale * q k^T + mask) v and its gradient. Results overlap no operands. The S x T matrix of scores is
// never in memory as a whole. Query head h reads key head h*KVHeads/Heads. For a query without visible keys the result is zero
// and the LSE is -Inf.
type Attention struct {
	Batch, Heads, KVHeads int
	S, T                  int // queries, keys
	D, DV                 int // width of q and k, of v and y
	Scale                 float32
	Causal                bool // query i sees keys up to i+Offset
	Offset                int
	Q, K, V, Y            View
	Mask                  View      // added to scaled scores, [Batch, Heads, S, T] by its strides; may be absent
	LSE                   []float32 // [Batch, Heads, S]: written forward, read by the gradient

	DY                  View // gradient only, like the next three
	GradQ, GradK, GradV View
}

// attnKeys is the number of keys in a block. It is a constant, because sums are rescaled after each block and results
// must not depend on anything else.
const attnKeys = 128

// attnQueries is the approximate number of queries of a block of the forward pass, gradQueries that of a block of the
// backward pass. Blocks are smaller where there are too few for the workers, down to a tile of queries or to leastKeys keys.
const (
	attnQueries = 128
	gradQueries = 64
	leastKeys   = 32
)

// attnTask is an attention in progress. A task is some blocks of queries, or of keys, of one head, or all of a key head. What is
// computed of a query, or of a key, does not depend on its block.
type attnTask struct {
	attnPlan
	m      *Machine
	a      Attention
	stairs []float32 // p.queries zeros, then p.queries ones: the pattern by which a softFunc hides keys
}

// attnPlan is how the work of a mode is divided.
type attnPlan struct {
	mode         attnMode
	first, heads int // key heads of the batch that it is of
	block        int // queries, or keys
	box          box
	part         Division
}

// attnMode is what tasks compute.
type attnMode uint8

const (
	attnForward     attnMode = iota
	attnGradAll              // all gradients of a key head
	attnGradKeys             // those of some of its keys and values
	attnGradQueries          // those of some queries
)

// Attention computes Y and, if present, LSE.
func (m *Machine) Attention(a *Attention) {
	t := m.attention(a)
	t.run(t.plan(attnForward, 0, a.Batch*a.KVHeads))
}

// AttentionGrad computes GradQ, GradK and GradV from Q, K, V, Y, LSE and DY.
func (m *Machine) AttentionGrad(a *Attention) {
	t := m.attention(a)
	for _, p := range t.gradPlan() {
		t.run(p)
	}
}

// run runs the work of a mode.
func (t *attnTask) run(p attnPlan) {
	if p.box.items*p.box.rows > 0 {
		t.attnPlan = p
		t.m.runDivided(&p.box, p.part, t)
	}
}

// plan divides the work of a mode: into smaller blocks only where that is clearly faster.
func (t *attnTask) plan(mode attnMode, first, heads int) attnPlan {
	workers, least := t.m.pool.share(), 1
	p := attnPlan{mode: mode, first: first, heads: heads, block: 1}
	switch mode {
	case attnForward:
		p.block, least = t.m.blockOf(attnQueries), t.m.queries
	case attnGradKeys:
		p.block, least = attnKeys, roundUp(leastKeys, t.m.stairRows)
	case attnGradQueries:
		p.block, least = t.m.blockOf(gradQueries), t.m.queries
	}
	best := t.divide(p, workers)
	for p.block%(2*least) == 0 && workers > 1 {
		p.block /= 2
		if p := t.divide(p, workers); p.part.Time < best.part.Time-best.part.Time/16 {
			best = p
		}
	}
	return best
}

// divide divides the work of a plan among so many workers.
func (t *attnTask) divide(p attnPlan, workers int) attnPlan {
	p.box = t.box(&p)
	if p.box.items*p.box.rows > 0 {
		p.part = t.m.divide(p.box, workers)
	}
	return p
}

// softCost is what a score costs beside the products.
const softCost = 1 << 6

// box is the work of a mode. A task copies the keys, or queries, that its blocks meet.
func (t *attnTask) box(p *attnPlan) box {
	a, group := &t.a, max(1, t.a.Heads/max(1, t.a.KVHeads))
	b := box{items: p.heads, rows: 1, cols: 1, task: taskCost}
	width, scores := a.D+a.DV, a.S*a.T
	if a.Causal {
		scores /= 2
	}
	switch p.mode {
	case attnForward:
		b.items, b.rows = p.heads*group, t.units(a.S, p.block)
		b.cell = scores*(2*width+softCost)/max(1, b.rows) + packCost*a.T*width
	case attnGradAll:
		b.cell = group*scores*(6*a.D+4*a.DV+2*softCost) + packCost*a.T*width
	case attnGradKeys:
		b.rows = t.units(a.T, p.block)
		b.cell = group * scores * (4*width + 2*softCost) / max(1, b.rows)
		b.task += 4 * packCost * group * a.S * width
	case attnGradQueries:
		b.items, b.rows = p.heads*group, t.units(a.S, p.block)
		b.cell = scores * (4*a.D + 2*a.DV + 2*softCost) / max(1, b.rows)
		b.task += packCost * a.T * width
	}
	return b
}

// units is how many units of work n queries, or keys, are, in blocks of that size: a block each, or, if later queries see more keys,
// a block and its mirror image.
func (t *attnTask) units(n, block int) int {
	if blocks := ceilDiv(n, block); !t.a.Causal {
		return blocks
	} else {
		return ceilDiv(blocks, 2)
	}
}

// ranges are the queries, or keys, of n, that the units of part i of a head are.
func (t *attnTask) ranges(i, n int) (list [2][2]int) {
	block := t.block
	units, blocks := t.units(n, block), ceilDiv(n, block)
	u0, u1 := bound(i, t.part.rows, units), bound(i+1, t.part.rows, units)
	list[0] = [2]int{u0 * block, min(u1*block, n)}
	if t.a.Causal {
		at := max(blocks-u1, u1)
		list[1] = [2]int{at * block, min(max(at, blocks-u0)*block, n)}
	}
	return list
}

func (m *Machine) attention(a *Attention) *attnTask {
	t := &m.attn
	t.m, t.a = m, *a
	if t.stairs == nil {
		t.stairs = make([]float32, 2*m.queries)
		for i := range m.queries {
			t.stairs[m.queries+i] = 1
		}
	}
	return t
}

// blockOf is a number of queries near n that is a multiple of the kernels' columns.
func (p *Path) blockOf(n int) int { return max(1, n/p.queries) * p.queries }

func (t *attnTask) Run(worker, i int) {
	w := t.m.worker[worker]
	x := &w.attn.head
	each := t.attnPlan.box.items / t.heads // items for a key head: one, or its heads of queries
	item, i := t.first*each+i/t.part.rows, i%t.part.rows
	*x = attnHead{t: t, w: w, p: t.m.Path, mem: &w.attn}
	switch t.mode {
	case attnGradAll:
		x.b = item / t.a.KVHeads
		x.headComes((item+1)/t.a.KVHeads, (item+1)%t.a.KVHeads)
		x.gradHead(item % t.a.KVHeads)
		return
	case attnGradKeys:
		x.b = item / t.a.KVHeads
		for _, r := range t.ranges(i, t.a.T) {
			x.gradKeys(item%t.a.KVHeads, r[0], r[1])
		}
		return
	}
	x.b, x.head = item/t.a.Heads, item%t.a.Heads
	if t.mode == attnForward && i == t.part.rows-1 {
		x.headComes((item+1)/t.a.Heads, (item+1)%t.a.Heads)
	}
	for _, r := range t.ranges(i, t.a.S) {
		if t.mode == attnGradQueries {
			x.gradQueries(r[0], r[1])
			continue
		}
		for q := r[0]; q < r[1]; q += t.block {
			x.forward(q, min(t.block, r[1]-q))
		}
	}
}

// attnHead is the work of one worker on one head. Scores have keys as rows and queries as columns,
// so the softmax runs down the columns. Only queries and their gradients are transposed, once.
type attnHead struct {
	t       *attnTask
	w       *worker
	p       *Path
	mem     *attnMem
	b, head int

	subnormal bool // queries or keys of a product of words may have subnormal elements

	coming  []coming // what the next head reads and writes
	fetched int      // the first of them that has not been prefetched
}

// attnMem is a worker's scratch memory for attention. Matrices of queries are stored as tiles of p.queries columns, one
// after the other.
type attnMem struct {
	head  attnHead
	grad  attnGrad
	k, v  floats // rows of keys and values
	kVNNI floats // the keys in the VNNI layout
	q, dy floats // queries and gradients of results, transposed, in tiles
	s, ds floats // scores and their gradients
	state floats // of softFunc or softGradFunc, by tile
	o     floats // results or gradients of queries in tiles, transposed or by rows
	mask  floats
	rows  [2]floats // queries and gradients of results as rows, p.nr columns at a time
	sums  [2]floats // gradients of keys and values, the same
	tiles floats    // keys, turned, for tile registers
	exact [3]floats // keys, queries and scores that are replaced, see attnHead.replaceSubnormal

	coming [numViews]coming // an attnHead's
}

func (x *attnHead) kvHead() int { return x.head * x.t.a.KVHeads / x.t.a.Heads }

// visible is the number of keys that query q sees; they are the first ones.
func (x *attnHead) visible(q int) int {
	a := &x.t.a
	if !a.Causal {
		return a.T
	}
	return max(0, min(a.T, q+a.Offset+1))
}

// keys is the number of keys among [k, k+attnKeys) that query q sees.
func (x *attnHead) keys(q, k int) int { return max(0, min(attnKeys, x.visible(q)-k)) }

// forward computes queries [q,q+h) of the head block by block of keys, with the online softmax of Milakov and
// Gimelshein (2018).
func (x *attnHead) forward(q, h int) {
	a, p, mem, wide := &x.t.a, x.p, x.mem, x.p.queries
	tiles := ceilDiv(h, wide)
	vnni := x.inWords(&a.Q, &a.K, a.D)
	x.subnormal = vnni && !x.usesVNNI(&a.Q, q, h, &a.K, x.kvHead(), 0, x.visible(q+h-1), a.D)
	qs := x.columns(&a.Q, &mem.q, q, h, a.D, vnni)
	o, state := mem.o.get(tiles*wide*a.DV), mem.state.get(tiles*stateRows*wide)
	s := mem.s.get(attnKeys * wide)
	byRows := x.byRows(&a.V, a.DV)
	if !byRows || x.keys(q, 0) == 0 {
		clear(o)
	}
	clear(state)
	for t := range tiles {
		for i := range wide {
			state[t*stateRows*wide+i] = negInf
		}
	}
	for k, n := 0, x.keys(q+h-1, 0); n > 0; k, n = k+n, x.keys(q+h-1, k+n) {
		keys := x.contiguousRows(&a.K, &mem.k, x.kvHead(), k, n, a.D, vnni)
		inTiles := x.usesTiles(&a.V, x.kvHead(), k, min(attnKeys, a.T-k), a.DV) // not of n, which depends on the block
		steps := ceilDiv(n, amxDepth)
		var values Mat
		if inTiles {
			x.turnedTiles(&a.V, mem.v.get(amxParts*a.DV/amxTile*steps*amxSize), x.kvHead(), k, n, a.DV)
		} else {
			values = x.contiguousRows(&a.V, &mem.v, x.kvHead(), k, n, a.DV, false)
		}
		for t := range tiles {
			first := q + t*wide
			n := x.keys(min(first+wide, q+h)-1, k)
			if n == 0 {
				continue
			}
			st := state[t*stateRows*wide:]
			scale := x.scores(s, wide, first, k, n, keys, qs[t*wide*a.D:])
			full, stair := x.stairs(first, k, n)
			p.softLanes(n, full, &s[0], wide, &st[0], stair, scale)
			sums := o[t*wide*a.DV:]
			if byRows {
				if k > 0 {
					p.scaleEach(wide, a.DV, &sums[0], a.DV, &sums[0], a.DV, &st[2*wide])
				}
				x.belowStairs(first, min(wide, q+h-first), k, s, wide, values, a.DV, sums, a.DV, min(k, 1))
				continue
			}
			if k > 0 && a.DV > 0 {
				p.scaleLanes(a.DV, &sums[0], wide, &st[2*wide])
			}
			if inTiles {
				x.addSplit(sums, a.DV, mem.v.s, steps, s, wide, n)
			} else {
				x.product(a.DV, wide, n, values.turned(), s, wide, sums, wide, 1)
			}
		}
	}
	for t := range tiles {
		x.store(q+t*wide, min(wide, h-t*wide), o[t*wide*a.DV:], byRows, state[t*stateRows*wide:])
	}
}

// store divides the results of a tile of queries, its rows or its columns, by their sums and stores them and their LSE.
func (x *attnHead) store(q, h int, o []float32, byRows bool, state []float32) {
	a, p, wide := &x.t.a, x.p, x.p.queries
	top, sum, rest := state[:h], state[wide:][:h], state[2*wide:][:h]
	if a.LSE != nil {
		p.Unary(Log, rest, sum)
		scale := a.Scale
		if x.scaled() {
			scale = 1
		}
		for i, lse := range rest {
			a.LSE[(x.b*a.Heads+x.head)*a.S+q+i] = float32(scale*top[i]) + lse
		}
	}
	p.Unary(Recip, rest, sum)
	for i, s := range sum {
		if s == 0 {
			rest[i] = 0
		}
	}
	if a.DV == 0 {
		return
	}
	if byRows {
		to, ld := x.rowsFrom(&a.Y, q, o, a.DV)
		p.scaleEach(h, a.DV, &to[0], ld, &o[0], a.DV, &rest[0])
		x.putRows(&a.Y, q, h, a.DV, o)
		return
	}
	p.scaleLanes(a.DV, &o[0], wide, &state[2*wide])
	x.putAcross(&a.Y, q, h, a.DV, o)
}
