package interp

import (
	"encoding/binary"
	"math"
	"testing"

	"ampc/ptx"
	"ampc/ptx/ptxtest"
)

// compile is parsed for tests that need the program.
func compile(t testing.TB, l *ptx.Launch, fl ptx.Flavour) *Program {
	t.Helper()
	p, err := parsed(l, fl)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parsed takes a generated kernel through its text: print, parse, verify, compile.
func parsed(l *ptx.Launch, fl ptx.Flavour) (*Program, error) {
	m := &ptx.Module{Flavour: fl, Kernels: []*ptx.Kernel{l.Kernel}}
	again, err := ptx.Parse(m.Text())
	if err != nil {
		return nil, err
	}
	if err := ptx.Verify(again); err != nil {
		return nil, err
	}
	return Compile(again.Kernels[0])
}

// execute runs a program on buffers given as bytes; see runBuffers.
func execute(p *Program, l *ptx.Launch, partial bool, steps int64, args [][]byte) (Stats, error) {
	var bufs []ptxtest.Tensor
	for _, a := range args {
		bufs = append(bufs, ptxtest.Tensor{DType: ptx.Uint8, Bytes: a})
	}
	return runBuffers(p, l, ptxtest.Case{Partial: partial}, steps, bufs, 0)
}

// runBuffers runs a program on copies of a case's buffers and brings back what it wrote. Arguments that
// are only written start uninitialized, unless the case is partial. Argument over, if not 0, lies where
// argument 0 lies.
func runBuffers(p *Program, l *ptx.Launch, c ptxtest.Case, steps int64, bufs []ptxtest.Tensor, over int) (Stats, error) {
	return newBench(l, c, bufs, over).run(p, steps, bufs)
}

// bench is a memory with a place for each buffer of a case, for many runs.
type bench struct {
	c   ptxtest.Case
	l   *ptx.Launch
	mem *Memory
	at  []uint64
}

func newBench(l *ptx.Launch, c ptxtest.Case, bufs []ptxtest.Tensor, over int) *bench {
	r := &bench{c: c, l: l, mem: NewMemory(), at: make([]uint64, len(bufs))}
	for i, b := range bufs {
		if r.at[i] = r.mem.Alloc(len(b.Bytes)); i == over {
			r.at[i] = r.at[0]
		}
	}
	return r
}

// run copies the buffers in, runs, and copies back what the kernel writes.
func (r *bench) run(p *Program, steps int64, bufs []ptxtest.Tensor) (Stats, error) {
	args := r.l.Args
	if r.c.Link != nil {
		r.c.Link(bufs, r.at)
	}
	for i, b := range bufs { // before what is read, which may lie in the same place
		if err := r.mem.forget(r.at[i], len(b.Bytes)); err != nil {
			return Stats{}, err
		}
	}
	for i, b := range bufs {
		if i >= len(args) || args[i].Read || r.c.Partial {
			if err := r.mem.Write(r.at[i], b.Bytes); err != nil {
				return Stats{}, err
			}
		}
	}
	st, err := p.Run(r.mem, Config{Grid: r.l.Grid, Block: r.l.Block, Args: r.at[:len(args)]}, Options{MaxSteps: steps})
	if err != nil {
		return st, err
	}
	for i, b := range bufs {
		if i >= len(args) || args[i].Write {
			if err := r.mem.Read(b.Bytes, r.at[i]); err != nil {
				return st, err
			}
		}
	}
	return st, nil
}

func f32Bytes(x []float32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

func f32s(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

// ulps is |got-want| in units of the last f32 place of want.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	switch {
	case want != want:
		if got != got {
			return 0
		}
		return math.Inf(1)
	case got == w:
		return 0
	case got != got || math.IsInf(float64(got), 0) || math.IsInf(float64(w), 0):
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	unit := math.Ldexp(1, max(e-24, -149))
	return math.Abs(float64(got)-want) / unit
}

// samples covers all exponents with several mantissas, both signs, and dense values in [-lim, lim].
func samples(lim float64) []float32 {
	x := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1, -1}
	for e := uint32(0); e < 255; e++ {
		for _, m := range []uint32{0, 1, 0x2aaaaa, 0x555555, 0x7fffff} {
			x = append(x, math.Float32frombits(e<<23|m), -math.Float32frombits(e<<23|m))
		}
	}
	for i := 0; i < 20000; i++ {
		x = append(x, float32((2*math.Mod(float64(i)*0.618033988749895, 1)-1)*lim))
	}
	return x
}

func TestFunctionsAreAccurate(t *testing.T) {
	for _, c := range []struct {
		op    string
		f     func(float64) float64
		bound float64
		lim   float64 // dense samples in [-lim, lim]
		only  func(float64) bool
	}{
		{"exp", math.Exp, 1, 105, nil},
		{"log", math.Log, 1, 20, nil},
		{"tanh", math.Tanh, 2, 10, nil},
		{"erf", math.Erf, 1.5, 5, nil},
		{"expm1", math.Expm1, 1, 90, nil},
		{"log1p", math.Log1p, 1, 4, nil},
		{"sin", math.Sin, 1, 50, below(0x1p50)},
		{"cos", math.Cos, 1, 50, below(0x1p50)},
		{"tan", math.Tan, 1, 50, below(0x1p50)},
		{"atan", math.Atan, 2, 20, nil},
	} {
		x := samples(c.lim)
		g := ptx.Elementwise{
			Name: "f_" + c.op, Shape: []int64{int64(len(x))},
			Loads:  []ptx.Access{{Name: "x", DType: ptx.Float32}},
			Code:   []ptx.Instr{{Op: "in", Type: ptx.Float32}, {Op: c.op, Type: ptx.Float32}},
			Stores: []ptx.Output{{Access: ptx.Access{Name: "y", DType: ptx.Float32}, Value: 1}},
		}
		l, err := g.Build(ptx.SM80)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]byte, 4*len(x))
		if _, err := execute(compile(t, l, ptx.SM80), l, false, 0, [][]byte{f32Bytes(x), out}); err != nil {
			t.Fatal(err)
		}
		worst, at := 0.0, float32(0)
		for i, y := range f32s(out) {
			if c.only != nil && !c.only(float64(x[i])) {
				continue
			}
			if u := ulps(y, c.f(float64(x[i]))); u > worst {
				worst, at = u, x[i]
			}
		}
		t.Logf("%-6s %.3f ulp at %g", c.op, worst, at)
		if worst > c.bound {
			t.Errorf("%s: %.3f ulp at %g (%#x), bound %g", c.op, worst, at, math.Float32bits(at), c.bound)
		}
	}
}

