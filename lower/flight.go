package lower

import (
	"cmp"
	"fmt"
	"slices"

	"ampc/ir"
)

// Message is a step that sends to other ranks. The step starts the message. Its results are there
// before step Until of the same part begins, or at the end of the part if Until is the number of
// its steps. The steps between run in the meantime. None of them touches a result or writes an
// operand. Messages end in the order in which they start.
type Message struct {
	Part        Part
	Step, Until int

	// consumed are the roots of operands that no later step reads: results may take their memory.
	consumed []BufferID
}

// sends reports whether a step sends to other ranks.
func (s *Step) sends() bool {
	if s.Transfer != nil {
		return s.Transfer.Ranks > 1
	}
	return s.Kernel != nil && s.Kernel.Node.Def().Is(ir.Collective) && s.Kernel.Node.Int("ranks") > 1
}

// together is how many micro-batches meet at a step.
func (s *Step) together() int64 {
	if s.Kernel == nil {
		return 1
	}
	return s.Kernel.Node.Together()
}

// Meets reports whether micro-batches of a rank meet at a step.
func (s *Step) Meets() bool { return s.together() > 1 }

// number is the place of the message that a step sends.
func (s *Step) number() int64 {
	if s.Transfer != nil {
		return s.Transfer.Seq
	}
	return s.Kernel.Node.Int("seq")
}

// companions are the steps of a part around the transfer i that pack, add up and unpack its
// message on the same stream. On the CPU a message is one step.
func (p *Program) companions(part Part, i int) (from, to int) {
	steps := p.Parts[part]
	from, to = i, i+1
	with := func(k int) bool { return steps[k].Stream == CommStream && steps[k].Node.Name == steps[i].Node.Name }
	for from > 0 && with(from-1) {
		from--
	}
	for to < len(steps) && with(to) {
		to++
	}
	return from, to
}

// messages lists the messages of all parts, with the step by which each must have ended.
func (p *Program) messages() {
	p.Messages = nil
	for part := range NumParts {
		first := len(p.Messages)
		var f *following
		for i := range p.Parts[part] {
			if p.Parts[part][i].sends() {
				if f == nil {
					f = p.following(part)
				}
				p.Messages = append(p.Messages, Message{Part: part, Step: i, Until: f.needs(i)})
			}
		}
		for k := len(p.Messages) - 2; k >= first; k-- {
			p.Messages[k].Until = min(p.Messages[k].Until, p.Messages[k+1].Until)
		}
	}
}

// following finds the next step of a part that reads or writes a root.
type following struct {
	p             *Program
	part          Part
	reads, writes map[BufferID][]int // by root: the steps that do, in order
}

func (p *Program) following(part Part) *following {
	f := &following{p: p, part: part, reads: map[BufferID][]int{}, writes: map[BufferID][]int{}}
	note := func(list []BufferID, of map[BufferID][]int, step int) {
		for _, id := range list {
			if root := p.rootOf(id); root != None {
				of[root] = append(of[root], step)
			}
		}
	}
	for i := range p.Parts[part] {
		note(p.Parts[part][i].In, f.reads, i)
		note(p.Parts[part][i].Out, f.writes, i)
	}
	return f
}

// needs is the first step after message i that reads its results or writes its operands.
func (f *following) needs(i int) int {
	steps := f.p.Parts[f.part]
	from, to := f.p.companions(f.part, i)
	first := len(steps)
	next := func(list []int) {
		if k, _ := slices.BinarySearch(list, to); k < len(list) {
			first = min(first, list[k])
		}
	}
	for m := from; m < to; m++ {
		for _, id := range steps[m].Out {
			next(f.reads[f.p.rootOf(id)]) // no step reads or writes None
			next(f.writes[f.p.rootOf(id)])
		}
		for _, id := range steps[m].In {
			next(f.writes[f.p.rootOf(id)])
		}
	}
	return first
}

// message returns the message that step i of a part starts, or nil. Messages are in the order of steps.
func (p *Program) message(part Part, i int) *Message {
	k, ok := slices.BinarySearchFunc(p.Messages, i, func(m Message, i int) int { return cmp.Or(cmp.Compare(m.Part, part), cmp.Compare(m.Step, i)) })
	if !ok {
		return nil
	}
	return &p.Messages[k]
}

// begins is the position of a part's first step among the steps of all parts.
func (p *Program) begins(part Part) (at int32) {
	for q := range part {
		at += int32(len(p.Parts[q]))
	}
	return at
}

// keepInFlight extends the lifetimes of the operands and results of messages until the messages
// end.
func (p *Program) keepInFlight() {
	for k := range p.Messages {
		m := &p.Messages[k]
		s, begin := &p.Parts[m.Part][m.Step], p.begins(m.Part)
		m.consumed = nil
		for _, id := range s.In {
			root := p.Buffers[id].Root
			if b := &p.Buffers[root]; b.Arena == WorkArena && b.Live.To == begin+int32(m.Step) {
				m.consumed = append(m.consumed, root)
			}
		}
		from, to := p.companions(m.Part, m.Step)
		for _, s := range p.Parts[m.Part][from:to] {
			for _, id := range slices.Concat(s.In, s.Out) {
				b := &p.Buffers[p.Buffers[id].Root]
				b.Live.To = max(b.Live.To, begin+int32(m.Until)-1)
			}
		}
	}
}

// verifyMessages checks that each message is listed once, that the steps that run in the meantime
// may, and that messages start and end in the order of their numbers.
func (p *Program) verifyMessages() error {
	k, number := 0, int64(0)
	for part := range NumParts {
		var f *following
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if !s.sends() {
				continue
			}
			if k == len(p.Messages) || p.Messages[k].Part != part || p.Messages[k].Step != i {
				return fmt.Errorf("%s step %d (%s): its message is not listed", part, i, s.Node.Name)
			}
			if f == nil {
				f = p.following(part)
			}
			m := &p.Messages[k]
			if need := f.needs(i); m.Until <= i || m.Until > need {
				return fmt.Errorf("%s step %d (%s): its message ends before step %d, and step %d needs it", part, i, s.Node.Name, m.Until, need)
			}
			if k > 0 && p.Messages[k-1].Part == part && p.Messages[k-1].Until > m.Until {
				return fmt.Errorf("%s step %d (%s): its message ends before one that started earlier", part, i, s.Node.Name)
			}
			if seq := s.number(); number > 0 && (seq < number || seq == number && (s.Transfer == nil || p.Parts[part][p.Messages[k-1].Step].Node != s.Node)) {
				return fmt.Errorf("%s step %d (%s): sends message %d after message %d", part, i, s.Node.Name, seq, number)
			} else {
				number = seq
			}
			k++
		}
	}
	if k < len(p.Messages) {
		return fmt.Errorf("message %d is of no step", k)
	}
	return nil
}
