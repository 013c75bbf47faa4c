package kern

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Weights are the packed forms of an operand that does not change between calls. Products and
// convolutions that are given Weights pack the operand once, not in every call. Any number of
// machines may use them at the same time.
type Weights struct {
	alloc  func(bytes int64) *Block
	source *Source // of the operand; nil: it stays in memory

	mu    sync.Mutex
	forms []form
}

// form is an operand in one layout.
type form struct {
	layout  Layout
	data    []float32
	block   *Block // the block of data
	current bool
}

// Layout names a packed form. It contains everything that the packed words depend on besides the
// operand's elements: two kernels that would write the same words have equal layouts and share
// them.
type Layout struct {
	Kind string // what the kernel calls the form
	Of   [20]int
}

// Fixed describes an operand that is part of an array with packed forms: it begins with element At.
// The zero value is an operand without packed forms.
type Fixed struct {
	*Weights
	At int
}

// NewWeights makes the forms of one operand. source, unless it is nil, provides the operand's
// elements. alloc returns a new block, or nil if there is no memory: kernels then pack in every
// call.
func NewWeights(source *Source, alloc func(bytes int64) *Block) *Weights {
	return &Weights{source: source, alloc: alloc}
}

// Stale makes all forms invalid: they are packed again before they are read. No kernel may be
// running on them.
func (w *Weights) Stale() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.forms {
		w.forms[i].current = false
	}
}

// Drop frees the memory of all forms. No kernel may be running on them.
func (w *Weights) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.forms {
		w.forms[i].block.Release()
	}
	w.forms = nil
}

// Bytes is the memory of all forms.
func (w *Weights) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int64(0)
	for i := range w.forms {
		n += int64(4 * len(w.forms[i].data))
	}
	return n
}

// packer writes a form.
type packer interface {
	packAll(m *Machine, dst []float32)
}

// form returns the operand in layout l, of n words, or nil if there is no memory for it. p packs it
// if that is not done yet; other callers that want it wait.
func (w *Weights) form(m *Machine, l *Layout, n int, p packer) []float32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := -1
	for i := range w.forms {
		if w.forms[i].layout == *l {
			at = i
			break
		}
	}
	if at < 0 {
		block := w.alloc(int64(4 * n))
		if block == nil {
			w.loadUnpacked()
			return nil
		}
		at = len(w.forms)
		w.forms = append(w.forms, form{layout: *l, data: Buf{F32, block.Bytes()}.f32(), block: block})
	}
	f := &w.forms[at]
	if !f.current {
		end := w.toPack()
		p.packAll(m, f.data)
		end()
		f.current = true
	}
	return f.data
}

// ahead is an operand of a product that is packed over its whole depth before the product runs:
// panel after panel, with a vector between them, because packing may write past the end of a panel.
// The zero value is an operand that blocks pack themselves.
type ahead struct {
	data  []float32
	item  int    // floats between items
	inner int    // of the batch
	n     [2]int // different items on the two levels of the batch
}

// fixedOperand is an operand that may be packed ahead.
type fixedOperand struct {
	weights *Weights
	layout  Layout // without the fields that depend on the product
	n       [2]int // see ahead
}

// aheadGap is the number of floats between panels, because packing may write past the end of a row.
const aheadGap = 16

// aheadTask packs an operand of t; a task is a panel, or some of its depths.
type aheadTask struct {
	t    *gemmTask
	side int // 0: A, 1: B
	dst  []float32
	part Division
}

// packAhead finds the packed forms of t's operands, or packs now those that are worth it.
func (t *gemmTask) packAhead(m *Machine) {
	for side := range t.fixed {
		f := &t.fixed[side]
		if f.weights == nil || t.depth == 0 {
			f.weights.loadUnpacked()
			t.makeWords(side)
			continue
		}
		x, items := &t.ahead[side], f.n[0]*f.n[1]
		x.n, x.inner = f.n, max(1, t.out.inner)
		x.item = t.aheadStart(side, t.aheadPanels(side)) + t.aheadFlags(side)
		lanes, of := t.rows, &f.layout.Of
		if side == 1 {
			lanes = t.cols
		}
		of[0], of[1], of[2], of[3], of[4] = side, lanes, t.depth, f.n[0], f.n[1]
		switch f.layout.Kind = "panels"; {
		case t.tiles:
			f.layout.Kind = "tiles"
		case t.vnni:
			f.layout.Kind = "words"
		}
		m.ahead = aheadTask{t: t, side: side}
		x.data = f.weights.form(m, &f.layout, items*x.item, &m.ahead)
		m.ahead = aheadTask{}
		if x.data == nil || t.tiles { // blocks pack the operand, or rows of it that are subnormal
			t.makeWords(side)
		}
	}
	t.packShared(m)
	if t.ahead[1].data != nil {
		t.packing, t.indirect = nil, nil
	}
}

