package plan

import (
	"cmp"
	"slices"
)

// Solver finds the choices for which the clusters of a plan move the fewest bytes, exactly. Of
// several such choices it takes the one with the most f32.
//
// It is a minimum cut: the source side means f32, the sink side low. The costs are as follows, for
// n elements, times the runs of the cluster per step:
//
//	write, and read as stored             4n if f32, 2n if low
//	read in a required dtype              that dtype's bytes
//	write that stores each form read      4n, 2n or both
//	narrowing cast, once for all readers  6n if the tensor is f32 and a reader requires low
//	widening cast                         6n if it is low and a reader requires f32
//	widening what was rounded             6n if a reader requires that in f32
//	cast to the other 16 bits             6n if the tensor is f32, 4n if it is low
//	cast of the other 16 bits             6n to f32, 4n to low
//	kernels that one dtype would join     4n or 2n for each write and read between them
//	saved for backward                    4n, 2n or both, times Plan.SavedCost
//
// Every term is unary, or has the form "some reader on one side, the tensor on the other", which
// one auxiliary node with an infinite edge per reader expresses. There is one exception. If one
// reader may read a tensor in f32 and another one rounded and in f32, these are two forms if the
// tensor is f32 and one if it is low. No minimum cut expresses that, so such a tensor is f32.
type Solver struct {
	plan  *Plan
	net   *network
	fixed int64   // bytes that do not depend on choices
	kept  int64   // cost of saved values that does not depend on choices
	saved []int32 // auxiliary nodes that price saved values
}

// NewSolver prices the ports of a plan.
func NewSolver(p *Plan) *Solver {
	ports := 0
	for k := range p.Clusters {
		ports += len(p.Clusters[k].Ports)
	}
	edges := len(p.Widens) + len(p.Splits) + ports + ports/4 // a port of a decoder adds about one
	s := &Solver{plan: p, net: &network{nodes: p.choices, edges: make([]arc, 0, edges)}}
	for _, w := range p.Widens {
		s.net.arc(int32(w.A), int32(w.B), inf)
	}
	for _, x := range p.Splits {
		s.net.arc(int32(x.A), int32(x.B), x.Bytes)
	}
	for _, x := range p.Joins {
		s.join(x)
	}
	s.price()
	return s
}

// join adds the cost of the kernels of x if one of its choices differs from x.Of.
func (s *Solver) join(x Join) {
	low, wide := int32(-1), int32(-1)
	for _, y := range x.Alike {
		low = s.lowFor(low, int32(y), int32(x.Of), x.F32)
		wide = s.f32For(wide, int32(y), int32(x.Of), x.Low)
	}
}

// Require constrains a choice to F32 or Low.
func (s *Solver) Require(c, to Choice) {
	if to == F32 {
		s.net.arc(srcNode, int32(c), inf)
	} else {
		s.net.arc(int32(c), sinkNode, inf)
	}
}

// Result is the solution of a plan.
type Result struct {
	Moved int64 // bytes per step
	Saved int64 // bytes saved for backward, times Plan.SavedCost
	// Conflict holds two choices that contradict each other: the first must be f32 and the second
	// low, although the second is at least as wide as the first. Both are AsStored if the
	// constraints are consistent.
	Conflict [2]Choice
	// Free, Components and Largest describe the network without forced choices.
	Free, Components, Largest int

	cut *cut
}

// Low reports whether c was decided low.
func (r *Result) Low(c Choice) bool { return r.cut.sink[c] }

// ForcedBy is the neighbour that forces c, or c itself if none does.
func (r *Result) ForcedBy(c Choice) Choice { return Choice(r.cut.forcedBy[c]) }

// Solve decides all choices.
func (s *Solver) Solve() *Result {
	c := s.net.solve(s.plan.Together)
	r := &Result{cut: c, Free: c.free, Components: c.components, Largest: c.largest}
	s.plan.Together(func() { r.Conflict = s.conflict(c) }, func() { r.Saved = s.savedCost(c) })
	r.Moved = c.cost + s.fixed - r.Saved
	r.Saved += s.kept
	return r
}

