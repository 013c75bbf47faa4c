package kern

import (
	"fmt"
	"sync"
)

// normFormula identifies what a kernel of a norm over channels or its gradient computes: operands and results with their types.
type normFormula struct {
	gradient, sum, relu, copy bool
	rows                      bool // the sums of rows: of deviations and their squares, or of a gradient
	last                      bool // channels are last: what belongs to one is an element of a vector
	deep                      int  // of those, how many rows are added to chains; 0: results
	in, other, out, low       Type
}

// leastPlane is the number of contiguous elements of a plane from which a specialized kernel is faster.
const leastPlane = 32

// manyRows is from how many rows on it is faster to gather the last elements of all than to compute them one by one.
const manyRows = 4

// choose searches for the kernels that read and write whole planes as they are stored.
func (t *channelTask) choose(gradient bool) {
	n := &t.n
	t.whole, t.vectors = nil, n.Space%t.m.lanes == 0
	var f normFormula
	if f, t.bufs = n.results(gradient, t.bufs); n.Space >= leastPlane || t.vectors {
		t.whole = t.kernel(f)
	}
	if !gradient {
		f = normFormula{in: n.X.Type}
	}
	if f.rows, f.out = true, F32; !t.vectors {
		f.in, f.other, f.low = F32, F32, F32
	}
	t.rowSums = t.kernel(f)
}

// summedSize is the bytes of an element of the operands that are summed.
func (n *ChannelNorm) summedSize(gradient bool) int {
	size := n.X.Type.Size()
	if gradient {
		if size += n.DY.Type.Size(); !n.Sign.absent() {
			size += n.Sign.Type.Size()
		}
	}
	return size
}

// chunkOf is how many statistics have planes, of so many bytes, that stay in the cache until the last step. Rows of several images are
// rather read in the order of memory.
func (t *channelTask) chunkOf(size int) int {
	if t.images() > 1 && t.vectors {
		return t.n.Stats()
	}
	return max(1, t.m.Caches().inSecond(chunkSize)/max(1, size*t.shared*t.images()))
}

// results is the formula of Y, or of DX, and its operands and results in order.
func (n *ChannelNorm) results(gradient bool, bufs []Buf) (normFormula, []Buf) {
	bufs = append(bufs[:0], n.X)
	f := normFormula{gradient: gradient, in: n.X.Type, out: n.Y.Type}
	if gradient {
		f.other, f.out, f.relu = n.DY.Type, n.DX.Type, !n.Sign.absent()
		if bufs = append(bufs, n.DY); f.relu {
			bufs, f.low = append(bufs, n.Sign), n.Sign.Type
		}
		return f, append(bufs, n.DX)
	}
	if f.sum, f.relu = !n.Residual.absent(), n.Relu; f.sum {
		bufs, f.other = append(bufs, n.Residual), n.Residual.Type
	}
	if bufs = append(bufs, n.Y); !n.Copy.absent() {
		bufs, f.copy, f.low = append(bufs, n.Copy), true, n.Copy.Type
	}
	return f, bufs
}

// lastKernels are the kernels of a norm with channels last, or of its gradient; nil where there are none.
type lastKernels struct {
	whole  *Fused    // the operations behind the sums
	chains [2]*Fused // add one row, or deepRows, to chains
}

// choose searches for the kernels of a norm with channels last.
func (t *lastTask) choose(gradient bool) {
	var f normFormula
	f, t.bufs = t.n.results(gradient, t.bufs)
	if t.summed = t.bufs[:1]; gradient {
		t.summed = t.bufs[:len(t.bufs)-1]
	}
	k, known := t.kernels[f]
	if !known {
		if t.kernels == nil {
			t.kernels = map[normFormula]lastKernels{}
		}
		k = t.m.lastKernels(f)
		t.kernels[f] = k
	}
	t.lastKernels = k
}

