package programs

import (
	"fmt"
	"reflect"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// family is a kind of mutant. list offers edits of a clone.
type family struct {
	name string
	list func(p *lower.Program, add adder)
}

// edit changes a clone of the Program.
type edit func(p *lower.Program)

type adder func(e edit, format string, args ...any)

// each visits the steps of p. at finds a step's clone.
func each(p *lower.Program, f func(s *lower.Step, at func(p *lower.Program) *lower.Step, where string)) {
	for part := range p.Parts {
		for i := range p.Parts[part] {
			at := func(p *lower.Program) *lower.Step { return &p.Parts[part][i] }
			f(&p.Parts[part][i], at, fmt.Sprintf("%s %d (%s of %%%s)", lower.Part(part), i, p.Parts[part][i].Kind, p.Parts[part][i].Node.Name))
		}
	}
}

func ofSteps() []family {
	return []family{
		{"operand replaced by one of equal type", operandReplaced},
		{"operands swapped", operandsSwapped},
		{"results swapped", resultsSwapped},
		{"result into another buffer", resultElsewhere},
		{"operand dropped", operandDropped},
		{"step moved before its operand", movedForward},
		{"step moved behind its reader", movedBack},
		{"step lost", lost},
		{"step doubled", doubled},
		{"step in another part", otherPart},
		{"write lost to scratch memory", scratch},
		{"check of fewer gradients", fewerChecks},
		{"group of parameters shortened", shorterGroup},
		{"operands of a group exchanged", groupExchanged},
		{"step's body of another step", otherBody},
	}
}

// alike lists buffers of the type and arena of b other than b's.
func alike(p *lower.Program, id lower.BufferID) (list []lower.BufferID) {
	b := &p.Buffers[id]
	for k := range p.Buffers {
		o := &p.Buffers[k]
		if lower.BufferID(k) != id && o.Type == b.Type && o.Root != b.Root {
			list = append(list, lower.BufferID(k))
		}
	}
	return list
}

func operandReplaced(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, id := range s.In {
			if id == lower.None {
				continue
			}
			for _, other := range alike(p, id) {
				add(func(p *lower.Program) { at(p).In[i] = other }, "%s reads %s for %s", where, p.BufferName(other), p.BufferName(id))
			}
		}
	})
}

// positional reports whether operand i of s is known by its place; others are known by the accesses of clusters.
func positional(s *lower.Step, i int) bool {
	switch {
	case s.Cluster != nil:
		return false
	case s.Kernel != nil:
		return i < len(s.Kernel.Node.Def().In)
	case s.Epilogue != nil:
		return i < 2
	}
	return true
}

func operandsSwapped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, a := range s.In {
			for k, b := range s.In[:i] {
				if a == lower.None || b == lower.None || a == b || p.Buffers[a].Type != p.Buffers[b].Type || !positional(s, i) || !positional(s, k) {
					continue
				}
				add(func(p *lower.Program) { in := at(p).In; in[i], in[k] = in[k], in[i] }, "%s: operands %d and %d", where, k, i)
			}
		}
	})
}

func resultsSwapped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, a := range s.Out {
			for k, b := range s.Out[:i] {
				if a == lower.None || b == lower.None || p.Buffers[a].Type != p.Buffers[b].Type || s.Kernel == nil {
					continue
				}
				add(func(p *lower.Program) { out := at(p).Out; out[i], out[k] = out[k], out[i] }, "%s: results %d and %d", where, k, i)
			}
		}
	})
}

func resultElsewhere(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, id := range s.Out {
			if id == lower.None {
				continue
			}
			for _, other := range alike(p, id) {
				add(func(p *lower.Program) { at(p).Out[i] = other }, "%s writes %s for %s", where, p.BufferName(other), p.BufferName(id))
			}
		}
	})
}

// operandDropped leaves out optional operands: biases, masks, residuals.
func operandDropped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, id := range s.In {
			if id != lower.None {
				add(func(p *lower.Program) { at(p).In[i] = lower.None }, "%s: operand %d is absent", where, i)
			}
		}
	})
}

