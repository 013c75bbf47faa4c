package ptx

import (
	"fmt"
	"math"
)

// orderKey maps an element in memory format to an unsigned key with the order of values (reversed
// for down). -0 equals +0. NaN is above all others, or below them with nanLow.
func (b *builder) orderKey(x Reg, d DType, down, nanLow bool) Reg {
	var key Reg
	switch d {
	case Int64:
		key = b.Do("xor.b64", x, I(math.MinInt64))
	case Int32:
		key = b.Do("xor.b32", x, I(0x80000000))
	case Uint8, Bool:
		key = b.Do("cvt.u32.u16", x)
	default:
		return b.floatKey(b.widen(x, d), down, nanLow)
	}
	if down {
		key = b.Do("not."+key.Class.String(), key)
	}
	return key
}

func (b *builder) floatKey(x Reg, down, nanLow bool) Reg {
	w := b.bits(b.add(x, Fl(0))) // -0 + 0 = +0
	neg := b.Do("setp.lt.s32", w, I(0))
	key := b.Do("selp.b32", b.Do("not.b32", w), b.Do("or.b32", w, I(0x80000000)), neg)
	if down {
		key = b.Do("not.b32", key)
	}
	nan := I(0xffffffff)
	if nanLow {
		nan = 0
	}
	return b.Do("selp.b32", nan, key, b.Do("setp.nan.f32", x, x))
}

// unsignedType is the PTX type that compares keys of a class.
func unsignedType(c Class) string { return map[Class]string{B32: "u32", B64: "u64"}[c] }

// extremum is the best key so far and its position; among equal keys the first.
type extremum struct {
	b       *builder
	key, at Reg
}

// newExtremum starts without a key. With all, every lane takes an element.
func (b *builder) newExtremum(c Class, all bool) extremum {
	l := extremum{b, b.reg(c), b.reg(B32)}
	if !all {
		b.To(l.key, "mov."+c.String(), I(0))
		b.To(l.at, "mov.u32", I(0xffffffff))
	}
	return l
}

// better reports whether key at position i precedes the extremum: it is larger, or equal and earlier.
func (l extremum) better(key, i Reg) Reg {
	b, t := l.b, unsignedType(key.Class)
	gt := b.Do("setp.gt."+t, key, l.key)
	tie := b.Do("and.pred", b.Do("setp.eq."+t, key, l.key), b.Do("setp.lt.u32", i, l.at))
	return b.Do("or.pred", gt, tie)
}

// take replaces the extremum by key at position i if the key is better.
func (l extremum) take(key, i Reg) {
	win := l.better(key, i)
	l.b.To(l.key, "selp."+key.Class.String(), key, l.key, win)
	l.b.To(l.at, "selp.b32", i, l.at, win)
}

// scan takes the elements of a row of cols one by one, each warp lane every 32nd.
func (l extremum) scan(lane Reg, cols int, read func(i Reg, take func(key Reg))) {
	b := l.b
	if cols == 1 {
		b.To(l.at, "mov.u32", I(0))
		return
	}
	b.strided(lane, 32, cols, func(i Reg) {
		read(i, func(key Reg) {
			if cols > 32 {
				l.take(key, i)
				return
			}
			b.To(l.key, "mov."+key.Class.String(), key)
			b.To(l.at, "mov.u32", i)
		})
	})
}

// join gives all lanes the position of the extremum of the first n lanes, and its key if keys is
// set.
func (l extremum) join(n int, keys bool) {
	for d := 16; d > 0; d /= 2 {
		switch {
		case d >= n: // the other lane has no element
		case d > 1 || keys:
			l.take(l.b.neighbour(l.key, d), l.b.neighbour(l.at, d))
		default:
			i := l.b.neighbour(l.at, d)
			l.b.To(l.at, "selp.b32", i, l.at, l.better(l.b.neighbour(l.key, d), i))
		}
	}
}

// neighbour returns the value of lane xor d.
func (b *builder) neighbour(x Reg, d int) Reg {
	if x.Class != B64 {
		y := b.reg(x.Class)
		b.To(y, "shfl.sync.bfly.b32", x, I(d), I(31), I(0xffffffff))
		return y
	}
	lo, hi, y := b.reg(B32), b.reg(B32), b.reg(B64)
	b.To(Vec{lo, hi}, "mov.b64", x)
	b.To(y, "mov.b64", Vec{b.neighbour(lo, d), b.neighbour(hi, d)})
	return y
}

// keyClass is the register class of keys of elements of type d.
func keyClass(d DType) Class {
	if d == Int64 {
		return B64
	}
	return B32
}

