//go:build linux && amd64 && !nocuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// install compiles a library of C into a file.
func install(t *testing.T, file, source string, flags ...string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build libraries")
	}
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	c := filepath.Join(t.TempDir(), "source.c")
	must(t, os.WriteFile(c, []byte(source), 0o644))
	if out, err := exec.Command(gcc, append(flags, "-shared", "-fPIC", "-O1", "-o", file, c, "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// machine is a world over the files of a folder, and what is installed there.
type machine struct {
	places
	t         *testing.T
	root      string
	libraries map[int][]byte // by version of CUDA
}

func newMachine(t *testing.T, env map[string]string, libraries map[int][]byte) *machine {
	m := &machine{t: t, root: t.TempDir(), libraries: libraries}
	m.places = world(env, nil)
	m.glob = func(pattern string) []string {
		found, _ := filepath.Glob(filepath.Join(m.root, pattern))
		for i := range found {
			found[i] = strings.TrimPrefix(found[i], m.root)
		}
		return found
	}
	return m
}

// fakes are libraries for two versions of CUDA, each all of them in one.
func fakes(t *testing.T) map[int][]byte {
	t.Helper()
	source, err := os.ReadFile("testdata/fake.c")
	must(t, err)
	libraries := map[int][]byte{}
	for _, v := range []int{12, 13} {
		file := filepath.Join(t.TempDir(), "fake.so")
		install(t, file, strings.NewReplacer("return 120405", fmt.Sprint("return ", v*10000), "return 12090", fmt.Sprint("return ", v*1000)).Replace(string(source)))
		libraries[v], err = os.ReadFile(file)
		must(t, err)
	}
	return libraries
}

// add installs the library of file for a version of CUDA. Its folder is under the machine's root.
func (m *machine) add(file string, cuda int) {
	m.t.Helper()
	file = filepath.Join(m.root, file)
	must(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(m.t, os.WriteFile(file, m.libraries[cuda], 0o755))
}

// family is the choice, as files under the root.
func (m *machine) family(newest int) (f family, blas, dnn string) {
	w := m.places
	inside := w.glob
	// Folders of packages are named as the machine sees them, files as this process opens them.
	w.glob = func(p string) []string {
		if strings.Contains(filepath.Base(p), ".so") {
			var files []string
			for _, f := range inside(p) {
				files = append(files, filepath.Join(m.root, f))
			}
			return files
		}
		return inside(p)
	}
	f = w.family(newest)
	return f, strings.TrimPrefix(f.blas.path, m.root), strings.TrimPrefix(f.dnn.path, m.root)
}

// TestFamily: cuBLASLt and cuDNN are of one version of CUDA, of one installation if there is one, a
// PyTorch's before others.
func TestFamily(t *testing.T) {
	for lib, names := range sonames {
		if l := openLibrary(lib, names); l.loaded() {
			t.Skipf("this machine has %s of its own, %s", lib, l.path)
		}
	}
	const (
		blas12, blas13, dnn = "libcublasLt.so.12", "libcublasLt.so.13", "libcudnn.so.9"
		site                = "/v/lib/python3.12/site-packages/"
		cuda                = "/usr/local/cuda/lib64/"
		wheel               = site + "nvidia/cudnn/lib/" + dnn
	)
	type file struct {
		name string
		cuda int
	}
	libraries := fakes(t)
	for _, c := range []struct {
		name      string
		files     []file
		folders   []string
		newest    int
		blas, dnn string
	}{
		{name: "one installation before a mixture", files: []file{{site + "nvidia/cublas/lib/" + blas12, 12}, {wheel, 12}, {cuda + blas13, 13}}, blas: site + "nvidia/cublas/lib/" + blas12, dnn: wheel},
		{name: "a PyTorch before a newer toolkit", files: []file{{site + "nvidia/cublas/lib/" + blas12, 12}, {wheel, 12}, {cuda + blas13, 13}, {cuda + dnn, 13}},
			folders: []string{site + "torch"}, blas: site + "nvidia/cublas/lib/" + blas12, dnn: wheel},
		{name: "a mixture is resolved by the other cuBLASLt", files: []file{{cuda + blas12, 12}, {cuda + blas13, 13}, {wheel, 12}}, blas: cuda + blas12, dnn: wheel},
		{name: "and by the other cuDNN", files: []file{{cuda + blas12, 12}, {wheel, 13}, {"/opt/cuda/lib64/" + dnn, 12}}, blas: cuda + blas12, dnn: "/opt/cuda/lib64/" + dnn},
		{name: "the package says what cuDNN is of", files: []file{{cuda + blas12, 12}, {cuda + blas13, 13}, {wheel, 13}}, folders: []string{site + "nvidia_cudnn_cu13-9.15.1.9.dist-info"}, blas: cuda + blas13, dnn: wheel},
		{name: "what is too new for the driver", files: []file{{cuda + blas13, 13}, {cuda + dnn, 13}, {site + "nvidia/cublas/lib/" + blas12, 12}, {wheel, 12}}, newest: 12, blas: site + "nvidia/cublas/lib/" + blas12, dnn: wheel},
		{name: "no pair: each alone", files: []file{{cuda + blas12, 12}, {wheel, 13}}, blas: cuda + blas12, dnn: wheel},
		{name: "no cuDNN", files: []file{{cuda + blas12, 12}}, blas: cuda + blas12},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, map[string]string{"VIRTUAL_ENV": "/v"}, libraries)
			for _, f := range c.files {
				m.add(f.name, f.cuda)
			}
			for _, d := range c.folders {
				must(t, os.MkdirAll(filepath.Join(m.root, d), 0o755))
			}
			_, blas, dnn := m.family(c.newest)
			if blas != c.blas || dnn != c.dnn {
				t.Errorf("took %q and %q, want %q and %q", blas, dnn, c.blas, c.dnn)
			}
		})
	}
}

