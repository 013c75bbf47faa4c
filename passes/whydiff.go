package passes

import (
	"fmt"
	"io"

	"ampc/ir"
)

// Difference is a value that two compilations of one model store in different dtypes, with both
// reasons.
type Difference struct {
	Value string `json:"value"`
	A     *Link  `json:"a"` // nil: this compilation has no such value
	B     *Link  `json:"b"`
}

// Differences lists the values that a and b, compiled from one source under two policies, store in
// different dtypes. They are in the order of a; values that only b has come last. Casts are not
// listed.
func Differences(a, b *ir.Graph) []Difference {
	var out []Difference
	there := computed(b)
	for _, n := range a.Nodes {
		for _, v := range n.Out {
			w := there[v.Name]
			delete(there, v.Name)
			switch {
			case v.Next != nil || n.Op == ir.OpCast || !v.Type.DType.Float():
			case w == nil:
				out = append(out, Difference{v.String(), linkAt(a, v), nil})
			case w.Type.DType != v.Type.DType:
				out = append(out, Difference{v.String(), linkAt(a, v), linkAt(b, w)})
			}
		}
	}
	for _, n := range b.Nodes {
		for _, w := range n.Out {
			if there[w.Name] == w {
				out = append(out, Difference{w.String(), nil, linkAt(b, w)})
			}
		}
	}
	return out
}

// computed maps names to the results of nodes that are not casts.
func computed(g *ir.Graph) map[string]*ir.Value {
	m := map[string]*ir.Value{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil && n.Op != ir.OpCast && v.Type.DType.Float() {
				m[v.Name] = v
			}
		}
	}
	return m
}

func linkAt(g *ir.Graph, v *ir.Value) *Link {
	l := linkOf(g, v)
	return &l
}

// PrintDifferences prints three lines for each value: its name, and for each policy its dtype and
// the reason.
func PrintDifferences(w io.Writer, list []Difference, a, b string) {
	width := max(len(a), len(b))
	for _, d := range list {
		fmt.Fprintln(w, d.Value)
		for _, side := range []struct {
			policy string
			link   *Link
		}{{a, d.A}, {b, d.B}} {
			if side.link == nil {
				fmt.Fprintf(w, "  %-*s  is not there\n", width, side.policy)
				continue
			}
			fmt.Fprintf(w, "  %-*s  %s  %s\n", width, side.policy, side.link.Type, side.link.Text)
		}
	}
	if len(list) == 1 {
		fmt.Fprintln(w, "1 value differs")
		return
	}
	fmt.Fprintf(w, "%d values differ\n", len(list))
}
