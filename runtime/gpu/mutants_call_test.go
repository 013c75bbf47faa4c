package gpu_test

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
)

// wrongProducts changes the numbers of a library's product.
func wrongProducts(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Gemm == nil {
			return
		}
		add := func(what string, f func(g *lower.Gemm)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Gemm) }))
		}
		for i, name := range []string{"m", "n", "k"} {
			size := func(g *lower.Gemm) *int64 { return []*int64{&g.M, &g.N, &g.K}[i] }
			n := *size(s.Gemm)
			for _, to := range []int64{n - 1, n + 1, n / 2, 2 * n} {
				if to > 0 && to != n {
					add(fmt.Sprintf("%s=%d, not %d", name, to, n), func(g *lower.Gemm) { *size(g) = to })
				}
			}
		}
		for i, name := range []string{"a", "b", "c"} {
			matrix := func(g *lower.Gemm) *lower.Matrix { return []*lower.Matrix{&g.A, &g.B, &g.C}[i] }
			m := matrix(s.Gemm)
			for _, by := range []int64{-8, -1, 1, 8} {
				if m.LD+by > 0 {
					add(fmt.Sprintf("rows of %s are %d apart, not %d", name, m.LD+by, m.LD), func(g *lower.Gemm) { matrix(g).LD += by })
				}
			}
			for level, n := range m.Strides {
				for _, to := range []int64{0, n - m.LD, n + m.LD, n / 2} {
					if to >= 0 && to != n {
						add(fmt.Sprintf("items of %s are %d apart, not %d", name, to, n), func(g *lower.Gemm) { matrix(g).Strides[level] = to })
					}
				}
			}
		}
		for level, n := range s.Gemm.Batch {
			add(fmt.Sprintf("batch of %d, not %d", n-1, n), func(g *lower.Gemm) { g.Batch[level]-- })
			add(fmt.Sprintf("batch of %d, not %d", n+1, n), func(g *lower.Gemm) { g.Batch[level]++ })
		}
		add("m and n are swapped", func(g *lower.Gemm) { g.M, g.N = g.N, g.M })
		add("n and k are swapped", func(g *lower.Gemm) { g.N, g.K = g.K, g.N })
	})
	return slices.DeleteFunc(list, func(m mutant) bool { return same(p, m) })
}

// same reports whether a mutant leaves the text of a Program as it is.
func same(p *lower.Program, m mutant) bool {
	q := clone(p)
	m.apply(q)
	for part, steps := range p.Parts {
		for i := range steps {
			if a, b := &steps[i], &q.Parts[part][i]; fmt.Sprint(a.In, a.Out, a.Gemm, a.Conv, a.Attn, a.Launch) != fmt.Sprint(b.In, b.Out, b.Gemm, b.Conv, b.Attn, b.Launch) {
				return false
			}
		}
	}
	return true
}

// wrongEpilogues changes how operands are read and what is done to the product.
func wrongEpilogues(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Gemm == nil {
			return
		}
		add := func(what string, f func(s *lower.Step)) { list = append(list, at.changed(s, what, f)) }
		add("a is transposed", func(s *lower.Step) { s.Gemm.A.T = !s.Gemm.A.T })
		add("b is transposed", func(s *lower.Step) { s.Gemm.B.T = !s.Gemm.B.T })
		add("rounds to tf32", func(s *lower.Step) { s.Gemm.TF32 = !s.Gemm.TF32 })
		add("factors are swapped", func(s *lower.Step) { s.In[0], s.In[1] = s.In[1], s.In[0] })
		e := s.Gemm.Epilogue
		for act := lower.NoAct; act <= lower.GeluGrad; act++ {
			if act != e.Act {
				add(fmt.Sprintf("ends in %s, not %s", act, e.Act), func(s *lower.Step) { s.Gemm.Epilogue.Act = act })
			}
		}
		if e.Bias != 0 {
			add("adds no bias", func(s *lower.Step) {
				s.Gemm.Epilogue.Bias, s.In = 0, slices.Delete(s.In, e.Bias, e.Bias+1)
			})
			add("adds an operand as bias", func(s *lower.Step) { s.Gemm.Epilogue.Bias = 1 })
		}
		if e.Aux != 0 {
			add("has no auxiliary", func(s *lower.Step) { s.Gemm.Epilogue.Aux = 0 })
		}
		if e.BiasGrad != 0 {
			add("sums the other operand", func(s *lower.Step) { s.Gemm.Epilogue.Summed = 1 - s.Gemm.Epilogue.Summed })
			add("sums nothing", func(s *lower.Step) { s.Gemm.Epilogue.BiasGrad = 0 })
		}
		for i := range s.In {
			replaced(p, at, s, i, &list)
		}
	})
	return slices.DeleteFunc(list, func(m mutant) bool { return same(p, m) })
}

