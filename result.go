package ampc

import (
	"fmt"
	"math"
	"strings"

	"ampc/runtime"
)

// Names of the results that the compiler adds to a training step.
const (
	resultSkip  = "skip"
	resultScale = "scale"
	resultNorm  = "grad_norm"
	resultLR    = "lr"
)

// Result is what one Run computed. Accessors wait for the step to finish; the
// last few results stay readable, older ones give an error, or NaN.
type Result struct {
	step   *Step
	ticket runtime.Ticket
}

// Loss returns what the step minimises: the weighted sum of its losses. It is
// NaN where the value cannot be read.
func (r Result) Loss() float64 {
	if r.step == nil {
		return math.NaN()
	}
	sum := 0.0
	for _, l := range r.step.losses {
		h, err := r.Value(l.Value)
		if err != nil {
			return math.NaN()
		}
		weight := l.Weight
		if weight == 0 {
			weight = 1
		}
		sum += float64(weight * h.At(0))
	}
	return sum
}

// Skipped says whether the step left every variable as it was because a
// gradient or a loss was not finite. A step compiled with NoSkip never does.
func (r Result) Skipped() bool { return r.scalar(resultSkip) > 0 } // NaN where there is no such result

// Scale returns the factor on the loss in this step, 1 where nothing scales it.
func (r Result) Scale() float64 {
	if r.step == nil {
		return math.NaN()
	}
	if _, ok := r.step.results[resultScale]; !ok {
		return 1
	}
	return r.scalar(resultScale)
}

// GradNorm returns the 2-norm of all gradients, unscaled and before clipping.
func (r Result) GradNorm() float64 { return r.scalar(resultNorm) }

// LR returns the learning rate that the first group's update used.
func (r Result) LR() float64 { return r.scalar(resultLR) }

func (r Result) scalar(name string) float64 {
	h, err := r.read(name)
	if err != nil {
		return math.NaN()
	}
	return h.At(0)
}

// Value returns a loss, or a tensor listed in Config.Outputs or given to Infer.
func (r Result) Value(t Tensor) (Host, error) {
	if t == nil {
		return Host{}, fmt.Errorf("result: no tensor")
	}
	return r.read(t.Name)
}

// Grad returns the gradient of a parameter listed in Config.Grads as the update
// sees it but for the norm: unscaled, meaned over the labels that count, clipped
// by value where the config says so.
func (r Result) Grad(param string) (Host, error) { return r.read("d." + param) }

// GradTo copies what Grad returns to dst, which has exactly its bytes: for
// loops that read gradients at every step without new memory.
func (r Result) GradTo(param string, dst []byte) error {
	i, err := r.place("d." + param)
	if err != nil {
		return err
	}
	return r.ticket.Read(i, dst)
}

func (r Result) read(name string) (Host, error) {
	i, err := r.place(name)
	if err != nil {
		return Host{}, err
	}
	t := r.step.program.Outputs[i].Type
	h := Host{t, make([]byte, t.Bytes())}
	return h, r.ticket.Read(i, h.Bytes)
}

// place is the number of a result.
func (r Result) place(name string) (int, error) {
	if r.step == nil {
		return 0, fmt.Errorf("result %q: the step did not run", name)
	}
	i, ok := r.step.results[name]
	if !ok {
		return 0, fmt.Errorf("result %q: not computed by this step: list it in Config.Outputs or Config.Grads", name)
	}
	return i, nil
}

// Limits after which a dynamic loss scale no longer helps.
const (
	maxForwardRun = 25
	maxFloorHits  = 3
)

// Err returns an error where training is stuck: the loss itself was not finite
// for many steps in a row, or gradients overflow although the scale cannot
// fall further. It looks at the newest state, so it may speak of a later step.
func (r Result) Err() error {
	switch {
	case r.step == nil:
		return fmt.Errorf("the step did not run")
	case r.step.exec == nil:
		return errClosed
	}
	s := r.step.model.session
	for _, v := range r.step.program.Vars {
		if v.Role() != "scaler" {
			continue
		}
		name, counter := v.Name[:strings.LastIndexByte(v.Name, '.')], v.Name[strings.LastIndexByte(v.Name, '.')+1:]
		if counter != "fwd_run" && counter != "floor_hits" {
			continue
		}
		b, err := s.read(v)
		if err != nil {
			return err
		}
		n := int(Host{v.Type, b}.At(0))
		switch {
		case counter == "fwd_run" && n >= maxForwardRun:
			return fmt.Errorf("step %d: the loss was not finite for %d steps in a row: no loss scale helps; look at the data, the learning rate, or what overflows in forward", r.step.runs, n)
		case counter == "floor_hits" && n >= maxFloorHits:
			return fmt.Errorf("step %d: gradients overflow although %s.scale is at its floor: ask Step.Diagnose, lower the learning rate, or set a floor below 1", r.step.runs, name)
		}
	}
	return nil
}
