package lower

import (
	"cmp"
	"fmt"
	"slices"
)

// Verify checks what a Program guarantees:
//
//   - Buffers are inside their arenas at aligned offsets, and views inside their roots.
//   - No two live buffers share memory, except where a step overwrites an operand that dies there.
//   - No step of micro overwrites what prepare computed.
//   - No step reads memory before a step has written it.
//   - Two steps that touch one buffer are ordered by stream or event.
//   - The accesses of descriptions stay inside their buffers.
//   - Steps compute what the nodes of their clusters specify, from the values that the graph specifies
//     (Planned is nil only for Programs that Lower has not made).
//
// The error names buffers and steps.
func Verify(p *Program) error {
	if err := p.verifyBuffers(); err != nil {
		return err
	}
	if err := p.verifyBindings(); err != nil {
		return err
	}
	if err := p.verifyMessages(); err != nil {
		return err
	}
	v := &checker{p: p, first: make([]int32, len(p.Buffers)), last: make([]int32, len(p.Buffers)), filled: map[BufferID]map[string]int64{}}
	for i := range v.first {
		v.first[i], v.last[i] = -1, -1
	}
	if err := v.walk(); err != nil {
		return err
	}
	if err := p.verifyWritten(); err != nil {
		return err
	}
	if err := p.verifyPorts(); err != nil {
		return err
	}
	if err := v.lifetimes(); err != nil {
		return err
	}
	if err := v.overlaps(); err != nil {
		return err
	}
	return v.ordered()
}

func (p *Program) verifyBuffers() error {
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Root < 0 || int(b.Root) >= len(p.Buffers) || p.Buffers[b.Root].Root != b.Root {
			return fmt.Errorf("buffer %%%s: its root buffer is itself a view", b.Name)
		}
		root := &p.Buffers[b.Root]
		if err := b.verifyStrides(); err != nil {
			return err
		}
		switch {
		case b.Size != b.Type.Bytes():
			return fmt.Errorf("buffer %%%s: %d bytes for %s", b.Name, b.Size, b.Type)
		case b.Arena != root.Arena || b.Offset != root.Offset+b.At || b.At < 0 || b.At+b.Reach() > root.Size || b.dense() && b.Size != root.Size:
			return fmt.Errorf("buffer %%%s: the view is not of the bytes of its root %%%s", b.Name, root.Name)
		case root.Offset%Align != 0:
			return fmt.Errorf("buffer %%%s: offset %d is not a multiple of %d", root.Name, root.Offset, Align)
		case b.Offset < 0 || b.Offset+b.Size > p.Arenas[b.Arena]:
			return fmt.Errorf("buffer %%%s: ends at %d, beyond the %s arena of %d bytes", b.Name, b.Offset+b.Size, b.Arena, p.Arenas[b.Arena])
		}
	}
	return p.verifyPersistent()
}

// verifyPersistent checks the offsets of buffers in arenas that live as long as the Program.
func (p *Program) verifyPersistent() error {
	var roots []BufferID
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena != WorkArena && b.Root == BufferID(i) && b.Size > 0 {
			roots = append(roots, BufferID(i))
		}
	}
	slices.SortFunc(roots, func(x, y BufferID) int {
		a, b := &p.Buffers[x], &p.Buffers[y]
		return cmp.Or(cmp.Compare(a.Arena, b.Arena), cmp.Compare(a.Offset, b.Offset))
	})
	for i := 1; i < len(roots); i++ {
		if a, b := &p.Buffers[roots[i-1]], &p.Buffers[roots[i]]; a.Arena == b.Arena && a.Offset+a.Size > b.Offset {
			return fmt.Errorf("buffers %%%s and %%%s share bytes of the %s arena", a.Name, b.Name, a.Arena)
		}
	}
	return nil
}

// checker computes lifetimes from the steps again, without the planner's results.
type checker struct {
	p           *Program
	first, last []int32                       // by root: first write, last use
	touched     []int32                       // by root: last step that names it, or the last step before its message ends
	filled      map[BufferID]map[string]int64 // roots that are written in parts: the bytes of each part
	steps       []*Step                       // in order, through all parts
	parts       []Part
}

