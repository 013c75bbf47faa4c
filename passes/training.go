package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/ir"
)

// training is what the passes from autodiff to optimizer tell each other about
// one step: facts that the graph alone does not say, such as which value is
// whose gradient.
type training struct {
	sweeps []*sweep
	params []*trained // in declaration order
	tracks []*track

	micro   *micro // nil: one micro-batch per step
	pending []pendingStat
	total   *ir.Value            // the norm under Config.Clip, nil where not asked for
	results map[result]*ir.Value // what stands for a value over all micro-batches
}

// result is a value of a micro-batch and how micro-batches combine.
type result struct {
	v  *ir.Value
	by Reduce
}

// sweep is one backward pass: the losses that share a scaler.
type sweep struct {
	name   string // of the scaler
	first  bool
	scaler Scaler
	losses []*lossTerm

	shift    int       // seeds were divided by 2^shift
	count    *ir.Value // what the sum of gradients is divided by; nil: nothing
	grads    []grad
	scale    *ir.Value // nil: not scaled
	mul      *ir.Value // takes scale and count off; nil: nothing to take off
	off      *ir.Value // takes the scale alone off, for results; nil: not asked for
	foundInf *ir.Value // some gradient or norm is not finite
	overflow *ir.Value // what lowers the scale: foundInf, and any dropped micro-batch
	forward  *ir.Value // a loss or pending statistic is not finite
}

// grad is the gradient of one parameter as one sweep leaves it.
type grad struct {
	p *trained
	d *ir.Value
}

// lossTerm is one loss of a sweep.
type lossTerm struct {
	Loss
	value      *ir.Value
	sum, count *ir.Value // of a loss row's mean; nil for any other scalar
	seed       *ir.Value // the const that starts the sweep here
	final      *ir.Value // over all micro-batches, in update
}

// trained is a parameter, how it is trained, and its gradient on the way to
// the optimizer: g times mul has unit 1.
type trained struct {
	v      *ir.Value
	group  *Group
	reach  uint64 // bit k: sweep k contributes
	g, mul *ir.Value
	shown  *ir.Value // the gradient as a result; nil where it is none
	track  *track
}

// track is what advances together: the groups that are skipped by the same
// predicate.
type track struct {
	name   string
	reach  uint64
	skip   *ir.Value // nil: never skipped
	step   *ir.Value
	biases map[float64]*ir.Value // the bias correction after this step, by beta
}

// pendingStat is a running statistic that the forward section advanced.
type pendingStat struct{ state, next *ir.Value }

// micro is what accumulation over micro-batches added.
type micro struct {
	kept    *ir.Value // micro-batches in the accumulators, i32[]
	dropped *ir.Value // bool[]: some micro-batch was left out; nil where none ever is
}

// plan resolves losses and groups against the graph.
func (t *training) plan(g *ir.Graph, c *Context) error {
	if err := checkTraining(c); err != nil {
		return err
	}
	if err := t.planLosses(g, c); err != nil {
		return err
	}
	return t.planParams(g, c)
}

func checkTraining(c *Context) error {
	for i := range c.Groups {
		gr := &c.Groups[i]
		if gr.Freeze {
			continue
		}
		if err := gr.Optimizer.check(); err != nil {
			return fmt.Errorf("group %q: %w", gr.Pattern, err)
		}
		if err := gr.LR.check(); err != nil {
			return fmt.Errorf("group %q: %w", gr.Pattern, err)
		}
		if err := gr.Clip.check(); err != nil {
			return fmt.Errorf("group %q: %w", gr.Pattern, err)
		}
	}
	if err := c.Clip.check(); err != nil {
		return err
	}
	if c.EMA < 0 || c.EMA >= 1 {
		return fmt.Errorf("EMA decay %g: want one in [0,1)", c.EMA)
	}
	if c.Micro < 0 {
		return fmt.Errorf("%d micro-batches: want at least 1", c.Micro)
	}
	return nil
}

func (c Clip) check() error {
	if c.Norm < 0 || c.Value < 0 {
		return fmt.Errorf("clip at norm %g, value %g: want none below zero", c.Norm, c.Value)
	}
	return nil
}

// planLosses finds the losses and puts those with one scaler into one sweep.
func (t *training) planLosses(g *ir.Graph, c *Context) error {
	losses := c.Losses
	if len(losses) == 0 {
		v := defaultLoss(g)
		if v == nil {
			return fmt.Errorf("graph @%s returns no f32[] value to train on: name a loss", g.Name)
		}
		losses = []Loss{{Value: v.Name}}
	}
	index := map[string]*sweep{}
	for _, l := range losses {
		term, err := findLoss(g, l)
		if err != nil {
			return err
		}
		s := index[l.scaler()]
		if s == nil {
			if s, err = newSweep(l, c); err != nil {
				return err
			}
			s.first = len(t.sweeps) == 0
			index[s.name] = s
			t.sweeps = append(t.sweeps, s)
		}
		s.losses = append(s.losses, term)
	}
	if len(t.sweeps) > 64 {
		return fmt.Errorf("%d loss scalers, the most is 64", len(t.sweeps))
	}
	return nil
}

// defaultLoss is the first f32[] value the graph returns.
func defaultLoss(g *ir.Graph) *ir.Value {
	for _, v := range g.Return {
		if v.Type == ir.T(ir.F32) {
			return v
		}
	}
	return nil
}

