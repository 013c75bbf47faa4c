//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
)

// family is the libraries of CUDA that are used together. Those that were not found are not loaded.
type family struct{ rtc, blas, dnn *library }

// realFamily is the family of this process, which is searched for once.
var realFamily = sync.OnceValue(func() family {
	w := realPlaces()
	return w.family(newestCUDA(w.open(libDriver, 0)))
})

// family opens a cuBLASLt and a cuDNN of one version of CUDA, of one installation if there is one,
// and the NVRTC that they load by name.
func (w places) family(newest int) family {
	c := &chooser{left: map[string][]candidate{}, tried: map[string][]Attempt{}, opened: map[string]*library{}, newest: newest}
	for _, lib := range []string{libBlas, libDNN, libRTC} {
		c.left[lib], c.tried[lib] = suits(lib, w.candidates(lib), newest)
	}
	var f family
	f.blas, f.dnn = c.pair()
	c.sortRTC(f.blas)
	f.rtc = c.first(libRTC) // engines of cuDNN find it by name
	for _, l := range []*library{f.blas, f.dnn, f.rtc} {
		l.tried = c.tried[l.name]
	}
	return f
}

// chooser opens candidates until two fit.
type chooser struct {
	newest int
	left   map[string][]candidate // by library: not known to be of no use
	tried  map[string][]Attempt
	opened map[string]*library // by file
}

// rank compares pairs of candidates: files that the user named come first, then those of one
// installation, then those whose versions are known, then preferred places.
func rank(b, d candidate) []int {
	apart, unknown, named := 0, 0, 0
	if b.place != d.place {
		apart = 1
	}
	if b.cuda == 0 || d.cuda == 0 {
		unknown = 1
	}
	for _, c := range []candidate{b, d} {
		if c.place == 0 {
			named--
		}
	}
	return []int{named, apart, unknown, d.place, b.place}
}

// best is the best pair that is not known to be of two versions of CUDA, by index.
func (c *chooser) best() (b, d int, ok bool) {
	var least []int
	for i, x := range c.left[libBlas] {
		for j, y := range c.left[libDNN] {
			if mixed(x.cuda, y.cuda) {
				continue
			}
			if r := rank(x, y); least == nil || slices.Compare(r, least) < 0 {
				b, d, least = i, j, r
			}
		}
	}
	return b, d, least != nil
}

// pair opens the best pair that works. Without one it gives the first of each that loads.
func (c *chooser) pair() (blas, dnn *library) {
	for {
		b, d, ok := c.best()
		if !ok {
			return c.first(libBlas), c.first(libDNN)
		}
		if blas = c.open(libBlas, b); blas == nil {
			continue
		}
		if dnn = c.open(libDNN, d); dnn == nil {
			continue
		}
		if !mixed(blas.cuda(), dnn.cuda()) {
			return blas, dnn
		}
	}
}

// open opens the candidate at index i and notes its version, or drops it and gives nil.
func (c *chooser) open(lib string, i int) *library {
	x := &c.left[lib][i]
	l := c.opened[lib+x.file]
	if l == nil {
		l = openLibrary(lib, []string{x.file})
		c.opened[lib+x.file] = l
		c.tried[lib] = append(c.tried[lib], l.tried...)
	}
	if l.loaded() && c.newest > 0 && l.cuda() > c.newest {
		c.tried[lib] = append(c.tried[lib], Attempt{lib, x.file, fmt.Sprintf("%s, driver or device take CUDA %d at most", tooNew, c.newest)})
		l = &library{name: lib}
	}
	if !l.loaded() {
		c.left[lib] = slices.Delete(c.left[lib], i, i+1)
		return nil
	}
	x.cuda = cmp.Or(l.cuda(), x.cuda)
	return l
}

// first opens the first candidate that loads. The result is not loaded where none does.
func (c *chooser) first(lib string) *library {
	for len(c.left[lib]) > 0 {
		if l := c.open(lib, 0); l != nil {
			return l
		}
	}
	none := &library{name: lib}
	for _, l := range c.opened {
		if l.name == lib && len(l.missing) > 0 {
			none.missing = l.missing
		}
	}
	return none
}

// sortRTC puts the compilers of blas's version of CUDA first.
func (c *chooser) sortRTC(blas *library) {
	slices.SortStableFunc(c.left[libRTC], func(a, b candidate) int {
		other := func(x candidate) int {
			if mixed(x.cuda, blas.cuda()) {
				return 1
			}
			return 0
		}
		return other(a) - other(b)
	})
}

// open opens the first of a library's candidates that suits, where it is used alone.
func (w places) open(name string, newest int) *library {
	use, passed := suits(name, w.candidates(name), newest)
	l := openLibrary(name, fileNames(use))
	l.tried = append(passed, l.tried...)
	return l
}

// dnnParts are the libraries that cuDNN loads by name, by the number in its file name, each after
// those that it needs.
var dnnParts = map[string][]string{
	".so.9": {"graph", "ops", "cnn", "adv", "engines_precompiled", "engines_runtime_compiled", "heuristic"},
	".so.8": {"ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"},
}

// openParts opens the parts of the cuDNN at path that lie in its folder, so that it finds these under
// their names and not those of another version. It returns the parts that the folder lacks, if it
// has others, and what is wrong with a part that does not load.
func openParts(path string) (absent []string, broken string) {
	folder, base := filepath.Split(path)
	if folder == "" {
		return nil, ""
	}
	there := 0
	for ending, parts := range dnnParts {
		if !strings.HasSuffix(base, ending) && !strings.Contains(base, ending+".") {
			continue
		}
		for _, part := range parts {
			file := "libcudnn_" + part + ending
			if _, err := os.Stat(folder + file); err != nil {
				absent = append(absent, file)
				continue
			}
			there++
			if _, err := purego.Dlopen(folder+file, purego.RTLD_LAZY|purego.RTLD_LOCAL); err != nil && broken == "" {
				broken = err.Error()
			}
		}
	}
	if there == 0 {
		return nil, "" // the loader finds them elsewhere
	}
	return absent, broken
}
