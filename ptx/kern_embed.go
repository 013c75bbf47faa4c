package ptx

import (
	"errors"
	"fmt"
	"math/bits"
)

// Embedding gathers rows of a Vocab×Cols table by Tokens ids.
//
// Forward arguments: table, ids, y of Tokens×Cols; an id outside the table gives NaN.
//
// The gradient is two launches. Order sorts the positions by id. Its arguments are ids and order:
// Ordered i64, of which the first Tokens are the result, with the id in the high word and the
// position in the low one. An id outside the table sorts last. Backward has the arguments dy,
// order and dtable of Vocab×Cols (type Out). It adds to each row of the table its rows of dy in
// order of their positions, in f32. If Adds, dtable is the first argument and holds f32 already, to
// which the sums are added; rows without an id stay as they are.
//
// After, if not nil, computes what is stored from the rows that are looked up, or from the sums. It
// reads them as load 0, in f32, which has no buffer. Its other loads and its stores are arguments
// in place of y and dtable. The table is then of floats.
type Embedding struct {
	Name                string
	Vocab, Cols, Tokens int
	IDs                 DType // i32 or i64
	In, Out             DType // forward: table and y, which must agree; backward: dy and dtable
	After               *Elementwise
	Adds                bool
}

// readID reads id i as u32. An id outside 0 … n-1 becomes a number with all bits set.
func (b *builder) readID(ids, i Reg, d DType, n int) Reg {
	raw := b.load(b.at(ids, i, d.Size()), 0, d, 1)[0]
	if raw.Class == B64 {
		ok := b.Do("setp.lt.u64", raw, I(n))
		return b.Do("selp.b32", b.Do("cvt.u32.u64", raw), I(0xffffffff), ok)
	}
	return b.Do("selp.b32", raw, I(0xffffffff), b.Do("setp.lt.u32", raw, I(n)))
}

func (s Embedding) check() error {
	if s.Vocab < 1 || s.Cols < 1 || s.Tokens < 1 || s.Vocab >= maxCount || s.Tokens >= maxCount {
		return fmt.Errorf("ptx: %s: cannot embed %d tokens in a table of %d×%d: it counts to 2^31-1", s.Name, s.Tokens, s.Vocab, s.Cols)
	}
	if s.Adds && (s.After != nil || s.Out != Float32) {
		return fmt.Errorf("ptx: %s: adds its sums to f32 that no code follows", s.Name)
	}
	return nil
}

// after plans the code behind n rows, nil if there is none, and the number of adjacent columns that
// a thread processes at once.
func (s Embedding) after(n int) (g *rowElementwise, vec int, err error) {
	vec = vecFor(s.Cols, s.In)
	if s.After == nil {
		return nil, vec, nil
	}
	if g, err = planRows(s.After, n, s.Cols); err != nil {
		return nil, 0, fmt.Errorf("ptx: %s: %w", s.Name, err)
	}
	return g, min(vec, rowVec(s.Cols, []*rowElementwise{g})), nil
}

// Forward generates the gather: one warp for each token, elements moved as bits if no code follows.
func (s Embedding) Forward(fl Flavour) (*Launch, error) {
	after, vec, err := s.after(s.Tokens)
	if err := errors.Join(s.check(), err); err != nil {
		return nil, err
	}
	r := startRows(fl, s.Name, s.Cols, 32, vec, 0)
	r.streamed = true
	b := r.b
	p := params{b: b}
	table, ids := p.in("table", s.In, s.Vocab*s.Cols), p.in("ids", s.IDs, s.Tokens)
	p.list[0].Touched = s.touched()
	var y Reg
	if after == nil {
		y = p.out("y", s.In, s.Tokens*s.Cols)
	} else {
		r.chunks = 1
		after.loadParams(&p, 1)
		after.storeParams(&p)
	}
	r.begin()
	size := s.In.Size()
	r.alone(s.Tokens, func(row Reg) {
		id := b.readID(ids, row, s.IDs, s.Vocab)
		ok := b.Do("setp.lt.u32", id, I(s.Vocab))
		from := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", id), I(s.Cols*size), table)
		if after != nil {
			after.enter(r, row)
			after.through(func(at spot) []Reg {
				return b.floats(s.looked(r, ok, from, at.at), s.In)
			}, nil)
			return
		}
		to := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*size), y)
		r.spots(func(at spot) {
			b.store(b.at(to, at.at, r.vec*size), 0, s.In, s.looked(r, ok, from, at.at))
		})
	})
	return finish(b, r.grid(s.Tokens), p.list)
}

