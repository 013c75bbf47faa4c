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
	c := Choice{Problem: "epilogue of " + m.Problem(bytes), Name: EpilogueFused}
	file, err := t.of("cublaslt", b.Version())
	if err != nil {
		return c, err
	}
	if known, ok := file.known(c.Problem); ok {
		return known, nil
	}
	plain := m.plain(wide)
	plan, err := b.Plan(plain)
	if err != nil {
		return c, err
	}
	product, err := t.Pick(b, plain, plan, workspace, bytes, s)
	if err = errors.Join(err, plan.Close()); errors.Is(err, ErrNotSupported) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	kernel, err := t.copying(moved, s)
	if errors.Is(err, ErrOutOfMemory) || err == nil && (whole.Tried == 0 || product.Tried == 0) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.Tried = 2
	if c.Time, c.Other = whole.Time, product.Time+kernel; c.Other < c.Time {
		c.Name, c.Time, c.Other = EpilogueSplit, c.Other, c.Time
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
