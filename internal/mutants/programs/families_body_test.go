package programs

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

func ofBodies() []family {
	return []family{
		{"dtype of a load", func(p *lower.Program, add adder) { accessDType(p, add, false) }},
		{"dtype of a store", func(p *lower.Program, add adder) { accessDType(p, add, true) }},
		{"code: another primitive", codePrimitive},
		{"code: another register", codeRegister},
		{"code: another constant", codeConstant},
		{"code: another load", codeLoad},
		{"code: scale left out", codeScale},
		{"code: rounding left out", codeRounding},
		{"code: another register stored", codeStore},
		{"load or store of another buffer", accessBuffer},
		{"store dropped from a cluster", storeDropped},
		{"strides of an access", accessStrides},
		{"offset of an access", accessOffset},
		{"cluster's shape", clusterShape},
		{"product: sizes", gemmSizes},
		{"product: transposed", gemmTransposed},
		{"product: strides", gemmStrides},
		{"product or convolution: tf32", tf32},
		{"epilogue dropped", epilogueDropped},
		{"epilogue doubled", epilogueDoubled},
		{"convolution: geometry", convWindow},
		{"convolution: direction", convDir},
		{"attention: description", attention},
		{"kernel: another name", kernelName},
		{"kernel: attribute", kernelAttr},
		{"kernel: dtype of an operand or result", kernelType},
		{"norm's fusion", normFusion},
		{"pool of a gradient", poolOf},
		{"moves: description", moves},
	}
}

type clusterAt func(p *lower.Program) *lower.Cluster

// clusters visits every cluster of a step: its own, those beside it, epilogues, prologues.
func clusters(p *lower.Program, f func(c *lower.Cluster, at clusterAt, where string)) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Cluster != nil {
			f(s.Cluster, func(p *lower.Program) *lower.Cluster { return at(p).Cluster }, where)
		}
		for i, c := range s.More {
			f(c, func(p *lower.Program) *lower.Cluster { return at(p).More[i] }, where+" beside")
		}
		if s.Epilogue != nil {
			f(s.Epilogue, func(p *lower.Program) *lower.Cluster { return at(p).Epilogue }, where+" post-ops")
		}
		if s.Kernel != nil && s.Kernel.Fusion.Prologue != nil {
			f(s.Kernel.Fusion.Prologue, func(p *lower.Program) *lower.Cluster { return at(p).Kernel.Fusion.Prologue }, where+" prologue")
		}
		if s.Kernel != nil && s.Kernel.Fusion.Epilogue != nil {
			f(s.Kernel.Fusion.Epilogue, func(p *lower.Program) *lower.Cluster { return at(p).Kernel.Fusion.Epilogue }, where+" epilogue")
		}
	})
}

var sameSize = map[ir.DType][]ir.DType{ir.F16: {ir.BF16, ir.F32}, ir.BF16: {ir.F16, ir.F32}, ir.F32: {ir.F16, ir.BF16, ir.I32}, ir.I32: {ir.F32}, ir.Bool: {ir.U8}}

func accessDType(p *lower.Program, add adder, store bool) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		list := c.Loads
		if store {
			list = c.Stores
		}
		for i, a := range list {
			for _, d := range sameSize[a.DType] {
				add(func(p *lower.Program) {
					if store {
						at(p).Stores[i].DType = d
					} else {
						at(p).Loads[i].DType = d
					}
				}, "%s: access %d of %s as %s", where, i, a.DType, d)
			}
		}
	})
}

var otherPrim = map[ir.Prim]ir.Prim{
	ir.PAdd: ir.PSub, ir.PSub: ir.PAdd, ir.PMul: ir.PDiv, ir.PDiv: ir.PMul, ir.PMin: ir.PMax, ir.PMax: ir.PMin, ir.PLt: ir.PLe, ir.PLe: ir.PLt,
	ir.PSqrt: ir.PAbs, ir.PExp: ir.PTanh, ir.PTanh: ir.PExp, ir.PNeg: ir.PAbs, ir.PAbs: ir.PNeg, ir.PAnd: ir.POr, ir.POr: ir.PAnd, ir.PEq: ir.PNe, ir.PNe: ir.PEq,
}

