package cpu

import (
	"reflect"
	goruntime "runtime"

	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// GroupFormula is what an elementwise step computes, in the words of kern's formulas: empty where it has other than dense floats.
type GroupFormula struct {
	Text     string
	Elements int64
	Part     lower.Part
	Runs     Runs
	Streams  bool // results are written by streaming stores
}

// Runs says how a cluster runs.
type Runs string

// Ways in which a cluster runs.
const (
	Composed Runs = "composed"
	Partial  Runs = "partly composed"
	Passes   Runs = "in passes"
)

// Formulas lists the formulas of a program's clusters.
func Formulas(ex runtime.Exec) (list []GroupFormula) {
	e := ex.(*program).exclusiveInstance()
	for part := range lower.NumParts {
		for i := range e.p.Parts[part] {
			s := &e.p.Parts[part][i]
			groups := s.Clusters()
			if s.Epilogue != nil {
				rest, _ := e.withoutProductStore(s.Epilogue)
				groups = append(groups, rest)
			}
			for _, g := range groups {
				c := e.compiler(g, elements(g))
				found, f := GroupFormula{"", int64(c.step.n), part, Passes, false}, &formula{}
				if c.formula(f) {
					found.Text = f.code.String()
				}
				if c = e.compiler(g, elements(g)); c.fuse() {
					found.Streams = c.step.formula.streaming
					found.Runs = Composed
				} else if e.compiler(g, elements(g)).composes() {
					found.Runs = Partial
				}
				list = append(list, found)
			}
		}
	}
	return list
}

// composes reports whether a kernel is composed for part of the cluster.
func (c *clusterCompiler) composes() bool {
	c.compose()
	return c.partial != nil
}

// Divided calls plan for every parallel region of a step of p on so many workers.
func Divided(path *kern.Path, p *lower.Program, workers int, plan func(kern.Planned)) error {
	m := kern.NewPlanner(path, workers, plan)
	return newBackend(m, m.Pool().Threads).rehearse(p, func(*store, *program) {})
}

// LoopOf is the source position of the body of a loop that a kernel has made, "" for other tasks.
func LoopOf(t kern.Task) (file string, line int) {
	var body reflect.Value
	switch t := t.(type) {
	case *region:
		body = reflect.ValueOf(t.f)
	case *chunked:
		body = reflect.ValueOf(t.f)
	default:
		return "", 0
	}
	return goruntime.FuncForPC(body.Pointer()).FileLine(body.Pointer())
}

// OpenOn is OpenPath on a host.
func OpenOn(p *kern.Path, threads int, h kern.Host) *Backend { return openOn(p, threads, h) }

// PlanOn is PlanMemory on a path.
func PlanOn(p *kern.Path, program *lower.Program, threads int) (Plan, error) {
	return planOn(p, program, threads)
}

// ScratchOf is what the kernels of b have asked for.
func ScratchOf(b *Backend) int64 { return b.m.Scratch() }

// TemporaryOf is the temporary memory of the steps of a program, apart from that of kernels.
func TemporaryOf(ex runtime.Exec) int64 { return ex.(*program).exclusiveInstance().temporary }

// ComposedKernels is how many kernels were composed for a program.
func ComposedKernels(ex runtime.Exec) (n int) {
	for _, k := range ex.(*program).composed {
		if k != nil {
			n++
		}
	}
	return n
}

// KernelsOf is how many composed kernels the programs of b have.
func KernelsOf(b *Backend) int {
	b.kernels.mu.Lock()
	defer b.kernels.mu.Unlock()
	return len(b.kernels.byText)
}
