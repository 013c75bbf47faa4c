package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// lowerParts lowers nodes that one kernel runs as parts to one step: global norms and the finiteness
// checks that read the same tensors (ir.Caps.ChecksNorms), or a loss and its gradient
// (ir.Caps.JoinsLosses). It reports false for other nodes.
func (l *Lowerer) lowerParts(nodes []*ir.Node) bool {
	caps := l.p.Target.Caps()
	others := func(runs func(n *ir.Node) bool) bool {
		return slices.ContainsFunc(nodes, func(n *ir.Node) bool { return !runs(n) })
	}
	if others(caps.RunsChecks) && others(caps.RunsLoss) {
		return false
	}
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b *ir.Node) int { return rank(a) - rank(b) })
	l.now = nodes
	head := nodes[0]
	s := Step{Kind: KindKernel, Node: NodeRef{head.Name(), head.Pos}, Kernel: &Kernel{Name: head.Def().Name, Node: detached(head)}}
	made := map[*ir.Value]int{} // the result that holds a value
	inside, operands := membersOf(nodes), map[BufferID]int{None: -1}
	operand := func(id BufferID) int {
		at, ok := operands[id]
		if !ok {
			at = len(s.In)
			s.In, operands[id] = append(s.In, id), at
		}
		return at
	}
	for _, n := range nodes {
		for _, v := range n.In {
			if v == nil || v.Def == nil || !inside.has(v.Def) {
				operand(l.in(v))
			}
		}
		for _, v := range n.Out {
			made[v] = len(s.Out)
			s.Out = append(s.Out, l.result(v))
		}
	}
	for _, n := range nodes {
		part := &KernelPart{Node: detached(n)}
		for _, v := range n.In {
			if i, ok := made[v]; ok {
				part.In = append(part.In, len(s.In)+i)
			} else {
				part.In = append(part.In, operand(l.in(v)))
			}
		}
		for _, v := range n.Out {
			part.Out = append(part.Out, made[v])
		}
		s.Kernel.Parts = append(s.Kernel.Parts, part)
	}
	l.emit(s)
	return true
}

// rank orders the nodes of one kernel: a norm or a loss is 0, a check or a gradient 1.
func rank(n *ir.Node) int {
	if n.Def().Is(ir.Checks) || n.Def().GradOf != ir.OpInvalid {
		return 1
	}
	return 0
}

// operand is the number of a buffer among s's operands, to which it is added; -1 for None.
func (s *Step) operand(id BufferID) int {
	if id == None {
		return -1
	}
	at := slices.Index(s.In, id)
	if at < 0 {
		at = len(s.In)
		s.In = append(s.In, id)
	}
	return at
}

// parts checks a kernel that runs several nodes: each part has the attributes, the operands and the
// results of its node, in any order of nodes.
func (b *body) parts(s *Step) error {
	parts := s.Kernel.Parts
	if len(parts) != len(b.nodes.list) || s.Kernel.Name != parts[0].Node.Def().Name {
		return errors.New("runs another number of nodes than its cluster has")
	}
	ran := map[*ir.Node]bool{}
	for _, part := range parts {
		if slices.ContainsFunc(part.In, func(i int) bool { return i >= len(s.In)+len(s.Out) }) || slices.ContainsFunc(part.Out, func(i int) bool { return i < 0 || i >= len(s.Out) }) {
			return errors.New("a part names an operand or a result that its step lacks")
		}
		own := part.Step(s)
		n := b.made(own)
		if n == nil || ran[n] {
			return fmt.Errorf("runs %s for a result of no node", own.Kernel.Name)
		}
		ran[n] = true
		if own.Kernel.Node.Op != n.Op || !own.Kernel.Node.Attrs.Equal(n.Attrs) {
			return fmt.Errorf("runs %s with other attributes than %s", own.Kernel.Name, n.Name())
		}
		b.head = n
		if err := errors.Join(b.kernelTypes(own), b.operands(own, max(len(n.In), len(own.In))), b.results(own)); err != nil {
			return err
		}
	}
	return nil
}

// made is the node with as many results as s, of which the first is that of s; nil if there is none.
func (b *body) made(s *Step) *ir.Node {
	if len(s.Out) == 0 {
		return nil
	}
	for _, t := range b.roots.with(b.p.Buffers[s.Out[0]].Root) {
		if n := t.value.Def; n != nil && t.value == n.Out[0] && len(n.Out) == len(s.Out) && b.nodes.has(n) && b.shows(s.Out[0], t.value) {
			return n
		}
	}
	return nil
}
