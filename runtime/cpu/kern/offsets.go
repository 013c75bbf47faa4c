package kern

import (
	"container/list"
	"slices"
)

// offsets is a table of byte offsets, which its key determines. Every step needs the same tables, so they are cached:
// writing the offsets of thousands of pixels again would also invalidate the cache lines of all workers that have read
// them.
type offsets struct {
	s     []int
	kept  *keptTables // nil if nothing is cached
	lent  bool        // s is a cached table
	spare []int       // memory for a table that is not cached
}

// tableKey is the data that a table is made from.
type tableKey struct {
	kind                   tableKind
	size, n, a, m, b       int
	axis, span, step, from [3]int
	rows, rowPhase         int
	last                   bool
}

type tableKind uint8

const (
	pixelTable tableKind = iota
	tapTable
	stridedTable
	nestedTable
	zippedTable
)

// keptTables is a cache of tables with up to mostKept offsets in all; the least recently used table is dropped first.
type keptTables struct {
	tables map[tableKey]*list.Element // of keptTable
	used   list.List                  // the latest at the front
	total  int
}

type keptTable struct {
	key tableKey
	s   []int
}

const mostKept = 4 << 20

// reset empties the table, for entries to be appended.
func (o *offsets) reset() {
	if !o.lent {
		o.spare = o.s
	}
	o.s, o.lent = o.spare[:0], false
}

// begin sets o to the cached table of that key and returns true. If there is none, it empties o and returns false; the
// caller then writes the table and calls end.
func (o *offsets) begin(key *tableKey) bool {
	o.reset()
	if o.kept == nil {
		return false
	}
	at, ok := o.kept.tables[*key]
	if ok {
		o.kept.used.MoveToFront(at)
		o.s, o.lent = at.Value.(keptTable).s, true
	}
	return ok
}

// end caches the table that was written.
func (o *offsets) end(key *tableKey) {
	k := o.kept
	if k == nil || len(o.s) > mostKept {
		return
	}
	if k.tables == nil {
		k.tables = map[tableKey]*list.Element{}
	}
	for k.total += len(o.s); k.total > mostKept; {
		old := k.used.Remove(k.used.Back()).(keptTable)
		delete(k.tables, old.key)
		k.total -= len(old.s)
	}
	o.spare = o.s
	o.s, o.lent = slices.Clone(o.s), true
	k.tables[*key] = k.used.PushFront(keptTable{*key, o.s})
}

// pixels lists where each of size pixels, step apart, is in g: the reading positions of the first tap. The gap of g follows each
// row of an image but the last.
func (o *offsets) pixels(g *grid, images int, size, step [3]int) {
	es := g.buf.Type.Size()
	key := tableKey{kind: pixelTable, size: es, n: images, a: g.item[0], m: g.phases, b: g.gap, axis: g.axis, span: size, step: step, rows: g.rows}
	if o.begin(&key) {
		return
	}
	down := step[1]
	if g.rows == 2 { // in the phase that the first tap reads
		down /= 2
	}
	o.s = slices.Grow(o.s, images*volume(size))
	for n := range images {
		for z := range size[0] {
			for y := range size[1] {
				row := (n*g.item[0] + z*step[0]*g.axis[0] + y*down*g.axis[1]) * es
				each := g.axis[2] * es // between pixels that are step apart, whole phases or not
				if g.phases == 1 {
					each *= step[2]
				}
				for range size[2] + g.gap {
					o.s = append(o.s, row)
					row += each
				}
			}
		}
		o.s = o.s[:len(o.s)-g.gap]
	}
	o.end(&key)
}

// taps lists the patch positions: channels by taps, or taps by channels if last. Tap t is at from + t*by.
func (o *offsets) taps(g *grid, channels int, kernel, from, by [3]int, last bool) {
	es, n := g.buf.Type.Size(), volume(kernel)
	key := tableKey{kind: tapTable, size: es, n: channels, a: g.channel, m: g.phases, b: g.phase, axis: g.axis, span: kernel, step: by, from: from, last: last, rows: g.rows, rowPhase: g.rowPhase}
	if o.begin(&key) {
		return
	}
	for i := range channels * n {
		ch, t := i/n, i%n
		if last {
			ch, t = i%channels, i/channels
		}
		z, y, x := t/(kernel[1]*kernel[2]), t/kernel[2]%kernel[1], t%kernel[2]
		o.s = append(o.s, (ch*g.channel+g.at(from[0]+z*by[0], from[1]+y*by[1], from[2]+x*by[2]))*es)
	}
	o.end(&key)
}

// strided lists i*a + j*b for i < n, j < m, with j running faster.
func (o *offsets) strided(n, a, m, b int) {
	key := tableKey{kind: stridedTable, n: n, a: a, m: m, b: b}
	if o.begin(&key) {
		return
	}
	o.s = slices.Grow(o.s, n*m)
	for i := range n {
		for j := range m {
			o.s = append(o.s, i*a+j*b)
		}
	}
	o.end(&key)
}

// nested lists the sums of multiples of three steps, each below its count, the last of which runs fastest.
func (o *offsets) nested(counts, steps [3]int) {
	key := tableKey{kind: nestedTable, span: counts, step: steps}
	if o.begin(&key) {
		return
	}
	for i := range counts[0] {
		for j := range counts[1] {
			for k := range counts[2] {
				o.s = append(o.s, i*steps[0]+j*steps[1]+k*steps[2])
			}
		}
	}
	o.end(&key)
}

// zipped is strided for pairs of i, which runs slowest: the two of a pair are adjacent.
func (o *offsets) zipped(n, a, m, b int) {
	key := tableKey{kind: zippedTable, n: n, a: a, m: m, b: b}
	if o.begin(&key) {
		return
	}
	for i := 0; i < n; i += 2 {
		for j := range m {
			o.s = append(o.s, i*a+j*b, (i+1)*a+j*b)
		}
	}
	o.end(&key)
}
