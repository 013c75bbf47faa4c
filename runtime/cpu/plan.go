package cpu

import (
	"fmt"
	"os"
	goruntime "runtime"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu/kern"
)

// Plan is the memory in bytes that steps of one program hold, apart from what the caller feeds and
// from Go's runtime. Steps that run at the same time hold a Plan each, without Variables.
type Plan struct {
	Variables int64 `json:"variables"` // with their 16-bit copies and packed forms
	Work      int64 `json:"work"`      // arena of intermediate values, in which large results of training stay
	Inputs    int64 `json:"inputs"`    // feeds that are copied, constants, and what an interrupted step restores
	Outputs   int64 `json:"outputs"`   // copies of results
	Scratch   int64 `json:"scratch"`   // temporary memory of kernels
}

// Total is the sum.
func (p Plan) Total() int64 { return p.Variables + p.Work + p.Inputs + p.Outputs + p.Scratch }

// PlanMemory computes what a step of p holds on the kernels of this process, with so many threads
// (0: as many as Open(0) has now). It binds p to memory that is never read as a whole, and runs the first
// task of each parallel region, since kernels state nowhere else what they ask for.
func PlanMemory(p *lower.Program, threads int) (plan Plan, err error) {
	path, err := kern.Detect(os.Getenv)
	if err != nil {
		return plan, fmt.Errorf("cpu: %w", err)
	}
	return planOn(path, p, threads)
}

func planOn(path *kern.Path, p *lower.Program, threads int) (plan Plan, err error) {
	if threads <= 0 {
		threads = min(goruntime.GOMAXPROCS(0), goruntime.NumCPU())
	}
	b := newBackend(kern.NewDry(path, threads, thisHost()), func() int { return threads })
	err = b.rehearse(p, func(s *store, x *program) { plan = b.held(s, x) })
	return plan, err
}

// rehearse runs the steps of p on b's machine, which is dry, and calls then before it closes them.
func (b *Backend) rehearse(p *lower.Program, then func(*store, *program)) error {
	b.m.Leave() // until it is loaded
	b.dry = true
	s := b.newStore()
	defer s.Close()
	if err := s.Declare(p.Vars); err != nil {
		return err
	}
	x, err := load(b, p, s)
	if err != nil {
		return err
	}
	defer x.Close()
	b.Hold(func() { err = x.bound[b.first].rehearse() })
	if err == nil {
		then(s, x)
	}
	return err
}

// held is the memory of a rehearsed program.
func (b *Backend) held(s *store, x *program) (plan Plan) {
	e, p := x.bound[b.first], x.p
	for _, v := range s.vars {
		plan.Variables += int64(len(v.mem)) + v.weights.bytes()
		for _, c := range v.low {
			plan.Variables += int64(len(c.mem)) + c.weights.bytes()
		}
	}
	for _, d := range s.made {
		plan.Variables += int64(len(d.mem)) + d.weights.bytes()
	}
	plan.Work = p.Arenas[lower.WorkArena]
	for i := range e.inputs {
		if e.inputs[i].readers == nil {
			plan.Inputs += int64(len(e.inputs[i].mem))
		}
	}
	for _, c := range x.consts {
		plan.Inputs += int64(len(c.Bytes()))
	}
	for _, mem := range e.early {
		plan.Inputs += int64(len(mem))
	}
	for i, out := range e.outputs {
		plan.Outputs += x.copies(&p.Outputs[i]) * int64(len(out))
	}
	plan.Scratch = e.temporary + b.m.Scratch()
	return plan
}

// copies is how many copies of a result there are beside the buffer that the step writes.
func (x *program) copies(o *lower.Binding) int64 {
	switch {
	case x.ownResults:
		return 1
	case o.Type.Bytes() <= runtime.SmallResult:
		return runtime.RingSize
	case x.p.Buffers[x.p.Buffers[o.Buffer].Root].Arena == lower.WorkArena:
		return 0
	}
	return 1
}

// rehearse runs every step on a dry machine.
func (e *exec) rehearse() (err error) {
	defer noMemory(&err)
	for part := range lower.NumParts {
		for i := range e.steps[part] {
			st := &e.p.Parts[part][i]
			if k := st.Kernel; st.Kind == lower.KindKernel && (k.Node.Op == ir.OpCustom || collectiveKernels[k.Node.Op] != nil) {
				continue // the user's, or the other ranks'
			}
			e.steps[part][i].run()
			e.fault.Store(nil) // made-up data is out of range
		}
	}
	return nil
}

// bytes is the memory of packed forms.
func (w *weights) bytes() int64 {
	if w.packed == nil {
		return 0
	}
	return w.packed.Bytes()
}
