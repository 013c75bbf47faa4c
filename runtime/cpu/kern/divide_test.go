package kern

import (
	goflag "flag"
	"fmt"
	"sync"
	"testing"
)

var everyCount = goflag.Bool("every-count", false, "TestDivision looks at all numbers of workers from 1 to 128")

// searched has what Possible has found for a region: kernels share boxes.
var searched sync.Map

// onWorkers is a box and the most workers that it is divided for.
type onWorkers struct {
	box
	workers int
}

// leastTime is the least time that Possible finds.
func leastTime(p *Planned) int {
	key := onWorkers{p.box, p.workers}
	if t, ok := searched.Load(key); ok {
		return t.(int)
	}
	time, _ := p.Possible()
	searched.Store(key, time)
	return time
}

// planned is what a kernel costs on a machine of some workers.
type planned struct {
	time, best int
	busy, held int // time of tasks, and of the workers that have them
	workers    int // of the region that takes longest
	longest    int
}

func (p *planned) add(r Planned) {
	p.time, p.best = p.time+r.Time, p.best+leastTime(&r)
	p.busy, p.held = p.busy+r.Busy, p.held+r.Workers*r.span()
	if r.Time > p.longest {
		p.workers, p.longest = r.Workers, r.Time
	}
}

// plan is what run's regions cost on so many workers of a path.
func plan(path *Path, workers int, run func(*Machine)) (p planned) {
	run(NewPlanner(path, workers, p.add))
	return p
}

// Kernels, at the shapes of large models, keep the workers that they take busy for nine tenths of the time, and are within a
// twentieth of the fastest division: by the model of costs, for 1 to 128 workers.
func TestDivision(t *testing.T) {
	counts := []int{1, 2, 3, 4, 8, 16, 32, 64, 75, 128}
	switch {
	case testing.Short():
		counts = []int{1, 2, 8, 32, 75, 128}
	case *everyCount:
		counts = counts[:0]
		for n := range 128 {
			counts = append(counts, n+1)
		}
	}
	cases := 0
	block := NewBlock(1 << 31)
	defer block.Release()
	for _, path := range tested() {
		if path.lanes == 1 {
			continue
		}
		for _, k := range dividedKernels(block) {
			row := fmt.Sprintf("%-10s %-44s", path.Name(), k.name)
			for _, n := range counts {
				cases++
				p := plan(path, n, k.run)
				balance, worse := float64(p.busy)/float64(p.held), float64(p.time)/float64(p.best)
				if balance < balanced || worse > 1.05 {
					t.Errorf("%s on %d workers: balance %.3f of %d, %.3f of the best time", k.name, n, balance, p.workers, worse)
				}
				if n&(n-1) == 0 {
					row += fmt.Sprintf(" %d:%.0f%%", p.workers, 100*balance)
				}
			}
			t.Log(row)
		}
	}
	t.Logf("%d divisions", cases)
}

// Panels that are made lower for the sake of balance do not change bits: of products, of convolutions and of their gradients.
func TestEvenPanels(t *testing.T) {
	const workers = 24
	for _, p := range tested() {
		one, many, lower := New(p, 1), New(p, workers), 0
		for _, typ := range []Type{F32, BF16} {
			d := newDice(21)
			for rows := 65; rows < 129; rows += 9 {
				a, b, c, same := d.buf(typ, rows*300), d.buf(typ, 300*200), d.buf(F32, rows*200), d.buf(F32, rows*200)
				g := Gemm{M: rows, N: 200, K: 300, A: Mat{Buf: a, LD: 300}, B: Mat{Buf: b, LD: 200}, C: Mat{Buf: c, LD: 200}}
				one.Gemm(&g)
				g.C.Buf = same
				many.Gemm(&g)
				lower += many.gemm.panels - one.gemm.panels
				if string(c.Data) != string(same.Data) {
					t.Errorf("%s, %v: a product of %d rows differs on %d workers", p.Name(), typ, rows, workers)
				}
			}
			for _, last := range []bool{false, true} {
				c := benchConv(typ, 2, 64, 70, 13, 3, 1, last)
				for name, f := range map[string]func(*Machine, *Conv) Buf{
					"convolution": func(m *Machine, c *Conv) Buf { m.Conv(c); return c.Y },
					"gradient":    func(m *Machine, c *Conv) Buf { m.ConvInputGrad(c); return c.X },
					"weights":     func(m *Machine, c *Conv) Buf { m.ConvWeightGrad(c); return c.W },
				} {
					want := string(f(one, c).Data)
					if got := string(f(many, c).Data); got != want {
						t.Errorf("%s, %v, last=%v: %s differs on %d workers", p.Name(), typ, last, name, workers)
					}
					lower += many.winoRun.panels - one.winoRun.panels
				}
			}
		}
		if p.lanes > 1 && lower == 0 {
			t.Errorf("%s: no panels are lower on %d workers", p.Name(), workers)
		}
		one.Close()
		many.Close()
	}
}

