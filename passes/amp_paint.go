package passes

import (
	"slices"

	"ampc/ir"
)

// colour is the colour that TensorFlow's algorithm paints a node in.
type colour uint8

const (
	unpainted colour = iota
	allowed          // reads and stores 16 bits
	denied           // f32
)

// paint colours nodes as TensorFlow's graph rewrite for mixed precision does (grappler,
// auto_mixed_precision.cc), for comparison. Low rows are its allow list, kept ones its deny list,
// promoting ones its infer list, clear ones its clear list. Nodes that stay unpainted stay f32. The
// algorithm looks at operators only, not at shapes and costs, and rounds every product to 16 bits.
func (a *assigner) paint() {
	p := &painter{assigner: a, colour: make([]colour, len(a.node)), up: make([][]*ir.Node, len(a.node)), down: make([][]*ir.Node, len(a.node))}
	p.edges()
	p.deny()
	p.between()
	if a.low == ir.BF16 {
		p.followOperands()
	}
	p.spreadClear()
	for _, n := range a.g.Nodes {
		t := &a.node[n.ID]
		if p.eligible(n) {
			if t.class = ir.Keep; p.colour[n.ID] == allowed {
				t.class = ir.Low
			}
		}
		for i, v := range n.Out {
			if !a.assignable(v) {
				continue
			}
			a.want[v.ID] = a.src[v.ID]
			if t.class == ir.Low && n.ResultClass(i) != ir.Fixed && v.Next == nil {
				a.want[v.ID] = a.low
			}
		}
	}
}

type painter struct {
	*assigner
	colour   []colour
	up, down [][]*ir.Node // by node ID: neighbours along operands whose dtype may change
}

// eligible reports whether n's dtype may change.
func (p *painter) eligible(n *ir.Node) bool {
	return p.node[n.ID].class != ir.Fixed && len(n.Out) > 0 && p.assignable(n.Out[0]) && !p.node[n.ID].kept32()
}

func (p *painter) edges() {
	for _, n := range p.g.Nodes {
		if p.node[n.ID].class == ir.Low {
			p.colour[n.ID] = allowed
		}
		if p.node[n.ID].class == ir.Keep {
			p.colour[n.ID] = denied
		}
		for i, v := range n.In {
			if v != nil && v.Def != nil && p.assignable(v) && n.OperandClass(i) != ir.Fixed {
				p.up[n.ID] = append(p.up[n.ID], v.Def)
				p.down[v.Def.ID] = append(p.down[v.Def.ID], n)
			}
		}
	}
}

// walk visits all nodes that are reachable from starts along next and that enter accepts.
func (p *painter) walk(starts []*ir.Node, next [][]*ir.Node, enter func(*ir.Node) bool) []bool {
	seen := make([]bool, len(p.node))
	queue := append([]*ir.Node(nil), starts...)
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, m := range next[n.ID] {
			if !seen[m.ID] && enter(m) {
				seen[m.ID] = true
				queue = append(queue, m)
			}
		}
	}
	return seen
}

func (p *painter) all(want func(*ir.Node) bool) []*ir.Node {
	var ns []*ir.Node
	for _, n := range p.g.Nodes {
		if want(n) {
			ns = append(ns, n)
		}
	}
	return ns
}

func (p *painter) is(c ir.Class) func(*ir.Node) bool {
	return func(n *ir.Node) bool { return p.node[n.ID].class == c }
}

func (p *painter) painted(c colour) func(*ir.Node) bool {
	return func(n *ir.Node) bool { return p.colour[n.ID] == c }
}

func (p *painter) set(in []bool, c colour) {
	for _, n := range p.g.Nodes {
		if in[n.ID] && p.eligible(n) {
			p.colour[n.ID] = c
		}
	}
}

// deny denies inferring readers of denied nodes, and clear nodes that lead to such readers.
func (p *painter) deny() {
	wall := p.all(func(n *ir.Node) bool { return p.is(ir.Keep)(n) || p.is(ir.PromoteC)(n) })
	leads := p.walk(wall, p.up, p.is(ir.Clear))
	p.set(p.walk(p.all(p.painted(denied)), p.down, func(n *ir.Node) bool {
		return p.is(ir.PromoteC)(n) || p.is(ir.Clear)(n) && leads[n.ID]
	}), denied)
}

// between allows the nodes on paths between two allowed nodes.
func (p *painter) between() {
	soft := func(n *ir.Node) bool { return p.node[n.ID].free() && p.colour[n.ID] == unpainted && p.eligible(n) }
	starts := p.all(p.is(ir.Low))
	below := p.walk(starts, p.down, soft)
	p.set(p.walk(starts, p.up, func(n *ir.Node) bool { return below[n.ID] && soft(n) }), allowed)
}

// followOperands allows inferring nodes with an allowed operand and no denied one. This is
// TensorFlow's additional sweep for bf16, here in the order of definition.
func (p *painter) followOperands() {
	for _, n := range p.g.Nodes {
		if !p.is(ir.PromoteC)(n) || p.colour[n.ID] != unpainted || !p.eligible(n) {
			continue
		}
		some, ok := false, true
		for _, m := range p.up[n.ID] {
			some = some || p.colour[m.ID] == allowed
			ok = ok && p.colour[m.ID] != denied
		}
		if some && ok {
			p.colour[n.ID] = allowed
		}
	}
}

// spreadClear allows the clear nodes next to allowed ones.
func (p *painter) spreadClear() {
	enter := func(n *ir.Node) bool {
		return p.is(ir.Clear)(n) && p.colour[n.ID] == unpainted && p.eligible(n) && len(p.up[n.ID]) > 0
	}
	both := make([][]*ir.Node, len(p.up))
	for i := range both {
		both[i] = slices.Concat(p.up[i], p.down[i])
	}
	p.set(p.walk(p.all(p.painted(allowed)), both, enter), allowed)
}