// touched is the number of elements of the rows that Tokens ids can name.
func (s Embedding) touched() int64 { return int64(min(s.Vocab, s.Tokens)) * int64(s.Cols) }

// looked loads vector i of the row at from, NaN if ok is false.
func (s Embedding) looked(r *rows, ok, from, i Reg) []Reg {
	b, v := r.b, make([]Reg, r.vec)
	for k := range v {
		v[k] = b.reg(raw(s.In))
		b.fillNaN(v[k], s.In)
	}
	b.when(ok, func() {
		for k, x := range b.load(b.at(from, i, r.vec*s.In.Size()), 0, s.In, r.vec) {
			b.To(v[k], "mov."+x.Class.String(), x)
		}
	})
	return v
}

// floats widens stored floats to f32.
func (b *builder) floats(x []Reg, d DType) []Reg {
	out := make([]Reg, len(x))
	for i := range x {
		out[i] = b.widen(x[i], d)
	}
	return out
}

// fillNaN sets a register to the stored bits of NaN, 0 for integers.
func (b *builder) fillNaN(r Reg, d DType) {
	switch d {
	case Float32:
		b.To(r, "mov.f32", Fl(float32(nan64)))
	case Float64:
		b.To(r, "mov.f64", Db(nan64))
	case Float16, BFloat16:
		b.To(r, "mov.b16", I(0x7fff))
	default:
		b.To(r, "mov."+r.Class.String(), I(0))
	}
}

// together is the number of rows of dy that a warp loads before it adds them: as many as its
// registers can hold.
func (s Embedding) together() int { return 16 / s.In.Size() }

// sumsResident is the number of blocks that a multiprocessor must hold if code follows the sums. For
// more blocks ptxas would keep a register in memory.
const sumsResident = 8

// rowsPerWarp is the number of table rows that a warp sums: several if most rows have nothing to
// sum.
func (s Embedding) rowsPerWarp() int {
	n := 1
	for n < 16 && s.Tokens < s.Vocab && 512*2*n <= s.Vocab {
		n *= 2
	}
	return n
}

// embedSum is the state while the gradient's second kernel is generated.
type embedSum struct {
	Embedding
	*rows
	dy, order Reg
	warpLane  Reg // in the warp; rows.lane counts columns
}

// Backward generates the sums. A warp searches for the start of its rows in the order, then loads
// several rows of dy at a time and adds them one by one.
func (s Embedding) Backward(fl Flavour) (*Launch, error) {
	after, vec, err := s.after(s.Vocab)
	if err := errors.Join(s.check(), err); err != nil {
		return nil, err
	}
	k := &embedSum{Embedding: s, rows: startRows(fl, s.Name, s.Cols, 32, vec, 1)}
	b := k.b
	p := params{b: b}
	var dtable Reg
	if s.Adds {
		dtable = p.out("dtable", s.Out, s.Vocab*s.Cols)
		p.list[0].Read, p.list[0].Touched = true, s.touched()
	}
	k.dy, k.order = p.in("dy", s.In, s.Tokens*s.Cols), p.in("order", Int64, s.Tokens)
	switch {
	case s.Adds:
	case after == nil:
		dtable = p.out("dtable", s.Out, s.Vocab*s.Cols)
	default:
		after.loadParams(&p, 1)
		after.storeParams(&p)
	}
	if after != nil {
		k.b.k.Blocks = sumsResident
	}
	k.begin()
	k.warpLane = k.lane
	slices := ceilDiv(s.Cols, 32*vec)
	if slices > 1 { // this block's share of the columns
		k.lane = b.Do("mad.lo.u32", b.special("%ctaid.y"), I(32), k.lane)
		k.chunkValid[0] = b.below(k.lane, s.Cols/vec, slices*32*vec == s.Cols)
	}
	each := s.rowsPerWarp()
	k.alone(ceilDiv(s.Vocab, each), func(team Reg) {
		first := b.imul(team, I(each))
		begins := k.search(b.iadd(first, b.Do("min.u32", k.warpLane, I(each))))
		left := Arg(I(each))
		if s.Vocab%each != 0 {
			left = b.Do("min.u32", b.Do("sub.u32", I(s.Vocab), first), I(each))
		}
		b.loop(I(0), left, I(1), B32, func(i Reg) {
			begin, end := b.lane(begins, i), b.lane(begins, b.iadd(i, I(1)))
			row := b.iadd(first, i)
			if s.Adds {
				b.when(b.Do("setp.lt.u32", begin, end), func() { k.addTo(k.rowAddr(dtable, row, s.Out), begin, end) })
				return
			}
			acc := k.tile(0)
			k.add(acc[0], begin, end)
			if after == nil {
				k.store(k.rowAddr(dtable, row, s.Out), s.Out, acc)
				return
			}
			after.enter(k.rows, row)
			after.through(func(at spot) []Reg { return acc[at.chunk] }, nil)
		})
	})
	g := k.grid(ceilDiv(s.Vocab, each))
	g[1] = slices
	l, err := finish(b, g, p.list)
	if s.Adds {
		return inPlace(l, err)
	}
	return l, err
}

