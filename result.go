package ampc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"ampc/passes"
	"ampc/runtime"
)

// Result is the result of one Run, which may still be computing it. Wait returns
// its numbers, Value and Grad its tensors. Tensors of a training step are kept for
// the last few steps, those of more than 64 kB until the next one, and reading them later is
// an error; those of an inference step
// on the CPU are kept until Release. Numbers are kept as long as the Result, but on a
// GPU no longer than tensors, because keeping them would make the host wait in
// every step.
type Result struct {
	step   *Step
	future runtime.Future
	prompt bool                    // reading waits for nothing
	kept   atomic.Pointer[outcome] // set before the tensors go
}

// Metrics are the numbers of a step.
type Metrics struct {
	Loss  float64 // what the step minimizes: the weighted sum of its losses; NaN in inference
	Scale float64 // the factor on the loss in this step, 1 where nothing scales it
	LR    float64 // the learning rate of the first group's update; NaN in inference
	// Skipped says whether the step left every variable as it was because a
	// gradient or a loss was not finite. With TrainConfig.NoSkip no step does.
	Skipped bool

	norm   float64 // where it is computed
	normed bool    // it is
}

// GradNorm is the 2-norm of all gradients, unscaled and before clipping. It is an error
// where the step does not compute it, as nothing clips by it nor asks for it.
func (m Metrics) GradNorm() (float64, error) {
	if !m.normed {
		return 0, errors.New("grad norm: the step does not compute it: set TrainConfig.GradNorm, or clip by norm (ClipNorm)")
	}
	return m.norm, nil
}

// outcome is what Wait returns.
type outcome struct {
	Metrics
	err error
}