func reads(p *lower.Program, s *lower.Step, ids []lower.BufferID) bool {
	for _, id := range s.In {
		for _, o := range ids {
			if id != lower.None && o != lower.None && p.Buffers[id].Root == p.Buffers[o].Root {
				return true
			}
		}
	}
	return false
}

func move(steps []lower.Step, from, to int) []lower.Step {
	s := steps[from]
	return slices.Insert(slices.Delete(steps, from, from+1), to, s)
}

func movedForward(p *lower.Program, add adder) {
	for part, steps := range p.Parts {
		for i := range steps {
			for k := i - 1; k >= 0; k-- {
				if reads(p, &steps[i], steps[k].Out) {
					add(func(p *lower.Program) { p.Parts[part] = move(p.Parts[part], i, k) }, "%s %d before %d", lower.Part(part), i, k)
					break
				}
			}
		}
	}
}

func movedBack(p *lower.Program, add adder) {
	for part, steps := range p.Parts {
		for i := range steps {
			for k := i + 1; k < len(steps); k++ {
				if reads(p, &steps[k], steps[i].Out) {
					add(func(p *lower.Program) { p.Parts[part] = move(p.Parts[part], i, k) }, "%s %d behind %d", lower.Part(part), i, k)
					break
				}
			}
		}
	}
}

func lost(p *lower.Program, add adder) {
	for part, steps := range p.Parts {
		for i := range steps {
			add(func(p *lower.Program) { p.Parts[part] = slices.Delete(p.Parts[part], i, i+1) }, "%s %d (%s of %%%s)", lower.Part(part), i, steps[i].Kind, steps[i].Node.Name)
		}
	}
}

func doubled(p *lower.Program, add adder) {
	for part, steps := range p.Parts {
		for i := range steps {
			add(func(p *lower.Program) {
				p.Parts[part] = slices.Insert(p.Parts[part], i+1, cloneStep(&p.Parts[part][i]))
			}, "%s %d (%s of %%%s)", lower.Part(part), i, steps[i].Kind, steps[i].Node.Name)
		}
	}
}

func otherPart(p *lower.Program, add adder) {
	for part, steps := range p.Parts {
		for i := range steps {
			for to := range p.Parts {
				if to == part {
					continue
				}
				add(func(p *lower.Program) {
					s := p.Parts[part][i]
					p.Parts[part] = slices.Delete(p.Parts[part], i, i+1)
					if to < part {
						p.Parts[to] = append(p.Parts[to], s)
					} else {
						p.Parts[to] = slices.Insert(p.Parts[to], 0, s)
					}
				}, "%s %d (%s of %%%s) to %s", lower.Part(part), i, steps[i].Kind, steps[i].Node.Name, lower.Part(to))
			}
		}
	}
}

// scratch has a step write memory of its own instead of what others read.
func scratch(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, id := range s.Out {
			if id == lower.None || p.Buffers[id].Root != id {
				continue
			}
			add(func(p *lower.Program) {
				b := p.Buffers[id]
				fresh := lower.BufferID(len(p.Buffers))
				b.Name, b.Arena, b.Root = b.Name+".scratch", lower.WorkArena, fresh
				b.Offset = (p.Arenas[lower.WorkArena] + lower.Align - 1) / lower.Align * lower.Align
				p.Arenas[lower.WorkArena] = b.Offset + (b.Size+lower.Align-1)/lower.Align*lower.Align
				number := int32(0)
				for part := range p.Parts {
					for k := range p.Parts[part] {
						if &p.Parts[part][k] == at(p) {
							b.Live = lower.Span{From: number, To: number}
						}
						number++
					}
				}
				p.Buffers = append(p.Buffers, b)
				at(p).Out[i] = fresh
			}, "%s: %s", where, p.BufferName(id))
		}
	})
}

