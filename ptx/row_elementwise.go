package ptx

import (
	"fmt"
	"slices"
)

// rowElementwise is elementwise code inside a kernel over rows. It computes the row's elements from
// other tensors, or results from the row's elements, for the vectors of columns that a thread owns.
// In row-major order the elements of its shape are those of the rows.
type rowElementwise struct {
	*elementwiseGen
	r       *rows
	rowDims int       // leading dimensions of the shape, which number the rows
	row     Reg       // the current row
	first   []located // by access: address of the row, or of the thread's first vector in it
	held    [][]kept  // by chunk and store: value to be stored
	shared  [][][]Reg // by chunk and load: value that is the same for all rows; nil: loaded in each row
	fetched [][][]Reg // by chunk and load: what was read ahead of a row, as it is in memory; nil: nothing
	present [][][]Reg // by chunk and load: value in the current row that was read ahead
}

// planRows checks code that runs over rows of cols elements.
func planRows(g *Elementwise, rows, cols int) (*rowElementwise, error) {
	c, err := planElementwise(*g)
	if err != nil {
		return nil, err
	}
	if c.n != int64(rows)*int64(cols) {
		return nil, fmt.Errorf("%d elements in %d rows of %d", c.n, rows, cols)
	}
	if slices.ContainsFunc(c.accesses(), func(a Access) bool { return a.Bits || a.Spread != nil }) {
		return nil, fmt.Errorf("bits or spread outputs in code over rows")
	}
	k := &rowElementwise{elementwiseGen: c}
	if !k.splitRows(int64(cols)) {
		return nil, fmt.Errorf("rows of %d elements end inside a dimension of %v", cols, g.Shape)
	}
	return k, k.check()
}

// splitRows splits the shape into dimensions that number rows and dimensions of their columns. Rows
// with one column get a column dimension, too, because lanes without a column must compute another
// address.
func (g *rowElementwise) splitRows(cols int64) bool {
	k, inner := len(g.Shape), int64(1)
	for k > 0 && cols%(inner*g.Shape[k-1]) == 0 {
		k--
		inner *= g.Shape[k]
	}
	g.rowDims = k
	switch rest := cols / inner; {
	case cols == 1:
		g.Shape = append(slices.Clone(g.Shape), 1)
		g.restride(func(s []int64) []int64 { return append(s, 1) })
	case rest > 1 && (k == 0 || g.Shape[k-1]%rest != 0):
		return false
	case rest > 1:
		g.Shape = slices.Replace(slices.Clone(g.Shape), k-1, k, g.Shape[k-1]/rest, rest)
		g.restride(func(s []int64) []int64 { return slices.Insert(s, k-1, s[k-1]*rest) })
	}
	return true
}

// restride changes the strides of all accesses.
func (g *rowElementwise) restride(f func(s []int64) []int64) {
	for i := range g.Loads {
		g.Loads[i].Stride = f(slices.Clone(g.Loads[i].Stride))
	}
	for i := range g.Stores {
		g.Stores[i].Stride = f(slices.Clone(g.Stores[i].Stride))
	}
}

// rowVec is the number of adjacent elements that a thread processes at once in all code of a kernel
// over rows.
func rowVec(cols int, codes []*rowElementwise) int {
	size := 4
	for _, g := range codes {
		size = min(size, g.smallest())
	}
	for v := min(8, 16/size); v > 1; v /= 2 {
		if cols%v == 0 && !slices.ContainsFunc(codes, func(g *rowElementwise) bool { return !g.fits(int64(v)) }) {
			return v
		}
	}
	return 1
}

// loadParams declares the buffers that the code reads, from load number from.
func (g *rowElementwise) loadParams(p *params, from int) {
	g.b = p.b
	g.bases = make([]Reg, from, len(g.Loads)+len(g.Stores))
	for _, a := range g.Loads[from:] {
		g.bases = append(g.bases, p.in(a.Name, a.DType, int(g.extent(a))))
	}
}

// storeParams declares the buffers that the code writes.
func (g *rowElementwise) storeParams(p *params) {
	for _, a := range g.Stores {
		g.bases = append(g.bases, p.out(a.Name, a.DType, int(g.extent(a.Access))))
	}
}

// everyRow reports whether the code computes the same values for all rows.
func (g *rowElementwise) everyRow() bool {
	return !slices.ContainsFunc(g.accesses(), func(a Access) bool { return !g.rowsShare(a) })
}

// rowsShare reports whether an access reads the same elements in all rows.
func (g *rowElementwise) rowsShare(a Access) bool {
	return !slices.ContainsFunc(a.Stride[:g.rowDims], func(s int64) bool { return s != 0 })
}

