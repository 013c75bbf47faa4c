package passes

import (
	"cmp"
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
	returned int   // results of the source graph
	claimed  []int // place of each of Config.Losses among the graph's results, before the update
	outputs  []int // and of each of Config.Outputs that is a value; -1 of others

	losses     []*loss
	scales     []*lossScale
	inner      []*innerScale
	sweeps     []*sweep
	params     []*paramPlan // in declaration order
	skipGroups []*skipGroup
	source     *ir.Graph // the graph before layout, nil where nothing asked for it
	planned    bool      // dtypes come of a plan, which has made every cast as its readers take it

	micro    *micro // nil: one micro-batch per step
	pending  []pendingStat
	kept     []pendingStat        // states that the config's Gradients writes
	total    *ir.Value            // the norm under Config.Clip, nil where not asked for
	messages int64                // between ranks, so far
	results  map[result]*ir.Value // what stands for a value over all micro-batches
}

// result is a value of a micro-batch and how micro-batches combine.
type result struct {
	v  *ir.Value
	by Reduce
}

// sweep is one backward pass, over terms that share a scaler.
type sweep struct {
	*lossScale
	title string // of the loss attribute of its nodes: the scaler's name, numbered from the second on
	tag   string // after the names of its values, "" for the first sweep
	terms []*lossTerm

	shift    int       // seeds were divided by 2^shift
	count    *ir.Value // what the sum of gradients is divided by; nil: nothing
	grads    []grad
	mul      *ir.Value // takes scale and count off; nil: nothing to take off
	off      *ir.Value // takes the scale alone off, for results; nil: not asked for
	foundInf *ir.Value // some gradient or norm is not finite
	overflow *ir.Value // what lowers the scale: foundInf, or lost
	lost     *ir.Value // bool[]: the gradients of a micro-batch that was left out overflowed although its losses are finite; nil where none is left out
	forward  *ir.Value // a loss or pending statistic is not finite
}

// grad is the gradient of one parameter as one sweep leaves it.
type grad struct {
	p *paramPlan
	d *ir.Value
}

// paramPlan is a parameter, how it is trained, and its gradient on the way to
// the optimizer: g times mul has unit 1.
type paramPlan struct {
	v         *ir.Value
	group     *Group
	reach     uint64 // bit k: sweep k contributes
	g, mul    *ir.Value
	made      *ir.Value // what the user's transform made of it, before any clip; nil without one
	shown     *ir.Value // the gradient as a result; nil where it is none
	skipGroup *skipGroup
}

// skipGroup is what advances together: the groups that are skipped by the same
// predicate.
type skipGroup struct {
	name   string
	reach  uint64
	skip   *ir.Value // nil: never skipped
	step   *ir.Value
	taken  *ir.Value             // f32: steps taken, this one included; nil until a rule asks
	biases map[float64]*ir.Value // the bias correction after this step, by beta
}

// pendingStat is a running statistic that the forward section advanced.
type pendingStat struct {
	state, next *ir.Value
	agreed      bool // equal on all ranks
}

// micro is what accumulation over micro-batches added.
type micro struct {
	kept  *ir.Value // micro-batches in the accumulators, i32[]
	drops bool      // one that is not finite is left out
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

// check looks at what trains a group's parameters; where nothing here updates them, at the clip alone.
func (g *Group) check() error {
	if !g.NoUpdate {
		if err := cmp.Or(g.Optimizer.check(), g.LR.check()); err != nil {
			return err
		}
	}
	return g.Clip.check()
}

func checkTraining(c *Context) error {
	for i := range c.Groups {
		gr := &c.Groups[i]
		if gr.Freeze {
			continue
		}
		if err := gr.check(); err != nil {
			if gr.Pattern != "" {
				err = fmt.Errorf("group %q: %w", gr.Pattern, err)
			}
			return err
		}
	}
	if err := c.Clip.check(); err != nil {
		return err
	}
	if err := cmp.Or(ir.BelowOne.Check("EMA decay", c.EMA), c.Parallel.check()); err != nil {
		return err
	}
	if c.Micro < 0 || c.Micro > maxMicro {
		return fmt.Errorf("%d micro-batches: want 1 to %d", c.Micro, maxMicro)
	}
	return nil
}

// maxMicro is the largest number of micro-batches: f32 counts them exactly.
const maxMicro = 1 << 24

func (c Clip) check() error {
	return cmp.Or(ir.AtLeast0.Check("clip: norm", c.Norm), ir.AtLeast0.Check("clip: value", c.Value))
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
		i := GroupOf(c.Groups, v.Name)
		if i < 0 {
			continue
		}
		used[i] = true
		if gr := &c.Groups[i]; !gr.Freeze {
			if !v.Type.DType.Float() {
				return &ir.Error{Pos: v.Pos, Msg: fmt.Sprintf("%s is %s and cannot be trained: freeze it", v, g.TypeString(v.Type))}
			}
			t.params = append(t.params, &paramPlan{v: v, group: gr})
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

// GroupOf is the group of a parameter: the first that matches it, -1 where none does.
func GroupOf(groups []Group, param string) int {
	return slices.IndexFunc(groups, func(g Group) bool { return Matches(g.Pattern, param) })
}

func everything(pattern string) bool { return pattern == "" || pattern == "*" }

func unmatched(g *ir.Graph, pattern string, i int) error {
	var names []string
	for _, v := range g.Vars {
		if v.Kind == ir.Param && Matches(pattern, v.Name) {
			return fmt.Errorf("group %d: pattern %q matches only parameters that an earlier group has taken, such as %s", i+1, pattern, v)
		}
		if v.Kind == ir.Param && len(names) < 4 {
			names = append(names, v.Name)
		}
	}
	return fmt.Errorf("group %d: pattern %q matches no parameter; the first ones are %s", i+1, pattern, strings.Join(names, ", "))
}

// label is the name of a sweep's values: base for the first one.
func (s *sweep) label(base string) string { return base + s.tag }

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
