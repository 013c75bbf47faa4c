package sm

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// The gradient of a ReLU reads only whether its result is above zero. If a batch norm's kernel
// computes the ReLU, it also stores these signs as bits, for the gradient of a batch norm to read in
// place of the result: an eighth of a byte for each element in place of two or four. The plan says
// where (ir.Caps.Signs).

// comparesSign is the load of which instruction in asks if it is above zero; -1 for other
// instructions.
func comparesSign(g *lower.Cluster, in ir.Instr) int {
	if in.Op != ir.PLt || g.Code[in.B].Op != ir.PIn || g.Code[in.A].Op != ir.PConst || g.Code[in.A].Imm != 0 {
		return -1
	}
	return int(g.Code[in.B].Int)
}

// signsFor is where the signs of load k of the code before the gradients are stored; None: the code
// reads the elements.
func (g *channelGrads) signsFor(k int) lower.BufferID {
	if at := g.before.Loads[k].Signs; at > 0 {
		return g.s.In[at]
	}
	return lower.None
}

// storeSigns stores the signs of register y of a pass, as they are in buffer id, to which the pass
// stores y.
func (c *cudaCall) storeSigns(p *channelPass, y ir.Reg, id, bits lower.BufferID) {
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