// lastKernels are those of a norm whose results have a formula with channels first.
func (p *Path) lastKernels(f normFormula) (k lastKernels) {
	f.last = true
	k.whole = p.normKernel(f)
	if !f.gradient {
		f = normFormula{last: true, in: f.in}
	}
	f.out = F32
	for i, deep := range [...]int{1, deepRows} {
		f.deep = deep
		k.chains[i] = p.normKernel(f)
	}
	return k
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
type formulaWriter struct {
	f       *Formula
	numbers int // that number has returned
}

func (w *formulaWriter) load(t Type) Operand {
	w.f.Loads = append(w.f.Loads, t)
	return Operand{Loaded, len(w.f.Loads) - 1}
}

// number is the next number of a channel: a scalar of the row, or an operand.
func (w *formulaWriter) number() Operand {
	w.numbers++
	if w.f.Rows {
		w.f.Scalars = w.numbers
		return Operand{Scalar, w.numbers - 1}
	}
	return Operand{Loaded, w.numbers - 1}
}

func (w *formulaWriter) op(primitive fmt.Stringer, args ...Operand) Operand {
	w.f.Code = append(w.f.Code, FormulaOp{primitive.String(), args})
	return Operand{Computed, len(w.f.Code) - 1}
}

func (w *formulaWriter) store(t Type, x Operand) {
	w.f.Results = append(w.f.Results, FormulaResult{t, x})
}

func (w *formulaWriter) sum(x ...FormulaSum) { w.f.Sums = append(w.f.Sums, x...) }

// formula is what f computes. The numbers of a channel are its mean, then factors and shifts, as its user gives them. If they are
// vectors, these are the first operands.
func (f normFormula) formula() *Formula {
	w := &formulaWriter{f: &Formula{Rows: !f.last}}
	if f.deep > 0 {
		f.chains(w)
		return w.f
	}
	for range f.vectors() {
		w.load(F32)
	}
	x := w.load(f.in)
	var other, sign Operand
	if f.sum || f.gradient {
		other = w.load(f.other)
	}
	if f.gradient && f.relu {
		sign = w.load(f.low)
	}
	dev := w.op(Sub, x, w.number())
	switch {
	case f.rows && !f.gradient:
		w.sum(FormulaSum{Value: dev}, FormulaSum{dev, true})
	case f.rows:
		slope := other
		if f.relu {
			slope = w.positive(sign, other)
		}
		w.sum(FormulaSum{Value: w.op(Mul, slope, dev)}, FormulaSum{Value: slope})
	case f.gradient:
		y := w.op(FMA, dev, w.number(), w.number())
		if f.relu {
			other = w.positive(sign, other)
		}
		w.store(f.out, w.op(FMA, other, w.number(), y))
	default:
		y := w.op(FMA, dev, w.number(), w.number())
		if f.sum {
			y = w.op(Add, y, other)
		}
		if f.relu {
			y = w.op(Relu, y)
		}
		w.store(f.out, y)
		if f.copy {
			w.store(f.low, y)
		}
	}
	return w.f
}

// vectors is how many operands the numbers of a channel are.
func (f normFormula) vectors() int {
	switch {
	case !f.last:
		return 0
	case f.gradient:
		return 4
	}
	return 3
}

// chains adds rows to chains: deviations from a vector of means and their squares, or dy*(x-mean) and dy. The operands are the means,
// the chains, then those of each row; the results are the chains.
func (f normFormula) chains(w *formulaWriter) {
	mean, sum, second := w.load(F32), w.load(F32), w.load(F32)
	for range f.deep {
		dev := w.op(Sub, w.load(f.in), mean)
		if !f.gradient {
			sum, second = w.op(Add, sum, dev), w.op(FMA, dev, dev, second)
			continue
		}
		slope := w.load(f.other)
		if f.relu {
			slope = w.positive(w.load(f.low), slope)
		}
		sum, second = w.op(Add, sum, w.op(Mul, slope, dev)), w.op(Add, second, slope)
	}
	w.store(F32, sum)
	w.store(F32, second)
}

// positive is x where sign is above zero, else zero.
func (w *formulaWriter) positive(sign, x Operand) Operand {
	above := w.op(Lt, ConstantOf(0), sign)
	return w.op(Select, above, x, ConstantOf(0))
}

// byKernel runs the kernel over a piece of the channel at offset at, and returns what is left: the last elements of many rows, which
// are not a vector each.
func (t *channelTask) byKernel(w *worker, at int, p piece) piece {
	if t.whole == nil {
		return p
	}
	n, whole := &t.n, p.cols
	if p.rows >= manyRows {
		whole &^= t.m.lanes - 1
	}
	for i := range p.rows {
		t.whole.Run(&w.call, t.bufs, w.scalars[:], t.in(p, at)+i*n.Channels*n.Space, whole, false)
	}
	return piece{p.image, p.from + whole, p.rows, p.cols - whole}
}
