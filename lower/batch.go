package lower

import (
	"fmt"
	"slices"
	"strings"

	"ampc/ir"
)

// batch joins the groups of a part that run the same code over whole tensors
// into one step each: the updates of all parameters with one optimiser, the
// casts of all weights to one dtype. A step moves back to the last one it is
// joined with, where nothing between depends on it.
func (l *lowerer) batch(part Part) {
	var out []Step
	at := make([]int, len(l.p.Parts[part])) // of every step in out
	var open []*openBatch
	flush := func(b *openBatch) {
		for _, i := range b.from {
			at[i] = len(out)
		}
		out = append(out, l.joined(b))
	}
	for i := range l.p.Parts[part] {
		s := &l.p.Parts[part][i]
		open = slices.DeleteFunc(open, func(b *openBatch) bool {
			clash := b.clashes(l.p, s)
			if clash {
				flush(b)
			}
			return clash
		})
		key, ok := l.p.alike(s)
		if !ok {
			at[i] = len(out)
			out = append(out, *s)
			continue
		}
		k := slices.IndexFunc(open, func(b *openBatch) bool { return b.key == key })
		if k < 0 {
			k = len(open)
			open = append(open, &openBatch{key: key})
		}
		open[k].steps, open[k].from = append(open[k].steps, s), append(open[k].from, i)
	}
	for _, b := range open {
		flush(b)
	}
	if part == Prepare {
		for i := range l.p.Copies {
			l.p.Copies[i].Step = at[l.p.Copies[i].Step]
		}
	}
	l.p.Parts[part] = out
}

// openBatch is steps that may still be joined by others.
type openBatch struct {
	key   string
	steps []*Step
	from  []int
}

// clashes reports whether s must run after the steps of b: it reads what they
// write, or writes what they read or write.
func (b *openBatch) clashes(p *Program, s *Step) bool {
	shares := func(x, y []BufferID) bool {
		return slices.ContainsFunc(x, func(a BufferID) bool {
			return a != None && slices.ContainsFunc(y, func(c BufferID) bool { return c != None && p.Buffers[a].Root == p.Buffers[c].Root })
		})
	}
	return slices.ContainsFunc(b.steps, func(o *Step) bool {
		return shares(s.In, o.Out) || shares(s.Out, o.Out) || shares(s.Out, o.In)
	})
}

// alike gives steps that may be one the same key: groups of one code whose
// accesses all walk a whole tensor, or repeat one element that they share.
func (p *Program) alike(s *Step) (key string, ok bool) {
	g := s.Group
	if s.Kind != KindGroup || count(g.Shape) < 2 || s.Stream != 0 {
		return "", false
	}
	for _, i := range g.Code {
		if i.Op == ir.PIndex || i.Op == ir.PPhilox {
			return "", false
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v", g.Code)
	for i := range g.Loads {
		a := &g.Loads[i]
		switch {
		case a.walks(p, g.Shape):
			fmt.Fprintf(&b, " %s", a.DType)
		case a.repeats():
			fmt.Fprintf(&b, " %s of %d", a.DType, a.Buffer)
		default:
			return "", false
		}
	}
	for i := range g.Stores {
		a := &g.Stores[i]
		if !a.walks(p, g.Shape) {
			return "", false
		}
		fmt.Fprintf(&b, " %s=%d", a.DType, a.Reg)
	}
	return b.String(), true
}

// walks reports whether a goes through its buffer from end to end.
func (a *Access) walks(p *Program, shape []int64) bool {
	if a.Offset != 0 || p.Buffers[a.Buffer].Type.Shape.Elements() != count(shape) {
		return false
	}
	dense := rowMajor(shape)
	for i, n := range shape {
		if n > 1 && a.Strides[i] != dense[i] {
			return false
		}
	}
	return true
}

// repeats reports whether a reads the first element of its buffer at every point.
func (a *Access) repeats() bool {
	return a.Offset == 0 && !slices.ContainsFunc(a.Strides, func(s int64) bool { return s != 0 })
}

// joined is one step for all of a batch.
func (l *lowerer) joined(b *openBatch) Step {
	s := *b.steps[0]
	if len(b.steps) == 1 {
		return s
	}
	s.In, s.Out = slices.Clone(s.In), slices.Clone(s.Out)
	for _, o := range b.steps[1:] {
		s.More = append(s.More, o.Group)
		for _, id := range o.In {
			if !slices.Contains(s.In, id) {
				s.In = append(s.In, id)
			}
		}
		s.Out = append(s.Out, o.Out...)
	}
	s.Bytes = l.p.traffic(&s)
	return s
}