// aheadPanels is the number of panels of an operand.
func (t *gemmTask) aheadPanels(side int) int {
	if side == 0 {
		return t.panels
	}
	return ceilDiv(t.cols, t.p.nr)
}

// aheadStart is the position of panel q of an operand.
func (t *gemmTask) aheadStart(side, q int) int {
	depth := t.packedDepth(t.depth)
	switch {
	case side == 0 && t.tiles:
		return q * t.mr * depth
	case side == 0:
		return t.row(q)*depth + q*aheadGap
	}
	lanes := min(q*t.p.nr, t.cols)
	if q*t.p.nr > t.cols { // the last panel is as wide as its tile
		lanes += t.p.width(t.cols-(q-1)*t.p.nr) - (t.cols - (q-1)*t.p.nr)
	}
	return lanes*depth + q*aheadGap
}

func (x *aheadTask) packAll(m *Machine, dst []float32) {
	x.dst = dst
	if s := x.t.makeWords(x.side); s != nil {
		defer func() { // calls that find the panels do not need them
			m.conv.weights.drop()
			s.due = true
		}()
	}
	a := &x.t.ahead[x.side]
	items := a.n[0] * a.n[1]
	for item := range items {
		clear(x.dst[item*a.item+x.t.aheadStart(x.side, x.t.aheadPanels(x.side)):][:x.t.aheadFlags(x.side)])
	}
	b := x.t.packingBox(x.side, items)
	x.part = m.divide(b, m.pool.share())
	m.runDivided(&b, x.part, x)
}

// Run packs some depths of a panel.
func (x *aheadTask) Run(worker, i int) {
	t, w := x.t, x.t.m.worker[worker]
	a, panels, units, parts := &t.ahead[x.side], t.aheadPanels(x.side), t.aheadUnits(), x.part.rows
	item, q, part := i/parts/panels, i/parts%panels, i%parts
	dst := x.dst[item*a.item+t.aheadStart(x.side, q):]
	flags := x.dst[item*a.item+t.aheadStart(x.side, panels):]
	item = item/a.n[1]*a.inner + item%a.n[1]
	k0, k1 := bound(part, parts, units)*aheadDepth, min(bound(part+1, parts, units)*aheadDepth, t.depth)
	if t.packPanelAhead(w, x.side, item, q, k0, k1, dst) != 0 && t.vnni {
		markPanel(&flags[q])
	}
}

// markPanel marks a panel, as others may do that pack other depths of it.
func markPanel(flag *float32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(flag)), math.Float32bits(1))
}

// aheadDepth is how many depths of a panel are packed as one, at least.
const aheadDepth = 64

// aheadUnits is how many pieces of a panel are packed on their own; the panels of tile registers are not divided.
func (t *gemmTask) aheadUnits() int {
	if t.tiles {
		return 1
	}
	return ceilDiv(t.depth, aheadDepth)
}

// aheadFlags is the number of floats behind the panels that mark panels with subnormal elements:
// one for each panel, and only of words.
func (t *gemmTask) aheadFlags(side int) int {
	if t.vnni {
		return roundUp(t.aheadPanels(side), aheadGap)
	}
	return 0
}

