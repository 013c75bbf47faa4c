package ampc

import "ampc/passes"

// slots are the places of a step's results among the outputs of its program,
// settled before the first pass: whatever values are called, a result is found
// by its place. -1 stands for what the step does not compute.
type slots struct {
	values map[Tensor]int // losses and outputs
	grads  map[Tensor]int // TrainConfig.Grads, by the parameter
	losses []int
	made   [passes.OfRate + 1]int // what the compiler makes, by kind
}

// newSlots asks the compiler for a step's results, of which the model itself
// returns the first.
func newSlots(returned []Tensor, p *passes.Config, r request) slots {
	s := slots{values: map[Tensor]int{}, grads: map[Tensor]int{}}
	for i := range s.made {
		s.made[i] = -1
	}
	asked := p.Outputs // one for each output, one for each gradient
	p.Outputs = nil
	place := func(o passes.Output) int {
		p.Outputs = append(p.Outputs, o)
		return len(returned) + len(p.Outputs) - 1
	}
	for i, t := range returned {
		s.values[t] = i
	}
	for i, l := range r.losses {
		at := place(passes.Output{Value: p.Losses[i].Value})
		s.losses, s.values[l.Value] = append(s.losses, at), at
	}
	for _, kind := range kinds(p, r.gradNorm) {
		s.made[kind] = place(passes.Output{Kind: kind})
	}
	for i, t := range r.outputs {
		s.values[t] = place(asked[i])
	}
	for i, w := range r.grads {
		s.grads[w] = place(asked[len(r.outputs)+i])
	}
	return s
}

// kinds lists what the compiler makes for a training step; norm asks for the norm
// of all gradients, which clipping by it brings without.
func kinds(p *passes.Config, norm bool) []passes.ResultKind {
	if !p.Train {
		return nil
	}
	out := []passes.ResultKind{passes.OfScale, passes.OfRate}
	if !p.NoSkip {
		out = append(out, passes.OfSkip)
	}
	clipped := norm || p.Clip.Norm > 0
	for _, g := range p.Groups {
		clipped = clipped || g.Clip.Norm > 0
	}
	if clipped {
		out = append(out, passes.OfGradNorm)
	}
	return out
}
