package gpu

import (
	"os"
	"path/filepath"

	"ampc/cuda"
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
