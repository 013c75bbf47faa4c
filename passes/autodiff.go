package passes

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"ampc/ir"
)

// autodiff appends the backward section: one sweep for each scaler. A sweep starts at its losses
// with a constant, which the scale pass multiplies. autodiff emits no casts, and keeps only the
// nodes that gradients of trained parameters depend on. Its work and its result are linear in the
// size of the graph.
func autodiff(g *ir.Graph, c *Context) error {
	if !c.Train || len(g.Body[ir.Backward]) > 0 {
		return nil
	}
	t := c.training
	t.reserve(g, c)
	if err := t.synchronize(g, c); err != nil {
		return err
	}
	if err := t.plan(g, c); err != nil {
		return err
	}
	reasons := map[string]bool{}
	for k, s := range t.sweeps {
		if err := s.differentiate(g, c, uint64(1)<<k, reasons); err != nil {
			return err
		}
	}
	t.renumber(g)
	if err := t.checkReached(g, c, reasons); err != nil {
		return err
	}
	for _, s := range t.sweeps {
		if x := s.terms[0].value; len(s.grads) == 0 {
			return &ir.Error{Pos: posOf(x), Msg: fmt.Sprintf("no trained parameter is in the loss %s: leave it out, or make it an output", x)}
		}
	}
	return nil
}

// differentiate computes the sweep's gradients of all trained parameters.
func (s *sweep) differentiate(g *ir.Graph, c *Context, bit uint64, reasons map[string]bool) error {
	t := c.training
	b := c.append(g)
	for _, l := range s.terms {
		l.seed = declareSeed(b, private(s.label("start"), ""), l.weight*math.Ldexp(1, -s.shift))
	}
	loss, from := "", len(g.Body[ir.Backward])
	if len(t.sweeps) > 1 {
		loss = s.title
	}
	tp := newTape(b, ir.Backward, t.wanted(), s.label("d"), loss)
	for _, l := range s.terms {
		at := l.value
		if s.count != nil {
			at = l.sum
		}
		tp.add(at, l.seed)
	}
	if err := tp.flow(g.Body[ir.Forward]); err != nil {
		return err
	}
	var kept []*ir.Value
	for _, p := range t.params {
		if d := tp.total(p.v); d != nil {
			s.grads = append(s.grads, grad{p, d})
			p.reach |= bit
			kept = append(kept, d)
		}
	}
	tp.reasons(reasons)
	dropped := sweepDead(g, from, kept)
	b.Removed(dropped...)
	markSeeds(g.Body[ir.Backward][from:], s.terms)
	c.Count("sweeps", 1)
	c.Count("gradients", len(s.grads))
	c.Count("fan_in_sums", tp.sums)
	c.Count("dead_backward_nodes", len(dropped))
	return b.Err()
}

func declareSeed(b *ir.Builder, name string, x float64) *ir.Value {
	if b.Lookup(name) != nil {
		for k := 2; ; k++ {
			if next := fmt.Sprintf("%s_%d", name, k); b.Lookup(next) == nil {
				name = next
				break
			}
		}
	}
	return b.Declare(ir.Const, name, ir.T(ir.F32), &ir.Init{Args: []float64{x}}, nil)
}

// markSeeds records the nodes at which the sweep starts.
func markSeeds(nodes []*ir.Node, terms []*lossTerm) {
	for _, n := range nodes {
		for _, l := range terms {
			for _, v := range n.In {
				if v == l.seed {
					n.Why.Marks |= ir.MarkSeed
				}
			}
		}
	}
}

