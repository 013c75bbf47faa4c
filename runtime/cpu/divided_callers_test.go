package cpu_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ampc/runtime/cpu"
	"ampc/runtime/cpu/kern"
)

var moreCounts = flag.Bool("more-counts", false, "TestDividedCallers looks at 14 numbers of workers, not 4")

// starters begin parallel regions. They are called by these names with so many operands; what they call themselves is not
// another kernel.
var starters = map[string]int{"run": 3, "Run": 3, "Serial": 3, "runDivided": 3, "runPart": 2, "runParts": 3, "RunParts": 2, "each": 4, "eachWith": 5, "parallel": 3, "chunks": 4, "over": 4}

// unplanned are functions that begin regions but not in a step, with the reason.
var unplanned = map[string]string{
	"cpu.exec.castAll":      "before a step, where variables were written by others",
	"kern.rowsTask.packAll": "before a step of inference: weights are turned once",
	"cpu.parallelCopy.copy": "behind a step: a result is copied",
}

// wholeUnits are functions whose units wait for a reduction of all of their elements, so that finer ones would need another region:
// 32 of them on 6 workers are 89%.
var wholeUnits = map[string]string{
	"cpu.bindCrossEntropyGrad": "rows of logits",
	"cpu.bindSoftCrossEntropy": "rows of logits",
	"kern.channelTask.over":    "statistics of a norm",
}

// function is a function of packages cpu and kern.
type function struct {
	name        string
	first, last int  // lines
	starts      bool // a parallel region
	starter     bool
}

// functions are the functions of packages cpu and kern, by file name.
func functions(t *testing.T) map[string][]function {
	list := map[string][]function{}
	for _, dir := range []string{".", "kern"} {
		set := token.NewFileSet()
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				_, starter := starters[f.Name.Name]
				list[key(path)] = append(list[key(path)], function{nameOf(f, filepath.Base(dir)), set.Position(f.Pos()).Line, set.Position(f.End()).Line,
					starts(f.Body), starter && starters[f.Name.Name] == f.Type.Params.NumFields()})
			}
		}
	}
	return list
}

// nameOf is a name such as kern.Machine.Gemm.
func nameOf(f *ast.FuncDecl, dir string) string {
	list := []string{strings.Replace(dir, ".", "cpu", 1)}
	if f.Recv != nil {
		list = append(list, strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"))
	}
	return strings.Join(append(list, f.Name.Name), ".")
}

// key is the file name with the folder.
func key(path string) string {
	abs, _ := filepath.Abs(path)
	return filepath.Join(filepath.Base(filepath.Dir(abs)), filepath.Base(abs))
}

// starts reports whether a function begins a parallel region.
func starts(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && starters[s.Sel.Name] == len(c.Args) && len(c.Args) > 0 {
				found = true
			}
		}
		return !found
	})
	return found
}

// at is the function at a source position, nil where there is none of the two packages.
func at(all map[string][]function, file string, line int) *function {
	list := all[key(file)]
	for i := range list {
		if f := &list[i]; f.first <= line && line <= f.last {
			return f
		}
	}
	return nil
}

// caller is the function that begins the region of a task that is being planned.
func caller(all map[string][]function, task kern.Task) string {
	if file, line := cpu.LoopOf(task); file != "" {
		return at(all, file, line).name
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if f := at(all, frame.File, frame.Line); f != nil && f.starts && !f.starter {
			return f.name
		}
		if !more {
			return "?"
		}
	}
}

// share is what the regions of a caller cost in a program.
type share struct {
	time, best, busy, held int
	could                  float64 // in place of held, if every region had its best balance
	longest, workers       int     // of the region that takes longest
}

// found is what Possible returns.
type found struct {
	time    int
	balance float64
}

// add adds a region. Many are alike: best has what has been found for others.
func (s *share) add(r kern.Planned, best map[kern.Planned]found) {
	r.Task = nil
	f, ok := best[r]
	if !ok {
		f.time, f.balance = r.Possible()
		best[r] = f
	}
	s.time, s.best, s.busy, s.held = s.time+r.Time, s.best+f.time, s.busy+r.Busy, s.held+r.Workers*r.Span()
	s.could += float64(r.Busy) / f.balance
	if r.Time > s.longest {
		s.longest, s.workers = r.Time, r.Workers
	}
}

// Every function that begins parallel regions has a program here in which it does, at the shape of a large model. Its regions are
// divided as those of TestDivision in package kern: the workers that they take are busy for nine tenths of the time, and the time
// is within a twentieth of the best. With -more-counts, whole units are busy as long as any division that is nearly as fast allows.
func TestDividedCallers(t *testing.T) {
	all := functions(t)
	rows, counts := map[string]string{}, []int{4, 32, 64, 128}
	if *moreCounts {
		counts = append(counts, 2, 3, 6, 7, 12, 24, 48, 75, 96, 100)
	}
	programs, best, excepted := dividedPrograms(t), map[kern.Planned]found{}, map[string]bool{}
	for _, path := range kern.Paths() {
		if path.Name() == "go" {
			continue
		}
		for _, p := range programs {
			shares := map[string][]share{}
			for i, n := range counts {
				err := cpu.Divided(path, p.program, n, func(r kern.Planned) {
					name := caller(all, r.Task)
					if shares[name] == nil {
						shares[name] = make([]share, len(counts))
					}
					shares[name][i].add(r, best)
				})
				if err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(shares)) {
				row := fmt.Sprintf("%-10s %-36s %-34s", path.Name(), p.name, name)
				for i, s := range shares[name] {
					balance, possible, worse := float64(s.busy)/float64(s.held), float64(s.busy)/s.could, float64(s.time)/float64(s.best)
					row += fmt.Sprintf(" %d:%.0f%%", s.workers, 100*balance)
					least := 0.9
					if *moreCounts && wholeUnits[name] != "" && balance < least {
						least, excepted[name] = possible-0.01, true
					}
					if balance < least || worse > 1.05 {
						t.Errorf("%s, %s, %s on %d workers: balance %.3f of %d where %.3f is possible, %.3f of the best time", path.Name(), p.name, name, counts[i], balance, s.workers, possible, worse)
					}
				}
				t.Log(row)
				rows[name] = p.name
			}
		}
	}
	if testing.Short() { // without most models
		return
	}
	for name := range wholeUnits {
		if *moreCounts && !excepted[name] {
			t.Errorf("%s is divided well and need not be in wholeUnits", name)
		}
	}
	count := 0
	for _, list := range all {
		for _, f := range list {
			if !f.starts || f.starter {
				continue
			}
			if count++; rows[f.name] == "" && unplanned[f.name] == "" {
				t.Errorf("%s begins a parallel region and has no program in dividedPrograms", f.name)
			}
		}
	}
	t.Logf("%d functions begin parallel regions", count)
}
