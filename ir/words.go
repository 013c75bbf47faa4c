package ir

import "strings"

// reasonWords turns reasons into the comments of mode Reasons.
type reasonWords struct {
	uses *Uses
}

func newReasonWords(g *Graph) *reasonWords { return &reasonWords{g.Uses()} }

func (w *reasonWords) of(n *Node) string {
	if n.Op == OpCast {
		return w.cast(n)
	}
	r := n.Why
	d := n.Def()
	class := r.Class
	if class == NoClass {
		return ""
	}
	var s []string
	head := class.String()
	if class == d.Class && d.Why != "" {
		head += ": " + d.Why
	}
	s = append(s, head)
	switch r.Cause {
	case ByPin, ByPattern, ByOp, ByCut, ByGuard, ByIsland, ByCopy:
		by := "by " + r.Cause.String()
		if r.Rule != "" {
			by += " " + r.Rule
		}
		s = append(s, by)
	case ByForward:
		if r.From != nil {
			s = append(s, "follows "+r.From.String())
		}
	case ByNeighbour:
		if r.From != nil {
			s = append(s, "because of "+r.From.String())
		}
	}
	for _, m := range [...]struct {
		m    Marks
		text string
	}{
		{MarkReadsLow, "reads 16 bits"}, {MarkStoresLow, "stores 16 bits"},
		{MarkStoresF32, "stores f32"}, {MarkSeed, "seeded with the loss scale"},
	} {
		if r.Has(m.m) {
			s = append(s, m.text)
		}
	}
	return strings.Join(s, ", ")
}

// cast names the readers of a cast, at most three.
func (w *reasonWords) cast(n *Node) string {
	var s []string
	if n.Why.Has(MarkCached) {
		s = append(s, "cached")
	}
	var names []string
	for _, u := range w.uses.Of(n.Out[0]) {
		if len(names) == 3 {
			names = append(names, "...")
			break
		}
		names = append(names, u.Node.Name())
	}
	if len(names) > 0 {
		s = append(s, "cast for "+strings.Join(names, ", "))
	}
	return strings.Join(s, ", ")
}
