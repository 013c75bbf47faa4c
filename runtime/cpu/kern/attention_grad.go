package kern

// gradPlan is how a gradient is computed, one plan after the other: all gradients of some key heads together, then those of keys and
// values of the other heads, then those of their queries, which apart take seven products of each block in place of five.
type gradPlan [3]attnPlan

// gradPlan takes heads apart where there are too few for the workers, or those beyond a whole number of rounds.
func (t *attnTask) gradPlan() gradPlan {
	a, workers := &t.a, t.m.pool.share()
	heads := a.Batch * a.KVHeads
	best := t.gradPlanOf(heads, heads)
	if workers == 1 || min(a.S, a.T) == 0 {
		return best
	}
	for _, whole := range [...]int{heads / workers * workers, 0} {
		if p := t.gradPlanOf(whole, heads); p.time() < best.time()-best.time()/16 {
			best = p
		}
	}
	return best
}

// gradPlanOf takes the heads apart that follow the first whole ones. If that leaves workers idle, a part has fewer of them where it
// costs little.
func (t *attnTask) gradPlanOf(whole, heads int) (g gradPlan) {
	if whole > 0 {
		g[0] = t.plan(attnGradAll, 0, whole)
	}
	if whole == heads {
		return g
	}
	g[1], g[2] = t.plan(attnGradKeys, whole, heads-whole), t.plan(attnGradQueries, whole, heads-whole)
	for i := 1; i < len(g) && g.balance() < balanced; i++ {
		p := g
		if p[i] = t.divide(g[i], max(1, g[i].part.Workers-1)); p.balance() >= balanced && p.time() <= g.time()+int(fastEnough*float64(g.time())) {
			g = p
		}
	}
	return g
}

// time is the predicted time of all plans.
func (g *gradPlan) time() (n int) {
	for i := range g {
		n += g[i].part.Time
	}
	return n
}

// balance is the share of their time that the workers are busy for.
func (g *gradPlan) balance() float64 {
	busy, held := 0, 0
	for i := range g {
		busy, held = busy+g[i].part.Busy, held+g[i].part.Workers*g[i].part.span()
	}
	return float64(busy) / float64(held)
}

// gradHead computes the gradients of one key head and of the query heads that read it.
func (x *attnHead) gradHead(kv int) {
	g := x.startGrad(kv, 0, x.t.a.T, true, true)
	x.eachGrad(g, kv, 0, x.t.a.S)
	x.endKeys(g, kv)
}

// gradKeys computes the gradients of keys and values [k0,k1) of a key head.
func (x *attnHead) gradKeys(kv, k0, k1 int) {
	if k0 >= k1 {
		return
	}
	g := x.startGrad(kv, k0, k1, true, false)
	x.eachGrad(g, kv, 0, x.t.a.S)
	x.endKeys(g, kv)
}

// gradQueries computes the gradients of queries [q0,q1) of the head.
func (x *attnHead) gradQueries(q0, q1 int) {
	if q0 >= q1 {
		return
	}
	kv := x.kvHead()
	g := x.startGrad(kv, 0, x.t.a.T, false, true)
	g.loadValues(kv)
	x.gradBlocks(g, q0, q1)
}

// startGrad prepares keys [k0,k1) of a key head for gradients of keys and values, or of queries, or both.
func (x *attnHead) startGrad(kv, k0, k1 int, ofKeys, ofQueries bool) *attnGrad {
	a, mem, n := &x.t.a, x.mem, k1-k0
	g := &mem.grad
	*g = attnGrad{attnHead: x, ld: x.gradBlock(), k0: k0, k1: k1, ofKeys: ofKeys, ofQueries: ofQueries}
	g.k = x.contiguousRows(&a.K, &mem.k, kv, k0, n, a.D, false)
	if ofKeys {
		g.startKeys(kv)
	}
	if ofQueries && x.usesTiles(&a.K, kv, 0, a.T, a.D) {
		g.tiles = mem.tiles.get(ceilDiv(a.T, attnKeys) * tilesOfKeys(a.D))
		for k := 0; k < a.T; k += attnKeys {
			x.turnedTiles(&a.K, g.tiles[k/attnKeys*tilesOfKeys(a.D):], kv, k, min(attnKeys, a.T-k), a.D)
		}
	}
	return g
}

