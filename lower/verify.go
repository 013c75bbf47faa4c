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
	v := newChecker(p)
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
	first, last []int32              // by root: first write, last use
	touched     []int32              // by root: last step that names it, or the last step before its message ends
	filled      map[BufferID]*filled // roots that are written in parts
	steps       []*Step              // in order, through all parts
	parts       []Part
	overlays    map[int32]overlay // of steps with long lists
}

func newChecker(p *Program) *checker {
	count := 0
	for part := range NumParts {
		count += len(p.Parts[part])
	}
	return &checker{
		p: p, first: slices.Repeat([]int32{-1}, len(p.Buffers)), last: slices.Repeat([]int32{-1}, len(p.Buffers)), filled: map[BufferID]*filled{},
		steps: make([]*Step, 0, count), parts: make([]Part, 0, count), overlays: map[int32]overlay{},
	}
}

// overlay is that of a step, by its position.
func (v *checker) overlay(at int32) overlay {
	o, ok := v.overlays[at]
	if ok {
		return o
	}
	if o = v.p.overlay(v.steps[at]); o.clusters != nil {
		v.overlays[at] = o
	}
	return o
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
		if !v.p.has(id) {
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
	over := v.overlay(at)
	for _, id := range s.Out {
		if !v.p.has(id) {
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
		if v.last[root] == at { // read by this step, or written before
			for _, in := range over.in.with(root) {
				if in != None && v.p.Buffers[in].Root == root && !over.may(in, id) {
					return fmt.Errorf("overwrites its operand %%%s, which it reads at other points", v.p.Buffers[in].Name)
				}
			}
		}
		v.last[root] = at
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
