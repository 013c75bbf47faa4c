package ampc

import (
	"fmt"

	"ampc/passes"
	"ampc/runtime"
	"ampc/world"
)

// Parallel says how a step is shared with other ranks. Make one with DataParallel and
// change fields of the copy; the zero Parallel is one process.
type Parallel struct {
	World world.World
	// Bucket is how many bytes of gradients one message holds at least; zero: 25 MiB.
	Bucket int64
	// Message is the dtype of gradients on their way; zero: F32. Sums are f32 all the same.
	Message DType
	// Shift says that 16-bit messages hold gradients times 2^-Shift; zero: the least for
	// which the sum over all ranks overflows only where the mean does.
	Shift int
}

// DataParallel shares each batch among the ranks of w. Every rank compiles the same
// step over the same variables and runs it with its own part of the batch. Gradients,
// losses and counts are summed over the ranks before they are divided or checked, so
// all ranks take the same update, or skip it together.
//
// Variables start equal where the ranks have the same Seed, or load the same
// checkpoint. Results that are no losses, means or sums are those of the rank alone.
// Train and Run are collective: all ranks call them in the same order.
func DataParallel(w world.World) Parallel { return Parallel{World: w} }

func (p Parallel) compiler() passes.Parallel {
	c := passes.Parallel{Bucket: p.Bucket, Message: irDType(p.Message), Shift: p.Shift}
	if p.World != nil {
		c.Ranks = p.World.Size()
	}
	return c
}

// join connects a loaded step with the other ranks, where its program sends anything.
func (s *session) join(step *Step) error {
	if step.config.Parallel.Ranks <= 1 {
		return nil
	}
	d, ok := step.exec.(runtime.Distributed)
	if !ok {
		return fmt.Errorf("%s: this backend has no collectives: train across ranks on the CPU", s.backend.Name())
	}
	d.Join(step.world)
	return nil
}
