package ptx

import (
	"fmt"
	"math"
)

// rows is the layout of kernels that work on the rows of a matrix. A row belongs to one team: a
// warp if the row is short (four teams share a block, without barriers), otherwise the whole block.
// Each thread holds the same columns of every row of its team: chunk c of a thread covers vec
// columns from (c*team + lane)*vec on.
type rows struct {
	b          *builder
	cols       int
	team       int // threads that share a row
	perBlock   int // teams in a block
	vec        int
	chunks     int  // vectors of a row that a thread holds; 1 if it processes the row in a loop
	streamed   bool // rows do not fit into registers, so later passes load them again
	lane       Reg  // thread in team, u32
	worker     Reg  // team in grid, u32
	scratch    int  // shared arrays made so far
	chunkValid []Reg
}

const (
	warpTeams  = 4    // teams in a block of warp teams
	maxPerLane = 32   // columns a thread may hold in registers
	goodLane   = 16   // columns a thread holds when the row is short enough
	maxTeam    = 1024 // threads of a block
)

// MaxRow is the length of the longest row that a kernel keeps in registers, if it keeps only one
// tensor's row.
const MaxRow = maxPerLane * maxTeam

// vecFor is the widest vector that divides cols and moves at most 16 bytes of the smallest type.
func vecFor(cols int, types ...DType) int {
	size := 4
	for _, d := range types {
		size = min(size, d.Size())
	}
	v := min(8, 16/size)
	for cols%v != 0 {
		v /= 2
	}
	return v
}

// rowShape picks team size and chunks for a row held in registers.
func rowShape(cols int, types ...DType) (team, vec, chunks int, err error) {
	if cols < 1 || cols > MaxRow {
		return 0, 0, 0, fmt.Errorf("ptx: rows of %d columns, this kernel takes 1 to %d", cols, MaxRow)
	}
	vec = vecFor(cols, types...)
	team = teamFor(cols, vec, goodLane)
	return team, vec, ceilDiv(cols, team*vec), nil
}

// teamFor is the number of threads that share a row so that each holds at most good columns of it: a
// warp if that suffices, otherwise the smallest of those teams in which the fewest threads idle. If
// rows are too long, all threads of a block share one.
func teamFor(cols, vec, good int) int {
	best, held := maxTeam, math.MaxInt
	for team := 32; team <= maxTeam; team += 32 {
		chunks := ceilDiv(cols, team*vec)
		if chunks*vec > good {
			continue
		}
		if team == 32 {
			return team
		}
		if team*chunks < held {
			best, held = team, team*chunks
		}
	}
	return best
}

