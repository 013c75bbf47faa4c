package lower

import "slices"

// Steps of a micro-batch whose results no long chain of steps waits for run on a second stream: the
// gradients of weights and their sums. The main stream runs the gradients of activations, whose
// chain is the longest. A step waits, by an event, for steps of the other stream that touch the
// same memory, if one of the two writes it. This also orders steps whose buffers share memory only
// because the planner placed them so.

// mainStream is the stream on which every part begins and ends. Steps of asideStream may lag behind
// it. CommStream has the messages to other ranks, with the steps that pack and unpack them.
const (
	mainStream  = 0
	asideStream = 1
	CommStream  = 2
	numStreams  = 3
)

// Streams gives every step of micro its stream, and the steps of all parts their events, after memory
// was planned. Steps of messages have their stream already.
func (p *Program) Streams() {
	steps := p.Parts[Micro]
	for i, aside := range p.aside(steps) {
		if aside {
			steps[i].Stream = asideStream
		}
	}
	for _, steps := range p.Parts {
		p.waits(steps)
	}
}

// waits makes each step of a part wait for the steps of other streams that it collides with.
func (p *Program) waits(steps []Step) {
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.Stream != mainStream }) {
		return
	}
	use := make([][]span, len(steps))
	for i := range steps {
		use[i] = p.spans(&steps[i])
	}
	var order [numStreams][]int           // steps by stream
	var known [numStreams]progress        // by stream
	after := make([]progress, len(steps)) // what the stream of a step knows when the step has ended
	for i := range steps {
		s := &steps[i]
		var last progress // of each other stream, by number: the last step that s must wait for
		for other := range order {
			for k := len(order[other]) - 1; other != int(s.Stream) && k >= known[s.Stream][other]; k-- {
				if collide(use[i], use[order[other][k]]) {
					last[other] = k + 1
					break
				}
			}
		}
		for other, k := range last {
			if k > 0 && !last.cover(other, order, after) {
				j := order[other][k-1]
				s.Wait = append(s.Wait, p.record(&steps[j]))
				known[s.Stream].join(after[j])
			}
		}
		order[s.Stream] = append(order[s.Stream], i)
		known[s.Stream][s.Stream] = len(order[s.Stream])
		after[i] = known[s.Stream]
	}
}

// progress is how many steps of each stream are known to have ended.
type progress [numStreams]int

func (p *progress) join(q progress) {
	for i := range p {
		p[i] = max(p[i], q[i])
	}
}

// cover reports whether a wait for the last step of some other stream includes that for stream's.
func (p *progress) cover(stream int, order [numStreams][]int, after []progress) bool {
	for other, k := range p {
		if other != stream && k > 0 && after[order[other][k-1]][stream] >= p[stream] {
			return true
		}
	}
	return false
}

// record returns the event after s, and adds it if there is none.
func (p *Program) record(s *Step) EventID {
	if s.Record == 0 {
		p.Events++
		s.Record = EventID(p.Events)
	}
	return s.Record
}

// shortChain is the longest chain of steps that may follow a step of the second stream.
const shortChain = 3

// aside reports the steps that run on the second stream: at most a short chain follows them, they
// are not on the longest chain of all, and their results have more than one element. Scalars are
// not worth an event.
func (p *Program) aside(steps []Step) []bool {
	follow := p.chainsAfter(steps)
	aside := make([]bool, len(steps))
	for i := range steps {
		s := &steps[i]
		aside[i] = s.Stream == mainStream && follow[i] <= shortChain && !slices.ContainsFunc(s.Out, func(id BufferID) bool {
			return p.Buffers[id].Type.Shape.Elements() < 2
		})
	}
	longest := -1 // the last step of the longest chain so far
	for i := range steps {
		if longest < 0 || follow[i] > follow[longest] {
			longest = i
		}
	}
	for i := longest; i >= 0 && i < len(steps); i = p.next(steps, follow, i) {
		aside[i] = false
	}
	return aside
}

// chainsAfter is, for each step, the length of the longest chain of steps that read its results.
// Steps of messages are not counted: they run beside all others.
func (p *Program) chainsAfter(steps []Step) []int {
	follow := make([]int, len(steps))
	behind := make([]int, len(p.Buffers)) // by root: longest chain of the later steps that read it, including the reader
	for i := len(steps) - 1; i >= 0; i-- {
		for _, id := range steps[i].Out {
			follow[i] = max(follow[i], behind[p.Buffers[id].Root])
		}
		for _, id := range steps[i].In {
			if id != None {
				root := p.Buffers[id].Root
				behind[root] = max(behind[root], follow[i]+counted(&steps[i]))
			}
		}
	}
	return follow
}

func counted(s *Step) int {
	if s.Stream == CommStream {
		return 0
	}
	return 1
}

// next is the step after i on the longest chain from i; len(steps) at its end.
func (p *Program) next(steps []Step, follow []int, i int) int {
	for j := i + 1; j < len(steps); j++ {
		if follow[j] == follow[i]-1 && slices.ContainsFunc(steps[j].In, func(in BufferID) bool {
			return in != None && slices.ContainsFunc(steps[i].Out, func(out BufferID) bool { return p.Buffers[in].Root == p.Buffers[out].Root })
		}) {
			return j
		}
	}
	return len(steps)
}

// span is a range of bytes of an arena that a step reads or writes.
type span struct {
	arena  Arena
	lo, hi int64
	write  bool
}

// spans are the bytes that a step reads and writes.
func (p *Program) spans(s *Step) []span {
	var list []span
	for k, ids := range [2][]BufferID{s.In, s.Out} {
		for _, id := range ids {
			if id == None {
				continue
			}
			if b := &p.Buffers[id]; b.Size > 0 && (k == 1 || b.Arena != ConstArena) {
				list = append(list, span{b.Arena, b.Offset, b.Offset + b.Reach(), k == 1})
			}
		}
	}
	return list
}

// collide reports whether two steps touch the same bytes and one of them writes.
func collide(a, b []span) bool {
	return slices.ContainsFunc(a, func(x span) bool {
		return slices.ContainsFunc(b, func(y span) bool {
			return (x.write || y.write) && x.arena == y.arena && x.lo < y.hi && y.lo < x.hi
		})
	})
}
