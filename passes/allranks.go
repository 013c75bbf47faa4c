package passes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// AllRanks is the compiled step of all ranks together, as a step of one process: what differs between
// ranks is there once for each of them, under its name by OfRank, and messages are sums and joins of
// what the ranks have. Messages in 16 bits are not rounded. It returns nil for a step of one rank.
func AllRanks(g *ir.Graph) (*ir.Graph, error) {
	a := &allRanks{g: &ir.Graph{Name: g.Name, Syms: slices.Clone(g.Syms)}, of: map[*ir.Value][]*ir.Value{}, nodes: map[*ir.Node][]*ir.Node{}}
	for _, n := range g.Nodes {
		if n.Def().Is(ir.Collective) {
			a.ranks = int(n.Int("ranks"))
			break
		}
	}
	if a.ranks < 2 {
		return nil, nil
	}
	a.b = ir.Edit(a.g)
	a.vars(g)
	for s, n := range g.Nodes {
		if n.Def().Is(ir.Collective) {
			a.message(s, n)
		} else {
			a.node(s, n)
		}
		if a.b.Err() != nil {
			return nil, a.b.Err()
		}
	}
	for v, copies := range a.of {
		for r, w := range copies {
			if a.of[v.GradOf] != nil { // else it was merged with another value
				w.GradOf = a.value(v.GradOf, r)
			}
		}
	}
	for _, v := range g.Return {
		a.g.Return = append(a.g.Return, a.of[v]...)
	}
	return a.g, errors.Join(a.b.Err(), ir.Verify(a.g, ir.Ready))
}

// OfRank is the name that a value of rank r has in the step of AllRanks.
func OfRank(r int, name string) string {
	if rest, own := strings.CutPrefix(name, ir.Reserved); own {
		return fmt.Sprintf("%srank%d/%s", ir.Reserved, r, rest)
	}
	return fmt.Sprintf("rank%d/%s", r, name)
}

type allRanks struct {
	g     *ir.Graph
	b     *ir.Builder
	ranks int
	of    map[*ir.Value][]*ir.Value // by value of one rank: one value for all ranks, or one for each
	nodes map[*ir.Node][]*ir.Node
}

// value is what v is on rank r.
func (a *allRanks) value(v *ir.Value, r int) *ir.Value {
	list := a.of[v]
	if len(list) == 1 {
		return list[0]
	}
	return list[r]
}

// vars declares the variables: inputs, accumulators and parts for each rank.
func (a *allRanks) vars(g *ir.Graph) {
	micro := roleVar(g, "micro")
	for _, v := range g.Vars {
		switch role := v.Attr.Get("role"); {
		case role == ir.RoleRank:
			a.each(v, func(r int) *ir.Value { return a.number(v, r, r) })
		case role == ir.RoleSlice:
			each, _ := v.Attr.Get("each").(int64)
			if micro == nil {
				micro = &ir.Value{}
				a.of[micro] = []*ir.Value{a.b.Declare(ir.Input, private("micro", ""), v.Type, nil, ir.A("role", "micro"))}
			} else if a.of[micro] == nil {
				a.declare(micro, micro.Name)
			}
			a.each(v, func(r int) *ir.Value {
				return a.b.In(ir.Forward).Named(OfRank(r, v.Name)).Emit(ir.OpAdd, []*ir.Value{a.of[micro][0], a.number(v, r, r*int(each))}, nil)[0]
			})
		case v.Kind == ir.Input && role != "micro" || role == "acc" || v.PartOf() != "":
			a.each(v, func(r int) *ir.Value { return a.copy(v, OfRank(r, v.Name)) })
		case a.of[v] == nil:
			a.declare(v, v.Name)
		}
	}
}

func (a *allRanks) each(v *ir.Value, f func(r int) *ir.Value) {
	for r := range a.ranks {
		a.of[v] = append(a.of[v], f(r))
	}
}

func (a *allRanks) declare(v *ir.Value, name string) { a.of[v] = []*ir.Value{a.copy(v, name)} }

func (a *allRanks) copy(v *ir.Value, name string) *ir.Value {
	w := a.b.Declare(v.Kind, name, v.Type, v.Init, v.Attr.Without(ir.AttrPart).Without("whole"))
	if w != nil {
		w.Pos, w.Unit = v.Pos, v.Unit
	}
	return w
}

// number is a constant of rank r for an input v that the runtime fills in.
func (a *allRanks) number(v *ir.Value, r, x int) *ir.Value {
	return a.b.Declare(ir.Const, OfRank(r, v.Name+".is"), v.Type, &ir.Init{Args: []float64{float64(x)}}, nil)
}

