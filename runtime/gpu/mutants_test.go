package gpu_test

import (
	"fmt"
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/ptx"
)

// clone copies all of a Program that mutants change.
func clone(p *lower.Program) *lower.Program {
	q := *p
	q.Buffers, q.Vars = slices.Clone(p.Buffers), slices.Clone(p.Vars)
	q.Outputs, q.WeightCopies, q.Written = slices.Clone(p.Outputs), slices.Clone(p.WeightCopies), slices.Clone(p.Written)
	for part, steps := range p.Parts {
		q.Parts[part] = slices.Clone(steps)
		for i := range steps {
			cloneStep(&q.Parts[part][i])
		}
	}
	q.Modules = nil
	for _, m := range sm.Modules(p) {
		n := &ptx.Module{Flavour: m.Flavour}
		for _, k := range m.Kernels {
			c := *k
			c.Shared = slices.Clone(k.Shared)
			n.Kernels = append(n.Kernels, &c)
		}
		q.Modules = append(q.Modules, n)
	}
	return &q
}

func cloneStep(s *lower.Step) {
	s.In, s.Out, s.Wait = slices.Clone(s.In), slices.Clone(s.Out), slices.Clone(s.Wait)
	if s.Gemm != nil {
		g := *s.Gemm
		g.Batch = slices.Clone(g.Batch)
		for _, m := range []*lower.Matrix{&g.A, &g.B, &g.C} {
			m.Strides = slices.Clone(m.Strides)
		}
		s.Gemm = &g
	}
	if s.Conv != nil {
		c := *s.Conv
		for _, l := range []*[]int64{&c.Window.In, &c.Window.Out, &c.Window.Kernel, &c.Window.Stride, &c.Window.Begin, &c.Window.End, &c.Window.Dilation} {
			*l = slices.Clone(*l)
		}
		s.Conv = &c
	}
	if s.Attn != nil {
		a := *s.Attn
		s.Attn = &a
	}
	if s.Launch != nil {
		l := *s.Launch
		l.Args, l.Table = slices.Clone(l.Args), slices.Clone(l.Table)
		s.Launch = &l
	}
}

// visit calls f for every step; at finds the same step in a clone.
func visit(p *lower.Program, f func(at place, s *lower.Step)) {
	for part := range lower.NumParts {
		for i := range p.Parts[part] {
			f(place{part, i}, &p.Parts[part][i])
		}
	}
}

type place struct {
	part lower.Part
	i    int
}

func (at place) of(p *lower.Program) *lower.Step { return &p.Parts[at.part][at.i] }

func (at place) String() string { return fmt.Sprintf("%s step %d", at.part, at.i) }

// changed is the mutant whose step at a place f changes.
func (at place) changed(s *lower.Step, what string, f func(s *lower.Step)) mutant {
	return mutant{what: fmt.Sprintf("%s (%s %s): %s", at, s.Kind, s.Node.Name, what), apply: func(p *lower.Program) { f(at.of(p)) }}
}

// unless gives all of list a reason why they may be no faults.
func unless(list []mutant, why func(s *subject, p *lower.Program, got trace) string) []mutant {
	for i := range list {
		list[i].harmless = why
	}
	return list
}

func droppedWaits(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		for i, e := range s.Wait {
			list = append(list, at.changed(s, fmt.Sprintf("does not wait for event %d", e), func(s *lower.Step) { s.Wait = slices.Delete(s.Wait, i, i+1) }))
		}
	})
	return unless(list, stillOrdered(0))
}

// movedRecords drops records and moves them to the step before on the stream,
// or trades the events of two steps.
func movedRecords(p *lower.Program) (list []mutant) {
	last := map[uint8]place{}
	var recorded []place
	visit(p, func(at place, s *lower.Step) {
		if s.Record != 0 {
			list = append(list, at.changed(s, "records nothing", func(s *lower.Step) { s.Record = 0 }))
			if b, ok := last[s.Stream]; ok && b.part == at.part && b.of(p).Record == 0 {
				list = append(list, mutant{what: fmt.Sprintf("%s records the event of %s", b, at), apply: func(p *lower.Program) {
					b.of(p).Record, at.of(p).Record = at.of(p).Record, 0
				}})
			}
			for _, b := range recorded {
				list = append(list, mutant{what: fmt.Sprintf("%s and %s trade events", b, at), apply: func(p *lower.Program) {
					b.of(p).Record, at.of(p).Record = at.of(p).Record, b.of(p).Record
				}})
			}
			recorded = append(recorded, at)
		}
		last[s.Stream] = at
	})
	return unless(list, stillOrdered(0))
}

func movedStreams(p *lower.Program) (list []mutant) {
	if p.Events == 0 {
		return nil
	}
	visit(p, func(at place, s *lower.Step) {
		list = append(list, at.changed(s, "runs on the other stream", func(s *lower.Step) { s.Stream = 1 - s.Stream }))
	})
	return unless(list, stillOrdered(0))
}

