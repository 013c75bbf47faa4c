package programs

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

func ofMemory() []family {
	return []family{
		{"dtype of a buffer", bufferDType},
		{"shape of a buffer", bufferShape},
		{"buffer over a live one", aliased},
		{"buffer moved by an alignment", shifted},
		{"life cut short, memory given away", shortLife},
		{"buffer in another arena", otherArena},
		{"view elsewhere in its root", viewAt},
		{"view of another root", viewRoot},
		{"strides of a view", viewStrides},
		{"output of another buffer", outputBuffer},
		{"outputs swapped", outputsSwapped},
		{"variables swapped", variablesSwapped},
		{"variable's type", variableType},
		{"weight copy of another variable", copyVar},
		{"weight copy: step, buffer or dtype", copyFields},
		{"list of written variables", written},
		{"arena cut short", arenaShort},
	}
}

func ofLaunches() []family {
	return []family{
		{"launch: arguments swapped", argsSwapped},
		{"launch: argument replaced", argReplaced},
		{"launch: argument dropped", argDropped},
		{"launch: another kernel", otherKernel},
		{"launch: grid or block", grid},
		{"launch: table", table},
		{"wait dropped", waitDropped},
		{"event not recorded", recordDropped},
		{"step on another stream", otherStream},
	}
}

func bufferDType(p *lower.Program, add adder) {
	for i, b := range p.Buffers {
		for _, d := range sameSize[b.Type.DType] {
			add(func(p *lower.Program) { p.Buffers[i].Type.DType = d }, "%s is %s", p.BufferName(lower.BufferID(i)), d)
			add(func(p *lower.Program) {
				x := &p.Buffers[i]
				x.Type.DType, x.Size = d, x.Type.With(d).Bytes()
			}, "%s is %s, with its size", p.BufferName(lower.BufferID(i)), d)
		}
	}
}

func bufferShape(p *lower.Program, add adder) {
	for i, b := range p.Buffers {
		for d, n := range b.Type.Shape.Dims() {
			if n > 1 && named(p, i) {
				dims := slices.Clone(b.Type.Shape.Dims())
				dims[d]--
				add(func(p *lower.Program) {
					x := &p.Buffers[i]
					x.Type.Shape = ir.MakeShape(dims...)
					x.Size = x.Type.Bytes()
				}, "%s has %v", p.BufferName(lower.BufferID(i)), dims)
			}
		}
	}
}

func overlap(a, b lower.Span) bool { return a.From <= b.To && b.From <= a.To }

// roots lists buffers of the work arena that have memory of their own.
func roots(p *lower.Program) (list []int) {
	for i, b := range p.Buffers {
		if b.Root == lower.BufferID(i) && b.Arena == lower.WorkArena && b.Size > 0 {
			list = append(list, i)
		}
	}
	return list
}

func aliased(p *lower.Program, add adder) {
	list := roots(p)
	for _, i := range list {
		for _, k := range list {
			a, b := &p.Buffers[i], &p.Buffers[k]
			if i == k || a.Offset == b.Offset || !overlap(a.Live, b.Live) || a.Size > b.Size {
				continue
			}
			add(func(p *lower.Program) { p.Buffers[i].Offset = p.Buffers[k].Offset }, "%s over %s", p.BufferName(lower.BufferID(i)), p.BufferName(lower.BufferID(k)))
		}
	}
}

func shifted(p *lower.Program, add adder) {
	for _, i := range roots(p) {
		if b := &p.Buffers[i]; b.Offset >= lower.Align {
			add(func(p *lower.Program) { p.Buffers[i].Offset -= lower.Align }, "%s", p.BufferName(lower.BufferID(i)))
		}
		add(func(p *lower.Program) { p.Buffers[i].Offset += p.Buffers[i].Type.DType.Size() }, "%s by an element", p.BufferName(lower.BufferID(i)))
	}
}

func shortLife(p *lower.Program, add adder) {
	list := roots(p)
	for _, i := range list {
		for _, k := range list {
			a, b := &p.Buffers[i], &p.Buffers[k]
			if i == k || a.Offset == b.Offset || a.Live.From >= b.Live.From || a.Live.To < b.Live.From || b.Size > a.Size {
				continue
			}
			add(func(p *lower.Program) {
				p.Buffers[i].Live.To = p.Buffers[k].Live.From - 1
				p.Buffers[k].Offset = p.Buffers[i].Offset
			}, "%s dies for %s", p.BufferName(lower.BufferID(i)), p.BufferName(lower.BufferID(k)))
		}
	}
}

