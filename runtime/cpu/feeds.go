package cpu

import (
	"slices"
	"unsafe"

	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// input is an input that the caller feeds. If only products, convolutions and formulas (such as a
// cast) read it, they read the fed memory in place.
type input struct {
	name    string
	buffer  lower.BufferID
	mem     []byte
	readers []*kern.Buf // operands that read the fed memory in place; none: the feed is copied
}

// readInPlace finds the operands that read an input, if all of them can read it at any address.
func (e *exec) readInPlace(in *input) {
	shows := func(id lower.BufferID) bool { return id != lower.None && e.p.Buffers[id].Root == in.buffer }
	if slices.ContainsFunc(e.p.Outputs, func(o lower.Binding) bool { return shows(o.Buffer) }) {
		return
	}
	for part := range e.p.Parts {
		for i := range e.p.Parts[part] {
			s := &e.p.Parts[part][i]
			if !slices.ContainsFunc(s.In, shows) {
				continue
			}
			at := e.operand(s, in.mem, shows)
			if at == nil {
				in.readers = nil
				return
			}
			in.readers = append(in.readers, at)
		}
	}
}

// operand returns the operand of a step that covers exactly mem. It is nil if several do, or if the
// step copies the address while it is bound.
func (e *exec) operand(s *lower.Step, mem []byte, shows func(lower.BufferID) bool) *kern.Buf {
	if g := e.groups[s]; g != nil && g.formula != nil {
		if i := g.formula.only(mem); i >= 0 {
			return &g.formula.bufs[i]
		}
		return nil
	}
	i := slices.IndexFunc(s.In, shows)
	if i >= len(e.reads[s]) || len(e.mem[s.In[i]]) != len(mem) || slices.ContainsFunc(s.In[i+1:], shows) {
		return nil
	}
	return e.reads[s][i]
}

// feed passes an input's data to its readers.
func (e *exec) feed(in *input, data []byte) {
	if in.readers == nil || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%4 != 0 {
		copy(in.mem, data)
		data = in.mem
	}
	for _, r := range in.readers {
		r.Data = data
	}
	if in.readers != nil {
		e.mem[in.buffer] = data
	}
}

// releaseFeeds ends the use of memory that the caller fed.
func (e *exec) releaseFeeds() {
	for k := range e.inputs {
		if in := &e.inputs[k]; in.readers != nil {
			e.feed(in, in.mem)
		}
	}
}