// share loads what is the same for all rows, before the first row.
func (g *rowElementwise) share(r *rows) {
	alike := func(in Instr) bool {
		return in.Op == "in" && g.bases[in.Int].Class != NoClass && g.rowsShare(g.Loads[in.Int])
	}
	if !slices.ContainsFunc(g.Code, alike) {
		return
	}
	g.enter(r, r.worker)
	shared := make([][][]Reg, r.chunks)
	r.spots(func(s spot) {
		shared[s.chunk] = make([][]Reg, len(g.Loads))
		g.locateAt(s)
		for i, in := range g.Code {
			if alike(in) {
				shared[s.chunk][in.Int] = g.value(i, in)
			}
		}
	})
	g.shared = shared
}

// fetch reads what a row needs, before the row before it is processed. What rows share is not read.
func (g *rowElementwise) fetch(r *rows, row Reg) {
	g.enter(r, row)
	first := g.fetched == nil
	if first {
		g.fetched = make([][][]Reg, r.chunks)
	}
	r.spots(func(s spot) {
		if first {
			g.fetched[s.chunk] = make([][]Reg, len(g.Loads))
		}
		g.locateAt(s)
		for i, a := range g.Loads {
			if g.bases[i].Class == NoClass || g.shared != nil && g.shared[s.chunk][i] != nil {
				continue
			}
			if first {
				n := r.vec
				if g.repeats(a) {
					n = 1
				}
				g.fetched[s.chunk][i] = g.b.words(a.DType, n)
			}
			g.b.loadInto(g.fetched[s.chunk][i], "global", g.here[i].base, g.here[i].off, a.DType)
		}
	})
}

// arrive makes the values of the current row from what was read ahead, whose registers are then free
// for the next.
func (g *rowElementwise) arrive(r *rows) {
	g.present = make([][][]Reg, r.chunks)
	r.each(func(c int) {
		g.present[c] = make([][]Reg, len(g.Loads))
		for _, in := range g.Code {
			if in.Op != "in" || g.fetched[c][in.Int] == nil {
				continue
			}
			d := g.Loads[in.Int].DType
			v := slices.Clone(g.b.elements(g.fetched[c][in.Int], d))
			for l := range v {
				if x := g.fromMemory(v[l], d, in.Type); x != v[l] {
					v[l] = x
				} else {
					v[l] = g.b.Do("mov."+x.Class.String(), x)
				}
			}
			g.present[c][in.Int] = v
		}
	})
}

// dense reports whether an access traverses its buffer contiguously.
func (g *rowElementwise) dense(a Access) bool {
	return a.Offset == 0 && slices.Equal(a.Stride, contiguous(g.Shape))
}

// enter computes the address of a row.
func (g *rowElementwise) enter(r *rows, row Reg) {
	b := r.b
	g.r, g.row = r, row
	g.held = make([][]kept, r.chunks)
	g.first = make([]located, len(g.bases))
	at := g.split(row, 0, g.rowDims)
	for k, a := range g.accesses() {
		if g.bases[k].Class == NoClass {
			continue // passed by the caller
		}
		base, size := g.bases[k], a.DType.Size()
		if a.Offset != 0 {
			base = b.Do("add.u64", base, I(a.Offset*int64(size)))
		}
		base = g.step(base, at, a, 0)
		if s := g.columnStep(a); s > 0 && !r.streamed {
			base = b.at(base, r.lane, s*r.vec)
		}
		g.first[k].base = base
	}
}

// split splits number e into the coordinates of n dimensions from d on, as u64.
func (g *rowElementwise) split(e Reg, d, n int) []Reg {
	at := make([]Reg, n)
	for i := n - 1; i > 0; i-- {
		at[i], e = g.divide("u32", e, g.Shape[d+i])
	}
	if n > 0 {
		at[0] = e
	}
	for i := range at {
		at[i] = g.b.Do("cvt.u64.u32", at[i])
	}
	return at
}

// step adds the offset of coordinates from dimension d on to the address of an access.
func (g *rowElementwise) step(base Reg, at []Reg, a Access, d int) Reg {
	for i, x := range at {
		if s := a.Stride[d+i]; s != 0 {
			base = g.b.Do("mad.lo.u64", x, I(s*int64(a.DType.Size())), base)
		}
	}
	return base
}

// columnStep is the distance in bytes between adjacent columns, if columns are one dimension of the
// access. It is 0 if the access repeats along all of them, and -1 if they are several dimensions.
func (g *rowElementwise) columnStep(a Access) int {
	s := a.Stride[g.rowDims:]
	switch {
	case !slices.ContainsFunc(s, func(x int64) bool { return x != 0 }):
		return 0
	case len(s) == 1:
		return int(s[0]) * a.DType.Size()
	}
	return -1
}