func codePrimitive(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			if o, ok := otherPrim[x.Op]; ok {
				add(func(p *lower.Program) { at(p).Code[i].Op = o }, "%s: r%d is %s, not %s", where, i, o, x.Op)
			}
		}
	})
}

func codeRegister(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			if ir.Prims[x.Op].Args < 1 {
				continue
			}
			for r := range i {
				if c.Code[r].Type == c.Code[x.A].Type && ir.Reg(r) != x.A {
					add(func(p *lower.Program) { at(p).Code[i].A = ir.Reg(r) }, "%s: r%d reads r%d, not r%d", where, i, r, x.A)
				}
			}
		}
	})
}

func codeConstant(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			if x.Op == ir.PConst {
				add(func(p *lower.Program) { at(p).Code[i].Imm++; at(p).Code[i].Int++ }, "%s: constant r%d", where, i)
			}
		}
	})
}

func codeLoad(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			for k, l := range c.Loads {
				if x.Op == ir.PIn && int64(k) != x.Int && l.DType == c.Loads[x.Int].DType {
					add(func(p *lower.Program) { at(p).Code[i].Int = int64(k) }, "%s: r%d is load %d, not %d", where, i, k, x.Int)
				}
			}
		}
	})
}

// codeScale has a constant 1 in place of a number that is loaded for all elements: a loss scale, a learning rate.
func codeScale(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			if x.Op == ir.PIn && x.Type == ir.F32 && c.Loads[x.Int].Buffer != lower.None && p.Buffers[c.Loads[x.Int].Buffer].Type.Shape.Rank() == 0 {
				add(func(p *lower.Program) { at(p).Code[i] = ir.Instr{Op: ir.PConst, Type: ir.F32, Imm: 1} }, "%s: 1 for load %d", where, x.Int)
			}
		}
	})
}

func codeRounding(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, x := range c.Code {
			if x.Op == ir.PRound {
				add(func(p *lower.Program) { at(p).Code[i] = ir.Instr{Op: ir.PConv, Type: x.Type, A: x.A} }, "%s: r%d", where, i)
			}
		}
	})
}

func codeStore(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, st := range c.Stores {
			for r := range c.Code {
				if ir.Reg(r) != st.Reg && c.Code[r].Type == c.Code[st.Reg].Type {
					add(func(p *lower.Program) { at(p).Stores[i].Reg = ir.Reg(r) }, "%s: store %d is r%d, not r%d", where, i, r, st.Reg)
				}
			}
		}
	})
}

func accessBuffer(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, a := range c.Loads {
			if a.Buffer != lower.None {
				for _, other := range alike(p, a.Buffer) {
					add(func(p *lower.Program) { at(p).Loads[i].Buffer = other }, "%s loads %s for %s", where, p.BufferName(other), p.BufferName(a.Buffer))
				}
			}
		}
		for i, a := range c.Stores {
			if a.Buffer != lower.None {
				for _, other := range alike(p, a.Buffer) {
					add(func(p *lower.Program) { at(p).Stores[i].Buffer = other }, "%s stores %s for %s", where, p.BufferName(other), p.BufferName(a.Buffer))
				}
			}
		}
	})
}

func storeDropped(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i, a := range c.Stores {
			add(func(p *lower.Program) { at(p).Stores = slices.Delete(at(p).Stores, i, i+1) }, "%s: store %d of %s", where, i, p.BufferName(a.Buffer))
		}
	})
}

