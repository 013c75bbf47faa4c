package doctor

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"ampc/ir"
)

var inf = math.Inf(1)

// findRemedies adds the remedies that follow from the replay in f32.
func (x *analysis) findRemedies(d *Diagnosis, v *ir.Value) {
	switch d.Cause {
	case ScaleTooHigh, GradientOverflow:
		if s := x.scaleOf(v); s != nil {
			x.rescale(d, v, s)
			return
		}
		x.keep(d, v, nil)
	case ForwardOverflow:
		x.keep(d, v, x.floors())
	case Singular, VanishedConstant:
		x.keepExact(d, v)
	}
}

// scaleOf is the scale variable that v carries, nil where it carries none.
func (x *analysis) scaleOf(v *ir.Value) *ir.Value {
	for _, s := range x.scales {
		if v.Unit.Exponent(s.Name) > 0 {
			return s
		}
	}
	return nil
}

// fitting is the largest power of two for the scale s at which every value fits that the step
// stores in 16 bits, or that low selects, and the value that bounds it. It is 0 if none down to
// leastScale fits.
func (x *analysis) fitting(s *ir.Value, low func(v *ir.Value) bool) (float64, *ir.Value) {
	return x.fittingBeside(s, nil, low)
}

// fittingBeside is fitting with other numbers for other scales, by name.
func (x *analysis) fittingBeside(s *ir.Value, others map[string]float64, low func(v *ir.Value) bool) (float64, *ir.Value) {
	instead := map[string]float64{s.Name: 1}
	maps.Copy(instead, others)
	least, limit := inf, (*ir.Value)(nil)
	for _, n := range x.g.Nodes {
		for _, v := range n.Out {
			peak := x.reference.peaks[v]
			if peak == 0 || low != nil && !low(v) {
				continue
			}
			e := v.Unit.Exponent(s.Name)
			if e <= 0 {
				continue
			}
			rest, top := x.carried(v, instead), v.Type.DType.Max()
			if low != nil && !v.Type.DType.Low() { // what reads it has it in 16 bits
				top = x.lowDType().Max()
			}
			most := math.Pow(margin*top/(peak*rest), 1/float64(e))
			if most < least {
				least, limit = most, v
			}
		}
	}
	if !(least >= leastScale) || math.IsInf(least, 1) {
		return 0, nil
	}
	return math.Ldexp(1, int(math.Floor(math.Log2(least)))), limit
}

// leastScale is the smallest scale that is advised: with it f16 holds no gradient below 1.
const leastScale = 0x1p-24

// rescale adds what helps against an overflow at scale s. It tells the scaler's search, which ends by
// itself, from a static scale or a floor that is too high.
func (x *analysis) rescale(d *Diagnosis, v, s *ir.Value) {
	var limit *ir.Value
	d.SafeScale, limit = x.fitting(s, nil)
	now := x.actual.rangeOf(s).Max
	if limit != nil && real(limit) != real(v) && d.SafeScale < x.ownScale(d, v, s) {
		d.Why += fmt.Sprintf("; %s, computed from it, fits at %g", real(limit), d.SafeScale)
	}
	of := ""
	if ir.InnerScale(s) {
		of = s.Name
	}
	rule := x.scaler(s)
	switch {
	case d.SafeScale == 0:
		d.Cause = GradientOverflow
		x.keep(d, v, map[string]float64{s.Name: min(now, 1)})
	case rule == nil:
		d.Remedies = append(d.Remedies, Remedy{Scale: d.SafeScale, Of: of})
		if d.SafeScale < 1 {
			d.Cause = GradientOverflow
			x.keep(d, v, nil)
		}
	case d.SafeScale >= rule.Float("floor"):
		wait := x.wait(rule, now, d.SafeScale)
		d.Cause, d.Why = None, "scale search: "+d.Why
		switch {
		case wait == 0:
			d.Advice = "nothing: the scaler has already lowered the scale to one that fits"
		default:
			d.Advice = fmt.Sprintf("nothing: the scaler is at %g after %s%s", d.SafeScale, most(rule), steps(wait))
		}
		if of != "" {
			then := x.waitBehind(s, d.SafeScale)
			if then > 0 {
				d.Advice += fmt.Sprintf("; the loss scale, which is too high as well, takes %s", steps(then))
			}
			wait += then
		}
		if wait > 0 {
			d.Remedies = append(d.Remedies, Remedy{Wait: wait})
		}
		if wait > 3 && of == "" {
			d.Remedies = append(d.Remedies, Remedy{Scale: d.SafeScale})
		}
	default:
		floor := rule.Float("floor")
		d.Why += fmt.Sprintf("; a scale of %g fits, and the scaler's floor is %g", d.SafeScale, floor)
		if d.SafeScale < 1 {
			d.Cause = GradientOverflow
		}
		d.Remedies = append(d.Remedies, Remedy{Floor: d.SafeScale, Of: of, Wait: x.wait(rule, now, d.SafeScale)})
		x.keep(d, v, map[string]float64{s.Name: floor})
	}
}