// gradBlock is how many queries are processed at a time.
func (x *attnHead) gradBlock() int {
	if x.t.mode == attnGradQueries {
		return x.t.block
	}
	return x.p.blockOf(gradQueries)
}

// startKeys prepares the sums of the gradients of keys and values. All queries are one block where these are few, and products
// may then store the sums.
func (g *attnGrad) startKeys(kv int) {
	a, p, n := &g.t.a, g.p, g.k1-g.k0
	if most := p.blockOf(2 * gradQueries); a.S <= most {
		g.ld = most
	}
	g.once = p.fetching[1] != nil && a.S > 0 && a.S <= g.ld && a.Heads == a.KVHeads && g.byRows(&a.Q, a.D) && g.byRows(&a.DY, a.DV) && a.GradK.Type == F32 && a.GradV.Type == F32
	if !g.once {
		g.dk, g.dv = p.apart(&g.mem.sums[0], n, a.D), p.apart(&g.mem.sums[1], n, a.DV)
		clear(g.dk.x)
		clear(g.dv.x)
		return
	}
	k, v := a.GradK.mat(g.b, kv, g.k0), a.GradV.mat(g.b, kv, g.k0)
	g.dk, g.dv = rowPanels{k.f32(), k.LD, p.nr}, rowPanels{v.f32(), v.LD, p.nr}
	for r := max(0, g.visible(a.S-1)-g.k0); r < n; r++ { // no query sees them
		clear(g.dk.x[r*k.LD:][:a.D])
		clear(g.dv.x[r*v.LD:][:a.DV])
	}
}

// eachGrad runs queries [q0,q1) of all heads that read a key head.
func (x *attnHead) eachGrad(g *attnGrad, kv, q0, q1 int) {
	for x.head = range x.t.a.Heads {
		if x.kvHead() == kv {
			g.loadValues(kv)
			x.gradBlocks(g, q0, q1)
		}
	}
}

// gradBlocks runs queries [q0,q1) of the head.
func (x *attnHead) gradBlocks(g *attnGrad, q0, q1 int) {
	for q := q0; q < q1; q += g.ld {
		g.q, g.h = q, min(g.ld, q1-q)
		g.run()
	}
}

// loadValues prepares keys and values as the products of a head's scores read them.
func (g *attnGrad) loadValues(kv int) {
	a, mem, n := &g.t.a, g.mem, g.k1-g.k0
	g.toScore = g.k
	if g.usesVNNI(&a.Q, 0, a.S, &a.K, kv, 0, a.T, a.D) {
		g.toScore = g.contiguousRows(&a.K, &mem.kVNNI, kv, g.k0, n, a.D, true)
	}
	g.v = g.contiguousRows(&a.V, &mem.v, kv, g.k0, n, a.DV, g.usesVNNI(&a.DY, 0, a.S, &a.V, kv, 0, a.T, a.DV))
}

// endKeys stores the gradients of keys and values.
func (x *attnHead) endKeys(g *attnGrad, kv int) {
	a := &x.t.a
	if g.once {
		return
	}
	x.putColumns(&a.GradK, kv, g.k0, g.k1-g.k0, a.D, g.dk.x)
	x.putColumns(&a.GradV, kv, g.k0, g.k1-g.k0, a.DV, g.dv.x)
}

// attnGrad is the gradient of queries [q,q+h): with P the softmax,
//
//	dV += P^T dY    dP = dY V^T    dS = P*(dP - rowsum(dY*Y))*scale    dQ = dS K    dK += dS^T Q
type attnGrad struct {
	*attnHead
	q, h, ld int
	k0, k1   int // keys that k, v, dk and dv are of
	k, v     Mat

	ofKeys, ofQueries bool // what is computed

	toScore Mat       // k, in bf16 if scores are products in the VNNI layout
	tiles   []float32 // k by blocks, see turnedTiles; nil if its products are of f32
	dk, dv  rowPanels // in memory of their own, or where they are stored
	once    bool      // the latter, and each row is computed by one product

	s, ds            []float32 // scores, then P; dP, then dS: ld apart
	state            []float32
	across, acrossDY []float32 // queries and dY as columns
	queries, grads   rowPanels // as rows
	dq               []float32
	dqLD             int // of rows of dq, 0 if they are columns of tiles

	queryTiles, gradTiles bool // or in the layout of wordsByPart
}