// rowsOver starts a kernel over rows of which a thread holds good columns, at most goodLane. It
// processes longer rows in a loop.
func rowsOver(fl Flavour, name string, cols, vec, good int) *rows {
	team := teamFor(cols, vec, good)
	chunks := ceilDiv(cols, team*vec)
	if chunks*vec <= goodLane {
		return startRows(fl, name, cols, team, vec, chunks)
	}
	r := startRows(fl, name, cols, team, vec, 1)
	r.streamed = true
	return r
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// newRows starts a kernel over rows held in registers.
func newRows(fl Flavour, name string, cols int, types ...DType) (*rows, error) {
	team, vec, chunks, err := rowShape(cols, types...)
	if err != nil {
		return nil, err
	}
	return startRows(fl, name, cols, team, vec, chunks), nil
}

func startRows(fl Flavour, name string, cols, team, vec, chunks int) *rows {
	r := &rows{cols: cols, team: team, vec: vec, chunks: chunks, perBlock: 1}
	if team == 32 {
		r.perBlock = warpTeams
	}
	r.b = newBuilder(fl, name, team*r.perBlock)
	r.b.counts("columns", cols)
	return r
}

// begin emits the thread's indices; call it after the parameters are declared.
func (r *rows) begin() {
	b := r.b
	tid := b.special("%tid.x")
	r.lane, r.worker = tid, b.special("%ctaid.x")
	if r.perBlock > 1 {
		r.lane = b.Do("and.b32", tid, I(31))
		r.worker = b.Do("mad.lo.u32", r.worker, I(r.perBlock), b.Do("shr.u32", tid, I(5)))
	}
	for c := 0; c < r.chunks; c++ {
		var valid Reg
		if (c+1)*r.team*r.vec > r.cols {
			valid = b.Do("setp.lt.u32", b.iadd(r.lane, I(c*r.team)), I(r.cols/r.vec))
		}
		r.chunkValid = append(r.chunkValid, valid)
	}
}

// grid is the number of blocks for n workers.
func (r *rows) grid(n int) [3]int { return [3]int{ceilDiv(n, r.perBlock), 1, 1} }

// alone runs body once: worker i processes row i.
func (r *rows) alone(n int, body func(row Reg)) {
	r.b.counts("rows", n)
	if n%r.perBlock == 0 {
		body(r.worker)
		return
	}
	r.b.when(r.b.Do("setp.lt.u32", r.worker, I(n)), func() { body(r.worker) })
}

// share runs body for each of n rows: worker i processes row i and every workers-th row after it.
func (r *rows) share(n, workers int, body func(row Reg)) {
	r.b.counts("rows", n)
	if n <= workers {
		r.alone(n, body)
		return
	}
	r.b.loop(r.worker, I(n), I(workers), B32, body)
}

// each runs body for every chunk of the thread that lies inside the row.
func (r *rows) each(body func(c int)) {
	for c := 0; c < r.chunks; c++ {
		if v := r.chunkValid[c]; v.Class == Pred {
			r.b.when(v, func() { body(c) })
		} else {
			body(c)
		}
	}
}

// spot is a vector of the thread in a row: the vector at + ahead, which is the given chunk of those
// it holds.
type spot struct {
	at           Reg
	ahead, chunk int
}

// spots runs body for every vector of the thread that lies in the row.
func (r *rows) spots(body func(s spot)) {
	if r.streamed {
		r.b.strided(r.lane, r.team, r.cols/r.vec, func(i Reg) { body(spot{at: i}) })
		return
	}
	r.each(func(c int) { body(spot{r.lane, c * r.team, c}) })
}

// rowAddr is the address of the thread's first column of a row.
func (r *rows) rowAddr(base, row Reg, d DType) Reg {
	b := r.b
	start := b.Do("mad.lo.u64", b.Do("cvt.u64.u32", row), I(r.cols*d.Size()), base)
	return b.at(start, r.lane, r.vec*d.Size())
}

// chunkOff is the distance of chunk c from the thread's first column in bytes.
func (r *rows) chunkOff(c int, d DType) int { return c * r.team * r.vec * d.Size() }

// load reads a thread's columns as f32; chunks outside the row stay unset.
func (r *rows) load(addr Reg, d DType) [][]Reg {
	out := make([][]Reg, r.chunks)
	r.each(func(c int) { out[c] = r.b.loadF(addr, r.chunkOff(c, d), d, r.vec) })
	return out
}

// store rounds and writes a thread's columns.
func (r *rows) store(addr Reg, d DType, v [][]Reg) {
	r.each(func(c int) { r.b.storeF(addr, r.chunkOff(c, d), d, v[c]) })
}

// tile makes a register for every column of the thread, set to x.
func (r *rows) tile(x float32) [][]Reg {
	out := make([][]Reg, r.chunks)
	for c := range out {
		for i := 0; i < r.vec; i++ {
			out[c] = append(out[c], r.b.floatConst(x))
		}
	}
	return out
}

// fold combines a value of every column, then of every thread of the team. The order depends only
// on the shape. All threads get the result.
func (r *rows) fold(start float32, step func(acc Reg, c, i int) Reg, join func(x, y Reg) Reg) Reg {
	b := r.b
	acc := b.floatConst(start)
	r.each(func(c int) {
		v := acc
		for i := 0; i < r.vec; i++ {
			v = step(v, c, i)
		}
		b.To(acc, "mov.f32", v)
	})
	return r.across(acc, join)
}

// across combines one value of each thread of the team.
func (r *rows) across(x Reg, join func(x, y Reg) Reg) Reg {
	if r.team == 32 {
		return r.b.butterfly(x, 32, join)
	}
	r.scratch++
	return r.b.blockFold(x, r.lane, r.team, fmt.Sprintf("scratch%d", r.scratch), join)
}

// butterfly combines x over groups of n adjacent lanes (a power of two).
func (b *builder) butterfly(x Reg, n int, join func(x, y Reg) Reg) Reg {
	for d := n / 2; d > 0; d /= 2 {
		other := b.reg(x.Class)
		b.To(other, "shfl.sync.bfly.b32", x, I(d), I(31), I(0xffffffff))
		x = join(x, other)
	}
	return x
}

// blockFold combines x over a block of n threads, whole warps, through a shared array of its own. A
// loop that runs it again needs another barrier in between.
func (b *builder) blockFold(x, tid Reg, n int, name string, join func(x, y Reg) Reg) Reg {
	warps := n / 32
	align := 4
	if warps&(warps-1) != 0 {
		align = 16
	}
	sh := b.shared(name, align, 4*warps)
	x = b.butterfly(x, 32, join)
	lane := b.Do("and.b32", tid, I(31))
	b.when(b.Do("setp.eq.u32", lane, I(0)), func() {
		slot := b.iadd(sh, b.Do("shl.b32", b.Do("shr.u32", tid, I(5)), I(2)))
		b.Do("st.shared.b32", Addr{Base: slot}, x)
	})
	b.Do("bar.sync", I(0))
	if warps&(warps-1) != 0 { // each thread combines all of them
		d := map[Class]DType{F32: Float32, B32: Int32}[x.Class]
		all := b.loadFrom("shared", sh, 0, d, warps)
		for _, y := range all[1:] {
			all[0] = join(all[0], y)
		}
		return all[0]
	}
	y := b.reg(x.Class)
	b.To(y, "ld.shared.b32", Addr{Base: b.iadd(sh, b.Do("shl.b32", b.Do("and.b32", lane, I(warps-1)), I(2)))})
	return b.butterfly(y, warps, join)
}

func (r *rows) sum(f func(c, i int) Reg) Reg {
	return r.fold(0, func(acc Reg, c, i int) Reg { return r.b.add(acc, f(c, i)) }, r.join("add.rn.f32"))
}

func (r *rows) max(f func(c, i int) Reg) Reg {
	return r.fold(float32(math.Inf(-1)), func(acc Reg, c, i int) Reg { return r.b.Do("max.f32", acc, f(c, i)) }, r.join("max.f32"))
}

func (r *rows) join(op string) func(x, y Reg) Reg {
	return func(x, y Reg) Reg { return r.b.Do(op, x, y) }
}

// mapTile computes a new tile from a function of column positions.
func (r *rows) mapTile(f func(c, i int) Reg) [][]Reg {
	out := make([][]Reg, r.chunks)
	r.each(func(c int) {
		for i := 0; i < r.vec; i++ {
			out[c] = append(out[c], f(c, i))
		}
	})
	return out
}

// params declares kernel parameters and collects their descriptions.
type params struct {
	b    *builder
	list []Argument
}

func (p *params) in(name string, d DType, n int) Reg  { return p.add(name, d, n, true) }
func (p *params) out(name string, d DType, n int) Reg { return p.add(name, d, n, false) }

func (p *params) add(name string, d DType, n int, read bool) Reg {
	if d.Size() == 0 {
		p.b.fail("parameter %s has unknown dtype %q", name, d)
	}
	p.list = append(p.list, Argument{Name: name, DType: d, Elems: int64(n), Read: read, Write: !read})
	return p.b.param(name)
}
