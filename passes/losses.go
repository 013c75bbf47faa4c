package passes

import (
	"fmt"
	"math/bits"
	"slices"

	"ampc/ir"
)

// lossScale is a scaler with its state in the graph.
type lossScale struct {
	name   string  // of its values and sweeps
	of     *Scaler // the losses that name it have it
	step   string  // in the names of its variables
	after  string
	scaler Scaler
	scale  *ir.Value // nil: not scaled
}

// state names a variable of the scaler.
func (l *lossScale) state(kind string) string { return StateName{l.step, kind, l.after}.String() }

// loss is a loss of the config as a sum: shift + Σ factor·term.
type loss struct {
	Loss
	value *ir.Value
	terms []*lossTerm
	shift float64
}

// lossTerm is a scalar that a sweep starts from. Where its count is set it is
// the mean that a loss row's sum and count are turned into, and the count
// depends on the data: labels may be ignored.
type lossTerm struct {
	factor     float64 // of the loss; the weight is not in it
	weight     float64 // factor with the loss's weight
	value      *ir.Value
	sum, count *ir.Value
	seed       *ir.Value // the const that starts the sweep here
	final      *ir.Value // the term over all micro-batches
}

// planLosses finds the losses and gives each scaler one sweep. With several
// micro-batches, terms whose counts differ with the data have a sweep per count,
// since only the sum over all micro-batches may be divided by its count.
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
		s.planCount(g)
	}
	if extra := len(t.sweeps) - len(t.scales); extra > 0 {
		c.note("%d more backward sweeps: losses of one scaler divide by counts that depend on the data", extra)
	}
	return nil
}

// newSweep adds a sweep. The first has the plain names.
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

// scaleOf finds or makes the scaler of a loss.
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

// defaultScaler is what values of the sweep of the config's scaler are called.
const defaultScaler = "amp"

// scaleAfter is the loss that names a scaler: the first that has it, numbered
// where it has several.
func (t *training) scaleAfter(loss string) string {
	name := loss
	for k := 2; slices.ContainsFunc(t.scales, func(s *lossScale) bool { return s.of != nil && s.after == name }); k++ {
		name = fmt.Sprintf("%s_%d", loss, k)
	}
	return name
}

// sources are the losses as the passes before have left them.
func (t *training) sources(g *ir.Graph, c *Context) []Loss {
	out := slices.Clone(c.Losses)
	for i := range out {
		out[i].Value = g.Return[t.claimed[i]]
	}
	return out
}

// defaultLoss is the first f32[] value among what a graph returns.
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

// split finds the terms of the loss: itself alone, unless micro-batches count
// their labels, or ranks their rows, which only shows in its parts.
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

// maxTerms bounds how far a loss is taken apart.
const maxTerms = 64

// walk adds the terms of factor·v. With every, each loss row is taken apart, also
// where its count is the same in every micro-batch.
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

// summed is the sign of each operand of n, where n adds f32 scalars up or takes
// them off; nil where it does not.
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

// meanOf splits the mean that a loss row's (sum, count) is turned into; nil, nil
// for any other value.
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

// planCount makes a sweep over counted terms start from their sums. The seed is
// a power of two near one over the count, so that scaled gradients have the
// size they would have for the mean.
func (s *sweep) planCount(g *ir.Graph) {
	if s.count = s.terms[0].count; s.count == nil {
		return
	}
	labels := s.count.Def.In[min(1, len(s.count.Def.In)-1)]
	s.shift = bits.Len64(uint64(max(g.Elements(labels.Type)-1, 0)))
}

func posOf(v *ir.Value) ir.Pos {
	if v.Def != nil {
		return v.Def.Pos
	}
	return v.Pos
}