func (v *checker) walk() error {
	for part := range NumParts {
		for i := range v.p.Parts[part] {
			s := &v.p.Parts[part][i]
			v.steps, v.parts = append(v.steps, s), append(v.parts, part)
			if err := v.step(s, int32(len(v.steps)-1)); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	for _, o := range v.p.Outputs {
		root := v.p.Buffers[o.Buffer].Root
		if v.p.Buffers[root].Arena == WorkArena && v.first[root] < 0 {
			return fmt.Errorf("result %s is never written", o.Name)
		}
		v.last[root] = int32(len(v.steps)) // read after the last step
	}
	v.touched = slices.Clone(v.last)
	for _, m := range v.p.Messages {
		s := &v.p.Parts[m.Part][m.Step]
		for _, id := range slices.Concat(s.In, s.Out) {
			root := v.p.Buffers[id].Root
			v.last[root] = max(v.last[root], v.p.begins(m.Part)+int32(m.Until)-1)
		}
	}
	return nil
}

func (v *checker) step(s *Step, at int32) error {
	for _, id := range s.In {
		if id == None {
			continue
		}
		if id < 0 || int(id) >= len(v.p.Buffers) {
			return fmt.Errorf("reads buffer %d of %d", id, len(v.p.Buffers))
		}
		root := v.p.Buffers[id].Root
		if v.p.Buffers[root].Arena == WorkArena && v.first[root] < 0 {
			return fmt.Errorf("%%%s is read before it is written", v.p.Buffers[id].Name)
		}
		if err := v.complete(id); err != nil {
			return err
		}
		v.last[root] = at
	}
	for _, id := range s.Out {
		if id < 0 || int(id) >= len(v.p.Buffers) {
			return fmt.Errorf("writes buffer %d of %d", id, len(v.p.Buffers))
		}
		root := v.p.Buffers[id].Root
		if a := v.p.Buffers[root].Arena; a == InputArena || a == ConstArena {
			return fmt.Errorf("%%%s lies in the %s arena and is written", v.p.Buffers[id].Name, a)
		}
		v.fill(id, v.first[root] < 0)
		if v.first[root] < 0 {
			v.first[root] = at
		}
		v.last[root] = max(v.last[root], at)
		for _, in := range s.In {
			if in != None && v.p.Buffers[in].Root == root && !v.p.mayOverwrite(s, in, id) {
				return fmt.Errorf("overwrites its operand %%%s, which it reads at other points", v.p.Buffers[in].Name)
			}
		}
	}
	if err := s.verifyViews(v.p); err != nil {
		return err
	}
	if err := v.p.verifyTransfer(s); err != nil {
		return err
	}
	if err := v.p.Target.Verify(v.p, s); err != nil {
		return err
	}
	return s.verifyAccess(v.p)
}

// lifetimes extends results of prepare that later parts read to the end of micro, and compares all
// lifetimes with the planner's.
func (v *checker) lifetimes() error {
	prepared := int32(len(v.p.Parts[Prepare]))
	end := prepared + int32(len(v.p.Parts[Micro])) // beyond the last step of micro, which may not overwrite it either
	for i := range v.p.Buffers {
		b := &v.p.Buffers[i]
		if b.Arena != WorkArena || b.Root != BufferID(i) || v.first[i] < 0 {
			continue
		}
		if v.first[i] < prepared && v.last[i] >= prepared {
			v.last[i] = max(v.last[i], end)
		}
		if b.Live.From > v.first[i] || b.Live.To < v.last[i] {
			return fmt.Errorf("buffer %%%s: planned to live %d..%d, is used %d..%d", b.Name, b.Live.From, b.Live.To, v.first[i], v.last[i])
		}
	}
	return nil
}

// overlaps walks the steps with the live buffers sorted by offset.
func (v *checker) overlaps() error {
	var roots []BufferID
	for i := range v.p.Buffers {
		if b := &v.p.Buffers[i]; b.Arena == WorkArena && b.Root == BufferID(i) && v.first[i] >= 0 && b.Size > 0 {
			roots = append(roots, BufferID(i))
		}
	}
	byEnd := slices.Clone(roots)
	slices.SortFunc(roots, func(a, b BufferID) int { return cmp.Or(cmp.Compare(v.first[a], v.first[b]), cmp.Compare(a, b)) })
	slices.SortFunc(byEnd, func(a, b BufferID) int { return cmp.Or(cmp.Compare(v.last[a], v.last[b]), cmp.Compare(a, b)) })
	var live []BufferID // by offset; two share bytes only during a step that overwrites an operand
	view := func(id BufferID) int {
		at, _ := slices.BinarySearchFunc(live, v.p.Buffers[id].Offset, func(x BufferID, o int64) int { return cmp.Compare(v.p.Buffers[x].Offset, o) })
		return at
	}
	ended := 0
	for _, id := range roots {
		for ; ended < len(byEnd) && v.last[byEnd[ended]] < v.first[id]; ended++ {
			at := slices.Index(live[view(byEnd[ended]):], byEnd[ended]) + view(byEnd[ended])
			live = slices.Delete(live, at, at+1)
		}
		at := view(id)
		b := &v.p.Buffers[id]
		for k := max(0, at-2); k < len(live) && v.p.Buffers[live[k]].Offset < b.Offset+b.Size; k++ {
			o := &v.p.Buffers[live[k]]
			if o.Offset+o.Size > b.Offset && !v.inPlace(live[k], id) {
				return fmt.Errorf("buffers %%%s (live %d..%d) and %%%s (live %d..%d) share bytes of the work arena",
					o.Name, v.first[live[k]], v.last[live[k]], b.Name, v.first[id], v.last[id])
			}
		}
		live = slices.Insert(live, at, id)
	}
	return nil
}

// inPlace reports whether a step that is the last use of in and the first of
// out may overwrite in.
func (v *checker) inPlace(in, out BufferID) bool {
	at := v.first[out]
	if v.touched[in] != at || v.p.Buffers[in].Offset != v.p.Buffers[out].Offset {
		return false
	}
	s, read := v.steps[at], false
	if v.last[in] != at && !s.sends() {
		return false
	}
	for _, x := range s.In {
		if x == None || v.p.Buffers[x].Root != in {
			continue
		}
		read = true
		if !slices.ContainsFunc(s.Out, func(y BufferID) bool { return v.p.Buffers[y].Root == out && v.p.mayOverwrite(s, x, y) }) {
			return false
		}
	}
	return read // otherwise two results of one step share memory
}

// ordered checks that steps which touch the same bytes, if one of them writes, are ordered by their
// stream or by a chain of events.
func (v *checker) ordered() error {
	streams := 0
	for _, s := range v.steps {
		streams = max(streams, int(s.Stream)+1)
	}
	if streams <= 1 {
		return nil
	}
	clock := make([][]int, streams) // clock[s][t]: last step of t that s has waited for
	for i := range clock {
		clock[i] = slices.Repeat([]int{-1}, streams)
	}
	events := make([][]int, v.p.Events+1)
	use := make([][]span, len(v.steps))
	begin := 0 // first step of the part
	for i, s := range v.steps {
		use[i] = v.p.spans(s)
		own := clock[s.Stream]
		if i > 0 && v.parts[i] != v.parts[i-1] { // a part begins after the previous one has ended
			begin = i
			for _, c := range clock {
				for t := range c {
					c[t] = i - 1
				}
			}
		}
		for _, e := range s.Wait {
			if e < 1 || int(e) >= len(events) || events[e] == nil {
				return fmt.Errorf("%s waits for event %d, which nothing has recorded", s.Node.Name, e)
			}
			for t := range own {
				own[t] = max(own[t], events[e][t])
			}
		}
		own[s.Stream] = i
		for j := begin; j < i; j++ {
			if o := v.steps[j]; j > own[o.Stream] && collide(use[i], use[j]) {
				return fmt.Errorf("step %d (%s) and step %d (%s) touch the same bytes and nothing orders them", j, o.Node.Name, i, s.Node.Name)
			}
		}
		if s.Record != 0 {
			if s.Record < 0 || int(s.Record) >= len(events) || events[s.Record] != nil {
				return fmt.Errorf("%s records event %d, which is not its own event", s.Node.Name, s.Record)
			}
			events[s.Record] = slices.Clone(own)
		}
	}
	return nil
}