func accessStrides(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for store, list := range [][]lower.Access{c.Loads, c.Stores} {
			for i, a := range list {
				for d, st := range a.Strides {
					pick := func(p *lower.Program) []int64 {
						if store == 1 {
							return at(p).Stores[i].Strides
						}
						return at(p).Loads[i].Strides
					}
					if st != 0 && c.Shape[d] > 1 {
						add(func(p *lower.Program) { pick(p)[d] = 0 }, "%s: stride %d of access %d repeats", where, d, i)
					}
					if st == 0 && c.Shape[d] > 1 {
						add(func(p *lower.Program) { pick(p)[d] = 1 }, "%s: stride %d of access %d is 1", where, d, i)
					}
					for e := range d {
						if a.Strides[e] != st && c.Shape[e] > 1 && c.Shape[d] > 1 {
							add(func(p *lower.Program) { x := pick(p); x[d], x[e] = x[e], x[d] }, "%s: strides %d and %d of access %d", where, d, e, i)
						}
					}
				}
			}
		}
	})
}

func accessOffset(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for i := range c.Loads {
			add(func(p *lower.Program) { at(p).Loads[i].Offset++ }, "%s: load %d one further", where, i)
			if c.Loads[i].Offset > 0 {
				add(func(p *lower.Program) { at(p).Loads[i].Offset = 0 }, "%s: load %d from the beginning", where, i)
			}
		}
		for i := range c.Stores {
			add(func(p *lower.Program) { at(p).Stores[i].Offset++ }, "%s: store %d one further", where, i)
		}
	})
}

func clusterShape(p *lower.Program, add adder) {
	clusters(p, func(c *lower.Cluster, at clusterAt, where string) {
		for d, n := range c.Shape {
			if n > 1 {
				add(func(p *lower.Program) { at(p).Shape[d]-- }, "%s: dimension %d shorter", where, d)
			}
		}
	})
}

func gemms(p *lower.Program, f func(g *lower.Gemm, at func(p *lower.Program) *lower.Gemm, where string)) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Gemm != nil {
			f(s.Gemm, func(p *lower.Program) *lower.Gemm { return at(p).Gemm }, where)
		}
	})
}

func gemmSizes(p *lower.Program, add adder) {
	gemms(p, func(g *lower.Gemm, at func(*lower.Program) *lower.Gemm, where string) {
		add(func(p *lower.Program) { at(p).K-- }, "%s: K one less", where)
		add(func(p *lower.Program) { at(p).M-- }, "%s: M one less", where)
		add(func(p *lower.Program) { at(p).N-- }, "%s: N one less", where)
		if g.M != g.N {
			add(func(p *lower.Program) { x := at(p); x.M, x.N = x.N, x.M }, "%s: M and N", where)
		}
		for i, n := range g.Batch {
			if n > 1 {
				add(func(p *lower.Program) { at(p).Batch[i]-- }, "%s: batch level %d", where, i)
			}
		}
	})
}

func gemmTransposed(p *lower.Program, add adder) {
	gemms(p, func(g *lower.Gemm, at func(*lower.Program) *lower.Gemm, where string) {
		add(func(p *lower.Program) { at(p).A.T = !at(p).A.T }, "%s: A", where)
		add(func(p *lower.Program) { at(p).B.T = !at(p).B.T }, "%s: B", where)
		add(func(p *lower.Program) { x := at(p); x.A.T = !x.A.T; x.A.LD = x.M + x.K - x.A.LD }, "%s: A and its leading dimension", where)
		add(func(p *lower.Program) { x := at(p); x.B.T = !x.B.T; x.B.LD = x.N + x.K - x.B.LD }, "%s: B and its leading dimension", where)
	})
}

func gemmStrides(p *lower.Program, add adder) {
	gemms(p, func(g *lower.Gemm, at func(*lower.Program) *lower.Gemm, where string) {
		pick := []func(g *lower.Gemm) *lower.Matrix{func(g *lower.Gemm) *lower.Matrix { return &g.A }, func(g *lower.Gemm) *lower.Matrix { return &g.B }, func(g *lower.Gemm) *lower.Matrix { return &g.C }}
		for k, m := range pick {
			add(func(p *lower.Program) { m(at(p)).LD-- }, "%s: leading dimension of matrix %d", where, k)
			for i, st := range m(g).Strides {
				if g.Batch[i] > 1 && st != 0 {
					add(func(p *lower.Program) { m(at(p)).Strides[i] = 0 }, "%s: matrix %d repeats", where, k)
				}
				if i > 0 && g.Batch[i] > 1 && g.Batch[i-1] > 1 {
					add(func(p *lower.Program) { l := m(at(p)).Strides; l[i], l[i-1] = l[i-1], l[i] }, "%s: batch strides of matrix %d", where, k)
				}
			}
		}
	})
}

