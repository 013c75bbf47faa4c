package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// The gradient of a ReLU reads only whether its result is above zero. If a batch norm's kernel
// computes the ReLU of a sum, it also stores these signs as bits, for the gradient of a batch norm
// to read in place of the result: an eighth of a byte for each element in place of two or four.

// signsRead finds the results of ReLUs of which gradients of batch norms read only the signs, and
// which they cannot compute from x.
func (c *cudaLowerer) signsRead() map[lower.BufferID]lower.BufferID {
	made, list := map[lower.BufferID]bool{}, map[lower.BufferID]lower.BufferID{}
	for i := range c.p.Parts[lower.Micro] {
		s := &c.p.Parts[lower.Micro][i]
		if s.Kind != lower.KindKernel {
			continue
		}
		call := &cudaCall{c, s, s.Kernel.Node}
		f := s.Kernel.Fusion
		switch op := s.Kernel.Node.Op; {
		case (op == ir.OpBatchNorm || op == ir.OpBatchNormInfer) && f.Relu && call.wholeBytes():
			made[c.p.Buffers[s.Out[0]].Root] = true
			if f.Copy > 0 {
				made[c.p.Buffers[s.Out[f.Copy]].Root] = true
			}
		case op == ir.OpBatchNormGrad && f.Prologue != nil:
			g := &channelGrads{cudaCall: call, before: f.Prologue}
			for k, a := range f.Prologue.Loads {
				if root := c.p.Buffers[a.Buffer].Root; made[root] && !g.known(a.Buffer) && onlySign(f.Prologue, k, f.Made) && call.wholeBytes() {
					list[root] = lower.None
				}
			}
		}
	}
	return list
}

// wholeBytes reports whether the elements that a thread processes at once are a byte of bits.
func (c *cudaCall) wholeBytes() bool {
	k := c.images()
	if k.Inner == 1 {
		return k.C%8 == 0
	}
	return k.Inner%8 == 0
}

// onlySign reports whether the code of g uses load k only to ask if it is above zero. Register made
// is the code's result.
func onlySign(g *lower.Cluster, k int, made ir.Reg) bool {
	for r, in := range g.Code {
		if in.Op == ir.PIn && in.Int == int64(k) && (ir.Reg(r) == made || slices.ContainsFunc(g.Stores, func(a lower.Access) bool { return a.Reg == ir.Reg(r) })) {
			return false
		}
		for i, x := range []ir.Reg{in.A, in.B, in.C}[:ir.Prims[in.Op].Args] {
			if from := g.Code[x]; from.Op == ir.PIn && from.Int == int64(k) && (i != 1 || comparesSign(g, in) != k) {
				return false
			}
		}
	}
	return true
}

// comparesSign is the load of which instruction in asks if it is above zero; -1 for other
// instructions.
func comparesSign(g *lower.Cluster, in ir.Instr) int {
	if in.Op != ir.PLt || g.Code[in.B].Op != ir.PIn || g.Code[in.A].Op != ir.PConst || g.Code[in.A].Imm != 0 {
		return -1
	}
	return int(g.Code[in.B].Int)
}

// signsFor is where the signs of load k of the code before the gradients are stored; None: nowhere,
// or the code reads more than signs.
func (g *channelGrads) signsFor(k int) lower.BufferID {
	id := g.before.Loads[k].Buffer
	bits, ok := g.signs[g.p.Buffers[id].Root]
	if !ok || g.known(id) || !onlySign(g.before, k, g.s.Kernel.Fusion.Made) {
		return lower.None
	}
	return bits
}

// storeSigns stores, if gradients read them, the signs of register y of a pass, as they are in the
// buffer to which the pass stores y.
func (c *cudaCall) storeSigns(p *channelPass, y ir.Reg, id lower.BufferID) {
	root := c.p.Buffers[id].Root
	if _, read := c.signs[root]; !read {
		return
	}
	bits := c.temp("signs", ir.U8, lower.Count(p.Shape)/8)
	c.signs[root] = bits
	p.Stores = append(p.Stores, lower.Access{Buffer: bits, DType: ir.U8, Strides: ir.RowMajor(p.Shape), Bits: true, Reg: p.Lt(p.F(0), p.rounded(y, c.typeOf(id).DType))})
}

// bits loads the bit of an element of images.
func (p *channelPass) bits(id lower.BufferID) ir.Reg {
	at := slices.IndexFunc(p.Loads, func(a lower.Access) bool { return a.Buffer == id })
	if at < 0 {
		at = len(p.Loads)
		p.Loads = append(p.Loads, lower.Access{Buffer: id, DType: ir.U8, Strides: ir.RowMajor(p.Shape), Bits: true})
	}
	return load(p.Code, at, ir.Bool)
}
