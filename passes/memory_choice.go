package passes

import (
	"cmp"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/passes/plan"
)

// repeater translates a graph's forward pass to plan.Repeats.
type repeater struct {
	g       *ir.Graph
	nodes   []*ir.Node          // nodes of forward without views, operands first; independent of the order of lists
	index   map[*ir.Node]int32  // index in nodes
	value   map[*ir.Value]int32 // index in repeats.Values
	values  []*ir.Value         // by index in repeats.Values
	repeats *plan.Repeats

	checkpoint map[*ir.Node]bool // nodes that compute a value of Config.Checkpoints
	chains     map[int32]bool    // clusters whose kernels store nothing but their last result (ir.Caps.Chains)
}

func newRepeater(g *ir.Graph, caps ir.Caps) *repeater {
	r := &repeater{g: g, index: map[*ir.Node]int32{}, value: map[*ir.Value]int32{}, repeats: &plan.Repeats{}, chains: map[int32]bool{}}
	r.order()
	for _, n := range r.nodes {
		if n.Why.Cluster > 0 && caps.Chains(n) {
			r.chains[n.Why.Cluster] = true
		}
	}
	fixed, uses := keptAnyway(g), g.Uses()
	for i, n := range r.nodes {
		for _, v := range n.Out {
			if !fixed[v] && !r.inRegister(v, uses) {
				r.value[v] = int32(len(r.values))
				r.values = append(r.values, v)
				r.repeats.Values = append(r.repeats.Values, plan.RepeatValue{Bytes: g.Elements(v.Type) * v.Type.DType.Size(), Node: int32(i)})
			}
		}
		x := plan.RepeatNode{Work: r.work(n, uses), Never: !repeatable(n)}
		for _, v := range operands(n) {
			if r.chained(v, n) { // the kernel computes v, too
				with := &r.repeats.Nodes[r.index[v.Def]]
				x.Work, x.Never = x.Work+with.Work, x.Never || with.Never
				for _, at := range with.In {
					if !slices.Contains(x.In, at) {
						x.In = append(x.In, at)
					}
				}
			} else if at, ok := r.value[root(v)]; ok && !slices.Contains(x.In, at) {
				x.In = append(x.In, at)
			}
		}
		r.repeats.Nodes = append(r.repeats.Nodes, x)
	}
	for _, n := range g.Body[ir.Backward] {
		for _, v := range operands(n) {
			if at, ok := r.value[root(v)]; ok {
				r.repeats.Values[at].Read = true
			}
		}
	}
	return r
}

// chained reports whether n reads v in a register of a kernel that cannot store v.
func (r *repeater) chained(v *ir.Value, n *ir.Node) bool {
	return sameCluster(v, n) && r.chains[n.Why.Cluster]
}

// inRegister reports whether only the kernel that computes v reads v, and cannot store it.
func (r *repeater) inRegister(v *ir.Value, uses *ir.Uses) bool {
	return slices.ContainsFunc(uses.Of(v), func(u ir.Use) bool { return r.chained(v, u.Node) })
}

// again lists the nodes that run a second time for a choice.
func (r *repeater) again(choice *plan.RepeatChoice) map[*ir.Node]bool {
	again := map[*ir.Node]bool{}
	for i := len(r.nodes) - 1; i >= 0; i-- {
		n := r.nodes[i]
		if !again[n] && !choice.Again[i] {
			continue
		}
		again[n] = true
		for _, v := range operands(n) {
			if r.chained(v, n) {
				again[v.Def] = true
			}
		}
	}
	return again
}

// order lists the nodes of forward by depth, then by name.
func (r *repeater) order() {
	depth := map[*ir.Node]int{}
	for _, n := range r.g.Body[ir.Forward] {
		d := 0
		for _, v := range operands(n) {
			if v.Def != nil {
				d = max(d, depth[v.Def]+1)
			}
		}
		depth[n] = d
		if !shares(n) {
			r.nodes = append(r.nodes, n)
		}
	}
	slices.SortFunc(r.nodes, func(a, b *ir.Node) int {
		return cmp.Or(cmp.Compare(depth[a], depth[b]), strings.Compare(a.Name(), b.Name()))
	})
	for i, n := range r.nodes {
		r.index[n] = int32(i)
	}
}

