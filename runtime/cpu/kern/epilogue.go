package kern

// output is where a product goes: the matrix and what is done on the way.
type output struct {
	p     *Path
	c     Mat
	inner int
	epi   Epilogue

	perGroup int // bias elements that an inner batch item moves on
}

// finish applies the epilogue to a finished tile (h rows of n, nr apart) and stores it at row i, column j.
func (o *output) finish(w *worker, tile []float32, item, i, h, j, n int) {
	p, e := o.p, &o.epi
	tile = tile[:h*p.nr]
	if e.Scale != 0 && e.Scale != 1 {
		p.axpb(len(tile), &tile[0], &tile[0], e.Scale, 0)
	}
	if !e.Bias.absent() {
		row := w.row[0].get(n)
		p.Load(row, e.Bias.From(item%o.inner*o.perGroup+j))
		for r := range h {
			p.binary[Add](n, &tile[r*p.nr], &tile[r*p.nr], &row[0])
		}
	}
	if !e.RowBias.absent() {
		for r := range h {
			p.axpb(n, &tile[r*p.nr], &tile[r*p.nr], 1, e.RowBias.get(item%o.inner*o.perGroup+i+r))
		}
	}
	if e.Act != NoAct {
		p.unary[actOps[e.Act]](len(tile), &tile[0], &tile[0])
	}
	if !e.Residual.absent() {
		o.add(w, tile, &e.Residual, item, i, h, j, n)
	}
	if e.Accumulate {
		o.add(w, tile, &o.c, item, i, h, j, n)
	}
	at := o.c.item(item, o.inner) + i*o.c.LD + j
	for r := range h {
		p.narrow[o.c.Type](n, o.c.at(at+r*o.c.LD), &tile[r*p.nr])
	}
}

// add adds the same tile of m.
func (o *output) add(w *worker, tile []float32, m *Mat, item, i, h, j, n int) {
	p := o.p
	old := w.row[1].get(h * p.nr)
	p.rows[m.Type](h, n, &old[0], p.nr, m.at(m.item(item, o.inner)+i*m.LD+j), m.LD)
	for r := range h {
		p.binary[Add](n, &tile[r*p.nr], &tile[r*p.nr], &old[r*p.nr])
	}
}
