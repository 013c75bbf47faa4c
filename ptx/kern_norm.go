package ptx

import (
	"cmp"
	"fmt"
	"slices"
)

// Norm normalizes rows: layer normalization over the last dimension of Rows×Cols, group
// normalization if Shape and Stride place the groups. y = (x-mean)·rstd·scale + bias with rstd =
// 1/sqrt(var+eps); RMS has neither mean nor bias. Statistics are computed in f32, the variance from
// deviations. The kernel can fuse elementwise code on both sides:
//
// Before computes the norm's input (its value X, in f32; in backward: dy) from other tensors, and
// may store any of its values. After computes what is stored from the norm's result (y; in
// backward: dx), which is its load 0 and has no buffer. If they are nil, the kernel reads x (dy)
// and stores y (dx).
//
// Forward arguments: x or Before's loads, [scale f32], [bias f32], After's other loads, Before's stores,
// y or After's stores, [mean f32], rstd f32.
//
// Backward arguments: dy or Before's loads, x, [scale], [mean], rstd, After's other loads, Before's
// stores, dx or After's stores, and if Partials is not 0: dscale, [dbias], a sum over rows of each of
// Sums. These are f32 partial sums, Partials rows of Cols, which ColSums adds up; if Partials is 0,
// NormSums computes dscale and dbias.
type Norm struct {
	Name           string
	Rows, Cols     int
	In, Out        DType // x, y (and dy)
	DX             DType // dx; "": as x
	RMS            bool
	NoScale, Bias  bool
	Eps            float32
	Workers        int // teams that share the rows, backward each with sums of its own; 0 picks those of one wave, backward as many as have 24 KB in flight
	Before, After  *Elementwise
	X              int
	Sums           []int   // backward: values of After, in f32
	Shape          []int64 // dimensions that number rows, then those of their columns; nil: Rows×Cols
	Stride, PerRow []int64 // of x, y, dx, dy and of scale and bias over Shape; nil: dense, and one element for each column
}

// the longest row for which a team keeps column sums in registers next to the row, the largest team
// that keeps what is the same for all rows, and the largest that reads the next row ahead
const (
	maxSummed = goodLane * 512
	sharing   = 128
	readAhead = 256
)

// normGen is the state of one code generation.
type normGen struct {
	Norm
	*rows
	p             params
	before, after *rowElementwise
	affine        *rowElementwise // scale and bias
	x             *rowElementwise // backward: the operand of the norm
	mean, rstd    Reg
}

// plain is code that loads or stores one tensor with the norm's strides.
func (s Norm) plain(load, store string, d DType) *Elementwise {
	g := &Elementwise{Shape: s.shape(), Code: []Instr{{Op: "in", Type: Float32}}, Loads: []Access{{Name: load, DType: d, Stride: s.Stride}}}
	if store != "" {
		g.Stores = []Output{{Access: Access{Name: store, DType: d, Stride: s.Stride}}}
	}
	return g
}

func (s Norm) shape() []int64 {
	if s.Shape != nil {
		return s.Shape
	}
	return []int64{int64(s.Rows), int64(s.Cols)}
}

// perColumn is code that loads scale and bias.
func (s Norm) perColumn(bias bool) *Elementwise {
	stride := s.PerRow
	if stride == nil {
		stride = []int64{0, 1}
	}
	g := &Elementwise{Shape: s.shape()}
	for i, name := range []string{"scale", "bias"} {
		if i == 0 && !s.NoScale || i == 1 && bias {
			g.Code = append(g.Code, Instr{Op: "in", Type: Float32, Int: int64(len(g.Loads))})
			g.Loads = append(g.Loads, Access{Name: name, DType: Float32, Stride: stride})
		}
	}
	return g
}