// conflict is Result.Conflict of a cut.
func (s *Solver) conflict(c *cut) [2]Choice {
	for _, e := range s.net.edges {
		if e.cap >= inf && !c.sink[e.from] && c.sink[e.to] {
			return [2]Choice{Choice(e.from), Choice(e.to)}
		}
	}
	return [2]Choice{AsStored, AsStored}
}

// savedCost is the part of a cut's cost that prices saved values.
func (s *Solver) savedCost(c *cut) int64 {
	saved := make([]bool, s.net.nodes)
	for _, x := range s.saved {
		saved[x] = true
	}
	sum := int64(0)
	for _, e := range s.net.edges {
		atTerminal := e.from == srcNode && saved[e.to] || e.to == sinkNode && saved[e.from]
		if atTerminal && e.cap < inf && !c.sink[e.from] && c.sink[e.to] {
			sum += e.cap
		}
	}
	return sum
}

// read is a reading port and its cluster.
type read struct {
	*Port
	cluster int32
	again   bool // in f32 it reads rounded values, which differ from the tensor in f32
	other   bool // it requires the other 16 bits
	twice   bool // and from values rounded to low, which differ from the tensor in the other 16 bits
}

// reading is the read at port q by a cluster.
func (p *Plan) reading(q *Port, cluster int32) read {
	x := p.Tensors[q.Tensor].Stored
	narrowed := q.Narrowed && q.Takes != Low && q.Takes != AsStored && x != Low
	other := q.Takes == Other || q.Takes == AsStored && x == Other
	return read{q, cluster, narrowed && !other, other, narrowed && other}
}

// in is the form that r reads of a tensor with choice x. r does not require the other 16 bits.
func (r read) in(x Choice) int32 {
	if r.Takes == AsStored {
		return int32(x)
	}
	return int32(r.Takes)
}

// price adds the costs of every tensor: its write, its reads, the casts for its readers, and what
// is saved of it.
func (s *Solver) price() {
	at := portsOf(s.plan)
	for k := range s.plan.Clusters {
		s.fixed += s.plan.Clusters[k].Inner * s.plan.Clusters[k].Times
	}
	half := len(s.plan.Tensors) / 2
	rest := &Solver{plan: s.plan, net: &network{nodes: s.plan.choices, edges: make([]arc, 0, cap(s.net.edges)/2)}}
	s.plan.Together(func() { rest.tensors(half, len(s.plan.Tensors), at) }, func() { s.tensors(0, half, at) })
	s.add(rest)
}

// add adds the costs that rest has found. Its auxiliary nodes get numbers after those of s.
func (s *Solver) add(rest *Solver) {
	first := s.plan.choices
	place := func(x int32) int32 {
		if x >= first {
			return x - first + s.net.nodes
		}
		return x
	}
	for _, e := range rest.net.edges {
		s.net.edges = append(s.net.edges, arc{place(e.from), place(e.to), e.cap})
	}
	for _, x := range rest.saved {
		s.saved = append(s.saved, place(x))
	}
	s.net.nodes += rest.net.nodes - first
	s.fixed, s.kept = s.fixed+rest.fixed, s.kept+rest.kept
}

// tensors adds the costs of the tensors from first to before end.
func (s *Solver) tensors(first, end int, at *ports) {
	for id := first; id < end; id++ {
		t, list := &s.plan.Tensors[id], ordered(at.reads(id))
		w, times := at.write(id)
		outside := stored(list)
		if w != nil && !w.Always && len(outside) == 0 && len(list) > 0 { // only registers
			unstored := *w
			unstored.Moves = &Moves{}
			w = &unstored
		}
		if t.Stored == AsStored {
			s.exact(t, w, times, outside)
			continue
		}
		if w == nil {
			w = &Port{}
		} else {
			s.write(t, w, times, outside)
		}
		s.reads(t, outside)
		s.casts(t, w, list)
		if s.plan.SavedCost > 0 {
			s.keeps(t, outside)
		}
	}
}

// stored lists the reads that are not of registers.
func stored(list []read) []read {
	if !slices.ContainsFunc(list, func(r read) bool { return r.Register }) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(r read) bool { return r.Register })
}

