package gpu_test

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// Mutants that nothing notices may do what the Program does. What shows it is
// here: each check is built from the Program's text alone, in the plainest way,
// and shares nothing with lower.Verify or the simulator.

// moment is a step in the order of time, or the beginning or the end of all
// steps, which touch everything.
type moment struct {
	at     place
	step   *lower.Step // nil: beginning or end
	stream uint8
}

// relation is which moment must be over before another begins.
type relation struct {
	moments []moment
	before  [][]bool
	waits   int // how many the runtime issues
}

// relate builds the whole relation: streams run in order, a part's streams
// begin where the first has come to and end before it continues, events order the
// steps that record them before those that wait. The wait of number drop,
// counted from 1 as the runtime issues them, orders nothing.
func relate(p *lower.Program, drop int) *relation {
	r := &relation{}
	lanes := [2][]int{} // what each stream is behind: moments
	events := map[lower.EventID][]int{}
	wait := func(lane uint8, known []int) {
		if r.waits++; r.waits != drop {
			lanes[lane] = append(slices.Clone(lanes[lane]), known...)
		}
	}
	add := func(m moment) {
		r.moments = append(r.moments, m)
		r.before = append(r.before, make([]bool, len(r.moments)))
		now := len(r.moments) - 1
		for _, k := range lanes[m.stream] {
			r.before[now][k] = true
			for x, b := range r.before[k] {
				r.before[now][x] = r.before[now][x] || b
			}
		}
		lanes[m.stream] = []int{now}
	}
	add(moment{})
	for part := range lower.NumParts {
		streams := 1
		for i := range p.Parts[part] {
			streams = max(streams, int(p.Parts[part][i].Stream)+1)
		}
		if streams > 1 {
			wait(1, lanes[0])
		}
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			for _, e := range s.Wait {
				wait(s.Stream, events[e])
			}
			add(moment{place{part, i}, s, s.Stream})
			if s.Record != 0 {
				events[s.Record] = slices.Clone(lanes[s.Stream])
			}
		}
		if streams > 1 {
			wait(0, lanes[1])
		}
	}
	add(moment{})
	return r
}

// disordered names two moments that touch the same bytes, one of them writing,
// and that nothing orders; "" where there are none.
func (r *relation) disordered(p *lower.Program) string {
	for j := range r.moments {
		for i := range j {
			a, b := r.moments[i].step, r.moments[j].step
			if !r.before[j][i] && (a == nil || b == nil || meet(p, a, b)) {
				return fmt.Sprintf("%s and %s", r.moments[i].at, r.moments[j].at)
			}
		}
	}
	return ""
}

// meet reports whether two steps touch the same bytes, one of them writing.
func meet(p *lower.Program, a, b *lower.Step) bool {
	share := func(x, y []lower.BufferID) bool {
		for _, i := range x {
			for _, j := range y {
				if i != lower.None && j != lower.None && overlap(&p.Buffers[i], &p.Buffers[j]) {
					return true
				}
			}
		}
		return false
	}
	return share(a.Out, b.In) || share(a.Out, b.Out) || share(a.In, b.Out)
}

func overlap(a, b *lower.Buffer) bool {
	return a.Arena == b.Arena && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size
}

// stillOrdered is why a change of streams or events does no harm.
func stillOrdered(drop int) func(s *subject, p *lower.Program, _ trace) string {
	return func(s *subject, p *lower.Program, _ trace) string {
		if drop > 0 {
			drop = (drop-1)%relate(p, 0).waits + 1
		}
		if relate(p, drop).disordered(p) == "" {
			return "all steps that touch the same bytes are ordered as before, through other events"
		}
		return ""
	}
}