// start plans the code around a norm that computes to from from, and begins the kernel.
func (s Norm) start(fl Flavour, from, to string, in, out DType, backward bool) (*normGen, error) {
	before, after := s.Before, s.After
	if before == nil {
		before = s.plain(from, "", in)
		s.X = 0
	}
	if after == nil {
		after = s.plain("", to, out)
	}
	if s.X < 0 || s.X >= len(before.Code) || before.Code[s.X].Type != Float32 {
		return nil, fmt.Errorf("ptx: %s: value %d of the code before it is not f32", s.Name, s.X)
	}
	k := &normGen{Norm: s}
	codes := []*Elementwise{before, after, s.perColumn(s.Bias && !backward)}
	if backward {
		codes = append(codes, s.plain("x", "", s.In))
	}
	var plans []*rowElementwise
	for _, g := range codes {
		plan, err := planRows(g, s.Rows, s.Cols)
		if err != nil {
			return nil, fmt.Errorf("ptx: %s: %w", s.Name, err)
		}
		plans = append(plans, plan)
	}
	k.before, k.after, k.affine = plans[0], plans[1], plans[2]
	vec := rowVec(s.Cols, plans)
	if backward {
		k.x = plans[3]
	}
	k.rows = rowsOver(fl, s.Name, s.Cols, vec, goodLane)
	k.p = params{b: k.b}
	return k, nil
}

// stats declares the parameters mean and rstd, which are read or written.
func (k *normGen) stats(declare func(name string, d DType, n int) Reg) {
	if !k.RMS {
		k.mean = declare("mean", Float32, k.Rows)
	}
	k.rstd = declare("rstd", Float32, k.Rows)
}

// Forward generates y and the statistics.
func (s Norm) Forward(fl Flavour) (*Launch, error) {
	k, err := s.start(fl, "x", "y", s.In, s.Out, false)
	if err != nil {
		return nil, err
	}
	b := k.b
	k.before.loadParams(&k.p, 0)
	k.affine.loadParams(&k.p, 0)
	k.after.loadParams(&k.p, 1)
	k.before.storeParams(&k.p)
	k.after.storeParams(&k.p)
	k.stats(k.p.out)
	k.begin()
	workers := s.Rows
	if k.team <= sharing && k.affine.everyRow() { // with many columns, scale and bias do not fit into registers next to the row
		resident := k.resident()
		if workers = s.workers(k.perBlock, resident*k.perBlock*fl.Multiprocessors()); s.Rows > workers {
			b.k.Blocks = resident
			k.affine.share(k.rows)
			k.before.share(k.rows)
			k.after.share(k.rows)
		}
	}
	k.share(s.Rows, workers, func(row Reg) {
		x := k.source(k.before, s.X, row)
		mean, inv := k.statistics(row, x)
		k.enter(row)
		k.after.through(func(at spot) []Reg {
			g, sh := k.affineAt(at)
			y := make([]Reg, k.vec)
			for i, v := range x.at(at) {
				y[i] = b.mul(k.centred(v, mean), inv)
				if g != nil {
					y[i] = b.mul(y[i], g[i])
				}
				if sh != nil {
					y[i] = b.add(y[i], sh[i])
				}
			}
			return y
		}, nil)
		k.barrier(workers)
	})
	return k.launch(workers)
}

// resident is the number of blocks of the forward kernel on a multiprocessor, by the registers of a
// thread: the row, what its columns share between rows, and temporary values. Registers are limited to
// that.
func (k *normGen) resident() int {
	const registers, temporary = 1 << 16, 16
	held := 1
	for _, g := range []*rowElementwise{k.before, k.affine, k.after} {
		for i, a := range g.Loads {
			if g.bases[i].Class != NoClass && g.rowsShare(a) {
				held++
			}
		}
		if slices.ContainsFunc(g.Code, func(in Instr) bool { return in.Op == "philox" }) {
			held += 2
		}
	}
	n := min(k.b.fl.residentThreads(), registers/(held*k.chunks*k.vec+temporary))
	return max(1, n/(k.team*k.perBlock))
}