// tilesOfKeys is the size of the tiles of a block of keys.
func tilesOfKeys(width int) int { return amxParts * width / amxTile * attnKeys / amxDepth * amxSize }

func (g *attnGrad) run() {
	a, mem := &g.t.a, g.mem
	if !g.ofQueries && g.keys(g.q+g.h-1, g.k0) == 0 {
		return
	}
	tiles := ceilDiv(g.h, g.p.queries)
	g.s, g.ds = mem.s.get(attnKeys*g.ld), mem.ds.get(attnKeys*g.ld)
	g.across, g.acrossDY = g.columns(&a.Q, &mem.q, g.q, g.h, a.D, g.toScore.Type == BF16), g.columns(&a.DY, &mem.dy, g.q, g.h, a.DV, g.v.Type == BF16)
	if g.ofKeys {
		g.queries, g.queryTiles = g.sideBySide(&a.Q, &mem.rows[0], a.D)
		g.grads, g.gradTiles = g.sideBySide(&a.DY, &mem.rows[1], a.DV)
	}
	g.state = g.shifts(tiles)
	if g.ofQueries {
		g.startQueries(tiles)
	}
	for k := g.k0; k < g.k1 && g.keys(g.q+g.h-1, k) > 0; k += attnKeys {
		for t := range tiles {
			g.scoresOf(t*g.p.queries, k)
		}
		if g.ofKeys {
			g.sums(k)
		}
	}
	if g.ofQueries {
		g.endQueries(tiles)
	}
}

// startQueries prepares the sums of the gradients of queries.
func (g *attnGrad) startQueries(tiles int) {
	a := &g.t.a
	g.dq, g.dqLD = g.mem.o.get(tiles*g.p.queries*a.D), 0
	if !g.byRows(&a.K, a.D) {
		clear(g.dq)
		return
	}
	g.dq, g.dqLD = g.rowsFrom(&a.GradQ, g.q, g.dq, a.D)
	for r := 0; r < g.h && g.keys(g.q, g.k0) == 0; r++ { // a product overwrites rows, but some see no keys
		clear(g.dq[r*g.dqLD:][:a.D])
	}
}

// endQueries stores the gradients of queries.
func (g *attnGrad) endQueries(tiles int) {
	a, wide := &g.t.a, g.p.queries
	if g.dqLD > 0 {
		g.putRows(&a.GradQ, g.q, g.h, a.D, g.dq)
		return
	}
	for t := range tiles {
		g.putAcross(&a.GradQ, g.q+t*wide, min(wide, g.h-t*wide), a.D, g.dq[t*wide*a.D:])
	}
}

// sideBySide returns the rows of v in the layout that sums reads: columns side by side, or words
// for tile registers.
func (g *attnGrad) sideBySide(v *View, mem *floats, width int) (rows rowPanels, inTiles bool) {
	if g.usesTiles(v, g.head, g.q, g.h, width) {
		return rowPanels{x: g.wordsByPart(v, mem, g.q, g.h, width)}, true
	}
	return g.inColumns(v, mem, g.q, g.h, width), false
}

// keys is the number of keys among [k, k+attnKeys) that are processed and that query q sees.
func (g *attnGrad) keys(q, k int) int { return min(g.attnHead.keys(q, k), g.k1-k) }

// seen is the number of keys, from k on, that the last query of the tile at query q+at sees.
func (g *attnGrad) seen(at, k int) int { return g.keys(g.q+min(at+g.p.queries, g.h)-1, k) }

// scoresOf computes P and dS of a tile and the keys from k on, and adds their part of dQ to dq.
func (g *attnGrad) scoresOf(at, k int) {
	a, wide, n := &g.t.a, g.p.queries, g.seen(at, k)
	if n == 0 {
		return
	}
	keys, s, ds := g.k.from(k-g.k0), g.s[at:], g.ds[at:]
	scale := g.scores(s, g.ld, g.q+at, k, n, g.toScore.from(k-g.k0), g.across[at*a.D:])
	g.keysByQueries(g.q+at, k, n, a.DV, g.v.from(k-g.k0), g.acrossDY[at*a.DV:], ds, g.ld)
	full, stair := g.stairs(g.q+at, k, n)
	g.p.softLanesGrad(n, full, &s[0], &ds[0], g.ld, &g.state[2*at], stair, scale, a.Scale)
	if !g.ofQueries {
		return
	}
	if g.tiles != nil {
		all := ceilDiv(min(attnKeys, a.T-k), amxDepth)
		g.addSplit(g.dq[at*a.D:], a.D, g.tiles[k/attnKeys*tilesOfKeys(a.D):], all, ds, g.ld, n)
		return
	}
	if g.dqLD > 0 {
		g.belowStairs(g.q+at, min(wide, g.h-at), k, ds, g.ld, keys, a.D, g.dq[at*g.dqLD:], g.dqLD, min(k-g.k0, 1))
		return
	}
	g.product(a.D, wide, n, keys.turned(), ds, g.ld, g.dq[at*a.D:], wide, 1)
}