// addTo adds the rows of dy that entries begin to end of the order name, then adds their sum to the
// row at to, which is loaded first.
func (k *embedSum) addTo(to, begin, end Reg) {
	acc, old := k.tile(0), k.load(to, k.Out)
	k.add(acc[0], begin, end)
	k.each(func(c int) {
		for i, x := range old[c] {
			k.b.To(acc[c][i], "add.rn.f32", acc[c][i], x)
		}
	})
	k.store(to, k.Out, acc)
}

// lane returns the value of x in a given lane of the warp.
func (b *builder) lane(x, which Reg) Reg {
	y := b.reg(x.Class)
	b.To(y, "shfl.sync.idx.b32", x, which, I(31), I(0xffffffff))
	return y
}

// search counts the ids in sorted order that are below id, by binary search.
func (k *embedSum) search(id Reg) Reg {
	b := k.b
	top := 1 << (bits.Len(uint(k.Tokens)) - 1)
	n, step := b.Do("mov.u32", I(0)), b.Do("mov.u32", I(top))
	head := b.newLabel()
	b.place(head)
	more := b.iadd(n, step)
	b.where(b.below(more, k.Tokens+1, k.Tokens == 2*top-1), func() {
		last := b.Do("ld.global.b32", Addr{Base: b.at(k.order, more, 8), Off: 4 - 8})
		b.To(n, "selp.b32", more, n, b.Do("setp.lt.u32", last, id))
	})
	if top > 1 {
		b.To(step, "shr.u32", step, I(1))
		b.When(b.Do("setp.ne.u32", step, I(0)), true, func() { b.Do("bra", head) })
	}
	return n
}

// add adds the rows of dy that entries begin to end of the order name, 32 entries at a time.
func (k *embedSum) add(acc []Reg, begin, end Reg) {
	b := k.b
	if k.Tokens == 1 {
		b.when(b.Do("setp.lt.u32", begin, end), func() { k.addRows(acc, b.Do("mov.u32", I(0))) })
		return
	}
	entries := func(first Reg) {
		at := b.iadd(first, k.warpLane)
		position := b.Do("mov.u32", I(0))
		b.when(b.Do("setp.lt.u32", at, end), func() { b.To(position, "ld.global.b32", Addr{Base: b.at(k.order, at, 8)}) })
		n := b.Do("sub.u32", end, first)
		if k.Tokens > 32 {
			n = b.Do("min.u32", n, I(32))
		}
		k.addEntries(acc, position, n)
	}
	if k.Tokens <= 32 {
		entries(begin)
		return
	}
	b.loop(begin, end, I(32), B32, entries)
}

// addEntries adds the rows whose positions are in the first n lanes.
func (k *embedSum) addEntries(acc []Reg, position, n Reg) {
	b, whole, together := k.b, Arg(I(0)), k.together()
	if k.Tokens >= together {
		whole = b.Do("and.b32", n, I(-together))
		b.loop(I(0), whole, I(together), B32, func(i Reg) {
			rows := []Reg{b.lane(position, i)}
			for u := 1; u < together; u++ {
				rows = append(rows, b.lane(position, b.iadd(i, I(u))))
			}
			k.addRows(acc, rows...)
		})
	}
	b.loop(whole, n, I(1), B32, func(i Reg) { k.addRows(acc, b.lane(position, i)) })
}

// addRows loads rows of dy, then adds one after the other.
func (k *embedSum) addRows(acc []Reg, rows ...Reg) {
	k.each(func(int) {
		v := make([][]Reg, len(rows))
		for i, row := range rows {
			v[i] = k.b.load(k.rowAddr(k.dy, row, k.In), 0, k.In, k.vec)
		}
		for _, x := range v {
			for c := range acc {
				k.b.To(acc[c], "add.rn.f32", acc[c], k.b.widen(x[c], k.In))
			}
		}
	})
}
