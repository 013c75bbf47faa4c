package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// places is the environment that the search examines; tests replace it.
type places struct {
	env  func(string) string
	glob func(string) []string
	home string
	path func(string) string // finds a program in PATH
	real func(string) string // follows links
	read func(string) string // a file's text, "" where there is none
}

func realPlaces() places {
	home, _ := os.UserHomeDir()
	return places{
		env:  os.Getenv,
		glob: func(p string) []string { m, _ := filepath.Glob(p); sort.Strings(m); return m },
		home: home,
		path: func(name string) string { p, _ := exec.LookPath(name); return p },
		real: func(p string) string { p, _ = filepath.EvalSymlinks(p); return p },
		read: func(p string) string { b, _ := os.ReadFile(p); return string(b) },
	}
}

// target names the folders of this processor.
var target = map[string]struct{ gnu, cuda string }{
	"amd64": {"x86_64-linux-gnu", "x86_64-linux"}, "arm64": {"aarch64-linux-gnu", "sbsa-linux"},
}[runtime.GOARCH]

// candidate is a file that may be a library.
type candidate struct {
	file  string
	place int // files that were installed together have one number; lower ones are preferred
	cuda  int // the major version of CUDA that it is of, or was built for; 0: unknown
}

// place is a group of folders whose libraries were installed together.
type place struct {
	folders []string
	loader  bool // the system loader, which is asked by name
	cudnn   int  // the major version of CUDA that its cuDNN was built for, 0: unknown
}

// named is the file or the folder that a variable names for a library, as a place of its own.
func (w places) named(lib string) (files []string) {
	p := w.env(variable(lib))
	if p == "" {
		return nil
	}
	if strings.Contains(filepath.Base(p), ".so") {
		return []string{p}
	}
	if files = w.files(lib, p); len(files) == 0 {
		files = []string{filepath.Join(p, sonames[lib][0])} // the report says that it was looked for there
	}
	return files
}

// files are a library's files in a folder, best first. Folders of stubs have none.
func (w places) files(lib, folder string) (list []string) {
	for _, so := range sonames[lib] {
		for _, f := range w.glob(filepath.Join(folder, so)) {
			if !strings.Contains(f, "stubs") {
				list = append(list, f)
			}
		}
	}
	return list
}

// candidates lists the files to try for a library, in order: what a variable names, the libraries
// of a PyTorch, the system loader, other Python packages, conda, CUDA folders, and for the driver
// the usual system folders.
func (w places) candidates(lib string) []candidate {
	var out []candidate
	add := func(file string, at, cuda int) {
		if n := cudaMajor(lib, file); n != 0 {
			cuda = n
		}
		if !slices.ContainsFunc(out, func(c candidate) bool { return c.file == file }) {
			out = append(out, candidate{file, at, cuda})
		}
	}
	for _, f := range w.named(lib) {
		add(f, 0, 0)
	}
	for i, p := range w.list(lib) {
		for _, folder := range p.folders {
			for _, f := range w.files(lib, folder) {
				add(f, i+1, p.built(lib, w))
			}
		}
		if p.loader {
			for _, so := range sonames[lib] {
				add(so, i+1, 0)
			}
		}
	}
	return out
}

// built is the major version of CUDA that the place's cuDNN was built for: what its package says,
// or that of the only cuBLASLt beside it.
func (p *place) built(lib string, w places) int {
	if lib != libDNN || p.cudnn != 0 {
		return p.cudnn
	}
	major := 0
	for _, folder := range p.folders {
		for _, f := range w.files(libBlas, folder) {
			n := cudaMajor(libBlas, f)
			if major != 0 && n != major {
				return 0
			}
			major = n
		}
	}
	return major
}

// list are the places of a library, preferred ones first.
func (w places) list(lib string) []place {
	var list []place
	for _, d := range filepath.SplitList(w.env("AMPC_CUDA_LIBDIR")) {
		list = append(list, place{folders: []string{d}})
	}
	loader := place{loader: true}
	if lib == libDriver {
		system := filepath.Join("/usr/lib", target.gnu)
		return append(list, loader, place{folders: []string{system, "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", filepath.Join(system, "nvidia/current")}})
	}
	torch, others := w.pythonPlaces()
	list = append(append(append(list, torch...), loader), others...)
	for _, root := range w.cudaRoots() {
		list = append(list, place{folders: []string{filepath.Join(root, "lib64"), filepath.Join(root, "targets", target.cuda, "lib"), filepath.Join(root, "lib")}})
	}
	return list
}