// missingEdges leaves out the waits that order the streams of a step, issued
// launch by launch and captured: edges of its graph.
func missingEdges(p *lower.Program) (list []mutant) {
	for n := 1; p.Events > 0 && n <= 2*relate(p, 0).waits; n++ {
		list = append(list, mutant{what: fmt.Sprintf("wait %d of %d orders nothing", n, 2*relate(p, 0).waits), apply: func(*lower.Program) {}, edge: n, harmless: stillOrdered(n)})
	}
	return list
}

// put moves a root and its views.
func put(p *lower.Program, id lower.BufferID, offset int64) {
	for i := range p.Buffers {
		if p.Buffers[i].Root == id {
			p.Buffers[i].Offset = offset + p.Buffers[i].At
		}
	}
}

// roots are the buffers that a Program places itself: those of variables are the store's.
func roots(p *lower.Program) (list []lower.BufferID) {
	used := map[lower.BufferID]bool{}
	visit(p, func(_ place, s *lower.Step) {
		for _, id := range append(slices.Clone(s.In), s.Out...) {
			if id != lower.None {
				used[p.Buffers[id].Root] = true
			}
		}
	})
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena != lower.StateArena && used[lower.BufferID(i)] && b.Size > 0 {
			list = append(list, lower.BufferID(i))
		}
	}
	return list
}

func shiftedOffsets(p *lower.Program) (list []mutant) {
	for _, id := range roots(p) {
		b := &p.Buffers[id]
		for _, to := range []int64{b.Offset - lower.Align, b.Offset + lower.Align, b.Offset + 16, p.Arenas[b.Arena], p.Arenas[b.Arena] - b.Size/2/lower.Align*lower.Align} {
			if to >= 0 && to != b.Offset {
				list = append(list, mutant{what: fmt.Sprintf("%%%s at %s+%d, not %d", b.Name, b.Arena, to, b.Offset), apply: func(p *lower.Program) { put(p, id, to) }})
			}
		}
	}
	return unless(list, placedApart)
}

// sharedOffsets lays buffers over others that live at the same time.
func sharedOffsets(p *lower.Program) (list []mutant) {
	all := roots(p)
	for _, id := range all {
		for _, other := range all {
			a, b := &p.Buffers[id], &p.Buffers[other]
			live := a.Live.From <= b.Live.To && b.Live.From <= a.Live.To || a.Arena != lower.WorkArena
			if id != other && a.Arena == b.Arena && live && a.Offset != b.Offset {
				list = append(list, mutant{what: fmt.Sprintf("%%%s lies where %%%s does", a.Name, b.Name), apply: func(p *lower.Program) { put(p, id, b.Offset) }})
			}
		}
	}
	return unless(list, placedApart)
}

// shortBuffers makes the type of a buffer smaller, or an arena.
func shortBuffers(p *lower.Program) (list []mutant) {
	for a := range lower.NumArenas {
		if a != lower.StateArena && p.Arenas[a] > 0 {
			list = append(list, mutant{what: fmt.Sprintf("the %s arena lacks %d bytes", a, lower.Align), apply: func(p *lower.Program) { p.Arenas[a] -= lower.Align }})
		}
	}
	for _, id := range roots(p) {
		b := &p.Buffers[id]
		if n := b.Type.Shape.Elements(); n > 1 {
			list = append(list, retyped(p, id, ir.T(b.Type.DType, ir.Dim(n-1))), retyped(p, id, ir.T(b.Type.DType, ir.Dim(n/2))))
		}
	}
	return list
}

func retyped(p *lower.Program, id lower.BufferID, t ir.Type) mutant {
	return mutant{what: fmt.Sprintf("%%%s is %s, not %s", p.Buffers[id].Name, t, p.Buffers[id].Type), apply: func(p *lower.Program) {
		p.Buffers[id].Type, p.Buffers[id].Size = t, t.Bytes()
	}}
}

// wrongDTypes takes dtypes of the same size: every place stays as it is.
func wrongDTypes(p *lower.Program) (list []mutant) {
	other := map[ir.DType]ir.DType{ir.F16: ir.BF16, ir.BF16: ir.F16, ir.F32: ir.I32, ir.I32: ir.F32, ir.U8: ir.Bool, ir.I64: ir.F64}
	for _, id := range roots(p) {
		if d, ok := other[p.Buffers[id].Type.DType]; ok {
			list = append(list, retyped(p, id, p.Buffers[id].Type.With(d)))
		}
	}
	return list
}

// loosen makes the spans that the planner noted long enough for any order of steps.
func loosen(p *lower.Program) {
	for i := range p.Buffers {
		p.Buffers[i].Live = lower.Span{From: -1, To: math.MaxInt32}
	}
}

