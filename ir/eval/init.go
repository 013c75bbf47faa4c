package eval

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"sync"

	"ampc/internal/philox"
	"ampc/ir"
)

// InitVar returns what a variable holds before the first step: the value of
// its initializer, zeros without one. Random initializers draw from a stream
// of the variable's name and the seed, so adding a variable changes no other.
func InitVar(v *ir.Value, seed int64) (*Tensor, error) {
	if !v.Type.Shape.Static() {
		return nil, fmt.Errorf("%s has type %s: its dimensions have no sizes", v, v.Type)
	}
	t := New(v.Type)
	i := v.Init
	if i == nil {
		return t, nil
	}
	if i.Func == "file" {
		return fromFile(v.Type, i)
	}
	if want := map[string]int{"": 1, "data": t.Len(), "normal": 2, "uniform": 2, "trunc_normal": 2, "kaiming": 1, "xavier": 2}[i.Func]; len(i.Args) != want {
		return nil, fmt.Errorf("%s: initializer %s takes %d arguments, got %d", v, i, want, len(i.Args))
	}
	if initializer(i, nil) == nil {
		return nil, fmt.Errorf("%s: unknown initializer %q", v, i.Func)
	}
	// trunc_normal draws again what lies outside, so elements have no fixed place in the stream
	if t.Len() <= initPart || i.Func == "trunc_normal" {
		t.initialize(i, newStream(v.Name, seed), 0, t.Len())
		return t, nil
	}
	var parts sync.WaitGroup
	for from := 0; from < t.Len(); from += initPart {
		parts.Go(func() {
			s := newStream(v.Name, seed)
			s.at = int64(from)
			t.initialize(i, s, from, min(from+initPart, t.Len()))
		})
	}
	parts.Wait()
	return t, nil
}

// initPart is the number of elements that are initialized together: a multiple of the words of a
// block of the generator.
const initPart = 1 << 16

// initialize sets the elements from one index to before another, from a stream that is at from.
func (t *Tensor) initialize(i *ir.Init, s *stream, from, to int) {
	next := initializer(i, s)
	part := &Tensor{Type: t.Type, F: t.F[min(from, len(t.F)):min(to, len(t.F))], I: t.I[min(from, len(t.I)):min(to, len(t.I))]}
	for k := range part.F {
		part.F[k] = next(from + k)
	}
	for k := range part.I {
		part.I[k] = t.Type.DType.FromFloat(next(from + k))
	}
	part.round()
}

// initOn is InitVar on one rank, which of a sharded variable has a part (ir.AttrPart).
func initOn(v *ir.Value, seed int64, rank int) (*Tensor, error) {
	of := v.PartOf()
	if of == "" {
		return InitVar(v, seed)
	}
	sizes, _ := v.Attr.Get("whole").([]int64)
	dims := make([]ir.Dim, len(sizes))
	for i, d := range sizes {
		dims[i] = ir.Dim(d)
	}
	whole, err := InitVar(&ir.Value{Name: of, Type: ir.T(v.Type.DType, dims...), Init: v.Init}, seed)
	if err != nil {
		return nil, err
	}
	t := New(v.Type)
	from := rank * t.Len()
	copy(t.F, whole.F[min(from, len(whole.F)):])
	copy(t.I, whole.I[min(from, len(whole.I)):])
	return t, nil
}

// initializer returns the function of the element's index that fills a tensor.
func initializer(i *ir.Init, s *stream) func(k int) float64 {
	a := i.Args
	normal := func(std float64) func(int) float64 { return func(int) float64 { return std * s.normal() } }
	switch i.Func {
	case "":
		return func(int) float64 { return a[0] }
	case "zeros":
		return func(int) float64 { return 0 }
	case "ones":
		return func(int) float64 { return 1 }
	case "data":
		return func(k int) float64 { return a[k] }
	case "normal":
		return func(int) float64 { return a[0] + a[1]*s.normal() }
	case "uniform":
		return func(int) float64 { return a[0] + (a[1]-a[0])*s.uniform() }
	case "trunc_normal":
		return func(int) float64 { return a[0] + a[1]*s.truncated() }
	case "kaiming": // He et al. 2015: N(0, 2/fan_in)
		return normal(math.Sqrt(2 / a[0]))
	case "xavier": // Glorot and Bengio 2010: U(-l, l), l² = 6/(fan_in+fan_out)
		l := math.Sqrt(6 / (a[0] + a[1]))
		return func(int) float64 { return l * (2*s.uniform() - 1) }
	}
	return nil
}

// stream is a sequence of draws named by a variable.
type stream struct {
	draw  philox.Draw
	at    int64     // of the next word
	block [4]uint32 // that holds the last word
}

func newStream(name string, seed int64) *stream {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &stream{draw: philox.Draw{Seed: seed ^ int64(h.Sum64()), Site: math.MaxUint32}}
}

func (s *stream) word() uint32 {
	k := s.at & 3
	if k == 0 {
		s.block = s.draw.Block(uint64(s.at) / 4)
	}
	s.at++
	return s.block[k]
}

// uniform is in [0, 1) on a grid of 2⁻³².
func (s *stream) uniform() float64 { return float64(s.word()) * 0x1p-32 }

// normal is the standard normal, by inverting its distribution at the middle of a grid cell.
func (s *stream) normal() float64 {
	u := (float64(s.word()) + 0.5) * 0x1p-32
	return math.Sqrt2 * math.Erfinv(2*u-1)
}

// truncated is the standard normal within two deviations.
func (s *stream) truncated() float64 {
	for {
		if x := s.normal(); math.Abs(x) <= 2 {
			return x
		}
	}
}

func fromFile(t ir.Type, i *ir.Init) (*Tensor, error) {
	b, err := FileBytes(t, i)
	if err != nil {
		return nil, err
	}
	return FromBytes(t, b)
}

// FileBytes reads what an initializer "file" says a variable of type t holds,
// as it is stored. A slice of f32 for a variable that a policy without masters stores in
// 16 bits is rounded.
func FileBytes(t ir.Type, i *ir.Init) ([]byte, error) {
	if wide := t.With(ir.F32); (t.DType == ir.F16 || t.DType == ir.BF16) && i.Size == wide.Bytes() && i.Size > 0 {
		x, err := fromFile(wide, i)
		if err != nil {
			return nil, err
		}
		low := &Tensor{Type: t, F: x.F}
		low.round()
		return low.Bytes(), nil
	}
	return storedBytes(t, i)
}

// storedBytes reads the bytes of an initializer "file", which must be those of type t.
func storedBytes(t ir.Type, i *ir.Init) ([]byte, error) {
	f, err := os.Open(i.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if t.Bytes() != i.Size {
		return nil, fmt.Errorf("%s needs %d bytes, the slice of %s has %d", t, t.Bytes(), i.File, i.Size)
	}
	b := make([]byte, i.Size)
	if _, err := f.ReadAt(b, i.Offset); err != nil {
		return nil, fmt.Errorf("%s: %w", i.File, err)
	}
	return b, nil
}
