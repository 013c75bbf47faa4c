package passes

import (
	"fmt"
	"math/bits"
	"slices"

	"ampc/ir"
)

// lossScale is a scaler and its state in the graph.
type lossScale struct {
	name   string  // part of the names of its values and sweeps
	of     *Scaler // losses that name it share it
	step   string  // part of the names of its variables
	after  string
	scaler Scaler
	scale  *ir.Value // nil: no scale
}

// state names a variable of the scaler.
func (l *lossScale) state(kind string) string { return StateName{l.step, kind, l.after}.String() }

// loss is a loss of the config, written as the sum shift + Σ factor·term.
type loss struct {
	Loss
	value *ir.Value
	terms []*lossTerm
	shift float64
}

// lossTerm is a scalar at which a sweep starts. If count is set, the term is the mean of a loss
// row, computed from its sum and its count, and the count depends on the data: labels may be
// ignored.
type lossTerm struct {
	factor     float64 // factor in the loss, without the loss's weight
	weight     float64 // factor times the loss's weight
	value      *ir.Value
	sum, count *ir.Value
	seed       *ir.Value // constant with which the sweep starts here
	final      *ir.Value // the term over all micro-batches
}

// planLosses finds the losses and gives each scaler one sweep. With several micro-batches, terms
// whose counts depend on the data have one sweep for each count, because only the sum over all
// micro-batches may be divided by its count.
func (t *training) planLosses(g *ir.Graph, c *Context) error {
	losses := c.Policy.scalers(t.sources(g, c), c.Scaler)
	if len(losses) == 0 {
		v := defaultLoss(g.Return[:t.returned])
		if v == nil {
			return fmt.Errorf("graph @%s returns no f32[] value to train on: name a loss", g.Name)
		}
		losses = []Loss{{Value: v}}
	}
	type key struct {
		scale *lossScale
		count *ir.Value
	}
	index := map[key]*sweep{}
	for _, l := range losses {
		found, err := findLoss(g, l)
		if err != nil {
			return err
		}
		scale, err := t.scaleOf(l, c)
		if err != nil {
			return err
		}
		found.split(c.accumulates(), c.Parallel.several() || c.Parallel.Slices > 0)
		t.losses = append(t.losses, found)
		for _, term := range found.terms {
			k := key{scale, term.count}
			if index[k] == nil {
				index[k] = t.newSweep(scale)
			}
			index[k].terms = append(index[k].terms, term)
		}
	}
	if len(t.sweeps) > 64 {
		return fmt.Errorf("%d backward sweeps, the most is 64", len(t.sweeps))
	}
	for _, s := range t.sweeps {
		s.planCount(g, c.Parallel)
	}
	if extra := len(t.sweeps) - len(t.scales); extra > 0 {
		c.note("%d more backward sweeps: losses of one scaler divide by counts that depend on the data", extra)
	}
	return nil
}

// newSweep adds a sweep. Names of the first sweep have no suffix.
func (t *training) newSweep(scale *lossScale) *sweep {
	s := &sweep{lossScale: scale, title: scale.name}
	same := 1
	for _, other := range t.sweeps {
		if other.lossScale == scale {
			same++
		}
	}
	if same > 1 {
		s.title = fmt.Sprintf("%s.%d", scale.name, same)
	}
	if len(t.sweeps) > 0 {
		s.tag = "." + s.title
	}
	t.sweeps = append(t.sweeps, s)
	return s
}

// scaleOf finds or creates the state of a loss's scaler.
func (t *training) scaleOf(l Loss, c *Context) (*lossScale, error) {
	for _, s := range t.scales {
		if s.of == l.Scaler {
			return s, nil
		}
	}
	s := &lossScale{name: defaultScaler, of: l.Scaler, step: c.Name, scaler: c.Scaler}
	if l.Scaler != nil {
		s.scaler, s.after = *l.Scaler, t.scaleAfter(l.Value.Name)
		s.name += "." + s.after
	}
	if use, ok := c.Shared[l.Scaler]; ok && l.Scaler != nil {
		s.step, s.after, s.scaler.Sharing = use.Step, use.Of, use.Part
	}
	s.scaler = s.scaler.under(c.Policy).filled()
	if err := s.scaler.check(); err != nil {
		return nil, fmt.Errorf("loss %s: %w", l.Value, err)
	}
	if s.scaler.Mode == DynamicScale && c.NoSkip {
		return nil, fmt.Errorf("loss %s: a dynamic scaler needs the check that NoSkip leaves out", l.Value)
	}
	t.scales = append(t.scales, s)
	return s, nil
}

// defaultScaler is the name of values in the sweep of the config's scaler.
const defaultScaler = "amp"

// scaleAfter is the loss after which a scaler is named: the first one that has it, numbered if that
// has several.
func (t *training) scaleAfter(loss string) string {
	name := loss
	for k := 2; slices.ContainsFunc(t.scales, func(s *lossScale) bool { return s.of != nil && s.after == name }); k++ {
		name = fmt.Sprintf("%s_%d", loss, k)
	}
	return name
}

