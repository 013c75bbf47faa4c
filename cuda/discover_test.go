//go:build linux && amd64 && !nocuda

package cuda

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the reports under testdata")

// world is a machine that has the files listed and nothing else.
func world(env map[string]string, files map[string][]string) places {
	return places{
		env: func(k string) string { return env[k] }, glob: func(p string) []string { return files[p] }, home: "/home/u",
		path: func(string) string { return "" }, real: func(string) string { return "" }, read: func(string) string { return "" },
	}
}

func TestSearchOrder(t *testing.T) {
	files := map[string][]string{}
	at := func(folders ...string) (list []string) {
		for _, d := range folders {
			f := d + "/libcublasLt.so.12"
			files[f] = []string{f}
			list = append(list, f)
		}
		return list
	}
	site := func(root string) string {
		folder := root + "/lib/python3.12/site-packages"
		files[root+"/lib/python3*/site-packages"] = []string{folder}
		return folder
	}
	files["/c/lib/python3.12/site-packages/torch"] = []string{"/c/lib/python3.12/site-packages/torch"}
	at("/usr/local/cuda/targets/x86_64-linux/lib/stubs")
	want := append(append([]string{"/x/libcublasLt.so.12"},
		at("/d", site("/c")+"/nvidia/cublas/lib", "/c/lib")...), // conda's packages beside a PyTorch
		"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11")
	want = append(want, at(site("/v")+"/nvidia/cublas/lib", "/usr/local/cuda/lib64")...)
	w := world(map[string]string{"AMPC_LIBCUBLASLT": "/x/libcublasLt.so.12", "AMPC_CUDA_LIBDIR": "/d", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}, files)
	if got := fileNames(w.candidates(libBlas)); !slices.Equal(got, want) {
		t.Errorf("candidates\n%q\nwant\n%q", got, want)
	}
}

// The python3 in PATH may be a virtual environment's, without VIRTUAL_ENV: its own packages come first,
// then those of its home and of where its link leads.
func TestSearchFindsTheEnvironmentOfPython(t *testing.T) {
	files := map[string][]string{}
	var want []string
	for _, root := range []string{"/opt/env", "/opt/base", "/usr"} {
		site := root + "/lib/python3.12/site-packages"
		files[root+"/lib/python3*/site-packages"] = []string{site}
		files[site+"/nvidia/cudnn/lib/libcudnn.so.9"] = []string{site + "/nvidia/cudnn/lib/libcudnn.so.9"}
		want = append(want, site+"/nvidia/cudnn/lib/libcudnn.so.9")
	}
	w := world(nil, files)
	w.path = func(string) string { return "/opt/env/bin/python3" }
	w.real = func(string) string { return "/usr/bin/python3.12" }
	w.read = func(p string) string {
		if p == "/opt/env/pyvenv.cfg" {
			return "home = /opt/base/bin\ninclude-system-site-packages = false\n"
		}
		return ""
	}
	want = append([]string{"libcudnn.so.9", "libcudnn.so.8"}, want...)
	if got := fileNames(w.candidates(libDNN)); !slices.Equal(got, want) {
		t.Errorf("candidates\n%q\nwant\n%q", got, want)
	}
}

func TestLibrariesTooNewArePassedOver(t *testing.T) {
	of := func(lib string, files ...string) (list []candidate) {
		for _, f := range files {
			list = append(list, candidate{f, 0, cudaMajor(lib, f)})
		}
		return list
	}
	use, passed := suits(libBlas, of(libBlas, "/a/libcublasLt.so.13", "libcublasLt.so.13", "/a/libcublasLt.so.12", "/a/libcublasLt.so.11.2"), 12)
	if fmt.Sprint(fileNames(use)) != "[/a/libcublasLt.so.12 /a/libcublasLt.so.11.2]" || len(passed) != 2 || passed[0].absent() || !passed[1].absent() {
		t.Errorf("uses %v, passes over %+v", use, passed)
	}
	for lib, file := range map[string]string{libDNN: "libcudnn.so.9", libNCCL: "libnccl.so.2", libDriver: "libcuda.so.1"} {
		if use, _ := suits(lib, of(lib, file), 1); len(use) != 1 {
			t.Errorf("%s is passed over, its number is not CUDA's", file)
		}
	}
	if use, _ := suits(libBlas, of(libBlas, "libcublasLt.so.13"), 0); len(use) != 1 {
		t.Error("something is passed over where the driver is not known")
	}
}