func missingSteps(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil && s.Kind == lower.KindFill {
			return // stores nothing
		}
		list = append(list, mutant{what: fmt.Sprintf("%s (%s %s) is missing", at, s.Kind, s.Node.Name), apply: func(p *lower.Program) {
			loosen(p)
			if at.part == lower.Prepare {
				p.WeightCopies = slices.DeleteFunc(p.WeightCopies, func(c lower.WeightCopy) bool { return c.Step == at.i })
				for i := range p.WeightCopies {
					if p.WeightCopies[i].Step > at.i {
						p.WeightCopies[i].Step--
					}
				}
			}
			p.Parts[at.part] = slices.Delete(p.Parts[at.part], at.i, at.i+1)
		}})
	})
	return list
}

// swappedSteps lets a step run before one whose result it needs, or that needs what it overwrites.
func swappedSteps(p *lower.Program) (list []mutant) {
	for part := range lower.NumParts {
		steps := p.Parts[part]
		for j := range steps {
			for i := range j {
				if !touch(p, &steps[i], &steps[j]) {
					continue
				}
				list = append(list, mutant{what: fmt.Sprintf("%s steps %d (%s) and %d (%s) are swapped", part, i, steps[i].Node.Name, j, steps[j].Node.Name), apply: func(p *lower.Program) {
					loosen(p)
					s := p.Parts[part]
					s[i], s[j] = s[j], s[i]
					for k := range p.WeightCopies {
						if c := &p.WeightCopies[k]; part == lower.Prepare && (c.Step == i || c.Step == j) {
							c.Step = i + j - c.Step
						}
					}
				}, harmless: storedApart(place{part, i}, place{part, j})})
			}
		}
	}
	return list
}

// touch reports whether a step writes what another reads or writes.
func touch(p *lower.Program, a, b *lower.Step) bool {
	meets := func(x, y []lower.BufferID) bool {
		return slices.ContainsFunc(x, func(i lower.BufferID) bool {
			return slices.ContainsFunc(y, func(j lower.BufferID) bool {
				return i != lower.None && j != lower.None && p.Buffers[i].Root == p.Buffers[j].Root
			})
		})
	}
	return meets(a.Out, b.In) || meets(a.Out, b.Out) || meets(a.In, b.Out)
}

// wrongCopies makes casts of weights stale.
func wrongCopies(p *lower.Program) (list []mutant) {
	for i, c := range p.WeightCopies {
		list = append(list, mutant{what: fmt.Sprintf("the copy of %s is not kept by the store", c.Var), apply: func(p *lower.Program) { p.WeightCopies = slices.Delete(p.WeightCopies, i, i+1) }},
			mutant{what: fmt.Sprintf("the copy of %s is made by the next step", c.Var), apply: func(p *lower.Program) { p.WeightCopies[i].Step++ }})
		for _, v := range p.Vars {
			if v.Name != c.Var && v.Kind == ir.Param {
				list = append(list, mutant{what: fmt.Sprintf("the copy of %s counts as one of %s", c.Var, v.Name), apply: func(p *lower.Program) { p.WeightCopies[i].Var = v.Name }})
			}
		}
		for k, o := range p.WeightCopies {
			if k != i && p.Buffers[o.Buffer].Type == p.Buffers[c.Buffer].Type {
				list = append(list, mutant{what: fmt.Sprintf("the copy of %s lies where that of %s does", c.Var, o.Var), apply: func(p *lower.Program) { p.WeightCopies[i].Buffer = o.Buffer }})
			}
		}
	}
	for i := range p.Parts[lower.Prepare] {
		list = append(list, mutant{what: fmt.Sprintf("prepare step %d casts nothing", i), apply: func(p *lower.Program) { p.Parts[lower.Prepare] = slices.Delete(p.Parts[lower.Prepare], i, i+1) }})
	}
	return list
}

// wrongBindings binds results and variables to what they are not.
func wrongBindings(p *lower.Program) (list []mutant) {
	for i, o := range p.Outputs {
		for id := range p.Buffers {
			b := &p.Buffers[id]
			if lower.BufferID(id) != o.Buffer && b.Type == o.Type && b.Root != p.Buffers[o.Buffer].Root {
				list = append(list, mutant{what: fmt.Sprintf("result %s comes from %%%s", o.Name, b.Name), apply: func(p *lower.Program) { p.Outputs[i].Buffer = lower.BufferID(id) }})
			}
		}
	}
	for i, name := range p.Written {
		list = append(list, mutant{what: fmt.Sprintf("%s does not count as written", name), apply: func(p *lower.Program) { p.Written = slices.Delete(p.Written, i, i+1) }})
	}
	for i, v := range p.Vars {
		for k, w := range p.Vars[:i] {
			if v.Type == w.Type {
				list = append(list, mutant{what: fmt.Sprintf("variables %s and %s trade buffers", v.Name, w.Name), apply: func(p *lower.Program) {
					p.Vars[i].Buffer, p.Vars[k].Buffer = p.Vars[k].Buffer, p.Vars[i].Buffer
				}})
			}
		}
	}
	return list
}
