package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// A loss over classes and its gradient read the same logits. What the gradient is multiplied with
// may depend on the number of labels, but hardly on the loss. One launch then computes both, where
// the gradient is, and the steps between that read the loss follow it.

// fuseLosses orders the steps of a part such that losses run with their gradients, and notes these
// losses by their logits.
func (c *cudaLowerer) fuseLosses(steps []lower.Step) []lower.Step {
	c.fused = map[lower.BufferID]*lower.Step{}
	for i := 0; i < len(steps); i++ {
		loss := steps[i]
		if loss.Kernel == nil || loss.Kernel.Node.Op != ir.OpCrossEntropy || c.fused[loss.In[0]] != nil {
			continue
		}
		j := slices.IndexFunc(steps, func(s lower.Step) bool { return c.isGradient(&s, &loss) })
		if j < i {
			continue
		}
		between, after, ok := c.around(loss, steps[i+1:j], &steps[j])
		if !ok {
			continue
		}
		c.fused[loss.In[0]] = &loss
		steps = slices.Concat(steps[:i+1], between, steps[j:j+1], after, steps[j+1:])
	}
	return steps
}

// isGradient reports whether s is the gradient of a loss for which one kernel computes both: the
// classes are the last axis, and nothing changes the logits meanwhile.
func (c *cudaLowerer) isGradient(s, loss *lower.Step) bool {
	if s.Kernel == nil || s.Kernel.Node.Op != ir.OpCrossEntropyGrad || s.In[0] != loss.In[0] || s.In[1] != loss.In[1] {
		return false
	}
	a, b := &cudaCall{c, loss, loss.Kernel.Node}, &cudaCall{c, s, s.Kernel.Node}
	x := a.n.In[0].Type.Shape
	return c.elements(loss.In[0]) > 0 && a.n.Axis() == x.Rank()-1 && c.p.Buffers[loss.In[0]].Arena != lower.StateArena &&
		slices.Equal(a.labels(), b.labels()) && a.n.Axis() == b.n.Axis() && a.n.Int("ignore") == b.n.Int("ignore") && a.n.Float("smoothing") == b.n.Float("smoothing")
}

// around divides the steps between a loss and its gradient into those that need not wait for the
// loss and those that do. It returns false if the gradient waits for it, too, if a step between
// changes an operand of the loss, or if messages would change their order.
func (c *cudaLowerer) around(loss lower.Step, steps []lower.Step, gradient *lower.Step) (between, after []lower.Step, ok bool) {
	late, read := c.roots(loss.Out[:1]), map[lower.BufferID]bool{}
	operands := c.roots(loss.In)
	waits := func(s *lower.Step) bool {
		return c.meets(s.In, late) || c.meets(s.Out, late) || c.meets(s.Out, read)
	}
	for i := range steps {
		s := &steps[i]
		switch {
		case c.meets(s.Out, operands), s.Kernel != nil && s.Kernel.Node.Def().Is(ir.Collective):
			return nil, nil, false
		case waits(s):
			after = append(after, *s)
			for id := range c.roots(s.Out) {
				late[id] = true
			}
			for id := range c.roots(s.In) {
				read[id] = true
			}
		default:
			between = append(between, *s)
		}
	}
	return between, after, !waits(gradient)
}

// roots are the roots of buffers.
func (c *cudaLowerer) roots(ids []lower.BufferID) map[lower.BufferID]bool {
	list := map[lower.BufferID]bool{}
	for _, id := range ids {
		if id != lower.None {
			list[c.p.Buffers[id].Root] = true
		}
	}
	return list
}

// meets reports whether one of the buffers is in roots.
func (c *cudaLowerer) meets(ids []lower.BufferID, roots map[lower.BufferID]bool) bool {
	return slices.ContainsFunc(ids, func(id lower.BufferID) bool { return id != lower.None && roots[c.p.Buffers[id].Root] })
}
