package host

import (
	"slices"

	"ampc/onnx"
)

// plan is a way to cut a scope into regions. All but the first of a scope are made
// for sizes that vary from run to run, such as the length of what a decoder has
// cached: nodes that see them have regions of their own, and all others are compiled
// once.
type plan struct {
	scope  *scope
	stages map[string]*stage    // by the nodes that are done
	varies []bool               // by node; nil: nothing is known to vary
	equal  map[string]onnx.Seen // what the scope reads that does not, and its types
}

// limits for splitting a scope: the regions must be worth it, and most of the scope must not vary
const (
	leastSplit = 48
	mostVaries = 0.6 // of the nodes
)

// plan returns the scope's plan for the values of a frame.
func (s *scope) plan(f *frame) *plan {
	for _, p := range s.plans[1:] {
		if p.fits(f) {
			return p
		}
	}
	return s.plans[0]
}

func (p *plan) fits(f *frame) bool {
	for name, x := range p.equal {
		if v, _, _ := f.find(name); v == nil || v.Kind != Tensor || v.Type != x.Type {
			return false
		}
	}
	return true
}

// splits reports whether the region covers the whole of a scope that may be split by what varies.
func (g *region) splits() bool {
	return g.st.plan.varies == nil && len(g.nodes) >= leastSplit && len(g.nodes) == len(g.st.scope.order)
}

// split makes a plan of what differs between two imports of all nodes of a scope;
// nil where too much or nothing does.
func (g *region) split(p *onnx.Partial) *plan {
	if !g.splits() {
		return nil
	}
	before, s := g.st.last, g.st.scope
	if g.st.last = p.Seen; before == nil {
		return nil
	}
	out := &plan{scope: s, stages: map[string]*stage{}, varies: make([]bool, len(s.nodes)), equal: map[string]onnx.Seen{}}
	for name := range g.reads {
		if x := p.Seen[name]; g.reads[name].init == nil && x.Type == before[name].Type {
			out.equal[name] = x
		}
	}
	differs := func(name string) bool {
		x, y := p.Seen[name], before[name]
		return x.Type != y.Type || (x.Known == nil) != (y.Known == nil) || x.Known != nil && !equal(decoded(x.Known), y.Known)
	}
	n := 0
	for _, i := range s.order {
		if slices.ContainsFunc(s.reads[i], differs) || slices.ContainsFunc(s.nodes[i].Out, differs) {
			out.varies[i] = true
			n++
		}
	}
	if n == 0 || float64(n) > mostVaries*float64(len(s.order)) {
		return nil
	}
	s.plans = append(s.plans, out)
	return out
}

// waits marks the nodes of a stage that are not of its region because they vary and
// others do not, or the other way round: a region of what does not vary comes first.
// It is nil where all may be of the region.
func (st *stage) waits() []bool {
	if st.plan.varies == nil {
		return nil
	}
	pick := func(varies bool) (waiting []bool, any bool) {
		waiting = make([]bool, len(st.done))
		for _, i := range st.rest {
			if st.plan.varies[i] == varies && !st.scope.readsOf(i, waiting) {
				any = any || !st.scope.free[i]
			} else {
				waiting[i] = true
			}
		}
		return waiting, any
	}
	for _, varies := range []bool{false, true} {
		if waiting, any := pick(varies); any {
			return waiting
		}
	}
	return nil
}
