package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

// Attempt is one file that was tried for a library.
type Attempt struct{ Library, Path, Problem string }

// LibraryReport describes what was found of one library.
type LibraryReport struct {
	Library string
	Path    string // as opened; empty if not found
	Version string
	number  int      // of NCCL, as it counts its versions
	CUDA    int      // the major version it was built for; 0: unknown
	Missing []string // functions the library lacks
	Tried   []Attempt
}

// mixed reports whether two libraries are known to be of different versions of CUDA.
func mixed(a, b int) bool { return a != 0 && b != 0 && a != b }

// Report is the outcome of Discover.
type Report struct {
	Libraries []LibraryReport
	Devices   []Info
	Problem   string // why no device can be used; empty if one can
	Advice    string // the one thing to do about it
}

// String formats the report to fit one screen.
func (r *Report) String() string {
	var b strings.Builder
	for _, l := range r.Libraries {
		switch {
		case l.Path == "":
			fmt.Fprintf(&b, "%-9s not found; tried %s\n", l.Library, summary(l.Tried))
		default:
			fmt.Fprintf(&b, "%-9s %s  %s\n", l.Library, l.Version, l.Path)
		}
		if l.Path != "" && len(l.Missing) > 0 {
			fmt.Fprintf(&b, "%-9s lacks %s\n", "", strings.Join(l.Missing, ", "))
		}
	}
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "device %d  %s, sm_%d%d, %d SMs, %.1f GiB\n", d.Ordinal, d.Name, d.Major, d.Minor, d.SMs, float64(d.Memory)/(1<<30))
	}
	if r.Problem != "" {
		fmt.Fprintf(&b, "no device: %s\n", r.Problem)
	}
	if r.Advice != "" {
		fmt.Fprintf(&b, "to do: %s\n", r.Advice)
	}
	return b.String()
}

// summary lists the files that exist with what is wrong with them, then the first of the others,
// and the number of the rest.
func summary(tried []Attempt) string {
	const shown = 3
	var there, names []string
	for _, a := range tried {
		if a.absent() {
			names = append(names, a.Path)
		} else {
			there = append(there, fmt.Sprintf("%s: %s", a.Path, a.Problem))
		}
	}
	more := len(names) - shown
	list := append(there, names[:min(shown, len(names))]...)
	if len(list) == 0 {
		return "nothing"
	}
	s := strings.Join(list, ", ")
	if more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// absent reports whether the file may not exist: the loader did not find it, or was not asked for a
// name that it would have had to search for.
func (a Attempt) absent() bool {
	return strings.Contains(a.Problem, "No such file") || a.newer() && !strings.Contains(a.Path, "/")
}

// tooNew is the start of the message about a file that was skipped.
const tooNew = "too new"

func (a Attempt) newer() bool { return strings.HasPrefix(a.Problem, tooNew) }

// suits divides a library's candidates into those that the machine can use and those made for a
// CUDA version newer than newest, a major version; 0 means any. File names of cuDNN and NCCL do not
// contain the version.
func suits(lib string, files []string, newest int) (use []string, passed []Attempt) {
	for _, f := range files {
		if n := cudaMajor(lib, f); newest > 0 && n > newest {
			passed = append(passed, Attempt{lib, f, fmt.Sprintf("%s, driver or device take CUDA %d at most", tooNew, newest)})
			continue
		}
		use = append(use, f)
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

// candidates lists the files to try for a library, in order: an explicit file or folder, the
// system loader, Python wheels, CUDA folders, and for the driver the usual system folders.
func (w places) candidates(lib string) []string {
	var out []string
	seen := map[string]bool{}
	add := func(p string) {
		if !seen[p] && !strings.Contains(p, "stubs") {
			seen[p] = true
			out = append(out, p)
		}
	}
	folders := func(dirs ...string) {
		for _, d := range dirs {
			for _, so := range sonames[lib] {
				for _, f := range w.glob(filepath.Join(d, so)) {
					add(f)
				}
			}
		}
	}
	if p := w.env("AMPC_LIB" + strings.ToUpper(lib)); p != "" {
		if strings.Contains(filepath.Base(p), ".so") {
			add(p)
		} else if folders(p); len(out) == 0 {
			add(filepath.Join(p, sonames[lib][0])) // the report says that it was looked for there
		}
	}
	for _, d := range filepath.SplitList(w.env("AMPC_CUDA_LIBDIR")) {
		folders(d)
	}
	for _, so := range sonames[lib] {
		add(so)
	}
	if lib != libDriver {
		folders(w.wheelFolders()...)
		for _, root := range w.cudaRoots() {
			folders(filepath.Join(root, "lib64"), filepath.Join(root, "targets", target.cuda, "lib"), filepath.Join(root, "lib"))
		}
		return out
	}
	system := filepath.Join("/usr/lib", target.gnu)
	folders(system, "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", filepath.Join(system, "nvidia/current"))
	return out
}

// wheelFolders are the library folders of NVIDIA's Python packages.
func (w places) wheelFolders() []string {
	roots := []string{w.env("VIRTUAL_ENV"), w.env("CONDA_PREFIX")}
	roots = append(roots, w.pythonRoots()...)
	roots = append(roots, filepath.Join(w.home, ".local"), "/usr/local", "/usr")
	var out []string
	for _, r := range roots {
		if r == "" {
			continue
		}
		for _, kind := range []string{"site-packages", "dist-packages"} {
			base := filepath.Join(r, "lib/python3*", kind, "nvidia")
			for _, sub := range []string{"cu13/lib", "cublas/lib", "cuda_nvrtc/lib", "cudnn/lib", "nccl/lib"} {
				out = append(out, w.glob(filepath.Join(base, sub))...)
			}
		}
	}
	return out
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
