package kern

import "math"

// Gather copies rows of table, dim elements each, to dst: row i is table row index[i], in the type of dst. If the table
// has no such row, the row is NaN. The post-op, unless nil, runs on blocks of rows; dst is f32 then, or its Data is nil
// and nothing is stored.
func (m *Machine) Gather(dst, table Buf, index Index, dim int, post PostOp) {
	t := &m.row
	t.dst, t.a, t.index = dst, table, index
	m.eachWith(post, rowGather, index.Len(), dim, 2)
}

func (t *rowTask) gatherRow(w *worker, r int) {
	dim, at := t.cols, t.index.At(r)
	size := t.dst.Type.Size()
	switch {
	case t.post != nil:
		t.gatherWide(t.place(w, 1, t.dst, r), at)
	case at < 0 || (at+1)*dim > t.a.Len():
		for i := range dim {
			t.dst.set(r*dim+i, float32(math.NaN()))
		}
	case t.a.Type == t.dst.Type:
		copy(t.dst.Data[r*dim*size:(r+1)*dim*size], t.a.From(at*dim).Data)
	default:
		for i := range dim {
			t.dst.set(r*dim+i, t.a.get(at*dim+i))
		}
	}
}

// gatherWide gathers row at to dst.
func (t *rowTask) gatherWide(dst []float32, at int) {
	if at >= 0 && (at+1)*t.cols <= t.a.Len() {
		t.m.Load(dst, t.a.From(at*t.cols))
		return
	}
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
}

// ScatterAdd adds row i of src, dim elements, to row index[i] of dst, for ascending i, in f32 whatever the types, and
// rounds the result once. Rows that dst does not have are skipped. Results do not depend on the workers: they share
// the columns, not the rows. If zero is set, dst starts from zero.
func (m *Machine) ScatterAdd(dst, src Buf, index Index, dim int, zero bool) {
	if dst.Len() == 0 || dim == 0 {
		return
	}
	t := &m.row
	t.m, t.op = m, rowScatter
	t.dst, t.a, t.index, t.cols = dst, src, index, dim
	rows := dst.Len() / dim
	t.n = rows
	if dst.Type == F32 {
		t.table = dst.f32()[:rows*dim]
		if zero && !m.dry() {
			clear(t.table)
		}
	} else {
		t.table = m.parts.get(rows * dim)
		if clear(t.table); !zero {
			m.Load(t.table, dst)
		}
	}
	m.runPart(t, box{items: 1, rows: 1, cols: ceilDiv(dim, columnUnit), cell: 8 * index.Len() * columnUnit, task: taskCost + rowCost*index.Len()})
	if dst.Type != F32 {
		m.Store(dst, t.table)
	}
}

func (t *rowTask) scatterStrip(w *worker, i int) {
	c0, n := t.columnsOf(i, t.cols)
	x := w.row[0].get(n)
	for r := range t.index.Len() {
		at := t.index.At(r)
		if at < 0 || at >= t.n {
			continue
		}
		t.m.Load(x, t.a.From(r*t.cols+c0))
		row := t.table[at*t.cols+c0:][:n]
		t.m.Binary(Add, row, row, x)
	}
}
