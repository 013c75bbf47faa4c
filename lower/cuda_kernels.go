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

// cudaKernel is how a row runs on a GPU: what emits its launches, which nodes
// that takes (nil: all), and which operand numbers elements (0: none does):
// kernels take i32 and i64 there, bytes are widened first.
type cudaKernel struct {
	emit  func(c *cudaCall) error
	takes func(n *ir.Node) bool
	ids   int
}

// cudaKernels holds the rows that have launches of their own on a GPU. A node
// that none takes is expanded where its row says how, and refused by Check
// where it does not.
var cudaKernels = map[string]cudaKernel{
	"any_nonfinite":          {(*cudaCall).anyNonfinite, floatsIn, 0},
	"global_norm":            {(*cudaCall).globalNorm, floatsIn, 0},
	"cross_entropy":          {(*cudaCall).crossEntropy, classLogits, 1},
	"cross_entropy_grad":     {(*cudaCall).crossEntropyGrad, classLogits, 1},
	"reduce_sum":             {reduction("sum", 0, false), numbers, 0},
	"reduce_mean":            {reduction("sum", 1, false), floatsOnly, 0},
	"reduce_prod":            {reduction("prod", 0, false), floatsOnly, 0},
	"reduce_max":             {reduction("max", 0, false), numbers, 0},
	"reduce_min":             {reduction("min", 0, false), numbers, 0},
	"reduce_l1":              {reduction("l1", 0, false), floatsOnly, 0},
	"reduce_l2":              {reduction("sumsq", 0, true), floatsOnly, 0},
	"reduce_var":             {rowStat(false), floatsOnly, 0},
	"logsumexp":              {rowStat(true), floatsOnly, 0},
	"sum_to":                 {(*cudaCall).sumTo, floatsOnly, 0},
	"cumsum":                 {(*cudaCall).cumsum, floatsOnly, 0},
	"argmax":                 {arg(false), countable, 0},
	"argmin":                 {arg(true), countable, 0},
	"topk":                   {(*cudaCall).topK, countable, 0},
	"softmax":                {softmax(false), shortLastRows, 0},
	"log_softmax":            {softmax(true), shortLastRows, 0},
	"softmax_grad":           {softmaxGrad(false), sameFloats, 0},
	"log_softmax_grad":       {softmaxGrad(true), sameFloats, 0},
	"layer_norm":             {(*cudaCall).norm, rowNorm, 0},
	"layer_norm_grad":        {(*cudaCall).normGrad, rowNorm, 0},
	"rms_norm":               {(*cudaCall).norm, rowNorm, 0},
	"rms_norm_grad":          {(*cudaCall).normGrad, rowNorm, 0},
	"batch_norm":             {(*cudaCall).batchNorm, channelNorm, 0},
	"batch_norm_grad":        {(*cudaCall).batchNormGrad, channelGrad, 0},
	"batch_norm_infer":       {(*cudaCall).batchNormInfer, channelNorm, 0},
	"group_norm":             {(*cudaCall).groupNorm, groupedNorm, 0},
	"group_norm_grad":        {(*cudaCall).groupNormGrad, groupedNorm, 0},
	"instance_norm":          {(*cudaCall).groupNorm, groupedNorm, 0},
	"embedding":              {(*cudaCall).embedding, nil, 1},
	"embedding_grad":         {(*cudaCall).embeddingGrad, floatData, 1},
	"gather":                 {(*cudaCall).gather, nil, 1},
	"gather_elements":        {(*cudaCall).gatherElements, nil, 1},
	"scatter":                {scatter(false), nil, 1},
	"scatter_add":            {scatter(true), floatData, 1},
	"iota":                   {(*cudaCall).iota, nil, 0},
	"tril":                   {triangle(false), nil, 0},
	"triu":                   {triangle(true), nil, 0},
	"one_hot":                {(*cudaCall).oneHot, nil, 0},
	"concat":                 {(*cudaCall).concat, nil, 0},
	"rope":                   {(*cudaCall).rope, floatData, 0},
	"pad":                    {(*cudaCall).pad, nil, 0},
	"resize":                 {resize(false), spatial, 0},
	"resize_grad":            {resize(true), spatial, 0},
	"adaptive_avg_pool":      {adaptivePool(false), spatial, 0},
	"adaptive_avg_pool_grad": {adaptivePool(true), spatial, 0},
	"max_pool":               {(*cudaCall).maxPool, images, 0},
	"max_pool_grad":          {(*cudaCall).maxPoolGrad, images, 1},
	"avg_pool":               {(*cudaCall).avgPool, images, 0},
	"avg_pool_grad":          {(*cudaCall).avgPoolGrad, images, 0},
}

// gpuRules says which nodes of the ops with a rule of their own a GPU takes;
// ops that are absent are taken as they are.
var gpuRules = map[ir.Op]func(n *ir.Node) bool{
	ir.OpAttention: never, ir.OpAttentionGrad: never, ir.OpConvTranspose: never,
	ir.OpMatmul: factors, ir.OpLinear: factors, ir.OpAnyNonfinite: floatsIn,
}

// gpuWhole are ops whose parts treat NaN and infinities otherwise than the op:
// a GPU runs them whole or not at all.
var gpuWhole = map[ir.Op]bool{
	ir.OpCrossEntropy: true, ir.OpCrossEntropyGrad: true,
}

// widenIDs makes i32 of ids that are bytes.
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
	if d.Elem != nil {
		return !beyondF32(n)
	}
	return d.Is(ir.View) || k.emit != nil && (k.takes == nil || k.takes(n))
}

// factors takes products of what cuBLASLt is asked for.
func factors(n *ir.Node) bool {
	return multiplied[n.In[0].Type.DType] && multiplied[n.In[1].Type.DType]
}

// onlyF32 are the primitives that a GPU has in f32 alone.
var onlyF32 = map[ir.Prim]bool{
	ir.PFloor: true, ir.PCeil: true, ir.PRint: true, ir.PExp: true, ir.PExpm1: true, ir.PLog: true, ir.PLog1p: true,
	ir.PSin: true, ir.PCos: true, ir.PTan: true, ir.PAtan: true, ir.PErf: true, ir.PTanh: true, ir.PPow: true,
}

// beyondF32 reports whether an elementwise node asks for one of them in f64.
func beyondF32(n *ir.Node) bool {
	code, _ := ir.NodeCode(n)
	return slices.ContainsFunc(code.Ins, func(i ir.Instr) bool { return onlyF32[i.Op] && i.Type == ir.F64 })
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
func (c *cudaCall) dims(id BufferID) []int64 { return ir.Sizes(c.typeOf(id).Shape) }

// floats fails where a buffer holds anything that the kernels do not compute in f32.
func (c *cudaCall) floats(ids ...BufferID) error {
	for _, id := range ids {
		if d := c.typeOf(id).DType; d != ir.F32 && d != ir.F16 && d != ir.BF16 {
			return fmt.Errorf("no kernel for elements of %s on %s", d, c.l.p.Target)
		}
	}
	return nil
}
