package kern

import (
	"fmt"
	"sync"
)

// normFormula identifies what a kernel of a norm over channels or its gradient computes: operands and results with their types.
type normFormula struct {
	gradient, terms, sum, relu, copy bool // terms are those of a gradient's sums
	first, rows                      bool // the sums of rows: of a norm's first image, of all or of a gradient
	in, other, out, low              Type
}

// leastPlane is the number of contiguous elements of a plane from which a specialized kernel is faster.
const leastPlane = 32

// choose searches for the kernels that read and write whole planes as they are stored.
func (t *channelTask) choose(gradient bool) {
	n := &t.n
	t.whole, t.terms, t.firstRows, t.sumRows = nil, nil, planeSum{}, planeSum{}
	if n.ChannelsLast || n.Space < leastPlane && (n.Groups > 0 || n.Space%t.m.vw > 0) {
		return
	}
	t.bufs = append(t.bufs[:0], n.X)
	f := normFormula{gradient: gradient, in: n.X.Type, out: n.Y.Type}
	if gradient {
		f.other, f.out, f.relu = n.DY.Type, n.DX.Type, !n.Sign.absent()
		if t.bufs = append(t.bufs, n.DY); f.relu {
			t.bufs, f.low = append(t.bufs, n.Sign), n.Sign.Type
		}
		t.bufs = append(t.bufs, n.DX)
	} else {
		if f.sum, f.relu = !n.Residual.absent(), n.Relu; f.sum {
			t.bufs, f.other = append(t.bufs, n.Residual), n.Residual.Type
		}
		if t.bufs = append(t.bufs, n.Y); !n.Copy.absent() {
			t.bufs, f.copy, f.low = append(t.bufs, n.Copy), true, n.Copy.Type
		}
	}
	t.whole = t.kernel(f)
	if gradient {
		f.terms, f.out = true, F32
		t.terms = t.kernel(f)
		f.rows = true
		t.sumRows = t.planeSum(f)
		return
	}
	t.firstRows = t.planeSum(normFormula{rows: true, first: true, in: n.X.Type})
	t.sumRows = t.planeSum(normFormula{rows: true, in: n.X.Type})
}

// planeSum is what a kernel sums over planes. Without one the vector primitives compute it, with the same bits.
type planeSum struct {
	normFormula
	kernel *Fused
}

func (t *channelTask) planeSum(f normFormula) planeSum { return planeSum{f, t.kernel(f)} }

// loads is the number of operands, sums that of sums.
func (s *planeSum) loads() int {
	switch {
	case s.relu:
		return 3
	case s.gradient:
		return 2
	}
	return 1
}

func (s *planeSum) sums() int {
	if s.first {
		return 1
	}
	return 2
}

// kernel finds the kernel of a formula and caches it, because describing a formula allocates.
func (t *channelTask) kernel(f normFormula) *Fused {
	k, known := t.fused[f]
	if !known {
		if t.fused == nil {
			t.fused = map[normFormula]*Fused{}
		}
		k = t.m.normKernel(f)
		t.fused[f] = k
	}
	return k
}

// normKernels are the kernels of norms, by lanes of their vectors and formula. There are few, so that they stay.
var normKernels = struct {
	sync.Mutex
	of map[int]map[normFormula]*Fused
}{of: map[int]map[normFormula]*Fused{}}

// normKernel composes the kernel of a formula at its first use; nil if p composes none.
func (p *Path) normKernel(f normFormula) *Fused {
	if ok, _ := p.Composes(); !ok {
		return nil
	}
	normKernels.Lock()
	defer normKernels.Unlock()
	k, known := normKernels.of[p.lanes][f]
	if !known {
		if normKernels.of[p.lanes] == nil {
			normKernels.of[p.lanes] = map[normFormula]*Fused{}
		}
		k = p.Compose(f.formula())
		normKernels.of[p.lanes][f] = k
	}
	return k
}