// keep makes the nodes of named values run once, and returns the names that no value has.
func (r *repeater) keep(names []string) (missing []string) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	r.checkpoint = map[*ir.Node]bool{}
	for _, n := range r.g.Body[ir.Forward] {
		for _, v := range n.Out {
			if !wanted[v.Name] {
				continue
			}
			delete(wanted, v.Name)
			if at, ok := r.index[root(v).Def]; ok {
				r.repeats.Nodes[at].Never = true
				r.checkpoint[root(v).Def] = true
			}
		}
	}
	for _, name := range names {
		if wanted[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// root looks through views.
func root(v *ir.Value) *ir.Value {
	for v.Def != nil && shares(v.Def) {
		v = v.Def.In[0]
	}
	return v
}

// keptAnyway lists the values that the caller or the update reads, which are kept for every choice.
func keptAnyway(g *ir.Graph) map[*ir.Value]bool {
	fixed := map[*ir.Value]bool{}
	for _, v := range g.Return {
		fixed[root(v)] = true
	}
	for sec, n := range g.Nodes {
		if sec == ir.Update {
			for _, v := range operands(n) {
				fixed[root(v)] = true
			}
		}
		for _, v := range n.Captured {
			fixed[root(v)] = true
		}
	}
	return fixed
}

// repeatable reports whether n computes the same values when it runs again, and has no other
// effect.
func repeatable(n *ir.Node) bool {
	if n.Def().Flags&(ir.Writer|ir.Collective|ir.External) != 0 {
		return false
	}
	for i, v := range n.Out {
		if v.Next != nil || n.Def().Batch != nil && i > 2 && v != nil { // running statistics must be updated once
			return false
		}
	}
	return true
}

// bytesAsWork is the number of flops that cost as much as moving one byte.
const bytesAsWork = 4

// work is what running n again costs: its flops, and the bytes that its step moves for it.
func (r *repeater) work(n *ir.Node, uses *ir.Uses) int64 {
	cost := r.g.NodeCost(n)
	for _, v := range n.In {
		if v != nil && sameStep(v, n) {
			cost.Read -= r.g.Elements(v.Type) * v.Type.DType.Size()
		}
	}
	for _, v := range n.Out {
		inside := func(u ir.Use) bool { return !sameStep(v, u.Node) }
		if list := uses.Of(v); len(list) > 0 && !slices.ContainsFunc(list, inside) {
			cost.Write -= r.g.Elements(v.Type) * v.Type.DType.Size()
		}
	}
	return cost.Flops + bytesAsWork*max(cost.Read+cost.Write, 0)
}

// valleys are the places in the order of nodes after which forward reads the fewest bytes of
// earlier results, which are the ends of blocks. Place i is after node i.
func (r *repeater) valleys() []int {
	live := r.crossing()
	var out []int
	for i := 0; i < len(live); {
		end := i
		for end+1 < len(live) && live[end+1] == live[i] {
			end++
		}
		falls := i > 0 && live[i-1] > live[i]
		rises := end+1 < len(live) && live[end+1] > live[i]
		if falls && rises && live[i] > 0 {
			out = append(out, i)
		}
		i = end + 1
	}
	return r.deep(out, live)
}

// deep selects the valleys that are at least a quarter lower than the highest place between them
// and the valley before.
func (r *repeater) deep(valleys []int, live []int64) []int {
	var out []int
	from := 0
	for _, at := range valleys {
		top := slices.Max(live[from : at+1])
		switch {
		case 4*live[at] <= 3*top:
			out = append(out, at)
		case len(out) > 0 && live[at] < live[out[len(out)-1]]: // a lower place in the same valley
			out[len(out)-1] = at
		}
		from = at
	}
	return out
}

// crossing is, for each place, the bytes of the values that are computed before it and that forward
// reads after it.
func (r *repeater) crossing() []int64 {
	diff := make([]int64, len(r.nodes)+1)
	last := make([]int32, len(r.values))
	for i := range last {
		last[i] = r.repeats.Values[i].Node
	}
	for i, x := range r.repeats.Nodes {
		for _, v := range x.In {
			last[v] = max(last[v], int32(i))
		}
	}
	for v, x := range r.repeats.Values {
		diff[x.Node] += x.Bytes
		diff[last[v]] -= x.Bytes
	}
	sum := int64(0)
	for i, d := range diff {
		sum += d
		diff[i] = sum
	}
	return diff[:len(r.nodes)]
}

// walled is repeats where two groups of values are kept: those that live at every stride-th valley,
// and those after the last of these valleys.
func (r *repeater) walled(cuts []int, stride int) *plan.Repeats {
	out := &plan.Repeats{Values: r.repeats.Values, Nodes: slices.Clone(r.repeats.Nodes)}
	wall := make([]bool, len(r.nodes)+1)
	for k := stride - 1; k < len(cuts); k += stride {
		wall[cuts[k]] = true
	}
	next := len(r.nodes) // first valley at a place or after it
	walls := make([]int, len(r.nodes)+1)
	for i := len(r.nodes); i >= 0; i-- {
		if wall[i] {
			next = i
		}
		walls[i] = next
	}
	for i, x := range r.repeats.Nodes {
		if len(cuts) > 0 && i > cuts[len(cuts)-1] {
			out.Nodes[i].Never = true
		}
		for _, v := range x.In {
			if from := r.repeats.Values[v].Node; walls[from] < i {
				out.Nodes[from].Never = true
			}
		}
	}
	return out
}