// sources lists the losses after the preceding passes.
func (t *training) sources(g *ir.Graph, c *Context) []Loss {
	out := slices.Clone(c.Losses)
	for i := range out {
		out[i].Value = g.Return[t.claimed[i]]
	}
	return out
}

// defaultLoss is the first returned value of type f32[].
func defaultLoss(returned []*ir.Value) *ir.Value {
	for _, v := range returned {
		if v.Type == ir.T(ir.F32) {
			return v
		}
	}
	return nil
}

func findLoss(g *ir.Graph, l Loss) (*loss, error) {
	v := l.Value
	switch {
	case v.Type != ir.T(ir.F32):
		return nil, &ir.Error{Pos: posOf(v), Msg: fmt.Sprintf("loss %s is %s, want f32[]: reduce it to one number", v, g.TypeString(v.Type))}
	case v.IsVar():
		return nil, &ir.Error{Pos: v.Pos, Msg: fmt.Sprintf("loss %s is declared, not computed: it has no gradient", v)}
	}
	if err := ir.AnyFinite.Check(fmt.Sprintf("loss %s: weight", v), l.weight()); err != nil {
		return nil, &ir.Error{Pos: posOf(v), Msg: err.Error()}
	}
	return &loss{Loss: l, value: v}, nil
}

// split finds the terms of the loss. That is the loss itself, unless micro-batches have their own
// label counts or ranks their own numbers of rows; then the loss must be divided into the parts
// that have these counts.
func (l *loss) split(micro, ranks bool) {
	if micro || ranks {
		l.walk(l.value, 1, ranks)
		for _, t := range l.terms {
			if t.count != nil {
				return
			}
		}
	}
	l.shift = 0
	l.terms = []*lossTerm{{factor: 1, weight: l.weight(), value: l.value}}
}

// maxTerms is the largest number of terms of a loss.
const maxTerms = 64

// walk adds the terms of factor·v. If every is set, each loss row becomes a term, even if its count
// is the same in every micro-batch.
func (l *loss) walk(v *ir.Value, factor float64, every bool) {
	x, a, b := linear(v)
	l.shift += factor * b
	factor *= a
	if n := x.Def; n != nil && len(l.terms) < maxTerms {
		if signs := summed(n); signs != nil {
			for i, y := range n.In {
				l.walk(y, factor*signs[i], every)
			}
			return
		}
	}
	t := &lossTerm{factor: factor, weight: factor * l.weight(), value: x}
	if sum, count := meanOf(x); sum != nil && (every || ignores(count.Def)) {
		t.sum, t.count = sum, count
	}
	l.terms = append(l.terms, t)
}

// summed is the sign of each operand if n adds or subtracts f32 scalars; nil otherwise.
func summed(n *ir.Node) []float64 {
	var signs []float64
	for i, v := range n.In {
		switch {
		case v == nil || v.Type != ir.T(ir.F32):
			return nil
		case n.OperandDef(i).Entry == ir.Added:
			signs = append(signs, 1)
		case n.OperandDef(i).Entry == ir.Subtracted:
			signs = append(signs, -1)
		default:
			return nil
		}
	}
	return signs
}

// meanOf returns the sum and the count of a loss row of which v is the quotient; nil, nil for any
// other value.
func meanOf(v *ir.Value) (sum, count *ir.Value) {
	n := v.Def
	if n == nil || n.Op != ir.OpDiv || n.In[0].Def == nil || n.In[0].Def != n.In[1].Def {
		return nil, nil
	}
	out := n.In[0].Def.Def().Out
	if len(out) < 2 || out[0].Name != "sum" || out[1].Name != "count" || n.In[0].Idx != 0 || n.In[1].Idx != 1 {
		return nil, nil
	}
	return n.In[0], n.In[1]
}

// ignores reports whether a loss row's count depends on its labels.
func ignores(n *ir.Node) bool {
	for _, a := range n.Def().Attrs {
		if a.Name == "ignore" {
			return true
		}
	}
	return false
}

// planCount makes a sweep over counted terms start at their sums. The seed is a power of two near
// one over the count, so that scaled gradients have about the size of the gradients of the mean.
// The count is that over all ranks, so that scaled gradients have the same size on any number of them.
func (s *sweep) planCount(g *ir.Graph, p Parallel) {
	if s.count = s.terms[0].count; s.count == nil {
		return
	}
	labels := s.count.Def.In[min(1, len(s.count.Def.In)-1)]
	n := g.Elements(labels.Type)
	if p.Slices == 0 {
		n *= int64(max(p.Ranks, 1))
	}
	s.shift = bits.Len64(uint64(max(n-1, 0)))
}

func posOf(v *ir.Value) ir.Pos {
	if v.Def != nil {
		return v.Def.Pos
	}
	return v.Pos
}
