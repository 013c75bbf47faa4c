package sm

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// verifyLaunch checks the launch of a step. It names a kernel of the Program, with the block size
// that the kernel was written for. It passes as many addresses as the kernel takes, each of a
// buffer of the kernel's dtype and of sufficient size. The step's operands and results are exactly
// these buffers.
func verifyLaunch(p *lower.Program, s *lower.Step) error {
	l := s.Launch
	if l == nil {
		return nil
	}
	k := kernelNamed(p, l.Kernel)
	switch {
	case k == nil:
		return fmt.Errorf("launches the kernel %s, which no module has", l.Kernel)
	case len(k.Params) != len(l.Args) || len(k.Params) != len(l.Takes):
		return fmt.Errorf("gives %d addresses to kernel %s, which takes %d", len(l.Args), k.Name, len(k.Params))
	case k.Threads != 0 && l.Block != k.Threads:
		return fmt.Errorf("launches blocks of %d threads, kernel %s is for %d", l.Block, k.Name, k.Threads)
	}
	for d, n := range l.Grid {
		if n < 1 || n > 1 && !asksFor(k, ptx.Sym("%ctaid."+"xyz"[d:d+1])) {
			return fmt.Errorf("launches kernel %s over a grid of %v", k.Name, l.Grid)
		}
	}
	f := newFootprint(p, s)
	for i, a := range l.Takes {
		if err := f.take(l.Args[i], a, a.Elems); err != nil {
			return fmt.Errorf("kernel %s, argument %s: %w", k.Name, a.Name, err)
		}
	}
	if err := f.table(l); err != nil {
		return fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	return f.all()
}

// asksFor reports whether a kernel reads a special register. Blocks along a dimension that the
// kernel does not read would all do the same work.
func asksFor(k *ptx.Kernel, register ptx.Sym) bool {
	return slices.ContainsFunc(k.Body, func(i ptx.Inst) bool {
		return slices.ContainsFunc(i.Args, func(o ptx.Operand) bool { return o.Kind == ptx.KindSym && o.Sym == string(register) })
	})
}

// kernelNamed returns the kernel of that name, or nil.
func kernelNamed(p *lower.Program, name string) *ptx.Kernel {
	for _, m := range Modules(p) {
		if k := m.Kernel(name); k != nil {
			return k
		}
	}
	return nil
}

// footprint collects what a launch reads and writes.
type footprint struct {
	s       *lower.Step
	p       *lower.Program
	in, out map[lower.BufferID]bool // the step's operands and results: whether the launch reads or writes them
}

func newFootprint(p *lower.Program, s *lower.Step) *footprint {
	f := &footprint{s, p, make(map[lower.BufferID]bool, len(s.In)), make(map[lower.BufferID]bool, len(s.Out))}
	for _, id := range s.In {
		f.in[id] = false
	}
	for _, id := range s.Out {
		f.out[id] = false
	}
	return f
}

// take records that the kernel reads or writes n elements of a buffer.
func (f *footprint) take(id lower.BufferID, a lower.Argument, n int64) error {
	if id < 0 || int(id) >= len(f.p.Buffers) {
		return fmt.Errorf("it is buffer %d of %d", id, len(f.p.Buffers))
	}
	b := &f.p.Buffers[id]
	if t := b.Type.DType; t != a.DType && !sameBits(t, a.DType) || b.Type.Shape.Elements() < n {
		return fmt.Errorf("it works on %s of %d elements, %%%s is %s", a.DType, n, b.Name, b.Type)
	}
	for _, x := range []struct {
		touched  bool
		has      map[lower.BufferID]bool
		verb, to string
	}{{a.Read, f.in, "reads", "operand"}, {a.Write, f.out, "writes", "result"}} {
		if !x.touched {
			continue
		}
		if _, ok := x.has[id]; !ok {
			return fmt.Errorf("it %s %%%s, which is not one of the step's %ss", x.verb, b.Name, x.to)
		}
		x.has[id] = true
	}
	return nil
}

// sameBits reports whether kernels treat the two types alike.
func sameBits(a, b ir.DType) bool {
	one := func(t ir.DType) bool { return t == ir.Bool || t == ir.U8 }
	return one(a) && one(b)
}

// table checks a launch's table: it fits the constant that it is written to, every block has its
// part of a tensor, every tensor has its blocks, and the buffers of a row are as large as the row
// says.
func (f *footprint) table(l *lower.Launch) error {
	if len(l.Table) == 0 {
		return nil
	}
	row, blocks, chunk := 1+len(l.Row), l.Grid[0], tableChunk(l)
	tensors := (len(l.Table) - blocks) / row
	if len(l.Args) == 0 || blocks+tensors*row != len(l.Table) {
		return fmt.Errorf("a table of %d words is not one of %d blocks and rows of %d", len(l.Table), blocks, row)
	}
	if b := &f.p.Buffers[l.Args[0]]; b.Arena != lower.ConstArena || b.Size != int64(8*len(l.Table)) {
		return fmt.Errorf("the table of %d words does not fit %s, %s of the %s arena", len(l.Table), f.p.BufferName(l.Args[0]), b.Type, b.Arena)
	}
	at := 0
	for i := range tensors {
		words := l.Table[blocks+i*row:][:row]
		size := words[0].Value
		for part := int64(0); part*chunk < size; part, at = part+1, at+1 {
			if at >= blocks || l.Table[at] != (lower.Word{Value: int64(i)<<32 | part, Buffer: lower.None}) {
				return fmt.Errorf("no block does part %d of tensor %d", part, i)
			}
		}
		if err := f.row(l, i, words); err != nil {
			return err
		}
	}
	if at != blocks {
		return fmt.Errorf("%d blocks for a table with work for %d", blocks, at)
	}
	return nil
}

// tableChunk is the number of elements of a tensor that a block of a table's kernel handles.
func tableChunk(l *lower.Launch) int64 {
	if !slices.ContainsFunc(l.Row, isNumber) {
		return ptx.BatchChunk
	}
	var cols []int64
	for at := l.Grid[0]; at < len(l.Table); at += 1 + len(l.Row) {
		cols = append(cols, l.Table[at].Value)
	}
	return ptx.ColSumsChunk(cols)
}

// isNumber reports whether a word of a table's row is a number of rows.
func isNumber(a lower.Argument) bool { return a.DType == ir.Invalid }

// row checks the row of tensor i in a launch's table.
func (f *footprint) row(l *lower.Launch, i int, words []lower.Word) error {
	size, rows := words[0].Value, int64(1)
	for k, w := range words[1:] {
		a, want := l.Row[k], size
		if isNumber(a) {
			if rows = w.Value; rows < 1 || w.Buffer != lower.None {
				return fmt.Errorf("tensor %d has %d rows", i, rows)
			}
			continue
		}
		if a.Read {
			want *= rows
		}
		if err := f.take(w.Buffer, a, want); err != nil {
			return fmt.Errorf("tensor %d, address %d: %w", i, k, err)
		}
		if n := f.p.Buffers[w.Buffer].Type.Shape.Elements(); n != want {
			return fmt.Errorf("tensor %d has %d elements, its row says %d", i, n, want)
		}
	}
	return nil
}

// all checks that the step names only operands and results that the kernel reads or writes.
func (f *footprint) all() error {
	for _, x := range []struct {
		list []lower.BufferID
		seen map[lower.BufferID]bool
		verb string
	}{{f.s.In, f.in, "reads"}, {f.s.Out, f.out, "writes"}} {
		for _, id := range x.list {
			if id != lower.None && !x.seen[id] {
				return fmt.Errorf("kernel %s never %s %s", f.s.Launch.Kernel, x.verb, f.p.BufferName(id))
			}
		}
	}
	return nil
}
