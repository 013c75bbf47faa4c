package ptx

import "math/bits"

// idSort generates Embedding.Order. It is a stable radix sort of the ids in one block, lowest digit
// first. In each pass a warp counts the digits in its part of the list. The counts give the offset
// of each warp and digit. Then the warp processes its part again in order; lanes with equal digits
// keep their order. The result is deterministic.
type idSort struct {
	Embedding
	b                    *builder
	warps, chunk, digits int // threads of the block, entries of a warp, values of a digit
	tid, lane, warp      Reg
	counts, totals, mine Reg // shared arrays: by warp and digit, by digit; this warp's part
	ids                  Reg
}

// sortDigits is the number of passes and the bits of each. They suffice to distinguish all ids, and
// the id with all bits set, which stands for ids outside the table.
func (s Embedding) sortDigits() (passes, width int) {
	n := bits.Len(uint(s.Vocab))
	if passes = ceilDiv(n, 8); s.Tokens == 1 {
		passes = 1
	}
	return passes, max(ceilDiv(n, passes), 5)
}

// Ordered is the number of words of Order's list: with several passes twice Tokens, of which the
// second half is scratch.
func (s Embedding) Ordered() int {
	passes, _ := s.sortDigits()
	return s.Tokens * min(passes, 2)
}

// Order generates the sort.
func (s Embedding) Order(fl Flavour) (*Launch, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	passes, width := s.sortDigits()
	k := &idSort{Embedding: s, warps: 1, digits: 1 << width}
	for k.warps < 32 && 32*k.warps < s.Tokens {
		k.warps *= 2
	}
	k.chunk = ceilDiv(s.Tokens, 32*k.warps) * 32
	b := newBuilder(fl, s.Name, 32*k.warps)
	k.b = b
	p := params{b: b}
	k.ids = p.in("ids", s.IDs, s.Tokens)
	lists := []Reg{p.out("order", Int64, s.Ordered())}
	if passes > 1 {
		lists = append(lists, b.Do("add.u64", lists[0], I(8*s.Tokens)))
	}
	k.tid = b.special("%tid.x")
	if s.Tokens == 1 {
		b.when(b.Do("setp.eq.u32", k.tid, I(0)), func() { k.put(lists[0], k.tid, k.entry(Reg{}, k.tid)) })
		return finish(b, [3]int{1, 1, 1}, p.list)
	}
	k.share()
	var from Reg
	for pass := range passes {
		to := lists[(passes-1-pass)%2]
		k.pass(from, to, pass*width, width)
		from = to
	}
	return finish(b, [3]int{1, 1, 1}, p.list)
}

// share finds the thread's position and the counters of its warp.
func (k *idSort) share() {
	b := k.b
	k.lane, k.warp = b.Do("and.b32", k.tid, I(31)), b.Do("shr.u32", k.tid, I(5))
	k.counts = b.shared("counts", 4, 4*k.warps*k.digits)
	k.totals = b.shared("totals", 4, 4*k.digits)
	k.mine = b.Do("mad.lo.u32", k.warp, I(4*k.digits), k.counts)
}

// entry loads element i of a list. In the first pass it makes the entry from id i: its position and
// its id.
func (k *idSort) entry(list, i Reg) []Reg {
	if list.Class == NoClass {
		return []Reg{i, k.b.readID(k.ids, i, k.IDs, k.Vocab)}
	}
	return k.b.load(k.b.at(list, i, 8), 0, Int32, 2)
}

func (k *idSort) put(list, i Reg, entry []Reg) { k.b.store(k.b.at(list, i, 8), 0, Int32, entry) }

// short reports whether one warp holds the whole list.
func (k *idSort) short() bool { return k.Tokens <= 32 }

// counter is the address of a digit's counter.
func (k *idSort) counter(base, digit Reg) Reg {
	return k.b.iadd(base, k.b.Do("shl.b32", digit, I(2)))
}

// walk runs body for the entries of the warp, 32 at a time, and says which lanes have one.
func (k *idSort) walk(body func(i, inside Reg)) {
	b, always := k.b, k.warps*k.chunk == k.Tokens
	if k.chunk == 32 {
		body(k.tid, b.below(k.tid, k.Tokens, always))
		return
	}
	first := b.imul(k.warp, I(k.chunk))
	b.loop(first, b.iadd(first, I(k.chunk)), I(32), B32, func(at Reg) {
		i := b.iadd(at, k.lane)
		body(i, b.below(i, k.Tokens, always))
	})
}