// Reports of machines, as ampc devices prints them: each fits a screen and ends in what to do, where
// something is to be done. The fake library stands for all but NCCL.
func TestReports(t *testing.T) {
	for lib, names := range sonames {
		if l := openLibrary(lib, names); l.loaded() {
			t.Skipf("this machine has %s of its own, %s, which the reports would show", lib, l.path)
		}
	}
	source, err := os.ReadFile("testdata/fake.c")
	if err != nil {
		t.Fatal(err)
	}
	fake := compileC(t, "fake", string(source))
	old := compileC(t, "old", strings.Replace(string(source), "*v = 12040", "*v = 11080", 1))
	volta := compileC(t, "volta", strings.Replace(string(source), "*v = a == 75 ? 9 :", "*v = a == 75 ? 7 :", 1))
	silent := compileC(t, "silent", strings.Replace(string(source), "int cuInit(unsigned f) { ", "int cuInit(unsigned f) { if (f == 0) return 802; ", 1))
	without := compileC(t, "without", strings.ReplaceAll(string(source), "cuMemAlloc_v2", "cuMemAlloc"))
	thirteen := compileC(t, "thirteen", strings.Replace(string(source), "return 12090", "return 13000", 1))
	late := compileC(t, "late", strings.Replace(string(source), "*v = 12040", "*v = 13000", 1))
	faulty := compileC(t, "faulty", strings.Replace(string(source), "return 91501", "return 91001", 1))
	source, err = os.ReadFile("testdata/nccl.c")
	must(t, err)
	nccl := compileC(t, "nccl", string(source))
	dated := compileC(t, "dated", strings.Replace(string(source), "version = 22203", "version = 21005", 1))
	all := func(driver string) map[string]string {
		return map[string]string{"AMPC_LIBCUDA": driver, "AMPC_LIBCUBLASLT": fake, "AMPC_LIBCUDNN": fake, "AMPC_LIBNVRTC": fake, "AMPC_LIBNCCL": nccl}
	}
	but := func(library, file string) map[string]string {
		env := all(fake)
		env[library] = file
		return env
	}
	newer := map[string][]string{"/usr/local/cuda/lib64/libcublasLt.so.13": {"/usr/local/cuda/lib64/libcublasLt.so.13"}}
	paths := strings.NewReplacer(fake, "/fake.so", old, "/old.so", volta, "/volta.so", silent, "/silent.so", without, "/without.so", thirteen, "/thirteen.so", late, "/late.so", faulty, "/faulty.so", nccl, "/nccl.so", dated, "/dated.so")
	for _, c := range []struct {
		name  string
		env   map[string]string
		files map[string][]string
	}{
		{"nothing", nil, nil}, {"found", all(fake), nil},
		{"no-cudnn", map[string]string{"AMPC_LIBCUDA": fake, "AMPC_LIBCUBLASLT": fake}, nil},
		{"newer-than-driver", map[string]string{"AMPC_LIBCUDA": old}, newer}, {"newer-than-device", map[string]string{"AMPC_LIBCUDA": volta}, newer},
		{"mixed", map[string]string{"AMPC_LIBCUDA": late, "AMPC_LIBCUBLASLT": fake, "AMPC_LIBNVRTC": fake, "AMPC_LIBCUDNN": thirteen}, nil},
		{"cudnn-newer-than-driver", but("AMPC_LIBCUDNN", thirteen), nil}, {"cudnn-with-faults", but("AMPC_LIBCUDNN", faulty), nil},
		{"no-nccl", but("AMPC_LIBNCCL", ""), nil}, {"old-nccl", but("AMPC_LIBNCCL", dated), nil},
		{"does-not-start", all(silent), nil}, {"lacks-functions", all(without), nil},
	} {
		got := paths.Replace(discover(world(c.env, c.files)).String())
		file := filepath.Join("testdata", "report-"+c.name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, want)
		}
		if n := strings.Count(got, "\n"); n > 20 {
			t.Errorf("%s: %d lines are more than a screen has", c.name, n)
		}
	}
}

// A cuDNN of another CUDA than cuBLASLt's is refused, and the error says which to set.
func TestMixedLibraries(t *testing.T) {
	source, err := os.ReadFile("testdata/fake.c")
	if err != nil {
		t.Fatal(err)
	}
	blas := openLibrary(libBlas, []string{compileC(t, "twelve", string(source))})
	dnn := openLibrary(libDNN, []string{compileC(t, "other", strings.Replace(string(source), "return 12090", "return 13000", 1))})
	_, err = openDnn(dnn, blas)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "is of CUDA 12; set AMPC_LIBCUDNN to a cuDNN for CUDA 12") {
		t.Errorf("cuDNN for CUDA %d beside cuBLASLt of CUDA %d: %v", dnn.cuda(), blas.cuda(), err)
	}
	if _, err := openDnn(openLibrary(libDNN, []string{blas.path}), blas); err != nil {
		t.Errorf("libraries of one CUDA: %v", err)
	}
}
