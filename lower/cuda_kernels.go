package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ptx"
)

// cudaCall is a kernel step being turned into launches.
type cudaCall struct {
	*cudaLowerer
	s *Step
	n *ir.Node
}

// cudaKernels holds the rows that have launches of their own on a GPU. A row
// that is missing here is expanded where its row says how, and refused by
// Check where it does not.
var cudaKernels = map[string]func(c *cudaCall) error{
	"any_nonfinite":      (*cudaCall).anyNonfinite,
	"global_norm":        (*cudaCall).globalNorm,
	"cross_entropy":      (*cudaCall).crossEntropy,
	"cross_entropy_grad": (*cudaCall).crossEntropyGrad,
	"reduce_sum":         reduction("sum", 0, false),
	"reduce_mean":        reduction("sum", 1, false),
	"reduce_prod":        reduction("prod", 0, false),
	"reduce_max":         reduction("max", 0, false),
	"reduce_min":         reduction("min", 0, false),
	"reduce_l1":          reduction("l1", 0, false),
	"reduce_l2":          reduction("sumsq", 0, true),
}

// onGPU reports whether a node lowers to launches.
func onGPU(n *ir.Node) bool {
	if slices.Contains(gpuExpanded, n.Op) {
		return false
	}
	if _, ok := rules[n.Op]; ok {
		return true
	}
	d := n.Def()
	return d.Elem != nil || d.Is(ir.View) || cudaKernels[d.Name] != nil
}

// gpuExpanded are the ops with a rule of their own that a GPU runs in parts.
var gpuExpanded = []ir.Op{ir.OpAttention, ir.OpAttentionGrad}

// elem is the ptx type of a buffer's elements.
func (c *cudaCall) elem(id BufferID) ptx.DType { return ptx.DType(c.typeOf(id).DType.String()) }

// launch emits one kernel of the call; build is a generator's method.
func (c *cudaCall) launch(kind string, build func(ptx.Flavour) (*ptx.Launch, error), args ...BufferID) error {
	k, err := build(c.fl)
	if err != nil {
		return err
	}
	return c.cudaLowerer.launch(kind, k, args...)
}

// dims are the sizes of operand i.
func (c *cudaCall) dims(id BufferID) []int64 { return sizes(c.typeOf(id).Shape) }

// floats fails where a buffer holds anything that the kernels do not compute in f32.
func (c *cudaCall) floats(ids ...BufferID) error {
	for _, id := range ids {
		if d := c.typeOf(id).DType; d != ir.F32 && d != ir.F16 && d != ir.BF16 {
			return fmt.Errorf("no kernel for elements of %s on %s", d, c.l.p.Target)
		}
	}
	return nil
}
