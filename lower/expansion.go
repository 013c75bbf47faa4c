package lower

import (
	"fmt"

	"ampc/ir"
)

// Expansions estimates what the clusters of a node's expansion move, before dtypes are chosen. It
// lowers the node alone, by the same rules of t that later lower the step.
func Expansions(t Target) ir.Expander { return expansions{t} }

type expansions struct{ target Target }

func (e expansions) Expands(n *ir.Node) bool { return e.target.Expands(n) }

func (e expansions) Traffic(n *ir.Node, s ir.Section, read []bool) (*ir.Traffic, error) {
	g, operand, result := alone(n, s, read)
	g, err := expand(g, e.target)
	if err != nil {
		return nil, err
	}
	if err := check(g, e.target); err != nil {
		return nil, err
	}
	l := newLowerer(g, e.target, form{joins: e.target.Fuses()})
	if err := l.declare(); err != nil {
		return nil, err
	}
	if err := l.part(partOf[s]); err != nil {
		return nil, err
	}
	l.finish()
	m := &ir.Traffic{In: make([]int64, len(n.In)), Out: make([]int64, len(n.Out))}
	at := make(map[BufferID]*int64, len(operand)+len(result))
	for i, v := range g.Return {
		at[l.p.Buffers[l.buf[v.ID]].Root] = &m.Out[result[i]]
	}
	for i, name := range operand {
		at[l.buf[g.Var(name).ID]] = &m.In[i]
	}
	for i := range l.p.Parts[partOf[s]] {
		l.p.attribute(&l.p.Parts[partOf[s]][i], at, &m.Inner)
	}
	return m, nil
}

// alone returns a graph whose only node is n, in section s. operand maps the number of an operand
// to the name of the variable that stands for it; equal operands share the name of the first. An
// operand that another node computes is a view of an earlier operand and has no name.
// result lists the results that the graph returns, which are those that are read.
func alone(n *ir.Node, s ir.Section, read []bool) (g *ir.Graph, operand map[int]string, result []int) {
	g = &ir.Graph{Name: "expansion"}
	b := ir.Edit(g).In(s)
	operand = map[int]string{}
	declared := map[*ir.Value]*ir.Value{}
	m := &ir.Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs, Pos: n.Pos, In: make([]*ir.Value, len(n.In))}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		switch {
		case declared[v] != nil:
		case v.Def != nil:
			declared[v] = b.Emit(v.Def.Op, []*ir.Value{declared[v.Def.In[0]]}, v.Def.Attrs)[0]
		default:
			operand[i] = fmt.Sprint("operand", i)
			declared[v] = b.Declare(ir.Input, operand[i], v.Type, nil, nil)
		}
		m.In[i] = declared[v]
	}
	for i, v := range n.Out {
		r := &ir.Value{Name: fmt.Sprint("result", i), Type: v.Type, Def: m, Idx: i}
		m.Out = append(m.Out, r)
		if read[i] {
			g.Return, result = append(g.Return, r), append(result, i)
		}
	}
	g.Body[s] = append(g.Body[s], m)
	return g, operand, result
}

// attribute adds the bytes that s moves to the count of each tensor of n, or to inner for others.
func (p *Program) attribute(s *Step, at map[BufferID]*int64, inner *int64) {
	for _, list := range [2][]BufferID{s.In, s.Out} {
		p.each(list, func(id BufferID, bytes int64) {
			if sum := at[p.Buffers[id].Root]; sum != nil {
				*sum += bytes
			} else {
				*inner += bytes
			}
		})
	}
}
