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

// cudaKernel is how a row runs on a GPU: what emits its launches, and which
// nodes that takes (nil: all).
type cudaKernel struct {
	emit  func(c *cudaCall) error
	takes func(n *ir.Node) bool
}

// cudaKernels holds the rows that have launches of their own on a GPU. A node
// that none takes is expanded where its row says how, and refused by Check
// where it does not.
var cudaKernels = map[string]cudaKernel{
	"any_nonfinite":          {(*cudaCall).anyNonfinite, floatsIn},
	"global_norm":            {(*cudaCall).globalNorm, floatsIn},
	"cross_entropy":          {(*cudaCall).crossEntropy, classLogits},
	"cross_entropy_grad":     {(*cudaCall).crossEntropyGrad, classLogits},
	"reduce_sum":             {reduction("sum", 0, false), numbers},
	"reduce_mean":            {reduction("sum", 1, false), floatsOnly},
	"reduce_prod":            {reduction("prod", 0, false), floatsOnly},
	"reduce_max":             {reduction("max", 0, false), numbers},
	"reduce_min":             {reduction("min", 0, false), numbers},
	"reduce_l1":              {reduction("l1", 0, false), floatsOnly},
	"reduce_l2":              {reduction("sumsq", 0, true), floatsOnly},
	"reduce_var":             {rowStat(false), floatsOnly},
	"logsumexp":              {rowStat(true), floatsOnly},
	"sum_to":                 {(*cudaCall).sumTo, floatsOnly},
	"cumsum":                 {(*cudaCall).cumsum, floatsOnly},
	"argmax":                 {arg(false), countable},
	"argmin":                 {arg(true), countable},
	"topk":                   {(*cudaCall).topK, countable},
	"softmax":                {softmax(false), shortLastRows},
	"log_softmax":            {softmax(true), shortLastRows},
	"softmax_grad":           {softmaxGrad(false), sameFloats},
	"log_softmax_grad":       {softmaxGrad(true), sameFloats},
	"embedding":              {(*cudaCall).embedding, nil},
	"embedding_grad":         {(*cudaCall).embeddingGrad, nil},
	"gather":                 {(*cudaCall).gather, nil},
	"gather_elements":        {(*cudaCall).gatherElements, nil},
	"scatter":                {scatter(false), nil},
	"scatter_add":            {scatter(true), floatData},
	"iota":                   {(*cudaCall).iota, nil},
	"tril":                   {triangle(false), nil},
	"triu":                   {triangle(true), nil},
	"one_hot":                {(*cudaCall).oneHot, nil},
	"concat":                 {(*cudaCall).concat, nil},
	"rope":                   {(*cudaCall).rope, floatData},
	"pad":                    {(*cudaCall).pad, nil},
	"resize":                 {resize(false), spatial},
	"resize_grad":            {resize(true), spatial},
	"adaptive_avg_pool":      {adaptivePool(false), spatial},
	"adaptive_avg_pool_grad": {adaptivePool(true), spatial},
	"max_pool":               {(*cudaCall).maxPool, images},
	"max_pool_grad":          {(*cudaCall).maxPoolGrad, images},
	"avg_pool":               {(*cudaCall).avgPool, images},
	"avg_pool_grad":          {(*cudaCall).avgPoolGrad, images},
}

// gpuRules says which nodes of the ops with a rule of their own a GPU takes;
// ops that are absent are taken as they are.
var gpuRules = map[ir.Op]func(n *ir.Node) bool{
	ir.OpAttention: never, ir.OpAttentionGrad: never, ir.OpConvTranspose: never,
}

// gpuWhole are ops whose parts treat NaN and infinities otherwise than the op:
// a GPU runs them whole or not at all.
var gpuWhole = map[ir.Op]bool{
	ir.OpCrossEntropy: true, ir.OpCrossEntropyGrad: true,
}

func never(*ir.Node) bool { return false }

// onGPU reports whether a node lowers to launches and library calls of t.
func onGPU(n *ir.Node, t Target) bool {
	if !n.Out[0].Type.Shape.Static() || t.graphs(n) || storesNothing(n) {
		return true // Check says what is not static by itself
	}
	if takes, ok := gpuRules[n.Op]; ok {
		return takes(n)
	}
	if _, ok := rules[n.Op]; ok {
		return true
	}
	d := n.Def()
	k := cudaKernels[d.Name]
	return d.Elem != nil || d.Is(ir.View) || k.emit != nil && (k.takes == nil || k.takes(n))
}

func storesNothing(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return !v.Type.Shape.Static() || v.Type.Shape.Elements() > 0 })
}

// floatsIn takes nodes whose operands are f32 or lower.
func floatsIn(n *ir.Node) bool {
	return floatsOnly(&ir.Node{In: n.In})
}

// floatData takes nodes whose first operand and results are f32 or lower.
func floatData(n *ir.Node) bool { return floatsOnly(&ir.Node{In: n.In[:1], Out: n.Out}) }

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

// dims are the sizes of a buffer.
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