func tf32(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		switch {
		case s.Gemm != nil:
			add(func(p *lower.Program) { at(p).Gemm.TF32 = !at(p).Gemm.TF32 }, "%s", where)
		case s.Conv != nil:
			add(func(p *lower.Program) { at(p).Conv.TF32 = !at(p).Conv.TF32 }, "%s", where)
		case s.Attn != nil:
			add(func(p *lower.Program) { at(p).Attn.TF32 = !at(p).Attn.TF32 }, "%s", where)
		}
	})
}

func epilogueOf(s *lower.Step) *lower.Epilogue {
	switch {
	case s.Gemm != nil:
		return &s.Gemm.Epilogue
	case s.Conv != nil:
		return &s.Conv.Epilogue
	}
	return nil
}

func epilogueDropped(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		e := epilogueOf(s)
		if e == nil {
			return
		}
		if e.Bias > 0 {
			add(func(p *lower.Program) { epilogueOf(at(p)).Bias = 0 }, "%s: bias", where)
		}
		if e.Residual > 0 {
			add(func(p *lower.Program) { epilogueOf(at(p)).Residual = 0 }, "%s: residual", where)
		}
		if e.Act != lower.NoAct {
			add(func(p *lower.Program) { epilogueOf(at(p)).Act = lower.NoAct }, "%s: activation", where)
		}
		if s.Epilogue != nil {
			add(func(p *lower.Program) { at(p).Epilogue = nil }, "%s: post-ops", where)
		}
	})
}

func epilogueDoubled(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		e := epilogueOf(s)
		if e == nil {
			return
		}
		if e.Act == lower.NoAct {
			add(func(p *lower.Program) { epilogueOf(at(p)).Act = lower.Relu }, "%s: an activation", where)
		} else {
			add(func(p *lower.Program) { epilogueOf(at(p)).Act = lower.Relu + lower.Tanh - e.Act }, "%s: another activation", where)
		}
		if e.Residual == 0 {
			for i, id := range s.In {
				if i > 0 && id != lower.None && len(s.Out) > 0 && p.Buffers[id].Size >= p.Buffers[s.Out[0]].Size {
					add(func(p *lower.Program) { epilogueOf(at(p)).Residual = i }, "%s: operand %d is added, too", where, i)
				}
			}
		}
		if e.Bias > 0 && e.Residual > 0 {
			add(func(p *lower.Program) { x := epilogueOf(at(p)); x.Bias, x.Residual = x.Residual, x.Bias }, "%s: bias and residual", where)
		}
	})
}

func convWindow(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Conv == nil {
			return
		}
		w := func(p *lower.Program) *ir.Window { return &at(p).Conv.Window }
		for d := range s.Conv.Window.In {
			add(func(p *lower.Program) { w(p).Stride[d]++ }, "%s: stride %d", where, d)
			add(func(p *lower.Program) { w(p).Begin[d]++; w(p).End[d]-- }, "%s: padding %d", where, d)
			add(func(p *lower.Program) { w(p).Dilation[d]++ }, "%s: dilation %d", where, d)
			add(func(p *lower.Program) { w(p).Out[d]-- }, "%s: size %d", where, d)
			add(func(p *lower.Program) { w(p).Kernel[d]-- }, "%s: taps %d", where, d)
		}
		add(func(p *lower.Program) { w(p).N-- }, "%s: images", where)
		add(func(p *lower.Program) { w(p).O-- }, "%s: channels out", where)
		add(func(p *lower.Program) { w(p).C-- }, "%s: channels in", where)
		add(func(p *lower.Program) { w(p).Groups++ }, "%s: groups", where)
		add(func(p *lower.Program) { w(p).Last = !w(p).Last }, "%s: layout", where)
	})
}

