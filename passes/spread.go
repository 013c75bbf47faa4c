package passes

import "ampc/ir"

// spreadImages marks the nodes whose images no step stores, because the launches that read them add up
// outputs of windows (ir.Caps.Spreads). All of them read any dtype, so that no cast reads the images.
func (f *launchFinder) spreadImages() (count int) {
	launches, kept := f.launches(), f.kept()
	for _, n := range f.g.Body[ir.Backward] {
		if len(n.Out) == 0 || f.expands(n) || kept[n.Out[0]] {
			continue
		}
		w, ok := f.caps.Spreads(n, f.uses, func(m *ir.Node) []*ir.Node { return launches[m.Why.Launch] })
		if !ok || w.Index != nil && (kept[w.Index] || !inMicro(f.at(w.Index.Def).section) || f.expands(w.Index.Def)) {
			continue
		}
		for _, u := range f.uses.Of(n.Out[0]) {
			ok = ok && f.requiredDType(u.Node, u.Arg()) == ir.Invalid
		}
		if ok {
			n.Why.Marks |= ir.MarkSpread
			count++
		}
	}
	return count
}

// launches lists the nodes of each launch.
func (f *launchFinder) launches() map[int32][]*ir.Node {
	launches := map[int32][]*ir.Node{}
	for _, n := range f.g.Nodes {
		if n.Why.Launch > 0 {
			launches[n.Why.Launch] = append(launches[n.Why.Launch], n)
		}
	}
	return launches
}