// eval computes the code's values for the thread's vector at s of the row. given is the value of
// load 0 if that is not a buffer.
func (g *rowElementwise) eval(s spot, given []Reg) {
	e := g.locateAt(s)
	for _, list := range [][][][]Reg{g.shared, g.present} {
		if list == nil {
			continue
		}
		for i, v := range list[s.chunk] {
			if v != nil {
				g.known[i] = v
			}
		}
	}
	if given != nil {
		g.known[0] = g.asStored(given, g.Loads[0].DType)
	}
	g.compute(e, g.r.vec)
}

// locateAt locates the vector at s in every access, and returns the index of its first element.
func (g *rowElementwise) locateAt(s spot) Reg {
	b, r := g.b, g.r
	vector := s.at
	if s.ahead > 0 {
		vector = b.iadd(vector, I(s.ahead))
	}
	g.lanes, g.here, g.known = r.vec, slices.Clone(g.first), make([][]Reg, len(g.Loads))
	columns := g.split(b.imul(vector, I(r.vec)), g.rowDims, len(g.Shape)-g.rowDims)
	for k, a := range g.accesses() {
		if g.bases[k].Class == NoClass {
			continue
		}
		switch bytes := g.columnStep(a); {
		case bytes < 0:
			g.here[k].base = g.step(g.first[k].base, columns, a, g.rowDims)
		case bytes > 0 && r.streamed:
			g.here[k].base = b.at(g.first[k].base, vector, bytes*r.vec)
		case bytes > 0:
			g.here[k].off = s.ahead * bytes * r.vec
		}
	}
	return b.Do("mad.wide.u32", vector, I(r.vec), b.Do("mul.wide.u32", g.row, I(r.cols)))
}

// all is value v in every lane.
func (g *rowElementwise) all(v int) []Reg {
	out := make([]Reg, g.lanes)
	for l := range out {
		out[l] = g.lane(v, l)
	}
	return out
}

// kept returns the value that a store will write.
type kept struct {
	at  located
	out []Reg
}

// keep holds the values to be stored of the vector at s until flush.
func (g *rowElementwise) keep(s spot) {
	g.held[s.chunk] = nil
	for i := range g.Stores {
		g.held[s.chunk] = append(g.held[s.chunk], kept{g.locate(len(g.Loads) + i), g.stored(i)})
	}
}

func (g *rowElementwise) flush(s spot) {
	for i, k := range g.held[s.chunk] {
		g.b.store(k.at.base, k.at.off, g.Stores[i].DType, k.out)
	}
}

// through evaluates the code over the thread's part of the current row and performs its stores.
// make returns load 0 if that is not a buffer, take receives the value v; both may be nil. If the
// row is in registers, all loads precede all stores, so that no load waits for a store.
func (g *rowElementwise) through(given func(s spot) []Reg, take func(s spot)) {
	run := func(s spot) {
		var x []Reg
		if given != nil {
			x = given(s)
		}
		g.eval(s, x)
		g.keep(s)
		if take != nil {
			take(s)
		}
	}
	if g.r.streamed {
		g.r.spots(func(s spot) { run(s); g.flush(s) })
		return
	}
	g.r.spots(run)
	if len(g.Stores) > 0 {
		g.r.spots(g.flush)
	}
}

// source is a value of the code in every column of a row. It is in registers, or computed again in
// every pass.
type source struct {
	*rowElementwise
	v      int
	vals   [][]Reg // by chunk
	stored bool
}

// source enters a row. If the row fits into registers, source loads all of it here.
func (r *rows) source(g *rowElementwise, v int, row Reg) *source {
	x := &source{rowElementwise: g, v: v, vals: make([][]Reg, r.chunks)}
	g.enter(r, row)
	if !r.streamed {
		g.through(nil, func(s spot) { x.vals[s.chunk] = g.all(v) })
	}
	return x
}

// at returns the vector at s. The first pass of a loop performs the code's stores.
func (x *source) at(s spot) []Reg {
	if !x.r.streamed {
		return x.vals[s.chunk]
	}
	x.eval(s, nil)
	if !x.stored {
		x.keep(s)
		x.flush(s)
	}
	return x.all(x.v)
}

// total adds f of every element of a row: first each thread's elements in order, then the threads
// of the team.
func (r *rows) total(x *source, f func(v Reg) Reg) Reg {
	acc := r.b.floatConst(0)
	r.spots(func(s spot) {
		for _, v := range x.at(s) {
			r.b.To(acc, "add.rn.f32", acc, f(v))
		}
	})
	x.stored = true
	return r.across(acc, r.join("add.rn.f32"))
}
