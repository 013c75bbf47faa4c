package kern

import "runtime"

// Machine runs the kernels of a path on a pool of workers. Its methods are called one at a time.
type Machine struct {
	*Path
	pool   *Pool
	worker []*worker // nil: it has not run yet

	divided map[boxOf]Division
	panels  map[boxOf]int             // see evenPanels
	plans   func(box, Division, Task) // sees each region instead of workers; nil: regions run

	gemm        gemmTask
	ahead       aheadTask
	smallMRun   smallMTask
	rowsForm    rowsTask
	conv        convTask
	channel     channelTask
	last        lastTask
	attn        attnTask
	cached      cachedTask
	row         rowTask
	fold        foldTask
	postOpRun   postOpTask
	winoRun     winoTask
	winoGradRun winoGrad
	sixRun      sixTask
	sixGradRun  sixGrad
	winoMem     floats // transformed weights, or sums of products
	sixTiles    floats // transformed tiles

	shared    [2]floats // operands of a product that its blocks share
	whole     floats    // a result that only a PostOp reads
	runSums   floats    // of long rows: what their runs are reduced to
	chainSums floats    // of the chains of long columns
	parts     floats    // partial results, one per chunk of rows
	lossParts [maxParts + 1]float64
	lossCount [maxParts + 1]float64
}

// worker is the scratch memory of one worker. It grows to the largest size needed and is then reused.
type worker struct {
	id      int
	a, b, c floats // packed operands, a block of results
	tile    floats
	turned  floats       // a tile's transpose
	widened floats       // rows in f32 that are about to be interleaved
	words   floats       // rows of words that are about to be turned to tiles
	edge    floats       // the last packed rows before those that another worker packs
	places  []panelPlace // of the panels of a
	shape   amxShape

	subnormalA, subnormalB []uint64  // the subnormal elements of the panels of a and b, see vnniKernels; for amxKernels only of a, zero or not
	wide                   [2]floats // panels of a and b in f32
	split                  []bool    // the panels of a that are in wide
	exact                  floats    // their product
	row                    [6]floats
	block                  []float32 // block of rows that a post-op reads
	first                  int       // first row of block
	made                   []float32 // what a pre-op has computed, from element madeAt on,
	madeAt, rowsEnd        int       // of rows of the task, which end at element rowsEnd
	half                   floats    // sums of a run of rows
	offs                   []int
	call                   Call
	scalars                rowScalars
	bufs                   [5]Buf
	local                  gemmTask // a product inside a task
	ending                 endingTask
	fetched                [sumDepth / 4]int // offsets of what an ending tile prefetches
	wino                   winoWorker
	attn                   attnMem
	_                      [64]byte // keep workers off each other's cache lines
}

// New makes a machine of n workers, which is in use; n <= 0 means GOMAXPROCS.
func New(p *Path, n int) *Machine { return NewOn(p, n, Host{}) }

// Host is what a process may use of its machine. The zero value limits nothing.
type Host struct {
	Processors int            // that the process may run on; 0: as many as Go counts
	Quota      func() float64 // processors' time that a control group allows now; 0, or no function: no limit
	Caches     Caches         // of the processors that the process may run on
	Nodes      []Processors   // by NUMA node, the processors on which the process may run; fewer than two: memory is alike to all
}

func (h *Host) processors() int {
	if h.Processors > 0 {
		return h.Processors
	}
	return runtime.NumCPU()
}

// has reports whether n workers have a processor each.
func (h *Host) has(n, procs int) bool {
	if n > min(procs, h.processors()) {
		return false
	}
	if h.Quota == nil {
		return true
	}
	quota := h.Quota()
	return quota <= 0 || float64(n) <= quota
}

// NewOn is New on a host; see startPool.
func NewOn(p *Path, n int, h Host) *Machine { return newMachine(p, startPool(n, h)) }

// fork makes another machine of the same workers, out of use (see Pool.Enter), for work at the same time.
func (m *Machine) Fork() *Machine { return newMachine(m.Path, m.pool.fork()) }

func newMachine(p *Path, pool *Pool) *Machine {
	m := &Machine{Path: p, pool: pool}
	m.divided, m.panels = map[boxOf]Division{}, map[boxOf]int{}
	m.worker = make([]*worker, pool.Most())
	m.prepare()
	for i := range m.conv.table {
		m.conv.table[i].kept = &m.conv.kept
	}
	return m
}