// packages are the folders of NVIDIA's Python packages, and that of a PyTorch with libraries of its
// own, under a folder of packages.
var packages = []string{"nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cudnn/lib", "nvidia/nccl/lib", "torch/lib"}

// pythonPlaces are the folders of packages of every Python installation, those with a PyTorch
// apart, whose libraries were tested together.
func (w places) pythonPlaces() (torch, others []place) {
	roots := []string{w.env("VIRTUAL_ENV"), w.env("CONDA_PREFIX")}
	roots = append(roots, w.pythonRoots()...)
	roots = append(roots, filepath.Join(w.home, ".local"), "/usr/local", "/usr")
	for i, r := range roots {
		if r == "" || slices.Contains(roots[:i], r) {
			continue
		}
		var sites []string
		for _, kind := range []string{"site-packages", "dist-packages"} {
			sites = append(sites, w.glob(filepath.Join(r, "lib/python3*", kind))...)
		}
		slices.Sort(sites)
		var with, without []place
		for _, site := range slices.Compact(sites) {
			p := place{cudnn: w.wheelMajor(site)}
			for _, sub := range packages {
				p.folders = append(p.folders, filepath.Join(site, sub))
			}
			if len(w.glob(filepath.Join(site, "torch"))) > 0 {
				with = append(with, p)
			} else {
				without = append(without, p)
			}
		}
		if r == w.env("CONDA_PREFIX") { // conda's own packages
			p := place{folders: []string{filepath.Join(r, "lib")}}
			if len(with) > 0 {
				with = append(with, p)
			} else {
				without = append(without, p)
			}
		}
		torch, others = append(torch, with...), append(others, without...)
	}
	return torch, others
}

// wheelMajor is the major version of CUDA in the name of the cuDNN package among packages, 0 if
// there is none.
func (w places) wheelMajor(site string) int {
	for _, f := range w.glob(filepath.Join(site, "nvidia_cudnn_cu*")) {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(f), "nvidia_cudnn_cu"), "-")
		if n, err := strconv.Atoi(name); err == nil {
			return n
		}
	}
	return 0
}

// pythonRoots are the prefixes of the python3 in PATH: its folder (which may be a virtual
// environment), the target of its link, and the home that the environment names.
func (w places) pythonRoots() (roots []string) {
	py := w.path("python3")
	if py == "" {
		return nil
	}
	prefix := func(program string) string { return filepath.Dir(filepath.Dir(program)) }
	roots = append(roots, prefix(py))
	for line := range strings.Lines(w.read(filepath.Join(prefix(py), "pyvenv.cfg"))) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "home" {
			roots = append(roots, filepath.Dir(strings.TrimSpace(value)))
		}
	}
	if real := w.real(py); real != "" {
		roots = append(roots, prefix(real))
	}
	return roots
}

func (w places) cudaRoots() []string {
	roots := []string{w.env("CUDA_HOME"), w.env("CUDA_PATH"), "/usr/local/cuda"}
	newest := w.glob("/usr/local/cuda-*")
	sort.Sort(sort.Reverse(sort.StringSlice(newest)))
	roots = append(append(roots, newest...), "/opt/cuda")
	var out []string
	for _, r := range roots {
		if r != "" {
			out = append(out, r)
		}
	}
	return out
}

// suits divides a library's candidates into those that the machine can use and those made for a
// CUDA version newer than newest, a major version; 0 means any.
func suits(lib string, all []candidate, newest int) (use []candidate, passed []Attempt) {
	for _, c := range all {
		if newest > 0 && c.cuda > newest {
			passed = append(passed, Attempt{lib, c.file, fmt.Sprintf("%s, driver or device take CUDA %d at most", tooNew, newest)})
			continue
		}
		use = append(use, c)
	}
	return use, passed
}

// cudaMajor is the major version of CUDA in a file's name, or 0 if there is none.
func cudaMajor(lib, file string) int {
	if lib != libBlas && lib != libRTC {
		return 0
	}
	_, version, _ := strings.Cut(filepath.Base(file), ".so.")
	major, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(major)
	return n
}

// fileNames are the files of candidates.
func fileNames(list []candidate) []string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.file
	}
	return names
}
