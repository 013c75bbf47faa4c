package doctor

import (
	"fmt"
	"math"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/cpu"
)

// Losses sums up the losses of the steps before. Without them a replay cannot tell an overflow from
// the end of a divergence.
type Losses struct {
	Least float64 `json:"least"` // smallest magnitude
	Last  float64 `json:"last"`  // the newest one that is finite
	Steps int     `json:"steps"` // that had a finite loss; 0: nothing is known
}

// See adds the loss of one more step.
func (l *Losses) See(loss float64) {
	loss = math.Abs(loss)
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return
	}
	if l.Steps == 0 || loss < l.Least {
		l.Least = loss
	}
	l.Last = loss
	l.Steps++
}

// Growth beyond these factors counts as divergence.
const (
	lossGrowth   = 16 // of the loss over its least
	weightGrowth = 4  // of the largest weight over what it started with
	farOff       = 64 // of one weight, if no losses are known
)

// diverged blames the training if losses and weights had grown before the step. If no losses are
// known and a weight at the overflow is far from its start, it adds a note.
func (x *analysis) diverged(d *Diagnosis, v *ir.Value) error {
	switch d.Cause {
	case ScaleTooHigh, GradientOverflow, ForwardOverflow, NotPrecision:
	default:
		return nil
	}
	if d.Cause == NotPrecision && d.From != "" {
		return nil
	}
	l := x.c.Losses
	if l.Steps <= 1 && d.Cause != ForwardOverflow {
		return nil
	}
	if l.Steps > 1 && !(l.Last >= lossGrowth*max(l.Least, 1e-6)) {
		return nil
	}
	name, was, is := "", 0.0, 0.0
	for _, p := range x.weights(v, l.Steps > 1) {
		from, err := x.start(x.b, p, x.c.Seed)
		if err != nil {
			return err
		}
		if now := x.actual.rangeOf(p).AbsMax; now/from > is/max(was, 1e-30) {
			name, was, is = p.Name, from, now
		}
	}
	switch {
	case name == "":
	case l.Steps > 1 && is >= weightGrowth*was:
		d.Why = fmt.Sprintf("the loss had grown from %.4g to %.4g before this step, and %s from %.4g to %.4g: training diverges, in f32 as well; here %s",
			l.Least, l.Last, name, was, is, d.Why)
		d.Cause, d.Remedies, d.BF16 = Diverged, nil, nil
		d.Advice = "lower the learning rate, warm it up, or clip the gradients; load an earlier checkpoint"
	case l.Steps <= 1 && d.Cause == ForwardOverflow && is >= farOff*was:
		d.Notes = append(d.Notes, fmt.Sprintf("%s is %.3g times its initial magnitude: if training caused this, it may diverge in f32 as well; one step cannot tell", name, is/was))
	}
	return nil
}

// weights are the parameters whose growth counts: all, or those that v and its operands are computed
// from.
func (s *subject) weights(v *ir.Value, all bool) []*ir.Value {
	var ps []*ir.Value
	if all {
		for _, p := range s.g.Vars {
			if p.Kind == ir.Param && p.Type.DType.Float() {
				ps = append(ps, p)
			}
		}
		return ps
	}
	add := func(n *ir.Node) {
		for _, op := range n.In {
			if op = real(op); op != nil && op.Kind == ir.Param && op.Def == nil && op.Type.DType.Float() {
				ps = append(ps, op)
			}
		}
	}
	add(v.Def)
	for _, op := range v.Def.In {
		if op != nil && op.Def != nil {
			add(op.Def)
		}
	}
	return ps
}

// sampled is how many elements of a weight are initialized again to find its first magnitude, if
// all are drawn from one distribution. The largest of 1,024 normal numbers is 0.7 times that of a million.
const sampled = 1 << 10

// alike reports whether all elements are drawn from one distribution.
func alike(i *ir.Init) bool { return i == nil || i.Func != "data" && i.Func != "file" }

// draw is a variable as a seed initializes it.
type draw struct {
	v    *ir.Value
	seed int64
}

// start is the largest initial magnitude of p, or of a sample of it; 1 if that is 0 or not known.
func (s *subject) start(b *cpu.Backend, p *ir.Value, seed int64) (float64, error) {
	at := draw{p, seed}
	if was, known := s.starts[at]; known {
		return was, nil
	}
	t := p.Type
	if t.Shape.Elements() > sampled && alike(p.Init) {
		t = ir.T(t.DType, sampled)
	}
	data, err := runtime.InitialBytes(&lower.Var{Name: p.Name, Type: t, Kind: p.Kind, Init: p.Init, Attr: p.Attr}, seed)
	if err != nil {
		return 0, err
	}
	s.starts[at] = 1
	if c := b.Count(p.Type.DType, data); max(c.Hi, -c.Lo) > 0 {
		s.starts[at] = float64(max(c.Hi, -c.Lo))
	}
	return s.starts[at], nil
}