// below holds for magnitudes under lim, infinities and NaN.
func below(lim float64) func(float64) bool {
	return func(x float64) bool { return !(math.Abs(x) >= lim) || math.IsInf(x, 0) }
}

// TestPow checks accuracy on pairs and the special cases of C99 annex F, which math.Pow follows.
func TestPow(t *testing.T) {
	odd := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, 1 << 24, 1<<24 + 2,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	var x, y []float32
	for _, a := range odd {
		for _, b := range odd {
			x, y = append(x, a), append(y, b)
		}
	}
	for i := range 20000 {
		u, v := math.Mod(float64(i)*0.618033988749895, 1), math.Mod(float64(i)*0.7548776662466927, 1)
		x, y = append(x, float32(math.Exp((u-0.5)*60))), append(y, float32((v-0.5)*8))
	}
	g := ptx.Elementwise{
		Name: "pow", Shape: []int64{int64(len(x))}, Loads: []ptx.Access{{Name: "x", DType: ptx.Float32}, {Name: "y", DType: ptx.Float32}},
		Code:   []ptx.Instr{{Op: "in", Type: ptx.Float32}, {Op: "in", Type: ptx.Float32, Int: 1}, {Op: "pow", Type: ptx.Float32, A: 0, B: 1}},
		Stores: []ptx.Output{{Access: ptx.Access{Name: "z", DType: ptx.Float32}, Value: 2}},
	}
	l, err := g.Build(ptx.SM80)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 4*len(x))
	if _, err := execute(compile(t, l, ptx.SM80), l, false, 0, [][]byte{f32Bytes(x), f32Bytes(y), out}); err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, z := range f32s(out) {
		want := math.Pow(float64(x[i]), float64(y[i]))
		if u := ulps(z, want); u > 1 {
			t.Errorf("%g^%g = %g, want %g (%.1f ulp)", x[i], y[i], z, want, u)
		} else if worst = max(worst, u); math.Signbit(float64(z)) != math.Signbit(want) && want == want {
			t.Errorf("%g^%g = %g, want %g", x[i], y[i], z, want)
		}
	}
	t.Logf("%.3f ulp", worst)
}

// forget makes n bytes uninitialized again.
func (m *Memory) forget(addr uint64, n int) error {
	b, off, err := m.span(addr, n)
	if err == nil {
		clear(b.init[off : off+uint64(n)])
	}
	return err
}