// ordered sorts reads by cluster and requirement, and removes duplicates. Reads with Moves are never
// duplicates.
func ordered(list []read) []read {
	slices.SortFunc(list, func(a, b read) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.Takes, b.Takes), cmp.Compare(a.Part, b.Part), order(a.Moves != nil, b.Moves != nil), order(a.again, b.again), order(a.twice, b.twice), order(a.Register, b.Register))
	})
	return slices.CompactFunc(list, func(a, b read) bool {
		return a.cluster == b.cluster && a.Takes == b.Takes && a.Part == b.Part && a.again == b.again && a.twice == b.twice && a.Register == b.Register && a.Moves == nil && b.Moves == nil
	})
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// exact adds a tensor of fixed dtype: each cluster reads it once.
func (s *Solver) exact(t *Tensor, w *Port, times int64, list []read) {
	if w != nil {
		s.fixed += w.exactly(t.Bytes) * times
	}
	for _, r := range list {
		if r.Moves != nil && !s.plan.Clusters[r.cluster].Outside {
			s.fixed += r.Moves.F32 * s.plan.Clusters[r.cluster].Times
		}
	}
	once := withoutMoves(list)
	for i, r := range once {
		if c := &s.plan.Clusters[r.cluster]; !c.Outside && (i == 0 || once[i-1].cluster != r.cluster) {
			s.fixed += r.Bytes * c.Times
		}
	}
}

// exactly is what a port of a tensor of fixed dtype moves: n bytes, or its Moves.
func (p *Port) exactly(n int64) int64 {
	if p.Moves != nil {
		return p.Moves.F32
	}
	return n
}

// write adds the cost of storing t.
func (s *Solver) write(t *Tensor, w *Port, times int64, list []read) {
	if w.Moves != nil {
		s.stored(t.Stored, *w.Moves, times)
		return
	}
	if w.Second && len(list) > 0 && !w.Always {
		s.forms(list, t.Stored, t.Bytes, times)
		return
	}
	s.stored(t.Stored, once(t.Bytes), times)
}

// stored adds the cost of writing a tensor with choice x.
func (s *Solver) stored(x Choice, m Moves, times int64) {
	if x == Other {
		s.fixed += m.Low * times
		return
	}
	s.pay(int32(x), m, times)
}

// once is the bytes for reading or writing a tensor once, whose low form has that many bytes.
func once(low int64) Moves { return Moves{F32: 2 * low, Low: low} }

// reads adds reads of t.
func (s *Solver) reads(t *Tensor, list []read) {
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && list[end].cluster == list[i].cluster {
			end++
		}
		if c := &s.plan.Clusters[list[i].cluster]; !c.Outside {
			s.own(t, list[i:end], c.Times)
			if once := withoutMoves(list[i:end]); len(once) > 0 {
				s.forms(once, t.Stored, touched(once, t.Bytes), c.Times)
			}
		}
		i = end
	}
}

// own adds the cost of the reads of t that have Moves.
func (s *Solver) own(t *Tensor, list []read, times int64) {
	for _, r := range list {
		switch {
		case r.Moves == nil:
		case r.other:
			s.fixed += r.Moves.Low * times
		default:
			s.pay(r.in(t.Stored), *r.Moves, times)
		}
	}
}

func withoutMoves(list []read) []read {
	if !slices.ContainsFunc(list, func(r read) bool { return r.Moves != nil }) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(r read) bool { return r.Moves != nil })
}