func convDir(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		for _, d := range []lower.ConvDir{lower.ConvForward, lower.ConvGradX, lower.ConvGradW} {
			if s.Conv != nil && s.Conv.Dir != d {
				add(func(p *lower.Program) { at(p).Conv.Dir = d }, "%s: %s", where, d)
			}
		}
	})
}

func attention(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Attn == nil {
			return
		}
		a := func(p *lower.Program) *lower.Attention { return at(p).Attn }
		add(func(p *lower.Program) { a(p).Scale *= 2 }, "%s: scale", where)
		add(func(p *lower.Program) { a(p).Causal = !a(p).Causal }, "%s: causal", where)
		add(func(p *lower.Program) { a(p).Heads, a(p).Batch = a(p).Batch, a(p).Heads }, "%s: heads and batch", where)
		add(func(p *lower.Program) { a(p).Keys-- }, "%s: keys", where)
		add(func(p *lower.Program) { a(p).Width-- }, "%s: width", where)
		if s.Attn.Mask > 0 {
			add(func(p *lower.Program) { a(p).Mask = 0 }, "%s: mask", where)
			for i, st := range s.Attn.MaskStrides {
				if st != 0 {
					add(func(p *lower.Program) { a(p).MaskStrides[i] = 0 }, "%s: mask's stride %d", where, i)
				}
			}
		}
	})
}

func kernels(p *lower.Program, f func(s *lower.Step, at func(p *lower.Program) *lower.Kernel, where string)) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Kernel != nil {
			f(s, func(p *lower.Program) *lower.Kernel { return at(p).Kernel }, where+" "+s.Kernel.Name)
		}
	})
}

func kernelName(p *lower.Program, add adder) {
	kernels(p, func(s *lower.Step, at func(*lower.Program) *lower.Kernel, where string) {
		kernels(p, func(o *lower.Step, _ func(*lower.Program) *lower.Kernel, _ string) {
			if o.Kernel.Name != s.Kernel.Name && len(o.In) == len(s.In) && len(o.Out) == len(s.Out) {
				name, op := o.Kernel.Name, o.Kernel.Node.Op
				add(func(p *lower.Program) { at(p).Name = name }, "%s: the kernel of %s", where, name)
				add(func(p *lower.Program) { at(p).Name = name; at(p).Node.Op = op }, "%s: the kernel and the op %s", where, name)
			}
		})
	})
}

func kernelAttr(p *lower.Program, add adder) {
	kernels(p, func(s *lower.Step, at func(*lower.Program) *lower.Kernel, where string) {
		for _, a := range s.Kernel.Node.Attrs {
			var other any
			switch v := s.Kernel.Node.Attrs.Get(a.Name).(type) {
			case float64:
				other = v*2 + 1
			case int64:
				other = v + 1
			case bool:
				other = !v
			case []int64:
				if len(v) > 0 {
					l := slices.Clone(v)
					l[0]++
					other = l
				}
			}
			if other != nil {
				add(func(p *lower.Program) { at(p).Node.Attrs = at(p).Node.Attrs.With(a.Name, other) }, "%s: %s is %v", where, a.Name, other)
			}
		}
	})
}

func kernelType(p *lower.Program, add adder) {
	kernels(p, func(s *lower.Step, at func(*lower.Program) *lower.Kernel, where string) {
		for i, v := range s.Kernel.Node.In {
			if v != nil {
				for _, d := range sameSize[v.Type.DType] {
					add(func(p *lower.Program) { at(p).Node.In[i].Type.DType = d }, "%s: operand %d of %s as %s", where, i, v.Type.DType, d)
				}
			}
		}
		for i, v := range s.Kernel.Node.Out {
			for _, d := range sameSize[v.Type.DType] {
				add(func(p *lower.Program) { at(p).Node.Out[i].Type.DType = d }, "%s: result %d of %s as %s", where, i, v.Type.DType, d)
			}
		}
	})
}