func findLoss(g *ir.Graph, l Loss) (*lossTerm, error) {
	v := g.Value(l.Value)
	switch {
	case v == nil:
		return nil, fmt.Errorf("loss %q: no such value in graph @%s", l.Value, g.Name)
	case v.Type != ir.T(ir.F32):
		return nil, &ir.Error{Pos: posOf(v), Msg: fmt.Sprintf("loss %s is %s, want f32[]: reduce it to one number", v, g.TypeString(v.Type))}
	case v.IsVar():
		return nil, &ir.Error{Pos: v.Pos, Msg: fmt.Sprintf("loss %s is declared, not computed: it has no gradient", v)}
	case !(l.weight() > 0):
		return nil, &ir.Error{Pos: posOf(v), Msg: fmt.Sprintf("loss %s has weight %g, want one above zero", v, l.weight())}
	}
	term := &lossTerm{Loss: l, value: v}
	term.sum, term.count = meanOf(v)
	return term, nil
}

// meanOf splits the mean that a loss row's (sum, count) is turned into; nil, nil
// for any other value.
func meanOf(v *ir.Value) (sum, count *ir.Value) {
	n := v.Def
	if n.Op != ir.OpDiv || n.In[0].Def == nil || n.In[0].Def != n.In[1].Def {
		return nil, nil
	}
	out := n.In[0].Def.Def().Out
	if len(out) < 2 || out[0].Name != "sum" || out[1].Name != "count" || n.In[0].Idx != 0 || n.In[1].Idx != 1 {
		return nil, nil
	}
	return n.In[0], n.In[1]
}

func posOf(v *ir.Value) ir.Pos {
	if v.Def != nil {
		return v.Def.Pos
	}
	return v.Pos
}

func newSweep(l Loss, c *Context) (*sweep, error) {
	s := &sweep{name: l.scaler(), scaler: c.Scaler}
	if own, ok := c.Scalers[s.name]; ok {
		s.scaler = own
	} else if l.Scaler != "" && len(c.Scalers) > 0 {
		return nil, fmt.Errorf("loss %q: no scaler named %q is configured", l.Value, l.Scaler)
	}
	s.scaler = s.scaler.under(c.Policy).filled()
	if err := s.scaler.check(); err != nil {
		return nil, fmt.Errorf("loss %q: %w", l.Value, err)
	}
	if s.scaler.Mode == DynamicScale && c.NoSkip {
		return nil, fmt.Errorf("loss %q: a dynamic scaler needs the check that NoSkip leaves out", l.Value)
	}
	return s, nil
}

// under resolves an automatic scaler by the policy. What the user set in it
// beside the mode holds over what the policy says.
func (s Scaler) under(p Policy) Scaler {
	if s.Mode != AutoScale {
		return s
	}
	base := p.Scaler
	if base.Mode == AutoScale && p.Low == ir.F16 {
		base.Mode = DynamicScale
	}
	return s.over(base)
}

// planParams gives every parameter its group.
func (t *training) planParams(g *ir.Graph, c *Context) error {
	used := make([]bool, len(c.Groups))
	for _, v := range g.Vars {
		if v.Kind != ir.Param {
			continue
		}
		for i := range c.Groups {
			if !matchScope(c.Groups[i].Pattern, v.Name) {
				continue
			}
			used[i] = true
			if gr := &c.Groups[i]; !gr.Freeze {
				if !v.Type.DType.Float() {
					return &ir.Error{Pos: v.Pos, Msg: fmt.Sprintf("%s is %s and cannot be trained: freeze it", v, g.TypeString(v.Type))}
				}
				t.params = append(t.params, &trained{v: v, group: gr})
			}
			break
		}
	}
	for i, u := range used {
		if !u && !everything(c.Groups[i].Pattern) {
			return unmatched(g, c.Groups[i].Pattern, i)
		}
	}
	if len(t.params) == 0 {
		return fmt.Errorf("graph @%s: no group trains any parameter", g.Name)
	}
	return nil
}

func everything(pattern string) bool { return pattern == "" || pattern == "*" }

func unmatched(g *ir.Graph, pattern string, i int) error {
	var names []string
	for _, v := range g.Vars {
		if v.Kind == ir.Param && matchScope(pattern, v.Name) {
			return fmt.Errorf("group %d: pattern %q matches only parameters that an earlier group has taken, such as %s", i+1, pattern, v)
		}
		if v.Kind == ir.Param && len(names) < 4 {
			names = append(names, v.Name)
		}
	}
	return fmt.Errorf("group %d: pattern %q matches no parameter; the first ones are %s", i+1, pattern, strings.Join(names, ", "))
}

// label is the name of a sweep's values: base for the first one.
func (s *sweep) label(base string) string {
	if s.first {
		return base
	}
	return base + "." + s.name
}

// wanted are the parameters to differentiate for.
func (t *training) wanted() []*ir.Value {
	vs := make([]*ir.Value, len(t.params))
	for i, p := range t.params {
		vs[i] = p.v
	}
	return vs
}

func sortedKeys(m map[string]bool) []string {
	return slices.Sorted(maps.Keys(m))
}

// scaleName is the name of the sweep's loss scale variable.
func (s *sweep) scaleName() string { return s.name + ".scale" }
