package kern

import (
	goflag "flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"ampc/internal/fp"
)

var onlyPath = goflag.String("path", "", "the path that tests run which do not compare paths; all if it is empty")

// tested are the paths on which tests run that look at each path by itself.
func tested() []*Path {
	return slices.DeleteFunc(Paths(), func(p *Path) bool { return *onlyPath != "" && p.Name() != *onlyPath })
}

// onPaths runs f on every tested path, with one worker and with three whose packed blocks are small.
func onPaths(t *testing.T, f func(t *testing.T, m *Machine)) {
	for _, p := range tested() {
		for _, n := range []int{1, 3} {
			t.Run(p.Name()+map[int]string{1: "/serial", 3: "/pool"}[n], func(t *testing.T) {
				if n > 1 {
					p = smallBlocks(p)
				}
				m := New(p, n)
				defer m.Close()
				f(t, m)
			})
		}
	}
}

// smallBlocks is p with packed blocks of 48 depths and three panels and sums of 24 products, so that small products take
// several.
func smallBlocks(p *Path) *Path {
	q := *p
	q.kc, q.chain, q.mc = 48, 24, 3*48*p.mr
	return &q
}

// rounds is n, or a third of it in a short run.
func rounds(n int) int {
	if testing.Short() {
		return n / 3
	}
	return n
}

type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 7))} }

// buf is a buffer of n normal values of type t.
func (d dice) buf(t Type, n int) Buf {
	b := zeros(t, n)
	for i := range n {
		b.set(i, float32(d.NormFloat64()))
	}
	return b
}

func (d dice) typ() Type { return Type(d.IntN(int(numTypes))) }

func zeros(t Type, n int) Buf { return Buf{t, Alloc(int64(n * t.Size()))} }

// halfUlp is the largest rounding error of x in format t.
func halfUlp(t Type, x float64) float64 {
	bits, least := 24, 0x1p-126
	switch t {
	case F16:
		bits, least = 11, 0x1p-14
	case BF16:
		bits = 8
	}
	return math.Ldexp(0.5, math.Ilogb(math.Max(math.Abs(x), least))+1-bits)
}

// near checks got against want and a bound on the error before the final rounding.
func near(t *testing.T, what string, typ Type, i int, got float32, want, bound float64) bool {
	if math.IsNaN(want) && got != got || float64(got) == want {
		return true
	}
	if err := math.Abs(float64(got) - want); !(err <= bound+halfUlp(typ, math.Abs(want)+bound)) {
		t.Helper() // it is slow where nothing fails
		t.Errorf("%s: element %d = %g, want %g, error %.3g over %.3g", what, i, got, want, err, bound)
		return false
	}
	return true
}

func TestDetect(t *testing.T) {
	for _, p := range Paths() {
		got, err := Detect(func(name string) string { return map[string]string{"AMPC_CPU": p.Name()}[name] })
		if err != nil || got.Name() != p.Name() {
			t.Errorf("AMPC_CPU=%s: %v, %v", p.Name(), got, err)
		}
	}
	if _, err := Detect(func(name string) string { return map[string]string{"AMPC_CPU": "sse"}[name] }); err == nil {
		t.Error("AMPC_CPU=sse accepted")
	}
	for value, ok := range map[string]bool{"on": true, "off": true, "2": false} {
		got, err := Detect(func(name string) string { return map[string]string{"AMPC_WINOGRAD": value}[name] })
		if (err == nil) != ok || ok && value == "off" && got.wino != nil {
			t.Errorf("AMPC_WINOGRAD=%s: %v", value, err)
		}
	}
}

func TestPool(t *testing.T) {
	for _, workers := range []int{1, 2, 7, 40} {
		p := startPool(workers, Host{})
		for round := range 200 {
			n := 1 + round%37
			seen := make([]int, n)
			p.For(n, func(_, i int) { seen[i]++ })
			for i, c := range seen {
				if c != 1 {
					t.Fatalf("%d workers, round %d: index %d ran %d times", workers, round, i, c)
				}
			}
		}
		p.Close()
	}
}

func TestFMAIsRoundedOnce(t *testing.T) {
	d := newDice(1)
	for range 200000 {
		a, b := float32(d.NormFloat64()), float32(d.NormFloat64())
		c := -a * b * (1 + float32(d.IntN(9)-4)*0x1p-20)
		if d.IntN(2) == 0 {
			c = math.Float32frombits(d.Uint32())
		}
		var want, x float64 = math.FMA(float64(a), float64(b), float64(c)), float64(a) * float64(b)
		got := fma32(a, b, c)
		if w := float32(want); got != w && !(got != got && w != w) {
			// want was rounded twice: the truth lies strictly between two float64, so compare exact distances
			near, far := math.Abs(x-float64(got)+float64(c)), math.Abs(x-float64(w)+float64(c))
			if near > far {
				t.Fatalf("fma(%x, %x, %x) = %x, math gives %x", a, b, c, got, w)
			}
		}
	}
}

func TestHalvesMatchFP(t *testing.T) {
	for _, p := range Paths() {
		for typ, widen := range map[Type]func(uint16) float32{F16: fp.F16ToF32, BF16: fp.BF16ToF32} {
			all := make([]uint16, 1<<16)
			for i := range all {
				all[i] = uint16(i)
			}
			got := make([]float32, len(all))
			p.Load(got, bufOf(typ, all))
			for i, h := range all {
				if math.Float32bits(got[i]) != math.Float32bits(widen(h)) {
					t.Fatalf("%s: %v %#x widens to %x, want %x", p.Name(), typ, h, math.Float32bits(got[i]), math.Float32bits(widen(h)))
				}
			}
		}
		step := uint32(997)
		if testing.Short() {
			step = 99991
		}
		const block = 1003 // leaves a tail
		x := make([]float32, block)
		h := make([]uint16, block)
		for typ, narrow := range map[Type]func(float32) uint16{F16: fp.F16, BF16: fp.BF16} {
			for b := uint64(0); b < 1<<32; b += uint64(step) * block {
				for i := range x {
					x[i] = math.Float32frombits(uint32(b) + uint32(i)*step)
				}
				p.Store(bufOf(typ, h), x)
				for i := range x {
					if h[i] != narrow(x[i]) {
						t.Fatalf("%s: %x rounds to %v %#x, want %#x", p.Name(), math.Float32bits(x[i]), typ, h[i], narrow(x[i]))
					}
				}
			}
		}
	}
}

// ints32 is a view of integers as an Index.
func ints32(x []int32) Index {
	return Index{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), 4}
}

// ints64 is a view of 64-bit integers as an Index.
func ints64(x []int64) Index {
	return Index{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 8*len(x)), 8}
}

// bufOf is a view of 16-bit patterns of format t as a Buf.
func bufOf(t Type, x []uint16) Buf {
	return Buf{t, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))}
}