// packPanelAhead packs depths [k0,k1) of panel q of an operand, all of them for tile registers; the result is that of pack.
func (t *gemmTask) packPanelAhead(w *worker, side, item, q, k0, k1 int, dst []float32) (subnormal uint64) {
	if side == 1 {
		j := q * t.p.nr
		n := min(t.p.nr, t.cols-j)
		return t.packDepths(t.b, w, dst, t.p.width(n), item, j, n, k0, k1)
	}
	r0, r1 := t.row(q), t.row(q+1)
	if !t.tiles {
		return t.packDepths(t.a, w, dst, r1-r0, item, r0, r1-r0, k0, k1)
	}
	for i := r0; i < r1; i += amxTile {
		subnormal |= t.packTile(w, dst[(i-r0)*t.packedDepth(t.depth):], item, i, min(amxTile, r1-i), 0, t.depth)
	}
	return subnormal
}

// packDepths packs depths [k0,k1) of a panel as pack does. If others follow, another worker may pack them now: the last ones, behind
// which pack may write, are packed elsewhere and copied.
func (t *gemmTask) packDepths(s source, w *worker, panel []float32, ld, item, l0, n, k0, k1 int) (subnormal uint64) {
	last := k1
	if k1 < t.depth {
		last -= (1 + flag(t.vnni)) * ceilDiv(aheadGap, ld)
	}
	subnormal = t.pack(s, w, panel[t.packedDepth(k0)*ld:], ld, item, l0, n, k0, last-k0)
	if last == k1 {
		return subnormal
	}
	edge := w.edge.get(2*aheadGap + max(t.mr, t.p.nr))
	subnormal |= t.pack(s, w, edge, ld, item, l0, n, last, k1-last)
	copy(panel[t.packedDepth(last)*ld:t.packedDepth(k1)*ld], edge)
	return subnormal
}

// aheadFlag reports whether panel q of words has subnormal elements.
func (t *gemmTask) aheadFlag(side, item, q int) bool {
	f := &t.ahead[side]
	return f.data[f.start(item)+t.aheadStart(side, t.aheadPanels(side))+q] != 0
}

// start is the first float of an item of the batch.
func (x *ahead) start(item int) int {
	outer, inner := item/x.inner, item%x.inner
	if x.n[0] == 1 {
		outer = 0
	}
	if x.n[1] == 1 {
		inner = 0
	}
	return (outer*x.n[1] + inner) * x.item
}

// panelA is panel i of the block, which begins with row r0 of the block and has h rows; a holds the
// panels that the block packed.
func (x *block) panelA(a []float32, i, r0, h int) []float32 {
	t := x.t
	if f := &t.ahead[0]; f.data != nil {
		return f.data[f.start(x.item)+t.aheadStart(0, x.q0+i)+t.packedDepth(x.k0)*h:]
	}
	return a[r0*t.packedDepth(x.kc)+i*aheadGap:]
}

// panelB is the panel of the columns from j on.
func (x *block) panelB(j int) []float32 {
	t := x.t
	if f := &t.ahead[1]; f.data != nil {
		return f.data[f.start(x.item)+t.aheadStart(1, j/t.p.nr)+t.packedDepth(x.k0)*t.p.width(min(t.p.nr, x.j1-j)):]
	}
	return x.b[(j-x.b0)*t.packedDepth(x.kc):]
}

// fixed describes a matrix as an operand that may be packed ahead.
func (m *Mat) fixed(g *Gemm, contig bool) fixedOperand {
	f := fixedOperand{weights: m.Fixed.Weights, n: [2]int{1, 1}}
	if f.weights == nil {
		return f
	}
	for l, n := range g.Batch {
		if m.Stride[l] != 0 {
			f.n[l] = max(1, n)
		}
	}
	copy(f.layout.Of[5:], []int{int(m.Type), flag(g.TF32), m.Fixed.At, m.LD, flag(contig), m.Stride[0], m.Stride[1]})
	return f
}

// fixed describes the weights of a convolution in the same way. If swapped is set, the product
// reduces over K and its results are channels C; if words is set, its depths are the taps of two
// channels in turn.
func (c *Conv) fixed(swapped, words bool) fixedOperand {
	f := fixedOperand{weights: c.Fixed.Weights, n: [2]int{1, c.Groups}}
	if f.weights != nil {
		copy(f.layout.Of[5:], []int{int(c.W.Type), flag(c.TF32), c.Fixed.At, -1, flag(swapped), int(c.Weights), flag(c.ChannelsLast), c.Groups, volume(c.Kernel), flag(words)})
	}
	return f
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
