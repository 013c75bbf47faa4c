package sm

import (
	"fmt"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Fusion of norms over rows on a GPU. The elementwise step that computes the operand of the norm,
// or dy of its gradient, and one that reads the result run inside the norm's kernel. A residual
// connection is then added where the sum is normalized, and its gradient where the norm's gradient
// is computed.

// rowFusion is what the kernel of a norm over rows runs besides its row. A gradient whose sums over
// rows are a second pass reads dy twice.
func rowFusion(n *ir.Node) ir.RowFusion {
	operand := n.NormOperand()
	if n.Def().Norm == nil || !n.In[0].Type.Shape.Static() || n.In[0].Type.Shape.Elements() == 0 {
		return ir.RowFusion{Operand: -1}
	}
	if operand == 1 && len(n.Out) > 1 && normKernel(n).Partials() == 0 {
		operand = -1
	}
	_, cols := normRows(n)
	return ir.RowFusion{Cols: int64(cols), Operand: operand, Epilogue: true, Sums: operand == 1 && normKernel(n).Partials() > 0}
}

// surround adds the prologue and epilogue to a norm's kernel, and returns the arguments before and
// after the norm's own.
func (c *cudaCall) surround(k *ptx.Norm, x, y lower.BufferID) (loads, more, stores []lower.BufferID, err error) {
	fusion := c.s.Kernel.Fusion
	loads, stores = []lower.BufferID{x}, []lower.BufferID{y}
	if g := fusion.Prologue; g != nil {
		pg, err := c.ptxElementwise(g)
		if err != nil {
			return nil, nil, nil, err
		}
		k.Before, k.X = &pg, int(fusion.Made)
		loads = buffersOf(g.Loads)
	}
	if g := fusion.Epilogue; g != nil {
		pg, err := c.ptxElementwise(g)
		if err != nil {
			return nil, nil, nil, err
		}
		for i := range pg.Loads { // names that differ from those before
			pg.Loads[i].Name = fmt.Sprint("m", i)
		}
		for i := range pg.Stores {
			pg.Stores[i].Name = fmt.Sprint("t", i)
		}
		k.After = &pg
		more, stores = buffersOf(g.Loads[1:]), buffersOf(g.Stores)
	}
	if fusion.Total != nil {
		k.Sums = []int{int(fusion.Total.Reg)}
	}
	if fusion.Prologue != nil {
		stores = append(buffersOf(fusion.Prologue.Stores), stores...)
	}
	return loads, more, stores, nil
}

func buffersOf(list []lower.Access) (ids []lower.BufferID) {
	for i := range list {
		ids = append(ids, list[i].Buffer)
	}
	return ids
}
