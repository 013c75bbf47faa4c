package kern

// packCost is what packing an element costs, where lanes lie beside each other; others are transposed, which takes twice that.
const packCost = 16

// What a block takes to read a byte of pixels, most of which another worker has written if that computed other pixels of
// the image before, and a byte of weights, which no worker writes.
const (
	pixelCost  = 4
	weightCost = 2
)

// box is the work of the product, a tile or half of one a cell.
func (t *gemmTask) box(shares [2]bool) box {
	h, speed := ceilDiv(t.rows, t.panels), 1
	switch {
	case t.tiles:
		speed = 8
	case t.vnni:
		speed = 2
	}
	b := box{items: t.items, rows: t.panels, cols: t.columns, task: taskCost}
	b.cell = h*t.unit*(2*max(1, t.depth)/speed+packCost) + t.unit*t.lowCost()
	if !shares[0] {
		b.row = h * t.packingCost(0)
	}
	if !shares[1] {
		b.col = t.unit * t.packingCost(1)
	}
	b.row += h * t.depth * t.reading[0]
	b.col += t.unit * t.depth * t.reading[1]
	return b
}

// lowCost is what a panel reads of a column of B for being lower than it could be.
func (t *gemmTask) lowCost() int {
	return t.depth * (t.panels - ceilDiv(t.rows, t.mr)) / t.panels
}

// packingCost is what a block takes to pack a row of A, or a column of B.
func (t *gemmTask) packingCost(side int) int {
	if t.fixed[side].weights != nil || side == 1 && t.indirect != nil {
		return 0
	}
	return t.packedCost(side)
}

// packedCost is what packing a row of A, or a column of B, takes. Words of pixels move as a whole.
func (t *gemmTask) packedCost(side int) int {
	if s := &t.mats[side]; (side == 0 && t.a == s || side == 1 && t.b == s) && s.contig {
		return packCost * t.depth
	}
	if s := &t.m.conv.sources[side]; (side == 0 && t.a == s || side == 1 && t.b == s) && t.vnni && s.byLane {
		return packCost * t.depth >> flag(s.vnni)
	}
	return 2 * packCost * t.depth
}

// packingBox is the work of packing an operand ahead: panels, of pieces that are packed on their own.
func (t *gemmTask) packingBox(side, items int) box {
	lanes, units := t.p.nr, t.aheadUnits()
	if side == 0 {
		lanes = ceilDiv(t.rows, t.panels)
	}
	return box{items: items * t.aheadPanels(side), rows: units, cols: 1, cell: ceilDiv(lanes*t.packedCost(side), units), task: taskCost}
}

// sharesPacked reports whether blocks may read operands that all workers pack before. Words are packed in half of the time,
// and read from another worker's cache they made steps of training a tenth slower on two workers.
func (t *gemmTask) sharesPacked() bool { return t.depth > 0 && (!t.vnni || t.tiles) }

// mostShared is how many elements of an operand all blocks share at most: they stay in the last cache.
const mostShared = 4 << 20

// divide chooses the division of the product, and whether its operands are packed by all workers before: where blocks would
// pack them again and again. Panels are lower than they could be where that keeps the workers busy. Where they do not, blocks may
// begin in the middle of a tile.
func (t *gemmTask) divide(workers int) {
	least := t.panels
	t.columnsOf(t.p.nr)
	if t.fixed[0].weights != nil || t.tiles { // the panels are packed already, or as high as a register
		t.dividePanels(workers, least)
		return
	}
	whole := t.evenPanels(workers)
	if workers == 1 || whole.balance >= balanced || !t.halves() {
		return
	}
	t.panels = least
	t.columnsOf(t.p.vw)
	half := t.evenPanels(workers)
	if most := min(whole.time, half.time); half.time > most+int(fastEnough*float64(most)) || !half.better(&whole) {
		t.columnsOf(t.p.nr)
		t.dividePanels(workers, whole.panels)
	}
}

// evenPanels is Machine.evenPanels; it returns what the chosen division costs.
func (t *gemmTask) evenPanels(workers int) (o offer) {
	t.m.evenPanels(t.box([2]bool{}), t.rows, workers, func(panels int) offer {
		o = t.dividePanels(workers, panels)
		return o
	})
	return o
}

// halves reports whether a block may begin in the middle of a tile: its columns are packed for it alone, and are columns of C.
func (t *gemmTask) halves() bool {
	return t.p.vw < t.p.nr && !t.tiles && t.fixed[1].weights == nil && t.indirect == nil && t.out.cols.n == 0 && t.out.epi.PostOp == nil
}

// columnsOf sets the unit of columns.
func (t *gemmTask) columnsOf(unit int) { t.unit, t.columns = unit, ceilDiv(t.cols, unit) }

// dividePanels chooses the division for so many panels of rows.
func (t *gemmTask) dividePanels(workers, panels int) offer {
	t.panels, t.shares = panels, [2]bool{}
	t.part = t.m.divide(t.box(t.shares), workers)
	all := offer{panels: panels, time: t.part.Time, workers: t.part.Workers, balance: t.part.balance()}
	if t.part.Workers == 1 || !t.sharesPacked() {
		return all
	}
	least := t.part.Time - t.part.Time/16
	for i := 1; i < 4; i++ {
		shares, beside := [2]bool{i&1 > 0, i&2 > 0}, 0
		for side := range shares {
			if shares[side] && (t.packingCost(side) == 0 || t.items*t.depth*[2]int{t.rows, t.cols}[side] > mostShared || side == 1 && t.unit < t.p.nr) {
				shares[side] = false
			}
			if shares[side] {
				d := t.m.divide(t.packingBox(side, t.items), workers)
				beside += d.Time
			}
		}
		if shares == t.shares {
			continue
		}
		b := t.box(shares)
		if b.atLeast(workers)+beside >= least {
			continue
		}
		if d := t.m.divide(b, workers); d.Time+beside < least {
			least, t.part, t.shares = d.Time+beside, d, shares
			all.time, all.workers, all.balance = least, d.Workers, d.balance()
		}
	}
	return all
}

// packShared packs the operands that blocks share.
func (t *gemmTask) packShared(m *Machine) {
	for side, shared := range t.shares {
		if !shared {
			continue
		}
		x := &t.ahead[side]
		x.inner = max(1, t.out.inner)
		x.n = [2]int{t.items / x.inner, x.inner}
		x.item = t.aheadStart(side, t.aheadPanels(side)) + t.aheadFlags(side)
		x.data = m.shared[side].get(t.items * x.item)
		m.ahead = aheadTask{t: t, side: side}
		m.ahead.packAll(m, x.data)
		m.ahead = aheadTask{}
	}
}
