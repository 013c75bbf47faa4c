package sm

import (
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// cudaCall is a kernel step while it is turned into launches.
type cudaCall struct {
	*cudaLowerer
	s *lower.Step
	n *ir.Node
}

// cudaKernel says how a row runs on a GPU: the function that emits its launches,
// the predicate of the nodes that it supports (nil: all), and the operand that
// holds indices (0: none). Kernels take i32 and i64 indices; bytes are widened
// first.
type cudaKernel struct {
	emit  func(c *cudaCall) error
	takes func(n *ir.Node) bool
	ids   int
}

// cudaKernels holds the rows that have their own launches on a GPU. Each entry is in the table of
// the file that has its function. A node without an entry is expanded if its row has an expansion;
// otherwise Check refuses it.
var cudaKernels = joined(channelGradKernels, channelsKernels, collectiveKernels, groupsKernels, imageKernels, indexKernels, lossKernels, normKernels, reduceKernels, rowsKernels, statsKernels)

// joined is one table of all entries.
func joined(tables ...map[ir.Op]cudaKernel) map[ir.Op]cudaKernel {
	all := map[ir.Op]cudaKernel{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// gpuRules are the predicates of nodes that a GPU supports, for ops with lowering
// rules of their own; an absent op is always supported.
var gpuRules = map[ir.Op]func(n *ir.Node) bool{
	ir.OpAttention: never, ir.OpAttentionGrad: never, ir.OpConvTranspose: never,
	ir.OpMatmul: factors, ir.OpLinear: factors, ir.OpAnyNonfinite: floatsIn,
}

// widenIDs converts ids that are bytes to i32.
func (c *cudaCall) widenIDs(operand int) error {
	if operand == 0 || c.typeOf(c.s.In[operand]).DType != ir.U8 {
		return nil
	}
	s := *c.s
	s.In = slices.Clone(s.In)
	narrow := s.In[operand]
	s.In[operand] = c.temp("ids", ir.I32, c.dims(narrow)...)
	c.s = &s
	return c.cast(narrow, s.In[operand])
}

func never(*ir.Node) bool { return false }

// runs reports whether a node lowers to launches and library calls of t.
func (t Target) runs(n *ir.Node) bool {
	if !n.Out[0].Type.Shape.Static() || t.graphs(n) || storesNothing(n) {
		return true // Check refuses sizes that are not static
	}
	if unstored(n) != ir.Invalid {
		return false
	}
	if takes, ok := gpuRules[n.Op]; ok {
		return takes(n)
	}
	if n.Def().Elem != nil {
		return !beyondF32(n)
	}
	k := cudaKernels[n.Op]
	return !lower.IsKernel(n) || k.emit != nil && (k.takes == nil || k.takes(n))
}

// unstored is a dtype of n that GPUs have no kernels for, or Invalid if there is
// none.
func unstored(n *ir.Node) ir.DType {
	for _, list := range [2][]*ir.Value{n.In, n.Out} {
		for _, v := range list {
			if v == nil {
				continue
			}
			if _, ok := ptxType(v.Type.DType); !ok {
				return v.Type.DType
			}
		}
	}
	return ir.Invalid
}

// factors reports whether the node is a product of dtypes for which cuBLASLt is used.
func factors(n *ir.Node) bool {
	return multiplied[n.In[0].Type.DType] && multiplied[n.In[1].Type.DType]
}

// onlyF32 are the primitives that a GPU has only in f32.
var onlyF32 = map[ir.Prim]bool{
	ir.PFloor: true, ir.PCeil: true, ir.PRint: true, ir.PExp: true, ir.PExpm1: true, ir.PLog: true, ir.PLog1p: true,
	ir.PSin: true, ir.PCos: true, ir.PTan: true, ir.PAtan: true, ir.PErf: true, ir.PTanh: true, ir.PPow: true,
}

// beyondF32 reports whether an elementwise node uses one of onlyF32 in f64.
func beyondF32(n *ir.Node) bool {
	code, _ := ir.NodeCode(n)
	return slices.ContainsFunc(code.Ins, func(i ir.Instr) bool { return onlyF32[i.Op] && i.Type == ir.F64 })
}

func storesNothing(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return !v.Type.Shape.Static() || v.Type.Shape.Elements() > 0 })
}

// floatsIn reports whether all operands are f32 or 16-bit floats.
func floatsIn(n *ir.Node) bool {
	return floatsOnly(&ir.Node{In: n.In})
}

// floatData reports whether the first operand and the results are f32 or 16-bit
// floats.
func floatData(n *ir.Node) bool { return floatsOnly(&ir.Node{In: n.In[:1], Out: n.Out}) }

// elem is the ptx type of a buffer's elements.
func (c *cudaCall) elem(id lower.BufferID) ptx.DType { return ptx.DType(c.typeOf(id).DType.String()) }

// launch emits one kernel of the call; build is a generator's method.
func (c *cudaCall) launch(kind string, build func(ptx.Flavour) (*ptx.Launch, error), args ...lower.BufferID) error {
	k, err := build(c.fl)
	if err != nil {
		return err
	}
	return c.cudaLowerer.launch(kind, k, args...)
}

// dims are the sizes of a buffer.
func (c *cudaCall) dims(id lower.BufferID) []int64 { return ir.Sizes(c.typeOf(id).Shape) }

// floats returns an error if a buffer has a dtype that the kernels do not compute
// in f32.
func (c *cudaCall) floats(ids ...lower.BufferID) error {
	for _, id := range ids {
		if d := c.typeOf(id).DType; d != ir.F32 && d != ir.F16 && d != ir.BF16 {
			return fmt.Errorf("no kernel for elements of %s on %s", d, c.p.Target)
		}
	}
	return nil
}