// Enter takes the machine into use, as Pool.Enter does; Leave ends that.
func (m *Machine) Enter() {
	m.pool.Enter()
	m.prepare()
}

// Leave ends the use of the machine.
func (m *Machine) Leave() { m.pool.Leave() }

// prepare makes the workers that the pool has now.
func (m *Machine) prepare() {
	for i := range m.pool.Workers() {
		if m.worker[i] == nil {
			m.worker[i] = &worker{id: i}
		}
	}
}

// Pool is the machine's worker pool, for the caller's own parallel regions. No kernel may run inside such a region.
func (m *Machine) Pool() *Pool { return m.pool }

// Close stops the workers.
func (m *Machine) Close() { m.pool.Close() }

// Call is the memory with which a worker runs formulas.
func (m *Machine) Call(worker int) *Call { return &m.worker[worker].call }

// run runs a parallel region of n tasks of about equal work, in flops, on as many workers as that deserves.
func (m *Machine) run(work, n int, t Task) {
	if n > 0 {
		b := box{items: n, rows: 1, cols: 1, cell: work / n, task: taskCost}
		m.runDivided(&b, m.divide(b, m.pool.share()), t)
	}
}

// Run is run for the caller's own tasks.
func (m *Machine) Run(work, n int, t Task) { m.run(work, n, t) }

// Serial runs n tasks on the caller.
func (m *Machine) Serial(work, n int, t Task) {
	if m.plans != nil {
		b := box{items: 1, rows: 1, cols: 1, cell: work}
		m.plans(b, b.alone(), t)
		return
	}
	for i := range n {
		t.Run(0, i)
	}
}

// runDivided runs the tasks of a division of b.
func (m *Machine) runDivided(b *box, d Division, t Task) {
	if m.plans != nil {
		m.plans(*b, d, t)
		return
	}
	m.pool.runBy(d.Workers, d.Tasks, t)
}

// divide is box.divide, or what that has returned before.
func (m *Machine) divide(b box, workers int) Division {
	if d := b.alone(); workers == 1 || d.Time <= startCost(2) {
		return d
	}
	key := boxOf{b, workers}
	if d, ok := m.divided[key]; ok {
		return d
	}
	if len(m.divided) >= mostDivided {
		clear(m.divided)
	}
	d := b.divide(workers)
	m.divided[key] = d
	return d
}

// boxOf is a box for so many workers.
type boxOf struct {
	box
	workers int
}

// mostDivided is how many divisions a machine remembers.
const mostDivided = 1 << 12

// floats is reusable aligned storage. Large ones lie outside the Go heap.
type floats struct {
	s     []float32
	block *Block // that s lies in; nil: in the Go heap
	most  int    // largest number of floats that get was asked for
}

// minBlock is the least storage in bytes that lies outside the Go heap.
const minBlock = 256 << 10

// get returns n floats, aligned to 64 bytes, with undefined contents and one vector of spare memory after them.
func (f *floats) get(n int) []float32 {
	f.most = max(f.most, n+16)
	if len(f.s) < n+16 {
		f.grow(int64(4 * (n + n/4 + 16)))
	}
	return f.s[:n]
}

// grow replaces the storage by one of so many bytes.
func (f *floats) grow(bytes int64) {
	most := f.most
	f.drop()
	f.most = most
	if bytes < minBlock {
		f.s = Buf{F32, Alloc(bytes)}.f32()
		return
	}
	f.block = NewBlock(bytes)
	f.s = Buf{F32, f.block.Bytes()}.f32()
}

// drop gives the storage back.
func (f *floats) drop() {
	if f.block != nil {
		f.block.Release()
	}
	f.s, f.block, f.most = nil, nil, 0
}

// getInts is the same for offsets.
func getInts(s *[]int, n int) []int {
	if cap(*s) < n {
		*s = make([]int, n+n/4)
	}
	return (*s)[:n]
}

func roundUp(x, m int) int { return (x + m - 1) / m * m }
func ceilDiv(x, m int) int { return (x + m - 1) / m }