// ownScale is the scale at which v itself fits.
func (x *analysis) ownScale(d *Diagnosis, v, s *ir.Value) float64 {
	most := v.Type.DType.Max() * x.actual.rangeOf(s).Max / d.Exact
	return math.Ldexp(1, int(math.Floor(math.Log2(most))))
}

// scaler is the node that updates the scale s, nil if it is static.
func (x *analysis) scaler(s *ir.Value) *ir.Node {
	for _, n := range x.g.Body[ir.Update] {
		if n.Op == ir.OpUpdateScale && n.In[0] == s {
			return n
		}
	}
	return nil
}

// wait is how many more steps are skipped until the scale has fallen from now, that of this step, to
// safe.
func (x *analysis) wait(rule *ir.Node, now, safe float64) int {
	backoffs := int(math.Ceil(math.Log2(now/safe)/-math.Log2(rule.Float("backoff")) - 1e-9))
	each := int(rule.Int("hysteresis"))
	if rule.Flag("sticky") {
		each = 1
	}
	left := each // overflows until the next backoff, after this step
	if b := x.c.State[rule.In[2].Name]; len(b) == 4 {
		left = int(int32(binary.LittleEndian.Uint32(b)))
	}
	if int(rule.Int("hysteresis")) == 1 || left == int(rule.Int("hysteresis")) && x.c.Skips > 0 { // this step has lowered it
		backoffs--
	}
	if backoffs <= 0 {
		return 0
	}
	return left + (backoffs-1)*each
}

// waitBehind is how many steps the search for the loss scales skips from when an inner gradient's scale
// is at safe. Before, the loss is not finite, and they stay as they are.
func (x *analysis) waitBehind(inner *ir.Value, safe float64) int {
	skipped := 0
	for _, s := range x.scales {
		rule := x.scaler(s)
		if ir.InnerScale(s) || rule == nil {
			continue
		}
		fits, _ := x.fittingBeside(s, map[string]float64{inner.Name: safe}, nil)
		if now := x.actual.rangeOf(s).Max; fits >= rule.Float("floor") && fits < now {
			backoffs := math.Ceil(math.Log2(now/fits)/-math.Log2(rule.Float("backoff")) - 1e-9)
			skipped = max(skipped, int(backoffs)*int(rule.Int("hysteresis")))
		}
	}
	return skipped
}

// most returns "at most " if the scaler tolerates overflows, whose count may not be known.
func most(rule *ir.Node) string {
	if rule.Int("hysteresis") > 1 {
		return "at most "
	}
	return ""
}

// keep adds the remedy that keeps in f32 all values that 16 bits do not hold, v first.
func (x *analysis) keep(d *Diagnosis, v *ir.Value, scale map[string]float64) {
	if d.Direction == Update && len(v.Def.Why.Casts) == 0 {
		d.Remedies = append(d.Remedies, Remedy{Widen: v.Name})
		return
	}
	k := x.keeper(scale)
	k.value(v)
	k.elsewhere()
	x.remedy(d, k)
}

// remedy adds what k has collected.
func (x *analysis) remedy(d *Diagnosis, k *keeping) {
	if r := k.remedy(); r != nil {
		d.Remedies, x.leaveOut, x.keeping = append(d.Remedies, *r), r.LeaveOut, k
	}
}

// keepExact adds the remedy that keeps in f32 all values from the rounding at fault to the singular
// result. What comes after that has not run under the policy, so values that overflow 16 bits in
// the replay in f32, with the scales at their floors, are kept, too.
func (x *analysis) keepExact(d *Diagnosis, v *ir.Value) {
	if d.Direction == Update {
		d.Remedies = append(d.Remedies, Remedy{Widen: d.From})
		return
	}
	k := x.keeper(x.floors())
	for _, n := range x.spoiled(d, v) {
		for _, o := range n.Out {
			k.seen[o] = true
			if k.source(o); k.chosen(o) {
				k.node(o.Decider())
			}
		}
	}
	k.elsewhere()
	x.remedy(d, k)
}

// floors are the lowest scales that the scalers reach, by name of the scale. Static scales
// are missing.
func (x *analysis) floors() map[string]float64 {
	floors := map[string]float64{}
	for _, s := range x.scales {
		if rule := x.scaler(s); rule != nil {
			floors[s.Name] = rule.Float("floor")
		}
	}
	return floors
}