// Blocks that begin in the middle of a tile, for the sake of balance, do not change bits. Operands are too large to be shared.
func TestHalfTiles(t *testing.T) {
	for _, p := range tested() {
		one, many, halves := New(p, 1), New(p, 4), 0
		d := newDice(22)
		for i := range rounds(6) {
			if p.lanes == 1 && i > 0 {
				break
			}
			typ, rows, cols := []Type{F32, BF16, F16}[i%3], 20+d.IntN(12), p.nr*(4+i%2)+1+d.IntN(p.vw-1)
			depth := mostShared/cols + 1 + d.IntN(99)
			g := Gemm{M: rows, N: cols, K: depth, A: Mat{Buf: d.buf(typ, rows*depth), LD: depth}, B: Mat{Buf: d.buf(typ, depth*cols), LD: depth, T: true}}
			if i%2 > 0 {
				g.A.T, g.A.LD = true, rows
			}
			run := func(m *Machine) string {
				g.C = Mat{Buf: zeros([]Type{F32, typ}[i/3], rows*cols), LD: cols}
				m.Gemm(&g)
				return string(g.C.Buf.Data)
			}
			if run(one) != run(many) {
				t.Errorf("%s, %v: a product of %d x %d x %d depends on the workers", p.Name(), typ, rows, cols, depth)
			}
			halves += flag(many.gemm.unit < p.nr)
		}
		if 2*p.vw == p.nr && halves == 0 { // tiles of 12 columns, NEON's, are small enough
			t.Errorf("%s: no block began in the middle of a tile", p.Name())
		}
		one.Close()
		many.Close()
	}
}

// Convolutions have the same bits whether tasks are images, or channels or rows of them, also beside subnormal elements.
func TestDividedImages(t *testing.T) {
	for _, p := range tested() {
		one, machines, d := New(p, 1), []*Machine{New(p, 3), New(p, 100)}, newDice(23)
		for i := range rounds(42) {
			last, groups, stride, kernel := i%2 > 0, []int{1, 1, 2, 64}[i/2%4], 1+i/7%2, []int{3, 7, 1, 5, 5}[i%5]
			c := benchConv([]Type{F32, BF16, F16}[i%3], 2, 64, 64, 18, kernel, []int{i / 5 % 2, kernel / 2}[flag(kernel < 7)], last)
			c.Groups, c.Stride = groups, [3]int{1, stride, stride}
			out := (18+2*c.Pad[1]-kernel)/stride + 1
			c.Out = [3]int{1, out, out}
			x, w, y := c.X, c.W, d.buf(c.X.Type, 2*64*out*out)
			if i/6%2 > 0 {
				x.set(d.IntN(x.Len()), 1e-39)
				y.set(d.IntN(y.Len()), 1e-39)
			}
			run := func(m *Machine) string {
				c.X, c.W, c.Y = x, w, zeros(F32, y.Len())
				m.Conv(c)
				all := string(c.Y.Data)
				c.Y, c.X = y, zeros(x.Type, x.Len())
				m.ConvInputGrad(c)
				all += string(c.X.Data)
				c.X, c.W = x, zeros(F32, w.Len())
				m.ConvWeightGrad(c)
				return all + string(c.W.Data)
			}
			want := run(one)
			for _, m := range machines {
				if run(m) != want {
					t.Errorf("%s, round %d: convolutions depend on the workers", p.Name(), i)
				}
			}
		}
		one.Close()
		for _, m := range machines {
			m.Close()
		}
	}
}

// Gradients of a norm's weights have the same bits whether one worker adds up their parts or several do.
func TestDividedFold(t *testing.T) {
	for _, p := range tested() {
		one, many, folded := New(p, 1), New(p, 24), 0
		for _, rows := range []int{1, 2, 100, 3000} {
			const cols = 2500
			d := newDice(24)
			x, dy, stats := d.buf(F32, rows*cols), d.buf(F32, rows*cols), d.buf(F32, rows).f32()
			run := func(m *Machine) string {
				n := Norm{Rows: rows, Cols: cols, X: x, Gamma: x, DY: dy, DX: zeros(F32, rows*cols), DGamma: zeros(F32, cols), DBeta: zeros(F32, cols), Rstd: stats, Mean: stats}
				m.NormGrad(&n)
				return string(n.DX.Data) + string(n.DGamma.Data) + string(n.DBeta.Data)
			}
			if run(one) != run(many) {
				t.Errorf("%s: gradients of a norm of %d rows depend on the workers", p.Name(), rows)
			}
			folded += flag(many.fold.part.Workers > 1)
		}
		if folded == 0 {
			t.Errorf("%s: no parts were added up by several workers", p.Name())
		}
		one.Close()
		many.Close()
	}
}