// replaced adds mutants whose operand i is another buffer of its type, or of its
// shape and another dtype.
func replaced(p *lower.Program, at place, s *lower.Step, i int, list *[]mutant) {
	if s.In[i] == lower.None {
		return
	}
	old := &p.Buffers[s.In[i]]
	for id := range p.Buffers {
		if b := &p.Buffers[id]; b.Type.Shape == old.Type.Shape && b.Root != old.Root && b.Arena != lower.ConstArena {
			*list = append(*list, at.changed(s, fmt.Sprintf("operand %d is %%%s, not %%%s", i, b.Name, old.Name), func(s *lower.Step) { s.In[i] = lower.BufferID(id) }))
		}
	}
}

func wrongConvolutions(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Conv == nil || s.Launch != nil {
			return
		}
		add := func(what string, f func(c *lower.Conv)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Conv) }))
		}
		w := &s.Conv.Window
		for d := range w.Kernel {
			add("longer stride", func(c *lower.Conv) { c.Window.Stride[d]++ })
			add("padding moved from the end to the beginning", func(c *lower.Conv) { c.Window.Begin[d]++; c.Window.End[d]-- })
			add("less padding", func(c *lower.Conv) { c.Window.Begin[d]-- })
			add("dilated", func(c *lower.Conv) { c.Window.Dilation[d]++ })
			list[len(list)-1].harmless = oneTap(at, d)
			add("larger filter", func(c *lower.Conv) { c.Window.Kernel[d]++ })
			add("larger input", func(c *lower.Conv) { c.Window.In[d]++ })
			add("smaller output", func(c *lower.Conv) { c.Window.Out[d]-- })
		}
		add("one image less", func(c *lower.Conv) { c.Window.N-- })
		add("channels swapped", func(c *lower.Conv) { c.Window.C, c.Window.O = c.Window.O, c.Window.C })
		add("two groups", func(c *lower.Conv) { c.Window.Groups *= 2 })
		add("channels at the other end", func(c *lower.Conv) { c.Window.Last = !c.Window.Last })
		add("rounds to tf32", func(c *lower.Conv) { c.TF32 = !c.TF32 })
		add("the next direction", func(c *lower.Conv) { c.Dir = (c.Dir + 1) % 3 })
		if s.Conv.Epilogue.Bias != 0 {
			list = append(list, at.changed(s, "adds no bias", func(s *lower.Step) { s.Conv.Epilogue.Bias, s.In = 0, s.In[:2] }))
		}
		for i := range s.In {
			replaced(p, at, s, i, &list)
		}
	})
	return slices.DeleteFunc(list, func(m mutant) bool { return same(p, m) })
}

