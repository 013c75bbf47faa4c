package passes

import (
	"fmt"

	"ampc/ir"
	"ampc/passes/plan"
)

// Store returns the policy with the free values that match pattern stored in f32 (PinF32) or 16
// bits (PinLow). Unlike Keep and Lower it does not change the dtypes that their ops read and
// compute in: it replaces the decision of the minimum cut. It is an error if no matching value is
// free.
func (p Policy) Store(pattern string, d ir.Pin) Policy {
	p.Stores = append(p.Stores[:len(p.Stores):len(p.Stores)], Rule{Pattern: pattern, Pin: d})
	return p
}

// pinned is why a choice was made before the plan was solved.
type pinned struct {
	cause ir.Cause
	v     *ir.Value // value whose range or name is the cause
	rule  string
}

// pin constrains choice x to d.
func (m *planner) pin(x plan.Choice, d ir.DType, why pinned) {
	m.solver.Require(x, m.fixedAs(d))
	if m.pins[x] == nil {
		m.pins[x] = &why
	}
}

// stores applies the policy's Stores to free values, starting with the last rule, which takes
// precedence.
func (m *planner) stores() error {
	used := make([]bool, len(m.p.Stores))
	because := make([]string, len(m.p.Stores))
	for k := len(m.p.Stores) - 1; k >= 0; k-- {
		r, d := m.p.Stores[k], ir.F32
		if r.Pin == ir.PinLow {
			d = m.low
		}
		free := m.solver.Solve()
		for _, n := range m.g.Nodes {
			for _, v := range n.Out {
				if v.Next != nil || !Matches(r.Pattern, v.Name) || m.v[v.ID] < 0 {
					continue
				}
				f := &flip{name: v.Name, d: d}
				x := m.v[v.ID]
				switch m.answer(f, v, free); {
				case f.because != "" && m.pins[x] != nil:
				case f.because != "":
					because[k] = f.sentence(v).String()
				case !x.Free():
				default:
					m.pin(x, d, pinned{ir.ByPattern, v, storeWord(d) + " " + r.Pattern})
				}
				used[k] = used[k] || f.because == ""
			}
		}
	}
	for k, r := range m.p.Stores {
		switch {
		case used[k] || m.c.PartialRules:
		case because[k] != "":
			return r.located(fmt.Errorf("policy %s: store %s: %s", m.p.Name, r.Pattern, because[k]))
		default:
			return r.located(fmt.Errorf("policy %s: store: pattern %q matches no value in graph @%s", m.p.Name, r.Pattern, m.g.Name))
		}
	}
	return nil
}

func storeWord(d ir.DType) string {
	if d == ir.F32 {
		return "store f32"
	}
	return "store low"
}

// pinReason records why n's first result has its dtype, which the pin of its choice determined:
// because of its own range or name, or because of those of a value with the same choice.
func (m *planner) pinReason(n *ir.Node, p *pinned) {
	t := &m.node[n.ID]
	t.cause, t.from, t.rule = p.cause, p.v, p.rule
	own := n.Out[0]
	switch {
	case own == p.v:
		t.from = nil
	case p.cause == ir.ByGuard && m.guard[own.ID] != "":
		t.from, t.rule = nil, m.guard[own.ID]
	}
}