// checkReached reports parameters that no loss depends on: as an error if a group names them, as a
// note if a group matches all parameters.
func (t *training) checkReached(g *ir.Graph, c *Context, reasons map[string]bool) error {
	reached := t.params[:0]
	for _, p := range t.params {
		if p.reach != 0 {
			reached = append(reached, p)
			continue
		}
		msg := fmt.Sprintf("no loss depends on parameter %s: freeze it or leave it out of the groups", p.v)
		msg += stoppedAt(reasons)
		if !everything(p.group.Pattern) {
			return &ir.Error{Pos: p.v.Pos, Msg: msg}
		}
		c.Count("params_without_gradient", 1)
		c.note("%s", msg)
	}
	t.params = reached
	if len(reached) == 0 {
		return fmt.Errorf("graph @%s: no loss depends on any trained parameter%s", g.Name, stoppedAt(reasons))
	}
	return nil
}

// reasons adds each op without a gradient at which a gradient arrived, with the reason of its row.
func (t *tape) reasons(at map[string]bool) {
	for _, n := range t.stopped {
		at[fmt.Sprintf("%s (%s)", n.Def().Name, n.Def().NoGrad)] = true
	}
}

// stoppedAt says at which ops gradients ended, "" for none.
func stoppedAt(reasons map[string]bool) string {
	if len(reasons) == 0 {
		return ""
	}
	return "; gradients stopped at " + strings.Join(sortedKeys(reasons), ", ")
}

// GradScale is the scale that Gradients starts with: a power of two, by which it divides the
// gradients again. Under a dynamic scaler it is the initial scale, which then backs off and grows
// as the loss scale does.
type GradScale struct {
	Scale float64 // zero: 1, without unscaling
}

// Gradients appends to b's forward section the derivatives of the scalar y by each value of wrt.
// They are ordinary values, which a loss may depend on. A nil result stands for a value that y does
// not depend on. stopped says at which ops gradients ended.
//
// The results have scale unit 1. The values before the division carry the given scale. If one of
// them overflows, the step is skipped and this scale backs off, not the loss scale.
func Gradients(b *ir.Builder, y *ir.Value, wrt []*ir.Value, gs GradScale) (out []*ir.Value, stopped string, err error) {
	if b.Err() != nil {
		return nil, "", b.Err()
	}
	if y.Type != ir.T(ir.F32) {
		return nil, "", &ir.Error{Pos: posOf(y), Msg: fmt.Sprintf("%s is %s, want f32[]: reduce it to one number", y, b.Graph().TypeString(y.Type))}
	}
	seed, mul := innerSeed(b, gs), (*ir.Value)(nil)
	if gs.scaled() {
		if err := powerOfTwo("scale of an inner gradient", gs.Scale); err != nil {
			return nil, "", err
		}
		mul = b.In(ir.Forward).Named("grad.mul").Multiplier(seed, nil, nil, 0, 0)
	}
	tp := newTape(b, ir.Forward, wrt, "grad", "")
	tp.add(y, seed)
	if err := tp.flow(b.Graph().Body[ir.Forward]); err != nil {
		return nil, "", err
	}
	out = make([]*ir.Value, len(wrt))
	for i, v := range wrt {
		out[i] = tp.total(v)
		if out[i] != nil && mul != nil {
			out[i] = b.In(ir.Forward).Named("grad."+v.Name+".unscaled").Unscale(out[i], mul)
		}
	}
	at := map[string]bool{}
	tp.reasons(at)
	return out, stoppedAt(at), b.Err()
}

func (gs GradScale) scaled() bool { return gs.Scale != 0 && gs.Scale != 1 }

// innerSeed declares the start value of an inner sweep: its scale, or the constant 1.
func innerSeed(b *ir.Builder, gs GradScale) *ir.Value {
	kind, x, role := "start", 1.0, roleGradSeed
	if gs.scaled() {
		kind, x, role = kindScale, gs.Scale, ir.RoleScale
	}
	name := StateName{Step: innerScales, Kind: kind}
	for k := 2; b.Lookup(name.String()) != nil; k++ {
		name.Of = strconv.Itoa(k)
	}
	v := declareSeed(b, name.String(), x)
	if v != nil {
		v.Attr = v.Attr.With("role", role)
	}
	return v
}