// placedApart is why another place does no harm: what lives at the same time
// shares no bytes.
func placedApart(s *subject, p *lower.Program, _ trace) string {
	type life struct{ from, to int }
	lives := map[lower.BufferID]life{}
	at, micro := 0, len(p.Parts[lower.Prepare])+len(p.Parts[lower.Micro])
	visit(p, func(_ place, s *lower.Step) {
		for _, id := range append(slices.Clone(s.In), s.Out...) {
			if id == lower.None {
				continue
			}
			root := p.Buffers[id].Root
			l, seen := lives[root]
			if !seen {
				l.from = at
			}
			l.to = at
			if l.from < len(p.Parts[lower.Prepare]) {
				l.to = max(l.to, micro)
			}
			lives[root] = l
		}
		at++
	})
	for _, o := range p.Outputs {
		root := p.Buffers[o.Buffer].Root
		lives[root] = life{lives[root].from, at}
	}
	for i, x := range lives {
		for k, y := range lives {
			a, b := &p.Buffers[i], &p.Buffers[k]
			together := x.from <= y.to && y.from <= x.to || a.Arena != lower.WorkArena
			if i < k && together && overlap(a, b) && !overlap(&s.p.Buffers[i], &s.p.Buffers[k]) {
				return ""
			}
		}
	}
	if relate(p, 0).disordered(p) != "" {
		return ""
	}
	return "the place is free as long as the buffer lives"
}

// blocksIdle is why more blocks do no harm: they load and store nothing.
func blocksIdle(s *subject, _ *lower.Program, got trace) string {
	if got.stats.LoadBytes == s.want.stats.LoadBytes && got.stats.StoreBytes == s.want.stats.StoreBytes {
		return "the blocks that were added load and store nothing"
	}
	return ""
}

// storedApart is why two steps may trade places: no two of them and of those
// between touch an element that one of the two writes.
func storedApart(a, b place) func(s *subject, _ *lower.Program, _ trace) string {
	return func(s *subject, _ *lower.Program, _ trace) string {
		first, last := a.of(s.p), b.of(s.p)
		for i := a.i + 1; i <= b.i; i++ {
			if m := (place{a.part, i}).of(s.p); clash(s.p, first, m) || m != last && clash(s.p, m, last) {
				return ""
			}
		}
		return "the two, and those between, store different elements and read none of them"
	}
}

// clash reports whether two steps touch one element, one of them writing; of a
// step that is not a cluster, all elements of what it touches count.
func clash(p *lower.Program, a, b *lower.Step) bool {
	if !meet(p, a, b) {
		return false
	}
	if a.Cluster == nil || b.Cluster == nil || len(a.More)+len(b.More) > 0 {
		return true
	}
	meets := func(x, y []string) bool {
		return slices.ContainsFunc(x, func(e string) bool { return slices.Contains(y, e) })
	}
	from, to := elements(p, a, a.Cluster.Stores), elements(p, b, b.Cluster.Stores)
	return meets(from, to) || meets(from, elements(p, b, b.Cluster.Loads)) || meets(elements(p, a, a.Cluster.Loads), to)
}

// elements are the bytes' places that accesses of a cluster walk.
func elements(p *lower.Program, s *lower.Step, list []lower.Access) (all []string) {
	for _, a := range list {
		b := &p.Buffers[a.Buffer]
		var walk func(d int, e int64)
		walk = func(d int, e int64) {
			if d == len(s.Cluster.Shape) {
				if a.Bits {
					e /= 8
				}
				all = append(all, fmt.Sprint(b.Arena, b.Offset+e*b.Type.DType.Size()))
				return
			}
			for i := range s.Cluster.Shape[d] {
				walk(d+1, e+i*a.Strides[d])
			}
		}
		walk(0, a.Offset)
	}
	return all
}

// sameContent is why one buffer does as well as another: both are filled by
// code that reads nothing and is the same.
func sameContent(a, b lower.BufferID) func(s *subject, _ *lower.Program, _ trace) string {
	return func(s *subject, _ *lower.Program, _ trace) string {
		maker := func(id lower.BufferID) string {
			text, makers := "", 0
			visit(s.p, func(_ place, step *lower.Step) {
				if slices.ContainsFunc(step.Out, func(o lower.BufferID) bool { return s.p.Buffers[o].Root == s.p.Buffers[id].Root }) {
					makers++
					if step.Cluster != nil && len(step.Cluster.Loads) == 0 && len(step.Cluster.Stores) == 1 {
						text = fmt.Sprint(step.Cluster.Code, step.Cluster.Shape, step.Cluster.Stores[0].Strides, step.Cluster.Stores[0].Offset)
					}
				}
			})
			if makers != 1 {
				return ""
			}
			return text
		}
		if x := maker(a); x != "" && x == maker(b) {
			return "both buffers are filled by the same code, which reads nothing"
		}
		return ""
	}
}