// node copies a node, once for each rank if what it reads differs between ranks.
func (a *allRanks) node(s ir.Section, n *ir.Node) {
	copies := 1
	for _, v := range slices.Concat(n.In, n.Captured) {
		if v != nil {
			copies = max(copies, len(a.of[v]))
		}
	}
	for r := range copies {
		k := &ir.Node{Op: n.Op, Custom: n.Custom, Pin: n.Pin, In: make([]*ir.Value, len(n.In)), Captured: slices.Clone(n.Captured), Attrs: n.Attrs, Why: n.Why, Pos: n.Pos}
		for i, v := range n.In {
			if v != nil {
				k.In[i] = a.value(v, r)
			}
		}
		k.Recapture(func(v *ir.Value) *ir.Value { return a.value(v, r) })
		if copies > 1 {
			k.Why.Cluster, k.Why.Launch = a.group(n.Why.Cluster, r+1), a.group(n.Why.Launch, r+1)
		} else {
			k.Why.Cluster, k.Why.Launch = a.group(n.Why.Cluster, 0), a.group(n.Why.Launch, 0)
		}
		if from := k.Why.From; from != nil {
			k.Why.From = nil
			if a.of[from] != nil {
				k.Why.From = a.value(from, r)
			}
		}
		if of := a.nodes[n.Of]; of != nil {
			k.Of = of[min(r, len(of)-1)]
		}
		next, types := make([]*ir.Value, len(n.Out)), make([]ir.Type, len(n.Out))
		for i, v := range n.Out {
			if types[i] = v.Type; v.Next != nil && r < len(a.of[v.Next]) {
				next[i] = a.of[v.Next][r]
			}
		}
		out := a.b.In(s).EmitNode(k, next, types...)
		if a.b.Err() != nil {
			return
		}
		a.nodes[n] = append(a.nodes[n], k)
		for i, v := range n.Out {
			if out[i].Unit = v.Unit; next[i] == nil {
				a.b.Rename(out[i], a.name(v, r, copies))
			}
			a.of[v] = append(a.of[v], out[i])
		}
	}
}

// group is the number of a group of nodes, such as a cluster, for rank r-1, or for all where r is 0.
func (a *allRanks) group(number int32, r int) int32 {
	return number*int32(a.ranks+1) + min(number, 1)*int32(r)
}

// name is that of the copy of v for rank r.
func (a *allRanks) name(v *ir.Value, r, copies int) string {
	if copies == 1 {
		return v.Name
	}
	return OfRank(r, v.Name)
}

// message computes what all ranks receive of a message.
func (a *allRanks) message(s ir.Section, n *ir.Node) {
	b := a.b.In(s)
	var shapes []ir.Shape
	if n.Attrs.Get("shapes") != nil {
		var err error
		if shapes, err = n.Wholes(); err != nil {
			a.b.Fail("%v", err)
			return
		}
	}
	for i, v := range n.Out {
		var xs []*ir.Value
		for r := range a.ranks {
			xs = append(xs, a.value(n.In[i], r))
		}
		var got []*ir.Value
		switch {
		case n.Op == ir.OpReduceScatter:
			got = a.parts(b, n, a.joined(b, n, xs), v)
		case shapes != nil:
			all := b.Slice(b.Concat(0, xs...), []int64{0}, []int64{0}, []int64{shapes[i].Elements()})
			got = []*ir.Value{b.Reshape(all, ir.Sizes(shapes[i])...)}
		case n.Op == ir.OpAllGather:
			got = []*ir.Value{b.Concat(n.Int("axis"), xs...)}
		default:
			got = []*ir.Value{a.joined(b, n, xs)}
		}
		if a.b.Err() != nil {
			return
		}
		for r, w := range got {
			w.Def.Why, w.Unit = n.Why, v.Unit
			w.Def.Why.From = nil
			a.b.Rename(w, a.name(v, r, len(got)))
			a.nodes[n] = append(a.nodes[n], w.Def)
		}
		a.of[v] = got
	}
}

// joined is the sum, mean or largest element of what the ranks send.
func (a *allRanks) joined(b *ir.Builder, n *ir.Node, xs []*ir.Value) *ir.Value {
	two := b.Add
	switch {
	case n.Str("op") == "max" && xs[0].Type.DType == ir.Bool:
		two = b.Or
	case n.Str("op") == "max":
		two = b.Max
	case n.Flag("tree") && len(xs) > 2:
		half := len(xs) / 2
		return b.Add(a.joined(b, n, xs[:half]), a.joined(b, n, xs[half:]))
	}
	sum := xs[0]
	for _, x := range xs[1:] {
		sum = two(sum, x)
	}
	if n.Str("op") == "mean" {
		return b.Affine(sum, 1/float64(a.ranks), 0)
	}
	return sum
}

// parts are what each rank gets of a sum.
func (a *allRanks) parts(b *ir.Builder, n *ir.Node, sum, part *ir.Value) (list []*ir.Value) {
	axis, size := n.Axis(), int64(0)
	if n.Flag("flat") {
		elements := sum.Type.Shape.Elements()
		axis, size = 0, part.Type.Shape.Elements()
		sum = b.Pad(b.Reshape(sum, elements), []int64{0}, []int64{size*int64(a.ranks) - elements}, 0)
	} else {
		size = int64(part.Type.Shape.Dims()[axis])
	}
	for r := range int64(a.ranks) {
		list = append(list, b.Slice(sum, []int64{int64(axis)}, []int64{r * size}, []int64{(r + 1) * size}))
	}
	return list
}