// casts adds the casts that the readers of t need, each once.
func (s *Solver) casts(t *Tensor, w *Port, list []read) {
	n := t.Bytes * t.CopyTimes
	from, narrowing := int32(t.Stored), 3*n // the dtype that is cast to f32, and the bytes of a cast to low
	into, widening := from, 3*n
	if t.Stored == Other {
		from, into, narrowing = srcNode, sinkNode, 2*n
	}
	narrow, widen, widenAgain, wide, again := int32(-1), int32(-1), int32(-1), false, false
	other, twice := false, false
	for _, r := range list {
		if r.Takes == AsStored || r.other {
			other, twice = other || r.other && !r.twice, twice || r.twice
			continue
		}
		y := r.in(t.Stored)
		wide, again = wide || !r.again && r.Takes != Low, again || r.again
		if w.Rounded && !r.Narrowed && t.Stored != Other {
			s.net.arc(y, from, inf)
		}
		switch {
		case w.Second: // its write already counts each form
		case r.again:
			narrow = s.lowFor(narrow, sinkNode, from, narrowing)
			widenAgain = s.f32For(widenAgain, y, sinkNode, widening)
		default:
			narrow = s.lowFor(narrow, y, from, narrowing)
			if !w.Rounded || r.Narrowed || t.Stored == Other {
				widen = s.f32For(widen, y, into, widening)
			}
		}
	}
	if (wide && again || other && twice) && t.Stored != Other {
		s.net.arc(srcNode, from, inf)
	}
	if w.Second {
		return
	}
	if other && t.Stored != Other {
		s.pay(from, Moves{F32: 3 * n, Low: 2 * n}, 1)
	}
	if twice {
		s.lowFor(narrow, sinkNode, from, narrowing)
		s.fixed += 2 * n
	}
}

// keeps adds the forms of t that are saved for backward, each once.
func (s *Solver) keeps(t *Tensor, list []read) {
	saved, low, other := int32(-1), int32(-1), false
	h := int64(s.plan.SavedCost * float64(t.Bytes*t.CopyTimes))
	for _, r := range list {
		switch {
		case !r.Saved:
		case !r.other:
			saved = s.f32For(saved, r.in(t.Stored), sinkNode, 2*h)
			low = s.lowFor(low, r.in(t.Stored), srcNode, h)
		case !other:
			other, s.kept = true, s.kept+h
		}
	}
	for _, x := range [2]int32{saved, low} {
		if x >= 0 {
			s.saved = append(s.saved, x)
		}
	}
}

// touched is the number of bytes of a tensor that one cluster reads: its parts, each once.
func touched(list []read, bytes int64) (sum int64) {
	for i, r := range list {
		if !slices.ContainsFunc(list[:i], func(q read) bool { return q.Part == r.Part }) {
			sum += r.Bytes
		}
	}
	return min(sum, bytes)
}

// forms adds the cost of the forms that list reads, each once, of a tensor with choice x and that
// many low bytes.
func (s *Solver) forms(list []read, x Choice, low, times int64) {
	if slices.ContainsFunc(list, func(r read) bool { return r.other }) {
		for _, twice := range []bool{false, true} {
			if slices.ContainsFunc(list, func(r read) bool { return r.other && r.twice == twice }) {
				s.fixed += low * times
			}
		}
		list = slices.DeleteFunc(slices.Clone(list), func(r read) bool { return r.other })
	}
	if len(list) == 0 {
		return
	}
	y := list[0].in(x)
	if !slices.ContainsFunc(list, func(r read) bool { return r.in(x) != y || r.again != list[0].again }) {
		s.pay(y, once(low), times)
		return
	}
	wide, again, narrow := int32(-1), int32(-1), int32(-1)
	for _, r := range list {
		if r.again {
			again = s.f32For(again, r.in(x), sinkNode, 2*low*times)
		} else {
			wide = s.f32For(wide, r.in(x), sinkNode, 2*low*times)
		}
		narrow = s.lowFor(narrow, r.in(x), srcNode, low*times)
	}
}

// pay adds the cost of each form under choice x.
func (s *Solver) pay(x int32, m Moves, times int64) {
	switch x {
	case srcNode:
		s.fixed += m.F32 * times
	case sinkNode:
		s.fixed += m.Low * times
	default:
		s.net.arc(x, sinkNode, m.F32*times)
		s.net.arc(srcNode, x, m.Low*times)
	}
}

// lowFor forces node a low if y is low. It costs c if a is low and x is f32. It returns a, which it
// creates at its first use.
func (s *Solver) lowFor(a, y, x int32, c int64) int32 {
	if a < 0 {
		a = s.net.node()
		s.net.arc(x, a, c)
	}
	s.net.arc(a, y, inf)
	return a
}

// f32For forces node b f32 if y is f32. It costs c if b is f32 and x is low.
func (s *Solver) f32For(b, y, x int32, c int64) int32 {
	if b < 0 {
		b = s.net.node()
		s.net.arc(b, x, c)
	}
	s.net.arc(y, b, inf)
	return b
}