func wrongAttention(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Attn == nil || s.Launch != nil {
			return
		}
		add := func(what string, f func(a *lower.Attention)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Attn) }))
		}
		add("twice the scale", func(a *lower.Attention) { a.Scale *= 2 })
		add("causal the other way", func(a *lower.Attention) { a.Causal = !a.Causal })
		add("batch and heads are swapped", func(a *lower.Attention) { a.Batch, a.Heads, a.KVHeads = a.Heads, a.Batch, a.Batch })
		list[len(list)-1].harmless = sameItems(at)
		add("half the keys", func(a *lower.Attention) { a.Keys /= 2 })
		add("half the queries", func(a *lower.Attention) { a.Queries /= 2 })
		add("half the width", func(a *lower.Attention) { a.Width /= 2 })
		add("half the queries, twice the width", func(a *lower.Attention) { a.Queries /= 2; a.Keys /= 2; a.Width *= 2; a.VWidth *= 2 })
		add("the other direction", func(a *lower.Attention) { a.Backward = !a.Backward })
		add("rounds to tf32", func(a *lower.Attention) { a.TF32 = true })
		for i := range s.In {
			replaced(p, at, s, i, &list)
			for k := range i {
				list = append(list, at.changed(s, fmt.Sprintf("operands %d and %d are swapped", k, i), func(s *lower.Step) { s.In[i], s.In[k] = s.In[k], s.In[i] }))
			}
		}
		for i := range s.Out {
			for k := range i {
				list = append(list, at.changed(s, fmt.Sprintf("results %d and %d are swapped", k, i), func(s *lower.Step) { s.Out[i], s.Out[k] = s.Out[k], s.Out[i] }))
			}
		}
	})
	return list
}

// wrongParts shows attention other elements of a tensor.
func wrongParts(p *lower.Program) (list []mutant) {
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Strides == nil {
			continue
		}
		add := func(what string, f func(b *lower.Buffer)) {
			list = append(list, mutant{what: fmt.Sprintf("%%%s of %%%s: %s", b.Name, p.Buffers[b.Root].Name, what), apply: func(p *lower.Program) {
				b := &p.Buffers[i]
				b.Strides = slices.Clone(b.Strides)
				f(b)
			}})
		}
		for _, by := range []int64{-16, 16, b.Strides[1] * b.Type.DType.Size(), -b.Strides[1] * b.Type.DType.Size()} {
			add(fmt.Sprintf("begins %d bytes on", by), func(b *lower.Buffer) { b.At, b.Offset = b.At+by, b.Offset+by })
		}
		add("heads and rows in the other order", func(b *lower.Buffer) { b.Strides[1], b.Strides[2] = b.Strides[2], b.Strides[1] })
		add("rows as near as heads", func(b *lower.Buffer) { b.Strides[2] = b.Strides[1] })
		add("rows twice as far apart", func(b *lower.Buffer) { b.Strides[2] *= 2 })
		add("heads in a row", func(b *lower.Buffer) { b.Strides = nil })
		add("another shape", func(b *lower.Buffer) {
			d := b.Type.Shape.Dims()
			b.Type = ir.T(b.Type.DType, d[0], d[2], d[1], d[3])
		})
	}
	return list
}

// wrongArguments gives kernels addresses that their step does not own up to, or
// in another order.
func wrongArguments(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil {
			return
		}
		add := func(what string, f func(l *lower.Launch)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Launch) }))
		}
		args := s.Launch.Args
		add("one address less", func(l *lower.Launch) { l.Args = l.Args[1:] })
		for i, x := range args {
			for k := range i {
				if args[k] != x {
					add(fmt.Sprintf("addresses %d and %d are swapped", k, i), func(l *lower.Launch) { l.Args[i], l.Args[k] = l.Args[k], l.Args[i] })
					list[len(list)-1].harmless = commutes(at, k, i)
				}
			}
			for id := range p.Buffers {
				if b := &p.Buffers[id]; b.Type == p.Buffers[x].Type && b.Root != p.Buffers[x].Root {
					add(fmt.Sprintf("address %d is that of %%%s, not of %%%s", i, b.Name, p.Buffers[x].Name), func(l *lower.Launch) { l.Args[i] = lower.BufferID(id) })
				}
			}
		}
	})
	return list
}

// wrongOperands gives kernels other buffers of the same type, and the steps own up to them.
func wrongOperands(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil {
			return
		}
		for i, x := range s.Launch.Args {
			for id := range p.Buffers {
				b, now := &p.Buffers[id], lower.BufferID(id)
				if b.Type != p.Buffers[x].Type || b.Root == p.Buffers[x].Root {
					continue
				}
				m := at.changed(s, fmt.Sprintf("operand or result %d is %%%s, not %%%s", i, b.Name, p.Buffers[x].Name), func(s *lower.Step) { everywhere(s, x, now) })
				m.harmless = sameContent(x, now)
				list = append(list, m)
			}
		}
	})
	return list
}