// statistics computes the row's mean and rstd. One thread stores them.
func (k *normGen) statistics(row Reg, x *source) (mean, inv Reg) {
	b, cols := k.b, Fl(float32(k.Cols))
	if !k.RMS {
		mean = b.div(k.total(x, func(v Reg) Reg { return v }), cols)
	}
	sq := k.total(x, func(v Reg) Reg {
		d := k.centred(v, mean)
		return b.mul(d, d)
	})
	inv = b.Do("rcp.rn.f32", b.Do("sqrt.rn.f32", b.add(b.div(sq, cols), Fl(k.Eps))))
	b.when(b.Do("setp.eq.u32", k.lane, I(0)), func() {
		if !k.RMS {
			b.Do("st.global.f32", Addr{Base: b.at(k.mean, row, 4)}, mean)
		}
		b.Do("st.global.f32", Addr{Base: b.at(k.rstd, row, 4)}, inv)
	})
	return mean, inv
}

// centred returns the distance from the mean; RMS keeps x unchanged.
func (k *normGen) centred(x, mean Reg) Reg {
	if k.RMS {
		return x
	}
	return k.b.sub(x, mean)
}

// enter computes the row's addresses for the code after the statistics.
func (k *normGen) enter(row Reg) {
	k.after.enter(k.rows, row)
	k.affine.enter(k.rows, row)
}

// affineAt returns scale and bias of the columns at s, nil if there are none.
func (k *normGen) affineAt(s spot) (scale, bias []Reg) {
	k.affine.eval(s, nil)
	for i, a := range k.affine.Loads {
		if a.Name == "scale" {
			scale = k.affine.all(i)
		} else {
			bias = k.affine.all(i)
		}
	}
	return scale, bias
}

// barrier ends a row if there are several, so that the next row may reuse the scratch memory.
func (k *normGen) barrier(workers int) {
	if k.RMS && k.team > 32 && k.Rows > workers {
		k.b.Do("bar.sync", I(0))
	}
}

// launch ends the kernel. If threads hold their part of a row in registers, they read it before
// they write, so the first result may be stored in place of the first operand.
func (k *normGen) launch(workers int) (*Launch, error) {
	l, err := finish(k.b, k.grid(workers), k.p.list)
	if err == nil {
		l.InPlace = !k.streamed && k.overlays()
	}
	return l, err
}

// overlays reports whether the first store has the strides of the first load.
func (k *normGen) overlays() bool {
	from, into := k.before, k.after
	if len(from.Stores) > 0 {
		into = from
	}
	if len(from.Loads) == 0 || len(into.Stores) == 0 {
		return false
	}
	a, b := from.Loads[0], into.Stores[0].Access
	return a.Offset == b.Offset && slices.Equal(a.Stride, b.Stride) && slices.Equal(from.Shape, into.Shape) || from.dense(a) && into.dense(b)
}

// workers rounds the requested number of teams up to whole blocks.
func (s Norm) workers(perBlock, most int) int {
	w := s.Workers
	if w == 0 {
		w = min(s.Rows, most)
	}
	return ceilDiv(w, perBlock) * perBlock
}

// backwardWorkers is the number of teams if the caller does not say: 4 for each multiprocessor of an
// H100, up to 16 if rows are so short that the next row of each is less than 24 KB.
func (s Norm) backwardWorkers() int {
	const flight = 24 << 10
	return 132 * min(max(ceilDiv(flight, s.Cols*s.readBytes()), 4), 16)
}

// readBytes is what the gradient reads of each element of a row.
func (s Norm) readBytes() int {
	n := s.In.Size()
	read := func(loads []Access) {
		for _, a := range loads {
			if last := len(a.Stride) - 1; last < 0 || a.Stride[0] != 0 {
				n += a.DType.Size()
			}
		}
	}
	if s.Before == nil {
		n += s.Out.Size()
	} else {
		read(s.Before.Loads)
	}
	if s.After != nil {
		read(s.After.Loads[1:])
	}
	return n
}

// Partials is the number of rows of Backward's partial sums. It is 0 if Backward writes none,
// because the registers do not suffice: for long rows, or if each row has its own scale.
func (s Norm) Partials() int {
	switch {
	case s.NoScale || s.PerRow != nil || s.Cols > maxSummed:
		return 0
	case teamFor(s.Cols, 1, goodLane) == 32:
		return s.workers(warpTeams, s.backwardWorkers())
	}
	return s.workers(1, s.backwardWorkers())
}