func otherArena(p *lower.Program, add adder) {
	for i, b := range p.Buffers {
		if b.Root != lower.BufferID(i) || b.Size == 0 {
			continue
		}
		for a := range lower.NumArenas {
			if a != b.Arena {
				add(func(p *lower.Program) { p.Buffers[i].Arena = a }, "%s: %s", p.BufferName(lower.BufferID(i)), a)
			}
		}
	}
}

// named reports whether a step names buffer i: others are there in vain.
func named(p *lower.Program, i int) (found bool) {
	each(p, func(s *lower.Step, _ func(*lower.Program) *lower.Step, _ string) {
		found = found || slices.Contains(s.In, lower.BufferID(i)) || slices.Contains(s.Out, lower.BufferID(i))
	})
	return found
}

func views(p *lower.Program, f func(i int, b *lower.Buffer)) {
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Root != lower.BufferID(i) && named(p, i) {
			f(i, b)
		}
	}
}

func viewAt(p *lower.Program, add adder) {
	views(p, func(i int, b *lower.Buffer) {
		if b.At > 0 {
			add(func(p *lower.Program) { p.Buffers[i].At = 0 }, "%s at the beginning", p.BufferName(lower.BufferID(i)))
			add(func(p *lower.Program) { p.Buffers[i].At -= p.Buffers[i].Type.DType.Size() }, "%s an element back", p.BufferName(lower.BufferID(i)))
		}
		add(func(p *lower.Program) { p.Buffers[i].At += p.Buffers[i].Type.DType.Size() }, "%s an element further", p.BufferName(lower.BufferID(i)))
	})
}

func viewRoot(p *lower.Program, add adder) {
	views(p, func(i int, b *lower.Buffer) {
		for _, r := range alike(p, b.Root) {
			if p.Buffers[r].Root == r {
				add(func(p *lower.Program) { p.Buffers[i].Root = r }, "%s of %s", p.BufferName(lower.BufferID(i)), p.BufferName(r))
			}
		}
	})
}

func viewStrides(p *lower.Program, add adder) {
	views(p, func(i int, b *lower.Buffer) {
		if b.Strides == nil {
			return
		}
		add(func(p *lower.Program) { p.Buffers[i].Strides = nil }, "%s is dense", p.BufferName(lower.BufferID(i)))
		dims := b.Type.Shape.Dims()
		for d := range b.Strides {
			for e := range d {
				if b.Strides[d] != b.Strides[e] && dims[d] > 1 && dims[e] > 1 {
					add(func(p *lower.Program) { l := p.Buffers[i].Strides; l[d], l[e] = l[e], l[d] }, "%s: %d and %d", p.BufferName(lower.BufferID(i)), e, d)
				}
			}
		}
	})
}

func outputBuffer(p *lower.Program, add adder) {
	for i, o := range p.Outputs {
		for _, other := range alike(p, o.Buffer) {
			add(func(p *lower.Program) { p.Outputs[i].Buffer = other }, "%s is %s", o.Name, p.BufferName(other))
		}
	}
}

func outputsSwapped(p *lower.Program, add adder) {
	for i, o := range p.Outputs {
		for k, q := range p.Outputs[:i] {
			if o.Buffer != q.Buffer && o.Type == q.Type {
				add(func(p *lower.Program) {
					p.Outputs[i].Buffer, p.Outputs[k].Buffer = p.Outputs[k].Buffer, p.Outputs[i].Buffer
				}, "%s and %s", o.Name, q.Name)
			}
		}
	}
}

func variablesSwapped(p *lower.Program, add adder) {
	for i, v := range p.Vars {
		for k, w := range p.Vars[:i] {
			if v.Buffer != lower.None && w.Buffer != lower.None && v.Buffer != w.Buffer && v.Type == w.Type {
				add(func(p *lower.Program) { p.Vars[i].Buffer, p.Vars[k].Buffer = p.Vars[k].Buffer, p.Vars[i].Buffer }, "%s and %s", v.Name, w.Name)
			}
		}
	}
}

func variableType(p *lower.Program, add adder) {
	for i, v := range p.Vars {
		for _, d := range sameSize[v.Type.DType] {
			add(func(p *lower.Program) { p.Vars[i].Type.DType = d }, "%s is %s", v.Name, d)
		}
	}
}

func copyVar(p *lower.Program, add adder) {
	for i, c := range p.WeightCopies {
		for _, v := range p.Vars {
			if v.Name != c.Var && v.Kind == ir.Param {
				add(func(p *lower.Program) { p.WeightCopies[i].Var = v.Name }, "of %s, not %s", v.Name, c.Var)
			}
		}
	}
}