// everywhere puts one buffer in another's place.
func everywhere(s *lower.Step, old, now lower.BufferID) {
	for _, list := range [][]lower.BufferID{s.In, s.Out, s.Launch.Args} {
		for i := range list {
			if list[i] == old {
				list[i] = now
			}
		}
	}
}

// wrongTables changes sizes, blocks and addresses in the tables of kernels that
// go through many tensors.
func wrongTables(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil {
			return
		}
		add := func(what string, f func(w []lower.Word)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Launch.Table) }))
		}
		table := s.Launch.Table
		for i, w := range table {
			if w.Buffer == lower.None {
				add(fmt.Sprintf("word %d is %d, not %d", i, w.Value+1, w.Value), func(t []lower.Word) { t[i].Value++ })
				add(fmt.Sprintf("word %d is %d, not %d", i, w.Value-1, w.Value), func(t []lower.Word) { t[i].Value-- })
			}
			for k := range i {
				if table[k] != w {
					add(fmt.Sprintf("words %d and %d are swapped", k, i), func(t []lower.Word) { t[i], t[k] = t[k], t[i] })
				}
			}
		}
		if len(table) > 0 {
			add("the last word is missing", func([]lower.Word) {})
			list[len(list)-1].apply = func(p *lower.Program) { l := at.of(p).Launch; l.Table = l.Table[:len(l.Table)-1] }
		}
	})
	return list
}

// wrongRows trades addresses between the rows of a table, and within a row: all
// of them of tensors as large that the step reads or writes.
func wrongRows(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil {
			return
		}
		for i, w := range s.Launch.Table {
			for k, v := range s.Launch.Table[:i] {
				if w.Buffer == lower.None || v.Buffer == lower.None || w == v || p.Buffers[w.Buffer].Type != p.Buffers[v.Buffer].Type {
					continue
				}
				list = append(list, at.changed(s, fmt.Sprintf("%%%s and %%%s trade places in the table", p.Buffers[v.Buffer].Name, p.Buffers[w.Buffer].Name), func(s *lower.Step) {
					t := s.Launch.Table
					t[i], t[k] = t[k], t[i]
				}))
				list[len(list)-1].harmless = sameTerms(at)
			}
		}
	})
	return list
}

func wrongGrids(p *lower.Program) (list []mutant) {
	visit(p, func(at place, s *lower.Step) {
		if s.Launch == nil {
			return
		}
		add := func(what string, f func(l *lower.Launch)) {
			list = append(list, at.changed(s, what, func(s *lower.Step) { f(s.Launch) }))
		}
		for d, n := range s.Launch.Grid {
			for _, to := range []int{n - 1, n / 2, n + 1} {
				if to != n {
					add(fmt.Sprintf("grid %d in dimension %d, not %d", to, d, n), func(l *lower.Launch) { l.Grid[d] = to })
				}
			}
		}
		for _, to := range []int{s.Launch.Block / 2, s.Launch.Block - 32, 2 * s.Launch.Block} {
			add(fmt.Sprintf("block %d, not %d", to, s.Launch.Block), func(l *lower.Launch) { l.Block = to })
		}
	})
	return unless(list, blocksIdle)
}

// wrongShared makes the shared memory of kernels smaller.
func wrongShared(p *lower.Program) (list []mutant) {
	for i, m := range sm.Modules(p) {
		for k, kernel := range m.Kernels {
			for v, s := range kernel.Shared {
				for _, to := range []int{s.Bytes / 2, s.Bytes - s.Align, s.Bytes - 4} {
					if to >= 0 && to < s.Bytes {
						list = append(list, mutant{what: fmt.Sprintf("kernel %s has %d bytes of %s, not %d", kernel.Name, to, s.Name, s.Bytes), apply: func(p *lower.Program) {
							sm.Modules(p)[i].Kernels[k].Shared[v].Bytes = to
						}})
					}
				}
			}
		}
	}
	return list
}
