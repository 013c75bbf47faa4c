package kern

// A parallel region is a box of cells: items of rows x cols. Tasks are blocks of whole cells of one item. Division chooses
// how many blocks there are and how many workers the region deserves by what it would cost, in flops of a worker; half a byte
// of memory traffic counts as one.
//
//	time = start(workers) + rounds*(largest block) + lateness        rounds = tasks/workers, rounded up
//
// Blocks hold whole cells, and what a kernel computes for a cell does not depend on its block, so no result depends on the
// division.
type box struct {
	items, rows, cols  int
	cell               int // cost of a cell
	row, col           int // cost of what each block repeats for its rows, or columns: packing them
	task               int // cost of a block beside
	mostRows, mostCols int // of a block; 0: any number
}

// Division is how a region's work is divided, and what that costs.
type Division struct {
	Tasks   int // in all
	Workers int // that run them
	Time    int // predicted, see box
	Busy    int // time that tasks take, of all workers together
	rows    int // blocks of an item along the rows
	cols    int // and along the columns
	late    int // part of the time
}

// balance is the share of their time that the workers are busy for, from start to end of the tasks.
func (d *Division) balance() float64 { return float64(d.Busy) / float64(d.Workers*d.span()) }

// span is the predicted time without what waking the workers takes and lateness.
func (d *Division) span() int { return d.Time - d.beside() }

// The constants of the model. A worker that begins late, or shares its processor for a moment, holds up the others for a part
// of its last task.
const (
	startAny   = 3 << 14 // of a region that more than one worker runs
	startEach  = 1 << 14 // for each worker that one goroutine wakes
	wakes      = 16      // workers that one wakes before others help, see Pool.rouse
	taskCost   = 1 << 12
	lateShare  = 1.0 / 32 // of the last task's time
	fastEnough = 1.0 / 25 // of the least time, that better balance is worth
	balanced   = 0.9      // share of time for which nothing better is looked for
	mostRounds = 12       // tasks of a worker, where there is a choice
)

// startCost is the time until so many workers run.
func startCost(workers int) int {
	if workers == 1 {
		return 0
	}
	return startAny + startEach*min(workers-1, wakes)
}

// bound is where block i of n cells in so many blocks begins. The first block is one of the largest.
func bound(i, blocks, n int) int { return ceilDiv(i*n, blocks) }

// block is the cost of the largest of blocks rows x cols.
func (b *box) block(rows, cols int) int {
	r, c := ceilDiv(b.rows, rows), ceilDiv(b.cols, cols)
	return r*c*b.cell + r*b.row + c*b.col + b.task
}

// busy is the cost of all blocks, rows x cols of each item.
func (b *box) busy(rows, cols int) int {
	return b.items * (b.rows*b.cols*b.cell + cols*b.rows*b.row + rows*b.cols*b.col + rows*cols*b.task)
}

// on returns the division into blocks rows x cols for so many rounds.
func (b *box) on(rows, cols, rounds int) Division {
	return b.inRounds(rows, cols, rounds, b.block(rows, cols), b.busy(rows, cols))
}

// inRounds is on for what the largest block costs, and all of them.
func (b *box) inRounds(rows, cols, rounds, block, busy int) Division {
	n, rounds := b.items*rows*cols, max(1, rounds)
	d := Division{Tasks: n, Workers: max(1, ceilDiv(n, rounds)), Busy: busy, rows: rows, cols: cols}
	if d.Workers == 1 {
		d.Time = d.Busy
		return d
	}
	d.late = int(lateShare * float64(block))
	d.Time = rounds*block + d.beside()
	return d
}

// beside is the part of the time in which tasks do not run.
func (d *Division) beside() int { return startCost(d.Workers) + d.late }

// finer is the least number of blocks of n cells whose largest is smaller than that of so many blocks; n+1 where there is none.
func finer(blocks, n int) int {
	if size := ceilDiv(n, blocks); size > 1 {
		return ceilDiv(n, size-1)
	}
	return n + 1
}

// least is the least number of blocks of n cells with at most so many of them each.
func least(n, most int) int {
	if most == 0 {
		return 1
	}
	return max(1, ceilDiv(n, most))
}

// alone is the division for one worker.
func (b *box) alone() Division {
	rows, cols := least(b.rows, b.mostRows), least(b.cols, b.mostCols)
	return b.on(rows, cols, b.items*rows*cols)
}