// sameItems is why batch and heads may trade places: attention without a mask,
// with a head of k for each of q, is computed for every item alike.
func sameItems(at place) func(s *subject, p *lower.Program, _ trace) string {
	return func(s *subject, p *lower.Program, _ trace) string {
		a, b := at.of(s.p).Attn, at.of(p).Attn
		if a.Mask == 0 && a.Heads == a.KVHeads && b.Heads == b.KVHeads && a.Batch*a.Heads == b.Batch*b.Heads {
			return "the items are the same, each by itself and one after the other in memory"
		}
		return ""
	}
}

// commutes is why two loads of a cluster may trade places: what it stores is the
// same formula with them exchanged, except for the order of operands of sums,
// products and other primitives that take either order.
func commutes(at place, a, b int) func(s *subject, _ *lower.Program, _ trace) string {
	return func(s *subject, _ *lower.Program, _ trace) string {
		g := at.of(s.p).Cluster
		if g == nil || len(at.of(s.p).More) > 0 || b >= len(g.Loads) || fmt.Sprint(g.Loads[a].Strides, g.Loads[a].Offset) != fmt.Sprint(g.Loads[b].Strides, g.Loads[b].Offset) {
			return ""
		}
		for _, st := range g.Stores {
			if formula(g, st.Reg, -1, -1) != formula(g, st.Reg, a, b) {
				return ""
			}
		}
		return "what is stored is the same formula with the two exchanged"
	}
}

// formula writes a register out, operands that may trade places sorted, and
// loads a and b exchanged.
func formula(g *lower.Cluster, r ir.Reg, a, b int) string {
	i := g.Code[r]
	if i.Op == ir.PIn {
		switch int(i.Int) {
		case a:
			i.Int = int64(b)
		case b:
			i.Int = int64(a)
		}
		return fmt.Sprintf("l%d", i.Int)
	}
	var args []string
	for _, x := range []ir.Reg{i.A, i.B, i.C}[:ir.Prims[i.Op].Args] {
		args = append(args, formula(g, x, a, b))
	}
	switch i.Op {
	case ir.PAdd, ir.PMul, ir.PAnd, ir.POr, ir.PXor, ir.PEq, ir.PNe:
		slices.Sort(args)
	}
	return fmt.Sprint(i.Op, i.Type, i.To, i.Imm, i.Int, args)
}

// oneTap is why a dilation changes nothing: along that dimension the filter has one element.
func oneTap(at place, d int) func(s *subject, _ *lower.Program, _ trace) string {
	return func(s *subject, _ *lower.Program, _ trace) string {
		if at.of(s.p).Conv.Window.Kernel[d] == 1 {
			return "a filter of one element reaches no further"
		}
		return ""
	}
}

// sameTerms is why tensors may trade rows in the table of a sum: it adds up the
// same tensors in another order, to the same bits as it happens.
func sameTerms(at place) func(s *subject, p *lower.Program, _ trace) string {
	return func(s *subject, p *lower.Program, _ trace) string {
		terms := func(p *lower.Program) (list []string) {
			l := at.of(p).Launch
			for row := l.Table[l.Grid[0]:]; len(row) > 0; row = row[1+len(l.Row):] {
				list = append(list, fmt.Sprint(row[:1+len(l.Row)]))
			}
			slices.Sort(list)
			return list
		}
		if k := at.of(s.p).Kernel; k != nil && k.Name == "sums" && slices.Equal(terms(s.p), terms(p)) {
			return "the sum has the same terms"
		}
		return ""
	}
}
