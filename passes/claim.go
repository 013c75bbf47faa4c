package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// claim makes losses and outputs results of the source graph before any pass runs. From then on
// they are identified by their position, even if their names change. The update gives the results
// their final order. Inference has no update, so there the order is final from the start.
func (t *training) claim(g *ir.Graph, c Config) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	t.returned = len(g.Return)
	if len(c.Losses)+len(c.Outputs) == 0 {
		return nil
	}
	own := valuesOf(g)
	if c.Train {
		for i, l := range c.Losses {
			if !own(l.Value) {
				return foreign(g, fmt.Sprintf("loss %d", i+1), l.Value)
			}
			t.claimed = append(t.claimed, place(g, l.Value))
		}
	}
	for i, o := range c.Outputs {
		at := -1
		switch of := o.Kind == OfValue || o.Kind == OfGradient; {
		case of && !own(o.Value):
			return foreign(g, fmt.Sprintf("output %d", i+1), o.Value)
		case o.Kind != OfValue && !c.Train:
			return fmt.Errorf("result %s: inference computes none", o.Kind)
		case of && c.Train && (o.Kind == OfValue || !o.Value.IsVar()):
			at = place(g, o.Value)
		case o.Kind == OfValue:
			at = len(g.Return)
			g.Return = append(g.Return, o.Value)
		}
		t.outputs = append(t.outputs, at)
	}
	return nil
}

// place is the position of v among g's results. It appends v if it is not a result yet.
func place(g *ir.Graph, v *ir.Value) int {
	if i := slices.Index(g.Return, v); i >= 0 {
		return i
	}
	g.Return = append(g.Return, v)
	return len(g.Return) - 1
}

// valuesOf returns a function that reports whether a value is in g.
func valuesOf(g *ir.Graph) func(*ir.Value) bool {
	n, _ := g.Number()
	all := make([]*ir.Value, n)
	for _, v := range g.Vars {
		all[v.ID] = v
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			all[v.ID] = v
		}
	}
	return func(v *ir.Value) bool { return v != nil && int(v.ID) < len(all) && v.ID >= 0 && all[v.ID] == v }
}

func foreign(g *ir.Graph, what string, v *ir.Value) error {
	if v == nil {
		return fmt.Errorf("%s: no value", what)
	}
	return &ir.Error{Pos: posOf(v), Msg: fmt.Sprintf("%s: %s is not a value of graph @%s", what, v, g.Name)}
}