// ArgMax finds the first index of the largest element of each row of Rows×Cols; a NaN counts as
// larger than everything. Arguments: x, index (i64).
type ArgMax struct {
	Name       string
	Rows, Cols int
	In         DType
	Min        bool // smallest instead of largest; NaN counts as smaller than everything
}

// Build generates the kernel, one warp for each row.
func (s ArgMax) Build(fl Flavour) (*Launch, error) {
	if s.Rows < 1 || s.Cols < 1 {
		return nil, fmt.Errorf("ptx: %s: no elements in %d×%d", s.Name, s.Rows, s.Cols)
	}
	r := startRows(fl, s.Name, s.Cols, 32, 1, 0)
	b := r.b
	p := params{b: b}
	x, y := p.in("x", s.In, s.Rows*s.Cols), p.out("index", Int64, s.Rows)
	r.begin()
	r.alone(s.Rows, func(row Reg) {
		base := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*s.In.Size()), x)
		best := b.newExtremum(keyClass(s.In), s.Cols == 1 || s.Cols == 32)
		best.scan(r.lane, s.Cols, func(i Reg, take func(key Reg)) {
			take(b.orderKey(b.load(b.at(base, i, s.In.Size()), 0, s.In, 1)[0], s.In, s.Min, false))
		})
		best.join(s.Cols, false)
		b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
			b.Do("st.global.u64", Addr{Base: b.at(y, row, 8)}, b.Do("cvt.u64.u32", best.at))
		})
	})
	return finish(b, r.grid(s.Rows), p.list)
}

// TopK finds the K largest elements of each row of Rows×Cols in descending order, equal ones in the
// order of their index, a NaN counting as the largest; or the smallest in ascending order, NaN
// last. One warp for each row searches K times for the successor of the last element found. This is
// cheap for a small K, and no replacement for a sort. Arguments: x, values, index (i64).
type TopK struct {
	Name          string
	Rows, Cols, K int
	In            DType
	Smallest      bool
}

// Build generates the kernel.
func (s TopK) Build(fl Flavour) (*Launch, error) {
	if s.Rows < 1 || s.K < 1 || s.K > s.Cols || s.Rows*s.Cols >= maxCount {
		return nil, fmt.Errorf("ptx: %s: no %d largest of %d×%d: it counts to 2^31-1", s.Name, s.K, s.Rows, s.Cols)
	}
	r := startRows(fl, s.Name, s.Cols, 32, 1, 0)
	b := r.b
	p := params{b: b}
	x := p.in("x", s.In, s.Rows*s.Cols)
	y, index := p.out("values", s.In, s.Rows*s.K), p.out("index", Int64, s.Rows*s.K)
	r.begin()
	class := keyClass(s.In)
	t, size := unsignedType(class), s.In.Size()
	r.alone(s.Rows, func(row Reg) {
		base := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(s.Cols*size), x)
		last, lastAt := b.reg(class), b.Do("mov.u32", I(-1))
		b.To(last, "mov."+class.String(), I(-1))
		b.loop(I(0), I(s.K), I(1), B32, func(k Reg) {
			best := b.newExtremum(class, s.Cols == 1 || s.Cols == 32 && s.K == 1)
			best.scan(r.lane, s.Cols, func(i Reg, take func(key Reg)) {
				key := b.orderKey(b.load(b.at(base, i, size), 0, s.In, 1)[0], s.In, s.Smallest, s.Smallest)
				if s.K == 1 { // every key precedes the initial one
					take(key)
					return
				}
				behind := b.Do("and.pred", b.Do("setp.eq."+t, key, last), b.Do("setp.gt.s32", i, lastAt))
				b.when(b.Do("or.pred", b.Do("setp.lt."+t, key, last), behind), func() { take(key) })
			})
			best.join(s.Cols, s.K > 1)
			b.when(b.Do("setp.eq.u32", r.lane, I(0)), func() {
				to := b.Do("mad.lo.u32", row, I(s.K), k)
				b.store(b.at(y, to, size), 0, s.In, b.load(b.at(base, best.at, size), 0, s.In, 1))
				b.Do("st.global.u64", Addr{Base: b.at(index, to, 8)}, b.Do("cvt.u64.u32", best.at))
			})
			if s.K > 1 {
				b.To(last, "mov."+class.String(), best.key)
				b.To(lastAt, "mov.u32", best.at)
			}
		})
	})
	return finish(b, r.grid(s.Rows), p.list)
}
