package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ampc/cuda"
	"ampc/lower"
	"ampc/lower/sm"
)

// Chosen is what was chosen for a product or a graph of cuDNN, and the number of steps that use it in the
// Programs loaded so far.
type Chosen struct {
	cuda.Choice
	Steps int
}

// Tune makes the backend time the libraries' algorithms when a Program is loaded, for each problem
// without a stored choice, and store the choices in dir ("": in memory). Open stores them in
// $AMPC_CACHE, or in ampc in the user's cache folder; other backends take the library's first
// candidate.
func (b *Backend) Tune(dir string) {
	_ = b.call(func() error { b.tune, b.cache = true, dir; return nil })
}

// cacheDir is the folder in which Open stores the selected algorithms, "" if no folder is known.
func cacheDir() string {
	if dir := os.Getenv("AMPC_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "ampc")
}

// Chosen lists the choices for everything loaded so far, in order of their first use.
func (b *Backend) Chosen() []Chosen {
	var list []Chosen
	_ = b.call(func() error { list = append(list, b.chosen...); return nil })
	return list
}

// algorithm selects an algorithm for a product that is being loaded.
func (b *Backend) algorithm(m cuda.Matmul, plan cuda.BlasPlan, k int) (cuda.Algo, error) {
	c := cuda.Choice{Problem: m.Problem(workspaceBytes)}
	var err error
	if b.tune {
		c, err = b.choices().Pick(b.blas, m, plan, b.streams[k].space, workspaceBytes, b.streams[k].stream)
	} else {
		var algos []cuda.Algo
		if algos, err = plan.Algos(workspaceBytes, 1); err == nil {
			c.Algo = algos[0]
		}
	}
	if err != nil {
		return cuda.Algo{}, err
	}
	b.choose(c)
	return c.Algo, nil
}

// errSlower is wrapped by what is said of a call of a library that is slower than what does without it.
// The step is lowered again as if the library refused it.
var errSlower = errors.New("slower")

// split refuses a product whose epilogue is slower than a plain product and a kernel, by measurement.
func (e *Exec) split(s *lower.Step, m cuda.Matmul) error {
	end := &s.Gemm.Epilogue
	if !e.b.tune || end.Aux == 0 && end.BiasGrad == 0 {
		return nil
	}
	b, k := e.b, int(s.Stream)
	whole, err := b.known(m)
	if err != nil {
		return err
	}
	c, err := b.choices().PickSplit(b.blas, m, whole, end.Aux != 0, e.unfused(s), b.streams[k].space, workspaceBytes, b.streams[k].stream)
	if err != nil {
		return err
	}
	b.choose(c)
	if c.Name == cuda.EpilogueSplit {
		return e.refuse(s, sm.NoAux, fmt.Errorf("%w in the library's epilogue: %v, a product and a kernel take %v", errSlower, c.Other, c.Time))
	}
	return nil
}

// slowFilter refuses an f32 gradient of a filter that takes much longer than one of 16 bits and a cast, by
// measurement.
func (e *Exec) slowFilter(s *lower.Step, wide *sharedPlan, o cuda.DnnOptions) error {
	in, out := e.p.Buffers[s.In[0]].Type.DType, &e.p.Buffers[s.Out[0]]
	if !e.b.tune || s.Conv == nil || s.Conv.Dir != lower.ConvGradW || out.Type.DType == in {
		return nil
	}
	g, _ := convolution(s, func(lower.BufferID) cuda.DnnType { return dnnTypes[in] })
	o.Deterministic = true
	moved := out.Type.Shape.Elements() * (in.Size() + out.Type.DType.Size())
	c, err := e.b.choices().PickNarrow(e.b.dnn, g, o, wide.by, moved, e.b.streams[s.Stream].stream)
	if err != nil {
		return err
	}
	e.b.choose(c)
	if c.Name == cuda.FilterNarrow {
		return e.refuse(s, sm.NoWide, fmt.Errorf("%w in f32: %v, in %s with a cast %v", errSlower, c.Other, in, c.Time))
	}
	return nil
}

// known is the choice that was made for a product.
func (b *Backend) known(m cuda.Matmul) (cuda.Choice, error) {
	problem := m.Problem(workspaceBytes)
	for _, c := range b.chosen {
		if c.Problem == problem {
			return c.Choice, nil
		}
	}
	return cuda.Choice{}, fmt.Errorf("nothing was chosen for %s", problem)
}

// unfused is the bytes that a kernel moves in place of the product's epilogue: the f32 product and what
// an activation reads and stores, or the rows that it adds up.
func (e *Exec) unfused(s *lower.Step) int64 {
	g, end := s.Gemm, &s.Gemm.Epilogue
	size := func(id lower.BufferID) int64 { return e.p.Buffers[id].Type.DType.Size() }
	n := int64(0)
	if end.Aux != 0 {
		n += g.M * g.N * (4 + 2*size(s.Out[0]))
	}
	if end.BiasGrad != 0 {
		n += e.p.Buffers[s.In[end.Summed]].Type.Shape.Elements() * size(s.In[end.Summed])
	}
	return n
}

// Vary lets attention use engines whose sums change from run to run, where Tune measures choices and
// finds them faster. Without it every engine gives the same bits in every run, if there is one.
func (b *Backend) Vary(on bool) {
	_ = b.call(func() error { b.vary = on; return nil })
}

// choices is the tuner, whose files are read when they are first needed.
func (b *Backend) choices() *cuda.Tuner {
	if b.tuner == nil {
		b.tuner = cuda.NewTuner(b.d, b.cache)
	}
	return b.tuner
}

// choose notes a choice, and one more step that uses it.
func (b *Backend) choose(c cuda.Choice) {
	for i := range b.chosen {
		if b.chosen[i].Problem == c.Problem {
			b.chosen[i].Steps++
			return
		}
	}
	b.chosen = append(b.chosen, Chosen{c, 1})
}

// keepChoices writes new choices to the cache. It ignores errors, because a later process can
// search again.
func (b *Backend) keepChoices() {
	if b.tuner != nil {
		_ = b.tuner.Save()
	}
}