// pass sorts by width bits of the id.
func (k *idSort) pass(from, to Reg, shift, width int) {
	b := k.b
	digit := func(entry []Reg) Reg { return b.Do("bfe.u32", entry[1], I(shift), I(width)) }
	if shift > 0 && k.warps > 1 {
		b.Do("bar.sync", I(0))
	}
	b.strided(k.lane, 32, k.digits, func(i Reg) {
		b.Do("st.shared.b32", Addr{Base: k.counter(k.mine, i)}, b.Do("mov.u32", I(0)))
	})
	b.Do("bar.warp.sync", I(0xffffffff))
	k.walk(func(i, inside Reg) {
		b.where(inside, func() {
			b.Do("red.shared.add.u32", Addr{Base: k.counter(k.mine, digit(k.entry(from, i)))}, I(1))
		})
	})
	b.Do("bar.sync", I(0))
	k.offsets()
	b.Do("bar.sync", I(0))
	below := b.Do("sub.u32", b.Do("shl.b32", b.Do("mov.u32", I(1)), k.lane), I(1))
	k.walk(func(i, inside Reg) {
		entry, value := []Reg{b.reg(B32), b.reg(B32)}, b.reg(B32)
		if inside.Class != NoClass {
			b.To(value, "mov.u32", I(-1))
		}
		b.where(inside, func() {
			for w, x := range k.entry(from, i) {
				b.To(entry[w], "mov.u32", x)
			}
			b.To(value, "mov.u32", digit(entry))
		})
		same := b.Do("match.any.sync.b32", value, I(0xffffffff))
		k.scatter(to, entry, value, same, b.Do("popc.b32", b.Do("and.b32", same, below)), inside)
	})
}

// scatter stores an entry after those of lower lanes with the same digit, and advances the digit's
// counter.
func (k *idSort) scatter(to Reg, entry []Reg, digit, same, rank, inside Reg) {
	b := k.b
	counter, before := k.counter(k.mine, digit), b.reg(B32)
	b.where(inside, func() {
		at := b.iadd(b.Do("ld.shared.b32", Addr{Base: k.counter(k.totals, digit)}), rank)
		if !k.short() {
			b.To(before, "ld.shared.b32", Addr{Base: counter})
			at = b.iadd(at, before)
		}
		k.put(to, at, entry)
	})
	if k.chunk == 32 {
		return
	}
	b.Do("bar.warp.sync", I(0xffffffff))
	b.when(b.both(inside, b.Do("setp.eq.u32", rank, I(0))), func() {
		b.Do("st.shared.b32", Addr{Base: counter}, b.iadd(before, b.Do("popc.b32", same)))
	})
	b.Do("bar.warp.sync", I(0xffffffff))
}

// offsets turns every warp's count of a digit into the count of the warps before it, and the totals
// of the digits into prefix sums.
func (k *idSort) offsets() {
	b := k.b
	b.strided(k.tid, 32*k.warps, k.digits, func(digit Reg) {
		sum := b.Do("mov.u32", I(0))
		b.loop(I(0), I(4*k.warps*k.digits), I(4*k.digits), B32, func(warp Reg) {
			at := b.iadd(k.counter(k.counts, digit), warp)
			n := b.Do("ld.shared.b32", Addr{Base: at})
			if !k.short() {
				b.Do("st.shared.b32", Addr{Base: at}, sum)
			}
			b.To(sum, "add.u32", sum, n)
		})
		b.Do("st.shared.b32", Addr{Base: k.counter(k.totals, digit)}, sum)
	})
	if k.digits > 32 { // otherwise each lane below continues with its own
		b.Do("bar.sync", I(0))
	}
	var first Reg
	if k.warps > 1 {
		first = b.Do("setp.eq.u32", k.warp, I(0))
	}
	b.where(first, func() {
		carry := b.Do("mov.u32", I(0))
		b.loop(I(0), I(k.digits), I(32), B32, func(first Reg) {
			at := k.counter(k.totals, b.iadd(first, k.lane))
			n := b.Do("ld.shared.b32", Addr{Base: at})
			sum := b.prefix(n, k.lane)
			b.Do("st.shared.b32", Addr{Base: at}, b.iadd(carry, b.Do("sub.u32", sum, n)))
			if k.digits > 32 {
				b.To(carry, "add.u32", carry, b.lane(sum, b.Do("mov.u32", I(31))))
			}
		})
	})
}