func normFusion(p *lower.Program, add adder) {
	kernels(p, func(s *lower.Step, at func(*lower.Program) *lower.Kernel, where string) {
		f := s.Kernel.Fusion
		if f.Relu || f.Residual > 0 {
			add(func(p *lower.Program) { at(p).Fusion.Relu = !at(p).Fusion.Relu }, "%s: relu", where)
		}
		if f.Residual > 0 {
			add(func(p *lower.Program) { at(p).Fusion.Residual = 0 }, "%s: residual dropped", where)
			add(func(p *lower.Program) { at(p).Fusion.Residual-- }, "%s: another residual", where)
		}
		if f.Sign > 0 {
			add(func(p *lower.Program) { at(p).Fusion.Sign = 0 }, "%s: gradient of the ReLU dropped", where)
			add(func(p *lower.Program) { at(p).Fusion.Sign-- }, "%s: another sign", where)
		}
		if f.Copy > 0 {
			add(func(p *lower.Program) { at(p).Fusion.Copy = 0 }, "%s: copy dropped", where)
		}
		if f.Prologue != nil {
			add(func(p *lower.Program) { at(p).Fusion.Made-- }, "%s: another register", where)
			add(func(p *lower.Program) { at(p).Fusion.Prologue = nil }, "%s: prologue dropped", where)
		}
		if f.Epilogue != nil {
			add(func(p *lower.Program) { at(p).Fusion.Epilogue = nil }, "%s: epilogue dropped", where)
		}
		if f.Total != nil {
			add(func(p *lower.Program) { at(p).Fusion.Total = nil }, "%s: sum over rows dropped", where)
			add(func(p *lower.Program) { at(p).Fusion.Total.Reg-- }, "%s: another register is summed", where)
			add(func(p *lower.Program) { at(p).Fusion.Total.Out-- }, "%s: the sum is another result", where)
		}
	})
}

func poolOf(p *lower.Program, add adder) {
	kernels(p, func(s *lower.Step, at func(*lower.Program) *lower.Kernel, where string) {
		if s.Kernel.Pool == nil || p.Target != lower.CPU { // elsewhere it is a hint
			return
		}
		add(func(p *lower.Program) { at(p).Pool = nil }, "%s: no window", where)
		add(func(p *lower.Program) {
			w := *at(p).Pool
			w.Begin = slices.Clone(w.Begin)
			w.Begin[0]++
			at(p).Pool = &w
		}, "%s: another window", where)
		add(func(p *lower.Program) { at(p).InPlace = true }, "%s: in place", where)
	})
}

func moves(p *lower.Program, add adder) {
	each(p, func(s *lower.Step, at func(*lower.Program) *lower.Step, where string) {
		if s.Moves == nil {
			return
		}
		m := func(p *lower.Program) *lower.Moves { return at(p).Moves }
		add(func(p *lower.Program) { m(p).Filled = !m(p).Filled }, "%s: filled", where)
		if s.Moves.Filled {
			add(func(p *lower.Program) { m(p).Value++ }, "%s: value", where)
		}
		for i, x := range s.Moves.List {
			add(func(p *lower.Program) { m(p).List = slices.Delete(m(p).List, i, i+1) }, "%s: move %d lost", where, i)
			add(func(p *lower.Program) { m(p).List[i].Src.Offset++ }, "%s: source %d one further", where, i)
			add(func(p *lower.Program) { m(p).List[i].Dst.Offset++ }, "%s: destination %d one further", where, i)
			if x.From > 0 {
				add(func(p *lower.Program) { m(p).List[i].From-- }, "%s: source %d is another operand", where, i)
			}
			for d, n := range x.Shape {
				if n > 1 {
					add(func(p *lower.Program) { m(p).List[i].Shape[d]-- }, "%s: move %d is shorter", where, i)
					add(func(p *lower.Program) { m(p).List[i].Src.Strides[d] = 0 }, "%s: source %d repeats", where, i)
					for e := range d {
						if x.Shape[e] == n {
							add(func(p *lower.Program) { l := m(p).List[i].Src.Strides; l[d], l[e] = l[e], l[d] }, "%s: strides of source %d", where, i)
						}
					}
				}
			}
		}
	})
}