// shim is a cuDNN that, like the real one, finds its part by name when it is first called.
const shim = `#include <dlfcn.h>
#include <stddef.h>
size_t cudnnGetVersion(void) {
	void *part = dlopen("libcudnn_graph.so.9", RTLD_LAZY);
	size_t (*version)(void) = part ? (size_t (*)(void))dlsym(part, "part_version") : 0;
	return version ? version() : 0;
}
`

// dnnShim is shim with the other functions of the fake library.
func dnnShim(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("testdata/fake.c")
	must(t, err)
	return shim + strings.Replace(string(source), "size_t cudnnGetVersion(void) { return 91501; }", "", 1)
}

// TestParts: cuDNN finds the parts of its own folder. One that does not load is named.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	install(t, filepath.Join(dir, "libcudnn.so.9"), dnnShim(t))
	install(t, filepath.Join(dir, "libcudnn_graph.so.9"), "unsigned long part_version(void) { return 90701; }", "-Wl,-soname,libcudnn_graph.so.9")
	l := openLibrary(libDNN, []string{filepath.Join(dir, "libcudnn.so.9")})
	if l.version() != "9.7.1" {
		t.Errorf("version %s, that of the part beside it is 9.7.1", l.version())
	}
	if len(l.absent) != 6 || l.absent[0] != "libcudnn_ops.so.9" || l.broken != "" {
		t.Errorf("lacks %q, broken %q", l.absent, l.broken)
	}
	must(t, os.WriteFile(filepath.Join(dir, "libcudnn_cnn.so.9"), []byte("half of a library"), 0o644))
	_, err := openDnn(openLibrary(libDNN, []string{filepath.Join(dir, "libcudnn.so.9")}), &library{name: libBlas})
	if !errors.Is(err, ErrBroken) || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "libcudnn_cnn.so.9") || !strings.Contains(err.Error(), "AMPC_LIBCUDNN") {
		t.Errorf("a broken part: %v", err)
	}
}

// TestStatusClasses has a code of every class and library, of cuDNN 8 and 9.
func TestStatusClasses(t *testing.T) {
	for _, c := range []struct {
		lib   string
		class error
		codes []int
	}{
		{libDriver, ErrOutOfMemory, []int{2}}, {libDriver, nil, []int{1, 218, 400, 500, 600, 700, 999}},
		{libBlas, ErrNotSupported, []int{7, 8, 15}}, {libBlas, ErrOutOfMemory, []int{3}}, {libBlas, ErrBroken, []int{1, 16}}, {libBlas, ErrInternal, []int{11, 13, 14}},
		{libDNN, ErrNotSupported, []int{3, 5, 6, 9, 2000, 2012, 3000, 3002, 3007, 3010}}, {libDNN, ErrOutOfMemory, []int{2, 4003, 4004}},
		{libDNN, ErrBroken, []int{1, 10, 11, 14, 1001, 1002, 1008, 3005, 3006, 3008, 3009}}, {libDNN, ErrInternal, []int{4, 7, 8, 12, 13, 1006, 4000, 4001, 5000, 5003}},
	} {
		for _, code := range c.codes {
			err := error(&Error{Lib: c.lib, Call: "call", Code: code})
			for _, class := range []error{ErrNotSupported, ErrOutOfMemory, ErrBroken, ErrInternal} {
				if errors.Is(err, class) != (class == c.class) {
					t.Errorf("%s %d: is %v: %t, want class %v", c.lib, code, class, errors.Is(err, class), c.class)
				}
			}
			if strings.Contains(err.Error(), "install it again") != (c.class == ErrBroken) {
				t.Errorf("%s %d: %v", c.lib, code, err)
			}
		}
	}
	for code, lost := range map[int]bool{700: true, 702: true, 719: true, 214: true, 999: true, 2: false, 1: false, 900: false} {
		if e := (&Error{Lib: libDriver, Code: code}); e.Sticky() != lost {
			t.Errorf("%d: the context is lost: %t", code, e.Sticky())
		}
	}
	if e := (&Error{Lib: libBlas, Code: 700}); e.Sticky() {
		t.Error("a code of a library is taken for one of the driver")
	}
}

// TestVersionsNotUsed: what a version of cuDNN does wrongly is refused by its name.
func TestVersionsNotUsed(t *testing.T) {
	a := Attention{Type: DnnHalf, B: 1, H: 1, Sq: 128, Skv: 128, D: 64, Scale: 1}
	long := a
	long.D = 256
	conv := Conv{Type: DnnHalf, X: []int64{1, 8, 4, 4}, W: []int64{8, 8, 1, 1}, Y: []int64{1, 8, 4, 4}}
	for _, c := range []struct {
		g       *DnnGraph
		version int
		refused string
	}{
		{a.Forward(), 91000, "cuDNN 9.10.0: "}, {a.Backward(), 91001, "cuDNN 9.10.1: "}, {a.Forward(), 91002, ""}, {a.Forward(), 90900, ""}, {a.Backward(), 8907, ""},
		{conv.Graph(), 91001, ""}, {long.Forward(), 90400, "need 9.5.0"}, {long.Backward(), 90500, ""},
	} {
		err := c.g.Allows(c.version)
		if (err != nil) != (c.refused != "") || err != nil && (!errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s of %s: %v, want ... %s", c.g.Name, dnnVersion(c.version), err, c.refused)
		}
	}
}