func copyFields(p *lower.Program, add adder) {
	for i, c := range p.WeightCopies {
		for step := range p.Parts[lower.Prepare] {
			if step != c.Step {
				add(func(p *lower.Program) { p.WeightCopies[i].Step = step }, "of %s: step %d, not %d", c.Var, step, c.Step)
			}
		}
		add(func(p *lower.Program) { p.WeightCopies[i].DType = ir.F16 + ir.BF16 - c.DType }, "of %s: dtype", c.Var)
		for k, o := range p.WeightCopies {
			if o.Buffer != c.Buffer {
				add(func(p *lower.Program) { p.WeightCopies[i].Buffer = o.Buffer }, "of %s: buffer of %d", c.Var, k)
			}
		}
		add(func(p *lower.Program) {
			p.WeightCopies = append(p.WeightCopies, p.WeightCopies[i])
			p.WeightCopies[len(p.WeightCopies)-1].Buffer = p.Parts[lower.Micro][0].Out[0]
		}, "of %s: another result, too", c.Var)
	}
}

func written(p *lower.Program, add adder) {
	for i, w := range p.Written {
		add(func(p *lower.Program) { p.Written = slices.Delete(p.Written, i, i+1) }, "without %s", w)
	}
}

func arenaShort(p *lower.Program, add adder) {
	for a := range p.Arenas {
		if p.Arenas[a] >= lower.Align {
			add(func(p *lower.Program) { p.Arenas[a] -= lower.Align }, "%s", lower.Arena(a))
		}
	}
}

func launches(p *lower.Program, f func(l *lower.Launch, at func(p *lower.Program) *lower.Launch, where string)) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Launch != nil {
			f(s.Launch, func(p *lower.Program) *lower.Launch { return at(p).Launch }, where+" "+s.Launch.Kernel)
		}
	})
}

func argsSwapped(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		for i, a := range l.Args {
			for k, b := range l.Args[:i] {
				if a != b && a != lower.None && b != lower.None && p.Buffers[a].Type == p.Buffers[b].Type {
					add(func(p *lower.Program) { x := at(p).Args; x[i], x[k] = x[k], x[i] }, "%s: %d and %d", where, k, i)
				}
			}
		}
	})
}

func argReplaced(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		for i, a := range l.Args {
			if a == lower.None {
				continue
			}
			for _, other := range alike(p, a) {
				add(func(p *lower.Program) { at(p).Args[i] = other }, "%s: %s for %s", where, p.BufferName(other), p.BufferName(a))
			}
		}
	})
}

func argDropped(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		for i := range l.Args {
			add(func(p *lower.Program) { at(p).Args = slices.Delete(at(p).Args, i, i+1) }, "%s: %d", where, i)
			add(func(p *lower.Program) {
				at(p).Args, at(p).Takes = slices.Delete(at(p).Args, i, i+1), slices.Delete(at(p).Takes, i, i+1)
			}, "%s: %d with what it takes", where, i)
		}
	})
}

func otherKernel(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		launches(p, func(o *lower.Launch, _ func(*lower.Program) *lower.Launch, _ string) {
			if o.Kernel != l.Kernel && len(o.Args) == len(l.Args) {
				add(func(p *lower.Program) { at(p).Kernel = o.Kernel }, "%s: %s", where, o.Kernel)
			}
		})
	})
}

func grid(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		add(func(p *lower.Program) { at(p).Block /= 2 }, "%s: block", where)
		for d, n := range l.Grid {
			if n > 1 {
				add(func(p *lower.Program) { at(p).Grid[d]-- }, "%s: grid %d", where, d)
			}
		}
	})
}

func table(p *lower.Program, add adder) {
	launches(p, func(l *lower.Launch, at func(*lower.Program) *lower.Launch, where string) {
		for i, w := range l.Table {
			if w.Buffer == lower.None {
				add(func(p *lower.Program) { at(p).Table[i].Value++ }, "%s: word %d", where, i)
				continue
			}
			for _, other := range alike(p, w.Buffer) {
				add(func(p *lower.Program) { at(p).Table[i].Buffer = other }, "%s: %s for %s", where, p.BufferName(other), p.BufferName(w.Buffer))
			}
		}
	})
}

func waitDropped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i := range s.Wait {
			add(func(p *lower.Program) { at(p).Wait = slices.Delete(at(p).Wait, i, i+1) }, "%s", where)
		}
	})
}

func recordDropped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Record != 0 {
			add(func(p *lower.Program) { at(p).Record = 0 }, "%s", where)
		}
	})
}

func otherStream(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if p.Events > 0 {
			add(func(p *lower.Program) { at(p).Stream = 1 - at(p).Stream }, "%s", where)
		}
	})
}
