package kern

// PreOp is elementwise work that computes operand 0 of a kernel over rows, block by block, on the worker that reads the block.
// The operand is never stored as a whole.
type PreOp interface {
	// Compute sets x to the elements of the operand from element at on. Every element is computed once, by any worker, in
	// any order.
	Compute(worker, at int, x []float32)
}

// preOpElems is how many elements a pre-op computes at a time, where rows are shorter: they stay in the first-level cache.
const preOpElems = 1 << 11

// Following runs kernels over rows whose operand 0 pre computes. work is what pre costs for an element, as in Run.
func (m *Machine) Following(pre PreOp, work int, kernels func()) {
	m.row.pre, m.row.preWork = pre, work
	kernels()
	m.row.pre, m.row.preWork = nil, 0
}

// inPlace reports whether operand 0 is f32 in memory.
func (t *rowTask) inPlace() bool { return t.pre == nil && t.a.Type == F32 }

// fill sets x to the elements of operand 0 from element at on.
func (t *rowTask) fill(w *worker, at int, x []float32) {
	if t.pre != nil {
		t.pre.Compute(w.id, at, x)
	} else {
		t.m.Load(x, t.a.From(at))
	}
}

// elements are n elements of operand 0 as f32, from element at on: whole rows, or a part of one. They are in place if they
// are f32 already, else valid until the next call.
func (t *rowTask) elements(w *worker, at, n int) []float32 {
	switch {
	case n == 0:
		return nil
	case t.inPlace():
		return t.a.f32()[at : at+n]
	}
	if at < w.madeAt || at+n > w.madeAt+len(w.made) {
		most := min(max(1, preOpElems/n)*n, w.rowsEnd-at)
		w.made, w.madeAt = w.row[0].get(max(n, most)), at
		t.fill(w, at, w.made)
	}
	return w.made[at-w.madeAt:][:n]
}
