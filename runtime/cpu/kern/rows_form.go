package kern

// rowsTask writes the form of a matrix of halves that is stored transposed: its rows, ld apart.
type rowsTask struct {
	src            Mat
	rows, cols, ld int
	dst            []uint16
}

// A task writes formColumns columns, of formRows rows at a time.
const (
	formColumns = 256
	formRows    = 32
)

// readRows makes t read a B of halves, which is stored transposed and has forms, in rows that are written once. It reports false
// where there are none: items of the batch have matrices of their own, or there is no memory. Few rows of A are multiplied by
// rows of B faster than by squares that are transposed every time, and panels would be twice as large.
func (t *gemmTask) readRows(m *Machine) bool {
	b := &t.mats[1].m
	if b.Fixed.Weights == nil || t.items > 1 {
		return false
	}
	x, ld := &m.rowsForm, roundUp(t.cols, 32)
	*x = rowsTask{src: *b, rows: t.depth, cols: t.cols, ld: ld}
	l := Layout{Kind: "rows"}
	copy(l.Of[:], []int{x.rows, x.cols, int(b.Type), b.Fixed.At, b.LD})
	data := b.Fixed.form(m, &l, x.rows*ld/2, x)
	*x = rowsTask{}
	if data == nil {
		return false
	}
	b.Data, b.LD, b.T, t.mats[1].contig = Floats(data).Data, ld, false, true
	return true
}

// packAll writes the form to dst, two halves a float.
func (x *rowsTask) packAll(m *Machine, dst []float32) {
	x.dst = halvesAt(Floats(dst).at(0), 2*len(dst))
	m.run(8*x.rows*x.cols, ceilDiv(x.cols, formColumns), x)
}

// Run writes columns of all rows.
func (x *rowsTask) Run(_, i int) {
	j0, j1 := i*formColumns, min((i+1)*formColumns, x.cols)
	for k0 := 0; k0 < x.rows; k0 += formRows {
		k1 := min(k0+formRows, x.rows)
		for j := j0; j < j1; j++ {
			from := halvesAt(x.src.at(j*x.src.LD+k0), k1-k0)
			for k, v := range from {
				x.dst[(k0+k)*x.ld+j] = v
			}
		}
	}
}
