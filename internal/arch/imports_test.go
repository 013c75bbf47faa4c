package arch_test

import (
	"slices"
	"strings"
	"testing"
)

// importOrder is policy, not a description: a package may import packages on
// lines above its own and nothing else of this module. "alone" packages import
// none of ours; "only X" packages import X and nothing else of ours. Do not edit
// it to make a build pass; docs/architecture.md says why the lines stand so.
const importOrder = `
internal/file internal/ort internal/cputime internal/largeheap internal/goasm
internal/x86 internal/a64
tokenizer
internal/fp internal/golden internal/philox internal/pickle internal/safetensors internal/npy internal/gen internal/onnxmodel internal/sass internal/sight
data metrics
internal/dataset data/images
ir                          alone
ir/eval ptx internal/genops
onnx
ptx/interp ptx/ptxtest
passes/plan                 alone
world
mpi                         only world
passes/prove                only ir
passes/systems              only ir
passes/ranges
passes
onnx/convert
lower
lower/sm internal/casts
cuda                        alone
runtime
onnx/host
cuda/sim
runtime/cpu/kern
runtime/cpu runtime/gpu runtime/runtimetest cuda/gputest
nccl
runtime/doctor
checkpoint
.
weights optim
pretrained fit
generate
models bridge/gorgonia bridge/gorgoniacu internal/trial
view
bench cmd/ampc examples
`

// never lists imports that the lines would allow and that must not be.
var never = []struct{ pkg, imports, why string }{
	{"ptx", "ir", "the PTX builder stays usable alone"},
	{"lower", "ptx", "a target's code is the target's: programs for the CPU link none"},
	{"lower/sm", "cuda", "lowering for a GPU runs on any machine"},
	{"passes", "ptx", "passes know no target but its capabilities"},
	{".", "runtime/gpu", "importing it would make every binary dynamic"},
	{".", "lower/sm", "a program for the CPU links no kernels of other targets"},
	{".", "cuda", "importing it would make every binary dynamic"},
	{".", "mpi", "importing it would make every binary dynamic"},
	{".", "nccl", "importing it would make every binary dynamic"},
	{"runtime/doctor", "runtime/gpu", "a bad step is replayed on the CPU, wherever it ran"},
	{"runtime/doctor", "cuda", "a bad step is replayed on the CPU, wherever it ran"},
	{"models", "runtime/gpu", "a model runs on any backend"},
}

// A program that imports the root package alone, and so runs on the CPU, links no code of GPUs, of
// MPI or of NCCL, by whatever way.
func TestRootLinksTheCPUAlone(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		for _, i := range s.file.Imports {
			if name := strings.Trim(i.Path.Value, `"`); !s.test && strings.HasPrefix(name, "ampc/") {
				imports[s.pkg] = append(imports[s.pkg], strings.TrimPrefix(name, "ampc/"))
			}
		}
	}
	by := map[string]string{".": ""}
	for queue := []string{"."}; len(queue) > 0; queue = queue[1:] {
		for _, name := range imports[queue[0]] {
			if _, met := by[name]; !met {
				by[name] = queue[0]
				queue = append(queue, name)
			}
		}
	}
	for _, name := range []string{"ptx", "ptx/interp", "lower/sm", "cuda", "cuda/sim", "runtime/gpu", "mpi", "nccl"} {
		if from, linked := by[name]; linked {
			t.Errorf("a program for the CPU links %s, which %s imports", name, from)
		}
	}
	if _, linked := by["runtime/cpu"]; !linked {
		t.Error("the root package does not import runtime/cpu")
	}
}

// externals says who may import a module that is not ours; tests may import all.
var externals = map[string][]string{
	"github.com/x448/float16":          {"internal/fp", ".", "bridge/gorgonia"}, // the half type where values enter and leave
	"gorgonia.org/gorgonia":            {"bridge/gorgonia"},
	"gorgonia.org/tensor":              {"bridge/gorgonia"},
	"gorgonia.org/cu":                  {"bridge/gorgoniacu"},
	"golang.org/x/tools":               {"internal/golden"},
	"github.com/google/go-cmp":         {"internal/golden"},
	"github.com/ebitengine/purego":     {"cuda", "mpi"},
	"google.golang.org/protobuf":       {}, // tests of onnx
	"github.com/mmcloughlin/avo":       {"internal/gen"},
	"github.com/spf13/cobra":           {"cmd/ampc"},
	"github.com/spf13/pflag":           {"cmd/ampc"}, // the errors of cobra's flags
	"github.com/aymanbagabas/go-udiff": {"cmd/ampc"},
	"golang.org/x/term":                {"cmd/ampc"},
	"github.com/d2lang/dagro":          {"view"},                    // layout of graphs
	"golang.org/x/image":               {"data/images", "cmd/ampc"}, // scaling; BMP, TIFF and WebP
	"golang.org/x/text":                {"tokenizer"},               // Unicode's normal forms
}

// readOrder reads the policy: the line of a package and its restriction.
func readOrder() (line map[string]int, only map[string]string) {
	line, only = map[string]int{}, map[string]string{}
	for i, l := range strings.Split(importOrder, "\n") {
		words := strings.Fields(l)
		for k, w := range words {
			if w == "alone" || w == "only" {
				only[words[0]] = strings.Join(words[k+1:], " ")
				if w == "alone" {
					only[words[0]] = "-"
				}
				break
			}
			line[w] = i
		}
	}
	return line, only
}

func TestImportOrder(t *testing.T) {
	line, only := readOrder()
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		home := s.pkg
		if strings.HasPrefix(home, "examples") {
			home = "examples"
		}
		at, known := line[home]
		if !known {
			t.Errorf("%s: package %s has no line in importOrder", s.path, home)
			continue
		}
		for _, imp := range s.file.Imports {
			name := strings.Trim(imp.Path.Value, `"`)
			if name == "ampc" {
				name = "ampc/."
			}
			ours, isOurs := strings.CutPrefix(name, "ampc/")
			switch {
			case isOurs && only[home] == "-":
				t.Errorf("%s imports %s: it imports nothing of ours", s.path, ours)
			case isOurs && only[home] != "" && only[home] != ours:
				t.Errorf("%s imports %s: it imports %s alone", s.path, ours, only[home])
			case isOurs && line[ours] >= at:
				t.Errorf("%s imports %s, which does not stand above %s", s.path, ours, home)
			case !isOurs && strings.Contains(strings.Split(name, "/")[0], "."):
				checkExternal(t, s.path, home, name)
			}
			for _, n := range never {
				if home == n.pkg && ours == n.imports {
					t.Errorf("%s imports %s: %s", s.path, ours, n.why)
				}
			}
		}
	}
}

func checkExternal(t *testing.T, file, home, name string) {
	for prefix, who := range externals {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			if !slices.Contains(who, home) {
				t.Errorf("%s imports %s, which is for %v", file, name, who)
			}
			return
		}
	}
	t.Errorf("%s imports %s, which no line of externals allows", file, name)
}