// sums adds P^T dY and dS^T Q to dv and dk. Keys that only later queries see are multiplied only
// with those queries.
func (g *attnGrad) sums(k int) {
	a, nr, done := &g.t.a, g.p.nr, 0
	for at := 0; at < g.h; at += g.p.queries {
		n := g.seen(at, k)
		if n <= done {
			continue
		}
		add := func(s []float32, rows, sum *rowPanels, width int, inTiles bool) {
			if inTiles {
				g.addSums(s, rows.x, sum.x, width, k, done, n, at)
				return
			}
			for r := done; r < n; {
				from, h := g.groupOfKeys(k, r, n, at)
				left := Mat{Buf: Floats(s[r*g.ld+from:]), LD: g.ld}
				for c := 0; c < width; c += nr {
					g.product(h, nr, g.h-from, left, rows.from(from, c, nr), rows.row, sum.from(k-g.k0+r, c, nr), sum.row, 1-flag(g.once))
				}
				r += h
			}
		}
		add(g.s, &g.grads, &g.dv, a.DV, g.gradTiles)
		add(g.ds, &g.queries, &g.dk, a.D, g.queryTiles)
		done = n
	}
}

// groupOfKeys returns how many keys, of those from k+r on and before k+n, are multiplied with the queries from the same one on, and
// that query: at, or the first after it that sees one of the keys. A group ends at a place that does not depend on k.
func (g *attnGrad) groupOfKeys(k, r, n, at int) (from, h int) {
	first := func(r int) int {
		if !g.t.a.Causal {
			return at
		}
		return max(at, k+r-g.t.a.Offset-g.q)
	}
	from, h = first(r), min(g.p.stairRows-(k+r)%attnKeys%g.p.stairRows, n-r)
	for r+h < n && first(r+h) == from {
		h = min(h+g.p.stairRows, n-r)
	}
	return from, h
}

// shifts is the state of softGradFunc by tile: -LSE, or -Inf for queries that see nothing, and -rowsum(dY*Y).
func (g *attnGrad) shifts(tiles int) []float32 {
	a, p, wide := &g.t.a, g.p, g.p.queries
	state := g.mem.state.get(tiles * 2 * wide)
	y := a.Y.wide(p, &g.w.row[0], g.b, g.head, g.q, g.h, a.DV)
	dy := a.DY.wide(p, &g.w.row[1], g.b, g.head, g.q, g.h, a.DV)
	for t := range tiles {
		less, delta, h := state[t*2*wide:][:wide], state[(t*2+1)*wide:][:wide], min(wide, g.h-t*wide)
		clear(delta)
		if a.DV > 0 {
			p.rowDots(h, a.DV, &y.x[t*wide*y.step], y.step, &dy.x[t*wide*dy.step], dy.step, &delta[0])
		}
		for i := range less {
			if i >= h {
				less[i], delta[i] = negInf, 0
				continue
			}
			if less[i] = -a.LSE[(g.b*a.Heads+g.head)*a.S+g.q+t*wide+i]; less[i] == -negInf {
				less[i] = negInf
			}
			delta[i] = -delta[i]
		}
	}
	return state
}

// wideRows are rows of f32, step apart.
type wideRows struct {
	x    []float32
	step int
}

// wide returns n elements of each of h rows from q as f32: in place if they are f32, else widened into mem.
func (v *View) wide(p *Path, mem *floats, b, head, q, h, n int) wideRows {
	m := v.mat(b, head, q)
	if m.Type == F32 {
		return wideRows{m.f32(), m.LD}
	}
	w := wideRows{mem.get(h * n), n}
	for r := range h {
		p.Load(w.x[r*n:][:n], m.From(r*m.LD))
	}
	return w
}
