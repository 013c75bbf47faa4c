package ampc

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"ampc/passes"
	"ampc/runtime"
)

// Result is what one Run computed. Accessors wait for the step to finish. Its
// numbers (Loss, Scale, Skipped, LR, GradNorm) stay; tensors are there for the last
// few steps and an error afterwards. On a GPU numbers are there no longer than
// tensors: keeping them would have the host wait at every step. A result that
// cannot be read has NaN for a number, and an error in Err.
type Result struct {
	step   *Step
	ticket runtime.Ticket
	past   *atomic.Pointer[numbers] // set before the tensors go
}

// numbers are what stays of a result.
type numbers struct {
	losses []float64
	made   [passes.OfRate + 1]float64
}

// settle reads the numbers while they are there.
func (r Result) settle() {
	n := &numbers{}
	for _, i := range r.step.slots.losses {
		n.losses = append(n.losses, r.number(i))
	}
	for kind, i := range r.step.slots.made {
		n.made[kind] = math.NaN()
		if i >= 0 {
			n.made[kind] = r.number(i)
		}
	}
	r.past.Store(n)
}

// number reads a scalar result, NaN where it is not there.
func (r Result) number(i int) float64 {
	h, err := r.read(i)
	if err != nil {
		return math.NaN()
	}
	return h.At(0)
}

// Loss returns what the step minimises: the weighted sum of its losses. It is
// NaN where the value cannot be read.
func (r Result) Loss() float64 {
	if r.step == nil {
		return math.NaN()
	}
	sum := 0.0
	for i, l := range r.step.losses {
		x := 0.0
		if n := r.past.Load(); n != nil {
			x = n.losses[i]
		} else {
			x = r.number(r.step.slots.losses[i])
		}
		weight := l.Weight
		if weight == 0 {
			weight = 1
		}
		sum += float64(weight * x)
	}
	return sum
}

// Skipped says whether the step left every variable as it was because a
// gradient or a loss was not finite. A step compiled with NoSkip never does. It
// is false where the result cannot be read, which Err says.
func (r Result) Skipped() bool { return r.scalar(passes.OfSkip) > 0 } // NaN where there is no such result

// Scale returns the factor on the loss in this step, 1 where nothing scales it.
func (r Result) Scale() float64 {
	if r.step == nil {
		return math.NaN()
	}
	if len(r.step.losses) == 0 {
		return 1
	}
	return r.scalar(passes.OfScale)
}

// GradNorm returns the 2-norm of all gradients, unscaled and before clipping, in a
// step that clips by it or has TrainConfig.GradNorm.
func (r Result) GradNorm() (float64, error) {
	switch {
	case r.step == nil:
		return math.NaN(), errNotRun
	case r.step.slots.made[passes.OfGradNorm] < 0:
		return math.NaN(), fmt.Errorf("gradient norm: the step computes none: set TrainConfig.GradNorm")
	}
	return r.scalar(passes.OfGradNorm), r.readable()
}

// readable is why the numbers of the result cannot be read, nil where they can.
func (r Result) readable() error {
	n := r.past.Load()
	for kind, i := range r.step.slots.made {
		switch {
		case i < 0:
		case n == nil:
			_, err := r.read(i)
			return err
		case math.IsNaN(n.made[passes.OfScale]) && kind == int(passes.OfScale):
			return fmt.Errorf("the results of the step could not be read")
		}
	}
	return nil
}

// LR returns the learning rate that the first group's update used.
func (r Result) LR() float64 { return r.scalar(passes.OfRate) }

func (r Result) scalar(kind passes.ResultKind) float64 {
	if r.step == nil || r.step.slots.made[kind] < 0 {
		return math.NaN()
	}
	if n := r.past.Load(); n != nil {
		return n.made[kind]
	}
	return r.number(r.step.slots.made[kind])
}

// Value returns a loss, or a tensor listed in TrainConfig.Outputs or given to Infer.
func (r Result) Value(t Tensor) (Host, error) {
	if t.v == nil {
		return Host{}, fmt.Errorf("result: no tensor")
	}
	if r.step == nil {
		return Host{}, errNotRun
	}
	i, ok := r.step.slots.values[t]
	if !ok {
		return Host{}, fmt.Errorf("result %s: not computed by this step: list it in TrainConfig.Outputs", t.v)
	}
	return r.read(i)
}

// Grad returns the gradient of a parameter listed in TrainConfig.Grads as the update
// sees it but for the norm: unscaled, meaned over the labels that count, clipped
// by value where the config says so.
func (r Result) Grad(w Tensor) (Host, error) {
	i, err := r.grad(w)
	if err != nil {
		return Host{}, err
	}
	return r.read(i)
}

// GradTo copies what Grad returns to dst, which has exactly its bytes: for
// loops that read gradients at every step without new memory.
func (r Result) GradTo(w Tensor, dst []byte) error {
	i, err := r.grad(w)
	if err != nil {
		return err
	}
	return r.ticket.Read(i, dst)
}

// grad is the place of a gradient.
func (r Result) grad(w Tensor) (int, error) {
	if r.step == nil {
		return 0, errNotRun
	}
	i, ok := r.step.slots.grads[w]
	if !ok {
		return 0, fmt.Errorf("gradient of %s: not computed by this step: list the parameter in TrainConfig.Grads", w.v)
	}
	return i, nil
}

// read copies what stands at a place among the results.
func (r Result) read(i int) (Host, error) {
	t := r.step.program.Outputs[i].Type
	h := Host{t, make([]byte, t.Bytes())}
	return h, r.ticket.Read(i, h.Bytes)
}

var errNotRun = errors.New("the step did not run")

// Limits after which a dynamic loss scale no longer helps.
const (
	maxForwardRun = 25
	maxFloorHits  = 3
)

// Err returns an error where training is stuck: the loss itself was not finite
// for many steps in a row, or gradients overflow although the scale cannot
// fall further. It looks at the newest state, so it may speak of a later step. A
// result that cannot be read is an error too.
func (r Result) Err() error {
	if r.step == nil {
		return errNotRun
	}
	defer r.step.model.gate.hold()()
	if r.step.exec == nil {
		return errClosed
	}
	if err := r.readable(); err != nil {
		return err
	}
	s := r.step.model.session
	for _, v := range r.step.program.Vars {
		if v.Role() != "scaler" {
			continue
		}
		name, _ := passes.ParseStateName(v.Name)
		if name.Kind != passes.KindForward && name.Kind != passes.KindFloor {
			continue
		}
		b, err := s.read(v)
		if err != nil {
			return err
		}
		n := int(Host{v.Type, b}.At(0))
		switch {
		case name.Kind == passes.KindForward && n >= maxForwardRun:
			return fmt.Errorf("step %d: the loss was not finite for %d steps in a row: no loss scale helps; look at the data, the learning rate, or what overflows in forward", r.step.runs, n)
		case name.Kind == passes.KindFloor && n >= maxFloorHits:
			return fmt.Errorf("step %d: gradients overflow although %s is at its floor: ask Step.Diagnose, lower the learning rate, or set a floor below 1", r.step.runs, name.Scale())
		}
	}
	return nil
}