// normBack is the state of Backward.
type normBack struct {
	*normGen
	summed bool
	hat, w [][]Reg // by chunk: x̂ and dy·scale, if they stay in registers
	ahead  []Reg   // statistics of the next row; nil: rows are not read ahead
	dg, db [][]Reg
	sums   [][][]Reg // of Sums
}

// Backward generates dx and, with Partials, the partial sums of dscale and dbias.
func (s Norm) Backward(fl Flavour) (*Launch, error) {
	g, err := s.start(fl, "dy", "dx", s.Out, cmp.Or(s.DX, s.In), true)
	if err != nil {
		return nil, err
	}
	k := &normBack{normGen: g, summed: s.Partials() > 0, hat: make([][]Reg, g.chunks), w: make([][]Reg, g.chunks)}
	workers := s.Rows
	if k.summed {
		workers = s.Partials()
	}
	k.before.loadParams(&k.p, 0)
	k.x.loadParams(&k.p, 0)
	k.affine.loadParams(&k.p, 0)
	k.stats(k.p.in)
	k.after.loadParams(&k.p, 1)
	k.before.storeParams(&k.p)
	k.after.storeParams(&k.p)
	parts := k.partial(workers)
	if len(s.Sums) > 0 && !k.summed {
		return nil, fmt.Errorf("ptx: %s: sums over rows of %d columns", s.Name, s.Cols)
	}
	k.begin()
	if k.summed {
		k.dg, k.db = k.rows.tile(0), k.rows.tile(0)
		for range s.Sums {
			k.sums = append(k.sums, k.rows.tile(0))
		}
		k.affine.share(k.rows)
		k.b.k.Blocks = k.wanted(fl, workers)
	}
	if k.summed && k.team <= sharing {
		k.before.share(k.rows)
		k.after.share(k.rows)
	}
	if s.Rows > workers && !k.streamed && k.team <= readAhead {
		k.fetch(k.worker)
	}
	k.share(s.Rows, workers, func(row Reg) {
		k.row(row, workers)
		k.barrier(workers)
	})
	for i, sum := range k.tiles()[:len(parts)] {
		k.rows.store(k.rowAddr(parts[i], k.worker, Float32), Float32, sum)
	}
	return k.launch(workers)
}

// wanted is the number of blocks of a multiprocessor that ptxas must leave registers for. Without the
// number it keeps a register in memory to fit one block more. A thread holds its part of both rows, of
// scale and of the sums.
func (k *normBack) wanted(fl Flavour, workers int) int {
	const registers, temporary = 1 << 16, 40
	fit := registers / ((5+len(k.Sums))*k.chunks*k.vec + temporary) / (k.team * k.perBlock)
	return max(1, min(ceilDiv(ceilDiv(workers, k.perBlock), fl.Multiprocessors()), fit))
}

// partial declares the partial sums of the given number of workers: none if Backward writes none.
func (k *normBack) partial(workers int) (parts []Reg) {
	if !k.summed {
		return nil
	}
	names := []string{"dscale"}
	if k.Bias {
		names = append(names, "dbias")
	}
	for i := range k.Sums {
		names = append(names, fmt.Sprint("sum", i))
	}
	for _, name := range names {
		parts = append(parts, k.p.out(name, Float32, workers*k.Cols))
	}
	return parts
}

// tiles are the sums in registers, in the order of partial.
func (k *normBack) tiles() [][][]Reg {
	list := [][][]Reg{k.dg}
	if k.Bias {
		list = append(list, k.db)
	}
	return append(list, k.sums...)
}

// operands is the code that reads a row.
func (k *normBack) operands() []*rowElementwise { return []*rowElementwise{k.before, k.x, k.after} }

