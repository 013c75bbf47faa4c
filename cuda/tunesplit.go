package cuda

import (
	"errors"
	"time"
)

// The answers of PickSplit, in a Choice's Name.
const (
	EpilogueFused = "fused"
	EpilogueSplit = "split"
)

// PickSplit decides whether a product ends in its epilogue, or a kernel of its own does that work: from
// the fastest algorithm of the product, that of a plain product, and a copy that moves as many bytes as
// the kernel. A plain product is m without its epilogue, whose result is in f32 if wide is set. Without
// the memory to measure in, the epilogue is taken and nothing is stored.
func (t *Tuner) PickSplit(b Blas, m Matmul, whole Choice, wide bool, moved int64, workspace Ptr, bytes int64, s Stream) (Choice, error) {
	file, err := t.of("cublaslt", b.Version())
	if err != nil {
		return Choice{}, err
	}
	whole.Problem, whole.Name = "epilogue of "+m.Problem(bytes), EpilogueFused
	return t.pickLess(file, whole, less{EpilogueSplit, 1, moved, func() (Choice, error) {
		plain := m.plain(wide)
		plan, err := b.Plan(plain)
		if err != nil {
			return Choice{}, err
		}
		c, err := t.Pick(b, plain, plan, workspace, bytes, s)
		return c, errors.Join(err, plan.Close())
	}}, s)
}

// The answers of PickNarrow, in a Choice's Name.
const (
	FilterWide   = "f32"
	FilterNarrow = "16 bits"
)

// wideShare is the share of the time of an f32 gradient of a filter that one of 16 bits and its cast must
// stay below: f32 is worth more than a few percent.
const wideShare = 0.67

// PickNarrow decides whether a filter's gradient is f32, or of 16 bits and cast: from what was chosen for
// the graph in f32, the fastest engine of g, the same in 16 bits, and a copy that moves as many bytes as
// the cast. Without the memory to measure in it is f32 and nothing is stored.
func (t *Tuner) PickNarrow(n Dnn, g *DnnGraph, o DnnOptions, wide Choice, moved int64, s Stream) (Choice, error) {
	file, err := t.of("cudnn", n.Version())
	if err != nil {
		return Choice{}, err
	}
	wide.Problem, wide.Name = "f32 beside "+o.Problem(g), FilterWide
	return t.pickLess(file, wide, less{FilterNarrow, wideShare, moved, func() (Choice, error) {
		plan, c, err := t.PickPlan(n, g, o, s)
		if err == nil {
			err = plan.Close()
		}
		return c, err
	}}, s)
}

// less is a call of a library that does less than another one, with a kernel for the rest.
type less struct {
	name  string
	share float64 // of the other's time that it must stay below
	moved int64   // bytes, by the kernel
	pick  func() (Choice, error)
}

// pickLess decides between a call that was measured as whole and l, which takes its place in the answer if
// it wins. Where l fails or is not measured the answer is whole, and nothing is stored.
func (t *Tuner) pickLess(file *choices, whole Choice, l less, s Stream) (Choice, error) {
	if known, ok := file.known(whole.Problem); ok {
		return known, nil
	}
	c := Choice{Problem: whole.Problem, Name: whole.Name}
	part, err := l.pick()
	if errors.Is(err, ErrNotSupported) || errors.Is(err, ErrInternal) || err == nil && (whole.Tried == 0 || part.Tried == 0) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	kernel, err := t.copying(l.moved, s)
	if errors.Is(err, ErrOutOfMemory) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.Tried, c.Time, c.Other = 2, whole.Time, part.Time+kernel
	if float64(c.Other) < l.share*float64(c.Time) {
		c.Name, c.Time, c.Other = l.name, c.Other, c.Time
	}
	file.keep(c)
	return c, nil
}

// plain is the product alone.
func (m Matmul) plain(wide bool) Matmul {
	m.Epilogue, m.BiasType, m.AuxType, m.AuxLd, m.AuxStride = EpilogueNone, 0, 0, 0, 0
	if wide {
		m.C.Type, m.D.Type = R32F, R32F
	}
	return m
}

// copying is the time of a copy within the device that moves so many bytes.
func (t *Tuner) copying(moved int64, s Stream) (took time.Duration, err error) {
	words := max(moved/8, 1)
	var at [2]Ptr
	for i := range at {
		if at[i], err = t.d.Alloc(4 * words); err != nil {
			break
		}
		if err = t.d.Fill32(at[i], scratchWord, words, s); err != nil {
			break
		}
	}
	if err == nil {
		took, err = Measure(t.d, s, func() error { return t.d.Copy(at[1], at[0], 4*words, s) })
	}
	err = errors.Join(err, t.d.Synchronize(s))
	for _, p := range at {
		if p != 0 {
			err = errors.Join(err, t.d.Free(p))
		}
	}
	return took, err
}

// PickFaster decides between ways to run the same work, by measuring each: the first unless another is
// faster. problem names the work; nothing is measured where it is known.
func (t *Tuner) PickFaster(b Blas, problem string, names []string, s Stream, run func(i int) error) (Choice, error) {
	c := Choice{Problem: problem, Name: names[0]}
	file, err := t.of("cublaslt", b.Version())
	if err != nil {
		return c, err
	}
	if known, ok := file.known(problem); ok {
		return known, nil
	}
	for i, name := range names {
		took, err := measure(t.d, s, wholeRuns, func() error { return run(i) })
		if err != nil {
			return c, err
		}
		c.Tried++
		switch {
		case i == 0 || took < c.Time:
			c.Name, c.Time, c.Other = name, took, c.Time
		case c.Other == 0 || took < c.Other:
			c.Other = took
		}
	}
	file.keep(c)
	return c, nil
}