// formulaWriter appends to a formula.
type formulaWriter struct{ f *Formula }

func (w formulaWriter) load(t Type) Operand {
	w.f.Loads = append(w.f.Loads, t)
	return Operand{Loaded, len(w.f.Loads) - 1}
}

// scalar is the next scalar of the row.
func (w formulaWriter) scalar() Operand {
	w.f.Scalars++
	return Operand{Scalar, w.f.Scalars - 1}
}

func (w formulaWriter) op(primitive fmt.Stringer, args ...Operand) Operand {
	w.f.Code = append(w.f.Code, FormulaOp{primitive.String(), args})
	return Operand{Computed, len(w.f.Code) - 1}
}

func (w formulaWriter) store(t Type, x Operand) {
	w.f.Results = append(w.f.Results, FormulaResult{t, x})
}

func (w formulaWriter) sum(x ...Operand) { w.f.Sums = append(w.f.Sums, x...) }

// formula is what f computes. The scalars of a row are its mean, then factors and shifts, then zeros, as its user gives them.
func (f normFormula) formula() *Formula {
	w := formulaWriter{&Formula{Rows: true}}
	x := w.load(f.in)
	if f.first {
		w.sum(x)
		return w.f
	}
	var other, sign Operand
	if f.sum || f.gradient {
		other = w.load(f.other)
	}
	if f.gradient && f.relu {
		sign = w.load(f.low)
	}
	dev := w.op(Sub, x, w.scalar())
	switch {
	case f.rows && !f.gradient:
		w.sum(dev, w.op(Mul, dev, dev))
	case f.rows || f.terms:
		slope := other
		if f.relu {
			slope = w.positive(sign, other)
		}
		if product := w.op(Mul, slope, dev); f.rows {
			w.sum(product, slope)
		} else {
			w.store(F32, slope)
			w.store(F32, product)
		}
	case f.gradient:
		y := w.op(FMA, dev, w.scalar(), w.scalar())
		if f.relu {
			other = w.positive(sign, other)
		}
		w.store(f.out, w.op(FMA, other, w.scalar(), y))
	default:
		y := w.op(FMA, dev, w.scalar(), w.scalar())
		if f.sum {
			y = w.op(Add, y, other)
		}
		if f.relu {
			y = w.op(Max, y, w.scalar())
		}
		w.store(f.out, y)
		if f.copy {
			w.store(f.low, y)
		}
	}
	return w.f
}

// positive is x where sign is above zero, else zero; both zeros are scalars.
func (w formulaWriter) positive(sign, x Operand) Operand {
	above := w.op(Lt, w.scalar(), sign)
	return w.op(Select, above, x, w.scalar())
}

// planes runs the kernel over the channel at offset at in all images that share its statistics.
func (t *channelTask) planes(w *worker, at int, scalars ...float32) {
	n, images := &t.n, t.n.Images
	if n.Groups > 0 {
		images = 1
	}
	k := copy(w.scalars[:], scalars)
	for i := range images {
		t.whole.Run(&w.call, t.bufs, w.scalars[:k], at+i*n.Channels*n.Space, n.Space, false)
	}
}

// termsOf computes products row by row of a block.
func (t *channelTask) termsOf(w *worker, at int, b piece, mean float32) (dy, product []float32) {
	n := &t.n
	dy, product = w.row[1].get(b.rows*b.cols), w.row[2].get(b.rows*b.cols)
	w.scalars = [8]float32{mean}
	for r := range b.rows {
		from, to := at+b.at+r*n.Channels*n.Space, r*b.cols
		bufs := append(w.bufs[:0], n.X.From(from), n.DY.From(from))
		if !n.Sign.absent() {
			bufs = append(bufs, n.Sign.From(from))
		}
		bufs = append(bufs, Floats(dy[to:]), Floats(product[to:]))
		t.terms.Run(&w.call, bufs, w.scalars[:3], 0, b.cols, false)
	}
	return dy, product
}