// fetch reads a row ahead of the barriers of the row before it.
func (k *normBack) fetch(row Reg) {
	for _, g := range k.operands() {
		g.fetch(k.rows, row)
	}
	if k.ahead == nil {
		for range k.perRow() {
			k.ahead = append(k.ahead, k.b.reg(F32))
		}
	}
	for i, from := range k.perRow() {
		k.b.To(k.ahead[i], "ld.global.f32", Addr{Base: k.b.at(from, row, 4)})
	}
}

// perRow are the statistics of a row.
func (k *normBack) perRow() []Reg {
	if k.RMS {
		return []Reg{k.rstd}
	}
	return []Reg{k.rstd, k.mean}
}

// rowStatistics returns rstd and mean of a row. If rows are read ahead, it takes what was read and reads
// the row after it.
func (k *normBack) rowStatistics(row Reg, workers int) (inv, mean Reg) {
	b := k.b
	var v []Reg
	for i, from := range k.perRow() {
		if k.ahead != nil {
			v = append(v, b.Do("mov.f32", k.ahead[i]))
		} else {
			v = append(v, b.Do("ld.global.f32", Addr{Base: b.at(from, row, 4)}))
		}
	}
	if k.ahead != nil {
		for _, g := range k.operands() {
			g.arrive(k.rows)
		}
		next := b.iadd(row, I(workers))
		b.when(b.Do("setp.lt.u32", next, I(k.Rows)), func() { k.fetch(next) })
	}
	return v[0], append(v, Reg{})[1]
}

// row adds one row to the partial sums and writes its dx:
// dx = rstd·(dy·g - mean(dy·g) - x̂·mean(dy·g·x̂)).
func (k *normBack) row(row Reg, workers int) {
	b, cols := k.b, Fl(float32(k.Cols))
	inv, mean := k.rowStatistics(row, workers)
	dy, x := k.source(k.before, k.X, row), k.source(k.x, 0, row)
	k.enter(row)
	s1, s2 := b.floatConst(0), b.floatConst(0)
	k.spots(func(s spot) {
		k.terms(s, dy.at(s), x.at(s), mean, inv)
		for i, w := range k.w[s.chunk] {
			if !k.RMS {
				b.To(s1, "add.rn.f32", s1, w)
			}
			b.To(s2, "fma.rn.f32", w, k.hat[s.chunk][i], s2)
		}
	})
	dy.stored = true
	c2 := b.div(k.across(s2, k.join("add.rn.f32")), cols)
	var c1 Reg
	if !k.RMS {
		c1 = b.div(k.across(s1, k.join("add.rn.f32")), cols)
	}
	k.after.through(func(s spot) []Reg {
		if k.streamed {
			k.terms(s, dy.at(s), x.at(s), mean, inv)
		}
		dx := make([]Reg, k.vec)
		for i, w := range k.w[s.chunk] {
			dx[i] = b.mul(inv, b.fma(b.Do("neg.f32", k.hat[s.chunk][i]), c2, k.centred(w, c1)))
		}
		return dx
	}, k.addSums)
}

// addSums adds the values of After that are summed, of the vector at s.
func (k *normBack) addSums(s spot) {
	for i, v := range k.Sums {
		for l, x := range k.after.all(v) {
			k.b.To(k.sums[i][s.chunk][l], "add.rn.f32", k.sums[i][s.chunk][l], x)
		}
	}
}

// terms computes x̂ and dy·g of the vector at s, and adds it to the column sums.
func (k *normBack) terms(s spot, dy, x []Reg, mean, inv Reg) {
	b := k.b
	g, _ := k.affineAt(s)
	hat, w := make([]Reg, k.vec), make([]Reg, k.vec)
	for i := range x {
		hat[i], w[i] = b.mul(k.centred(x[i], mean), inv), dy[i]
		if g != nil {
			w[i] = b.mul(dy[i], g[i])
		}
		if k.summed {
			b.To(k.dg[s.chunk][i], "fma.rn.f32", dy[i], hat[i], k.dg[s.chunk][i])
		}
		if k.summed && k.Bias {
			b.To(k.db[s.chunk][i], "add.rn.f32", k.db[s.chunk][i], dy[i])
		}
	}
	k.hat[s.chunk], k.w[s.chunk] = hat, w
}
