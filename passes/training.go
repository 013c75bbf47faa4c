package passes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ampc/ir"
)

// training is what the passes from autodiff to optimizer share about one step: facts that the graph
// does not contain, such as which value is whose gradient.
type training struct {
	returned int   // number of results of the source graph
	claimed  []int // by index in Config.Losses: position among the graph's results, before the update
	outputs  []int // the same by index in Config.Outputs; -1 for outputs that are not values

	losses     []*loss
	scales     []*lossScale
	inner      []*innerScale
	sweeps     []*sweep
	params     []*paramPlan // in declaration order
	skipGroups []*skipGroup
	source     *ir.Graph   // graph before layout; nil if not requested
	planned    bool        // a plan has chosen the dtypes and made every cast as its readers need it
	index      index       // of the graph as it is
	lost       *ir.Uses    // of the graph as it was: memory for the next ones
	editor     *ir.Builder // of the graph as it is; nil: the next pass that builds makes one

	micro    *micro // nil: one micro-batch per step
	pending  []pendingStat
	kept     []pendingStat        // states that the config's Gradients writes
	total    *ir.Value            // norm for Config.Clip; nil if not needed
	messages int64                // number of messages between ranks so far
	results  map[result]*ir.Value // by value of a micro-batch: its value over all micro-batches
}

// index is what passes found out about a graph and the pass after them would find out again. The
// manager drops it after a pass that may have changed nodes or operands (Context.keep).
type index struct {
	uses      *ir.Uses
	overrides []override // of the policy, by node ID
	assigner  *assigner  // of the policy, without a choice of dtypes
}

// result is a value of a micro-batch, and how its values in several micro-batches are combined.
type result struct {
	v  *ir.Value
	by Reduce
}

// sweep is one backward pass from terms that share a scaler.
type sweep struct {
	*lossScale
	title string // loss attribute of its nodes: the scaler's name, with a number from the second sweep on
	tag   string // suffix of the names of its values, "" for the first sweep
	terms []*lossTerm

	shift    int       // its start values were divided by 2^shift
	count    *ir.Value // divisor of the sum of gradients; nil: 1
	grads    []grad
	mul      *ir.Value // removes scale and count by multiplication; nil: 1
	off      *ir.Value // removes only the scale, for results; nil: not needed
	foundInf *ir.Value // a gradient or norm is not finite
	overflow *ir.Value // condition that lowers the scale: foundInf, or lost
	lost     *ir.Value // bool[]: gradients of a dropped micro-batch overflowed although its losses are finite; nil if none is dropped
	forward  *ir.Value // a loss or pending statistic is not finite
}

// grad is the gradient of one parameter from one sweep.
type grad struct {
	p *paramPlan
	d *ir.Value
}

// paramPlan is a parameter, how it is trained, and its gradient before the optimizer: g times mul
// has scale unit 1.
type paramPlan struct {
	v         *ir.Value
	part      *ir.Value // what this rank keeps and updates of v; nil: all of it
	group     *Group
	reach     uint64 // bit k: sweep k contributes
	g, mul    *ir.Value
	made      *ir.Value // result of the user's transform, before any clip; nil without one
	shown     *ir.Value // the gradient as a result of the step; nil if it is not one
	skipGroup *skipGroup
}

// skipGroup is the parameter groups that the same predicate skips.
type skipGroup struct {
	name   string
	reach  uint64
	skip   *ir.Value // nil: never skipped
	step   *ir.Value
	taken  *ir.Value             // f32: number of steps taken, with this one; nil if no rule needs it
	biases map[float64]*ir.Value // bias correction after this step, by beta
}

// pendingStat is a running statistic that the forward section updates.
type pendingStat struct {
	state, next *ir.Value
	agreed      bool // the same on all ranks
}

// micro is the state of accumulation over micro-batches.
type micro struct {
	kept  *ir.Value // number of micro-batches in the accumulators, i32[]
	drops bool      // micro-batches that are not finite are dropped
}

// plan finds the losses and groups of the config in the graph.
func (t *training) plan(g *ir.Graph, c *Context) error {
	if err := checkTraining(c); err != nil {
		return err
	}
	if err := t.planLosses(g, c); err != nil {
		return err
	}
	return t.planParams(g, c)
}

// check checks the optimizer settings of a group, or only its clip if the group does not update its
// parameters.
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
	if c.NoSkip && c.Parallel.several() && c.Parallel.Message == ir.F16 {
		return fmt.Errorf("parallel: messages in f16 and NoSkip: nothing would notice a gradient that overflows there: send bf16 or f32, or leave NoSkip out")
	}
	if c.Micro < 0 || c.Micro > maxMicro {
		return fmt.Errorf("%d micro-batches: want 1 to %d", c.Micro, maxMicro)
	}
	return nil
}

// maxMicro is the largest number of micro-batches, which f32 counts exactly.
const maxMicro = 1 << 24

func (c Clip) check() error {
	return cmp.Or(ir.AtLeast0.Check("clip: norm", c.Norm), ir.AtLeast0.Check("clip: value", c.Value))
}

// under is s with an automatic mode replaced by the policy's scaler. Fields that the user set take
// precedence over the policy's.
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

// planParams assigns every parameter to its group.
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
		if len(c.Groups) == 0 {
			return fmt.Errorf("graph @%s: no optimizer: give Optimizer and LR, or Groups", g.Name)
		}
		return fmt.Errorf("graph @%s: no group trains any parameter", g.Name)
	}
	return nil
}

// GroupOf is the index of the first group that matches a parameter, -1 for none.
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

// label is the name of a value of the sweep. For the first sweep it is base.
func (s *sweep) label(base string) string { return base + s.tag }

// wanted lists the parameters to differentiate by.
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
