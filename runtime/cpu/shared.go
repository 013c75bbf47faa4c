package cpu

import (
	"sync"

	"ampc/runtime/cpu/kern"
)

// sharedKernels are the kernels that were composed for a backend's programs, by the text of their formulas. A formula holds no
// sizes, so the programs of a model for several sizes share them. A kernel is freed with the last program that has it.
type sharedKernels struct {
	mu     sync.Mutex
	byText map[string]*sharedKernel
}

type sharedKernel struct {
	run      *kern.Fused // nil: none can be composed
	programs int
}

// get composes the kernel of f, whose text is given, if no program has it yet. The caller must put it back.
func (k *sharedKernels) get(p *kern.Path, f *kern.Formula, text string) *kern.Fused {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byText[text]
	if s == nil {
		s = &sharedKernel{run: p.Compose(f)}
		k.byText[text] = s
	}
	s.programs++
	return s.run
}

// put says that a program does not run the kernel any more.
func (k *sharedKernels) put(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byText[text]
	if s.programs--; s.programs > 0 {
		return
	}
	delete(k.byText, text)
	if s.run != nil {
		s.run.Close()
	}
}