// Wait waits for the step to finish and returns its numbers. It returns an error if
// they cannot be read: the device failed, or no longer has the numbers of this
// step. If ctx ends, the wait ends, but not the step.
func (r *Result) Wait(ctx context.Context) (Metrics, error) {
	if r == nil {
		return Metrics{}, errNotRun
	}
	if r.prompt || r.kept.Load() != nil || ctx.Done() == nil {
		o := r.outcome()
		return o.Metrics, o.err
	}
	done := make(chan outcome, 1)
	go func() { done <- r.outcome() }()
	select {
	case o := <-done:
		return o.Metrics, o.err
	case <-ctx.Done():
		return Metrics{}, fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}

// Release gives the memory of an inference step's results back, for a later Run.
// What Value has returned stays; calling Value afterwards is an error. It is for
// servers, which run without new memory then: results that are not released are
// collected as garbage. Other results are not kept for long, and Release does
// nothing. It is called once, when no other call uses the result.
func (r *Result) Release() {
	if kept, ok := r.future.(runtime.Kept); ok {
		kept.Release()
	}
}

// settle reads the numbers while they are there.
func (r *Result) settle() {
	o := r.outcome()
	r.kept.Store(&o)
}

// skipped is Metrics.Skipped.
func (r *Result) skipped() (bool, error) {
	i := r.step.slots.made[passes.OfSkip]
	if i < 0 {
		return false, nil
	}
	h, err := r.read(i)
	return err == nil && h.At(0) > 0, err
}

// outcome reads the numbers.
func (r *Result) outcome() outcome {
	if o := r.kept.Load(); o != nil {
		return *o
	}
	o := outcome{Metrics: Metrics{Loss: math.NaN(), Scale: 1, LR: math.NaN()}}
	number := func(i int) float64 {
		h, err := r.read(i)
		if err != nil {
			o.err = cmp.Or(o.err, err)
			return math.NaN()
		}
		return h.At(0)
	}
	at := r.step.slots
	if len(at.losses) > 0 {
		o.Loss = 0
	}
	for i, l := range r.step.losses {
		weight := l.Weight
		if weight == 0 {
			weight = 1
		}
		o.Loss += float64(weight * number(at.losses[i]))
	}
	for kind, to := range map[passes.ResultKind]*float64{passes.OfScale: &o.Scale, passes.OfRate: &o.LR, passes.OfGradNorm: &o.norm} {
		if i := at.made[kind]; i >= 0 {
			*to = number(i)
		}
	}
	o.normed = at.made[passes.OfGradNorm] >= 0
	if i := at.made[passes.OfSkip]; i >= 0 {
		o.Skipped = number(i) > 0
	}
	if len(at.losses) == 0 && len(r.step.program.Outputs) > 0 && !r.prompt { // no number tells of a failed device
		_, o.err = r.read(0)
	}
	if o.err != nil {
		o.Metrics = Metrics{}
		if kept := r.kept.Load(); kept != nil { // settled while this call was reading
			return *kept
		}
	}
	return o
}

// Value returns a loss, or a tensor listed in TrainConfig.Outputs or given to Infer.
func (r *Result) Value(t Tensor) (HostTensor, error) {
	if t.v == nil {
		return HostTensor{}, fmt.Errorf("result: the tensor is absent (a zero Tensor)")
	}
	if r == nil {
		return HostTensor{}, errNotRun
	}
	i, ok := r.step.slots.values[t]
	if !ok {
		return HostTensor{}, fmt.Errorf("result %s: not computed by this step: %s", t.v, r.step.toReturn())
	}
	return r.read(i)
}

// toReturn says how a step returns one more tensor.
func (s *Step) toReturn() string {
	if len(s.losses) > 0 {
		return "list it in TrainConfig.Outputs"
	}
	return "give it to Infer, or Eval, beside the others"
}

// Grad returns the gradient of a parameter listed in TrainConfig.Grads: unscaled,
// divided by the number of labels that count, and clipped by value if
// TrainConfig.Clip says so, but not clipped by norm.
func (r *Result) Grad(w Tensor) (HostTensor, error) {
	i, err := r.grad(w)
	if err != nil {
		return HostTensor{}, err
	}
	return r.read(i)
}

// GradTo copies the gradient that Grad returns to dst, which must have exactly its
// size in bytes. It is for loops that read gradients in every step without
// allocating.
func (r *Result) GradTo(w Tensor, dst []byte) error {
	i, err := r.grad(w)
	if err != nil {
		return err
	}
	return r.future.Read(i, dst)
}

// grad is the place of a gradient.
func (r *Result) grad(w Tensor) (int, error) {
	if r == nil {
		return 0, errNotRun
	}
	i, ok := r.step.slots.grads[w]
	if !ok {
		return 0, fmt.Errorf("gradient of %s: not computed by this step: list the parameter in TrainConfig.Grads", w.v)
	}
	return i, nil
}

// read copies what stands at a place among the results.
func (r *Result) read(i int) (HostTensor, error) {
	t := r.step.program.Outputs[i].Type
	h := HostTensor{Type{t}, make([]byte, t.Bytes())}
	return h, r.future.Read(i, h.Bytes)
}

var errNotRun = errors.New("the step did not run")

// Limits after which a dynamic loss scale no longer helps.
const (
	maxForwardRun = 25
	maxFloorHits  = 3
)

// Stuck returns an error if training makes no progress: the loss itself was not
// finite for many steps in a row, or gradients overflow although the scale cannot
// fall further. It waits for the steps that were launched.
func (s *Step) Stuck() error {
	defer s.model.gate.hold()()
	if s.exec == nil {
		return errClosed
	}
	if s.last.row >= maxForwardRun {
		return fmt.Errorf("step %d: gradients were not finite for %d steps in a row, and no loss scale helps: ask Step.Diagnose", s.runs, s.last.row)
	}
	for _, v := range s.program.Vars {
		if v.Role() != "scaler" {
			continue
		}
		name, _ := passes.ParseStateName(v.Name)
		if name.Kind != passes.KindForward && name.Kind != passes.KindFloor {
			continue
		}
		b, err := s.model.session.read(v)
		if err != nil {
			return err
		}
		n := int(HostTensor{Type{v.Type}, b}.At(0))
		switch {
		case name.Kind == passes.KindForward && n >= maxForwardRun:
			return fmt.Errorf("step %d: the loss was not finite for %d steps in a row: no loss scale helps; look at the data, the learning rate, or what overflows in forward", s.runs, n)
		case name.Kind == passes.KindFloor && n >= maxFloorHits:
			return fmt.Errorf("step %d: gradients overflow although %s is at its floor: ask Step.Diagnose, lower the learning rate, or set a floor below 1", s.runs, name.Scale())
		}
	}
	return nil
}