// fewerChecks has a check or a norm over many gradients leave one out, or read another in its place.
func fewerChecks(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Kernel == nil || !slices.Contains([]ir.Op{ir.OpAnyNonfinite, ir.OpGlobalNorm}, s.Kernel.Node.Op) {
			return
		}
		for i := range s.In {
			if len(s.In) > 1 {
				add(func(p *lower.Program) {
					x := at(p)
					x.In = slices.Delete(x.In, i, i+1)
					if i < len(x.Kernel.Node.In) {
						x.Kernel.Node.In = slices.Delete(x.Kernel.Node.In, i, i+1)
					}
				}, "%s without operand %d", where, i)
			}
		}
		for k, part := range s.Kernel.Parts {
			for i, x := range part.In {
				if i+1 < len(part.In) {
					add(func(p *lower.Program) {
						own := at(p).Kernel.Parts[k]
						own.In, own.Node.In = slices.Delete(own.In, i, i+1), slices.Delete(own.Node.In, i, i+1)
					}, "%s: part %d without operand %d", where, k, i)
				}
				if y := part.In[max(i-1, 0)]; x >= 0 && y >= 0 && x != y {
					add(func(p *lower.Program) { at(p).Kernel.Parts[k].In[i] = y }, "%s: part %d reads operand %d again", where, k, i-1)
				}
			}
		}
	})
}

func shorterGroup(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i := range s.More {
			add(func(p *lower.Program) { at(p).More = slices.Delete(at(p).More, i, i+1) }, "%s without member %d", where, i+1)
		}
	})
}

func groupExchanged(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for i, m := range s.More {
			for k := range m.Loads {
				if k < len(s.Cluster.Loads) && m.Loads[k].Buffer != s.Cluster.Loads[k].Buffer {
					add(func(p *lower.Program) {
						a, b := &at(p).Cluster.Loads[k], &at(p).More[i].Loads[k]
						a.Buffer, b.Buffer = b.Buffer, a.Buffer
					}, "%s: load %d of members 0 and %d", where, k, i+1)
				}
			}
			for k := range m.Stores {
				add(func(p *lower.Program) {
					a, b := &at(p).Cluster.Stores[k], &at(p).More[i].Stores[k]
					a.Buffer, b.Buffer = b.Buffer, a.Buffer
				}, "%s: store %d of members 0 and %d", where, k, i+1)
			}
		}
	})
}

func sameBody(s, o *lower.Step) bool {
	if s.Kernel != nil && o.Kernel != nil {
		a, b := *s.Kernel, *o.Kernel
		a.Node, b.Node = nil, nil
		return s.Kernel.Node.Op == o.Kernel.Node.Op && s.Kernel.Node.Attrs.Equal(o.Kernel.Node.Attrs) && reflect.DeepEqual(a, b)
	}
	return reflect.DeepEqual(s.Gemm, o.Gemm) && reflect.DeepEqual(s.Conv, o.Conv) && reflect.DeepEqual(s.Attn, o.Attn) &&
		reflect.DeepEqual(s.Moves, o.Moves) && reflect.DeepEqual(s.Epilogue, o.Epilogue)
}

// otherBody gives a step what another one of its kind, with as many operands of the same types, computes.
func otherBody(p *lower.Program, add adder) {
	types := func(ids []lower.BufferID) (l []ir.Type) {
		for _, id := range ids {
			if id == lower.None {
				l = append(l, ir.Type{})
			} else {
				l = append(l, p.Buffers[id].Type)
			}
		}
		return l
	}
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		each(p, func(o *lower.Step, from func(*lower.Program) *lower.Step, what string) {
			if sameBody(s, o) || s == o || s.Kind != o.Kind || s.Cluster != nil || !slices.Equal(types(s.In), types(o.In)) || !slices.Equal(types(s.Out), types(o.Out)) {
				return
			}
			add(func(p *lower.Program) {
				a, b := at(p), cloneStep(from(p))
				a.Gemm, a.Conv, a.Attn, a.Kernel, a.Moves, a.Epilogue = b.Gemm, b.Conv, b.Attn, b.Kernel, b.Moves, b.Epilogue
			}, "%s does what %s does", where, what)
		})
	})
}
