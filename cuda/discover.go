package cuda

import (
	"fmt"
	"strings"
)

// Attempt is one file that was tried for a library.
type Attempt struct{ Library, Path, Problem string }

// LibraryReport describes what was found of one library.
type LibraryReport struct {
	Library string
	Path    string // as opened; empty if not found
	Version string
	number  int      // of cuDNN and NCCL, as they count their versions
	CUDA    int      // the major version it was built for; 0: unknown
	Missing []string // functions, and parts of cuDNN, that it lacks
	Broken  string   // why a part of cuDNN does not load
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
		if l.Broken != "" {
			fmt.Fprintf(&b, "%-9s broken: %s\n", "", l.Broken)
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
