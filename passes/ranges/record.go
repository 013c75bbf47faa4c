package ranges

import (
	"context"
	"math"

	"ampc/ir"
	"ampc/ir/eval"
)

// Recorded is the range of a value over some runs of the step.
type Recorded struct {
	Lo, Hi    float64
	Least     float64 // smallest magnitude above zero, 0 for none
	Nonfinite int     // number of elements that were Inf or NaN
	Elements  int
}

func (r Recorded) interval() ir.Interval {
	return ir.Interval{Lo: r.Lo, Hi: r.Hi, NaN: r.Nonfinite > 0}
}

// Recorder collects ranges over runs of one graph.
type Recorder struct {
	g    *ir.Graph
	seen map[string]Recorded
}

// NewRecorder returns a recorder without ranges.
func NewRecorder(g *ir.Graph) *Recorder { return &Recorder{g: g, seen: map[string]Recorded{}} }

// Run evaluates the step once on env (variables and inputs by name) and adds the ranges of all
// float values, in the graph's dtypes. If ctx ends, Run returns between two nodes.
func (r *Recorder) Run(ctx context.Context, env map[string]*eval.Tensor) error {
	res, err := eval.Run(r.g, env, eval.Options{Stop: ctx.Err})
	if err != nil {
		return err
	}
	for _, v := range r.g.Vars {
		r.take(v, env[v.Name])
	}
	for _, n := range r.g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil {
				r.take(v, res.Value(v))
			}
		}
	}
	return nil
}

// recorded looks v up in seen. For a cast that did not exist when ranges were recorded it returns
// the range of the operand.
func recorded(seen map[string]Recorded, v *ir.Value) (Recorded, bool) {
	if v.Next != nil {
		return Recorded{}, false
	}
	rec, ok := seen[v.Name]
	if !ok && v.Def != nil && v.Def.Op == ir.OpCast {
		return recorded(seen, v.Def.In[0])
	}
	return rec, ok
}

// Ranges returns the ranges so far, by value name.
func (r *Recorder) Ranges() map[string]Recorded { return r.seen }

func (r *Recorder) take(v *ir.Value, t *eval.Tensor) {
	if t == nil || !v.Type.DType.Float() {
		return
	}
	s, ok := r.seen[v.Name]
	if !ok {
		s = Recorded{Lo: inf, Hi: -inf}
	}
	for _, x := range t.F {
		s.Elements++
		if math.IsNaN(x) || math.IsInf(x, 0) {
			s.Nonfinite++
			continue
		}
		s.Lo, s.Hi = min(s.Lo, x), max(s.Hi, x)
		if a := math.Abs(x); a > 0 && (s.Least == 0 || a < s.Least) {
			s.Least = a
		}
	}
	r.seen[v.Name] = s
}

// ScaleRange is the range of loss scales that recorded gradients allow.
type ScaleRange struct {
	// Largest is the largest power of two at which no recorded 16-bit gradient would have
	// overflowed. Below Smallest, the smallest recorded gradient would have been 0; Smallest is 0
	// if there is none.
	Largest, Smallest float64
	// Start is an initial scale that is a factor of 8 below Largest, within the bounds of the
	// scaler.
	Start float64
	// Limit names the gradient that sets Largest.
	Limit string
}

// margin is how far below the largest possible scale the initial scale is: gradients grow in the
// first steps.
const margin = 8

// LossScale computes the safe range of the scale in variable scale from ranges that were recorded
// while its value was at.
func LossScale(g *ir.Graph, scale string, at float64, seen map[string]Recorded) (ScaleRange, error) {
	if err := ir.InferUnits(g); err != nil {
		return ScaleRange{}, err
	}
	r := ScaleRange{Largest: 1 << 24}
	least := inf
	for _, n := range g.Body[ir.Backward] {
		for _, v := range n.Out {
			s, ok := recorded(seen, v)
			if !ok || v.Unit != ir.Unit(scale) || !v.Type.DType.Low() {
				continue
			}
			top, small := v.Type.DType.Max(), v.Type.DType.SmallestSubnormal()
			if m := max(-s.Lo, s.Hi); m > 0 {
				if room := powerBelow(at * top / m); room < r.Largest {
					r.Largest, r.Limit = room, v.String()
				}
			}
			if s.Least > 0 {
				least = min(least, s.Least/small)
			}
		}
	}
	if !math.IsInf(least, 0) {
		r.Smallest = powerBelow(2 * at / least)
	}
	r.Start = max(1, r.Largest/margin)
	return r, nil
}

func powerBelow(x float64) float64 { return math.Ldexp(1, int(math.Floor(math.Log2(x)))) }
