package cpu

import (
	"fmt"

	"ampc/runtime/cpu/kern"
)

// save stores what parts before update may overwrite: running statistics and sums over
// micro-batches.
func (e *exec) save() {
	for _, mem := range e.early[len(e.saved):] {
		e.saved = append(e.saved, e.alloc(e.of.store, int64(len(mem))))
	}
	for i, mem := range e.early {
		copy(e.saved[i], mem)
	}
}

// restore undoes the writes of a step that ended before its update.
func (e *exec) restore() {
	for i, mem := range e.early {
		copy(mem, e.saved[i])
	}
}

// failed is the error of a step that ended in a panic of a kernel, for which there were no weights, or
// no memory. Other panics go on.
func (e *exec) failed(r any) error {
	err, after := error(nil), ""
	if unread, ok := r.(kern.FillError); ok {
		err = fmt.Errorf("%s: weights: %w", e.p.Name, unread.Err)
	} else if none, ok := kern.AsNoMemory(r); ok {
		err = fmt.Errorf("cpu: %s: %w", e.p.Name, none)
	} else {
		panic(r)
	}
	switch {
	case e.updating:
		for _, v := range e.written {
			v.wrote()
		}
		after = "; the update had begun: load the last checkpoint"
	case e.begun:
		e.restore()
	}
	return fmt.Errorf("%w%s", err, after)
}
