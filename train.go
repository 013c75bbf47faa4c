package ampc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/passes"
)

// Train compiles a training step that minimizes the weighted sum of losses. A
// model may be compiled to any number of steps: all run over the same variables and
// 16-bit copies. Each has counters, rates and optimizer state of its own, under
// its TrainConfig.Name; Step.For compiles one step for several sizes.
func (m *Model) Train(c TrainConfig, losses ...Loss) (*Step, error) {
	r, err := m.trainRequest(c, losses)
	if err != nil {
		return nil, err
	}
	return m.compile(r)
}

// Infer compiles the forward pass that computes out, in the precision of
// InferConfig.Policy; it reads the model's current weights, or their running
// averages (TrainConfig.EMA) if InferConfig.Weights is EMA. Step.Eval takes the
// precision of a training step instead, and always reads the current weights.
func (m *Model) Infer(c InferConfig, out ...Tensor) (*Step, error) {
	r, err := m.inferRequest(c, out)
	if err != nil {
		return nil, err
	}
	return m.compile(r)
}

// Eval compiles the forward pass that computes out, in the precision that this step
// gives each value, so that losses are comparable; it reads the model's current
// weights, never averages. It has the sizes of this step; For changes them. Infer
// takes a policy instead, and can read averages.
func (s *Step) Eval(out ...Tensor) (*Step, error) {
	if s.closed() {
		return nil, errClosed
	}
	r, err := s.evalRequest(out)
	if err != nil {
		return nil, err
	}
	return s.model.compile(r)
}

func (m *Model) trainRequest(c TrainConfig, losses []Loss) (request, error) {
	if err := m.Err(); err != nil {
		return request{}, err
	}
	if len(losses) == 0 {
		return request{}, located(errors.New("train: no loss: give a Loss"))
	}
	if err := m.asked("train", c, losses); err != nil {
		return request{}, err
	}
	p, err := c.compiler(losses)
	p.Checkpoints = slices.Clone(m.kept)
	r := request{config: p, losses: losses, grads: c.Grads, gradNorm: c.GradNorm, restore: c.RestoreScale, world: c.Parallel.World, sizes: c.Sizes, keep: c.KeepSizes}
	for _, o := range c.Outputs {
		r.outputs = append(r.outputs, o.Tensor)
	}
	return r, located(err)
}

func (m *Model) inferRequest(c InferConfig, out []Tensor) (request, error) {
	if err := m.Err(); err != nil {
		return request{}, err
	}
	if len(out) == 0 {
		return request{}, located(errors.New("infer: nothing to compute: give a tensor"))
	}
	for _, t := range out {
		if err := m.own("infer: a result", t); err != nil {
			return request{}, err
		}
	}
	if err := constant("InferConfig.Weights", c.Weights, EMA, "Live or EMA"); err != nil {
		return request{}, located(err)
	}
	if c.KeepSizes < 0 {
		return request{}, located(fmt.Errorf("infer: InferConfig.KeepSizes is %d, want 0 or more", c.KeepSizes))
	}
	if c.Step != "" && c.Weights != EMA {
		return request{}, located(fmt.Errorf("infer: InferConfig.Step is %q, which names averages: set InferConfig.Weights to EMA", c.Step))
	}
	p, err := c.compiler(out)
	return request{config: p, outputs: slices.Clone(out), weights: c.Weights, averages: c.Step, sizes: c.Sizes, keep: c.KeepSizes}, located(err)
}

func (s *Step) evalRequest(out []Tensor) (request, error) {
	r, err := s.model.inferRequest(InferConfig{Sizes: s.sizes, KeepSizes: s.keep}, out)
	if err != nil {
		return r, err
	}
	r.config.Policy, r.config.Pad, r.config.Disable, r.config.Prove = s.config.Policy, s.config.Pad, s.config.Disable, s.config.Prove
	r.config.Inherit = &s.assigned
	r.eval = s
	return r, nil
}

// located is err with the caller's line.
func located(err error) error {
	if err == nil {
		return nil
	}
	return &ir.Error{Pos: userLine(), Msg: err.Error()}
}

// asked refuses what a step is asked for and the model does not have.
func (m *Model) asked(verb string, c TrainConfig, losses []Loss) error {
	if c.KeepSizes < 0 {
		return located(fmt.Errorf("%s: TrainConfig.KeepSizes is %d, want 0 or more", verb, c.KeepSizes))
	}
	if c.Chunks < 0 {
		return located(fmt.Errorf("%s: TrainConfig.Chunks is %d, want 0 or more", verb, c.Chunks))
	}
	if c.Memory < FitMemory {
		return located(fmt.Errorf("%s: TrainConfig.Memory is %d, want bytes above 0, or FitMemory", verb, c.Memory))
	}
	for _, l := range losses {
		if err := m.own(verb+": a loss", l.Value); err != nil {
			return err
		}
	}
	if err := c.constants(losses); err != nil {
		return located(fmt.Errorf("%s: %w", verb, err))
	}
	for _, o := range c.Outputs {
		if err := m.own(verb+": TrainConfig.Outputs", o.Tensor); err != nil {
			return err
		}
	}
	for _, w := range c.Grads {
		if err := m.own(verb+": TrainConfig.Grads", w); err != nil {
			return err
		}
	}
	return nil
}

// constants refuses numbers that are not constants of their types.
func (c TrainConfig) constants(losses []Loss) error {
	const modes = "AutoScale, NoScale, StaticScale or DynamicScale"
	err := cmp.Or(
		constant("TrainConfig.RestoreScale", c.RestoreScale, RestoreNever, "RestoreAuto, RestoreAlways or RestoreNever"),
		constant("TrainConfig.BadMicro", c.BadMicro, DropMicro, "SkipStep or DropMicro"),
		constant("TrainConfig.Scaler.Mode", c.Scaler.Mode, DynamicScale, modes),
		constant("Policy.Scaler.Mode", c.Policy.Scaler.Mode, DynamicScale, modes))
	for _, g := range append(slices.Clone(c.Groups), Group{LR: c.LR}) {
		if n := len(g.LR.Phases); n > passes.MaxPhases {
			err = cmp.Or(err, fmt.Errorf("a schedule has %d phases, want at most %d: change the rate between steps with Step.SetLR", n, passes.MaxPhases))
		}
	}
	for _, o := range c.Outputs {
		err = cmp.Or(err, constant("TrainConfig.Outputs: Reduce", o.Reduce, Sum, "Last, Mean or Sum"))
	}
	for _, l := range losses {
		if l.Scaler != nil {
			err = cmp.Or(err, constant("Loss.Scaler.Mode", l.Scaler.Mode, DynamicScale, modes))
		}
	}
	return err
}

// constant refuses x beyond the last constant of its type.
func constant[T ~uint8](field string, x, last T, want string) error {
	if x <= last {
		return nil
	}
	return fmt.Errorf("%s is %d, want %s", field, uint8(x), want)
}

// own refuses a tensor of another model, and none.
func (m *Model) own(what string, t Tensor) error {
	if t.v == nil {
		return located(fmt.Errorf("%s: the tensor is absent", what))
	}
	return located(m.b.CheckOwn(what, t.v))
}