// divide chooses the fastest division for at most so many workers. If that leaves them idle for more than a tenth of the time,
// it chooses the best balanced one among those that are nearly as fast.
func (b *box) divide(workers int) Division {
	best := b.alone()
	b.each(workers, best.Time, func(d Division) int {
		if d.Time < best.Time || d.Time == best.Time && d.Workers < best.Workers {
			best = d
		}
		return best.Time
	})
	if best.balance() >= balanced {
		return best
	}
	most := best.Time + int(fastEnough*float64(best.Time))
	b.each(workers, most, func(d Division) int {
		if d.Time <= most && d.balance() > best.balance() {
			best = d
		}
		return most
	})
	return best
}

// each calls f for the divisions that are worth a look and may take at most so long. f returns what they may take from then on.
func (b *box) each(workers, most int, f func(Division) int) {
	r0, c0 := least(b.rows, b.mostRows), least(b.cols, b.mostCols)
	tasks := b.items*r0*c0 + mostRounds*workers
	for r := r0; r <= max(1, b.rows) && b.items*r*c0 <= tasks && b.busy(r, c0) <= most*workers; r = finer(r, b.rows) {
		// what busy and block are without columns, and what each column adds
		high := ceilDiv(b.rows, r)
		busy0, busyEach := b.items*(b.rows*b.cols*b.cell+r*b.cols*b.col), b.items*(b.rows*b.row+r*b.task)
		block0, blockEach := high*b.row+b.task, high*b.cell+b.col
		for c := c0; c <= max(1, b.cols) && b.items*r*c <= tasks && busy0+c*busyEach <= most*workers; {
			n, wide := b.items*r*c, ceilDiv(b.cols, c)
			block := block0 + wide*blockEach
			for rounds := ceilDiv(n, workers); rounds <= n && rounds*block <= most; rounds += 1 + rounds/16 {
				if rounds == n || rounds*block+startCost(2) <= most {
					most = f(b.inRounds(r, c, rounds, block, busy0+c*busyEach))
				}
			}
			if wide <= 1 {
				break
			}
			c = ceilDiv(b.cols, wide-1)
		}
	}
}

// atLeast is less time than any division for so many workers takes, or as much.
func (b *box) atLeast(workers int) int {
	return b.busy(least(b.rows, b.mostRows), least(b.cols, b.mostCols)) / workers
}

// offer is what a product costs with so many panels of rows.
type offer struct {
	panels, time, workers int
	balance               float64
}

// mostFiner is how many panels more than necessary are tried.
const mostFiner = 12

// evenPanels calls try with a number of panels of n rows, last with the chosen one: the least, unless that leaves workers idle,
// which b, the work with the least panels, is divided among. Then it is the fastest that keeps its workers busy among those that are
// nearly as fast as any. The machine remembers it.
func (m *Machine) evenPanels(b box, n, workers int, try func(panels int) offer) {
	least := b.rows
	if workers == 1 {
		try(least)
		return
	}
	key := boxOf{b, workers}
	if p, ok := m.panels[key]; ok {
		try(p)
		return
	}
	if len(m.panels) >= mostDivided {
		clear(m.panels)
	}
	p := chosenPanels(least, n, workers, try)
	m.panels[key] = p
	try(p)
}

// chosenPanels is the number of panels that evenPanels chooses. More than the least are tried if that leaves workers idle for more than
// a tenth of the time, or does not take them all; in place of some that are balanced they must be clearly faster.
func chosenPanels(least, n, workers int, try func(panels int) offer) int {
	first := try(least)
	even := first.balance >= balanced
	if first.workers == 1 || even && first.workers == workers {
		return least
	}
	var all [mostFiner + 1]offer
	list, time := append(all[:0], first), first.time
	for p := least + 1; p <= min(2*least, least+mostFiner, n); p++ {
		o := try(p)
		list, time = append(list, o), min(time, o.time)
	}
	if even && time > first.time-first.time/16 {
		return least
	}
	best := offer{}
	for _, o := range list {
		if o.time <= time+int(fastEnough*float64(time)) && (best.panels == 0 || o.better(&best)) {
			best = o
		}
	}
	return best.panels
}

// better reports whether o is balanced and faster than b, or b is not balanced and o more.
func (o *offer) better(b *offer) bool {
	if min(o.balance, b.balance) >= balanced {
		return o.time < b.time
	}
	return o.balance > b.balance
}
