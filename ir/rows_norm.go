package ir

import (
	"fmt"
	"math"
)

// Norms read x in any dtype, compute in f32 and store their statistics in f32. A gradient row reads
// the statistics that its norm saved. It returns dx, and dscale and dbias if there is a scale.
var normRows = map[Op]Def{
	OpLayerNorm: {
		Name: "layer_norm", Nonfinite: only(added, "x", "scale", "bias"), Doc: "(x − mean)/√(var + eps)·scale + bias over the last dims dimensions; saves mean and 1/√(var+eps).",
		In: normIn("scale", "bias"), Out: normOut("mean", "rstd"), Attrs: []AttrDef{epsAttr, dimsAttr},
		Flags: Norm, Class: Keep, Why: normWhy, Norm: byRows, Infer: inferLayerNorm, Bound: boundNorm, Cost: flops(0, 8), Range: rangeNorm,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.normGrad(OpLayerNormGrad, n, d, A("dims", n.Int("dims")))
			return []*Value{b.addStatGrads(n, g[0], d), g[1], g[2]}
		},
		Expand: expandNorm,
	},
	OpLayerNormGrad: {
		Name: "layer_norm_grad", Nonfinite: only(added, "dy"), Doc: "The gradients of layer_norm.",
		In: normGradIn("mean", "rstd"), Out: normGradOut, Attrs: []AttrDef{dimsAttr},
		Class: Keep, Why: normWhy, Unit: UnitProduct, GradOf: OpLayerNorm, Norm: byRows, Infer: inferLayerNormGrad, Bound: boundNorm, Cost: flops(0, 14), Expand: expandNormGrad,
	},
	OpRMSNorm: {
		Name: "rms_norm", Nonfinite: only(added, "x", "scale"), Doc: "x/√(mean x² + eps)·scale over the last dims dimensions; saves 1/√(mean x² + eps).",
		In: normIn("scale"), Out: normOut("rstd"), Attrs: []AttrDef{epsAttr, dimsAttr},
		Flags: Norm, Class: Keep, Why: normWhy, Norm: byRMS, Infer: inferLayerNorm, Bound: boundNorm, Cost: flops(0, 5), Range: rangeNorm,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.normGrad(OpRMSNormGrad, n, d, A("dims", n.Int("dims")))
			return []*Value{b.addStatGrads(n, g[0], d), g[1]}
		},
		Expand: expandNorm,
	},
	OpRMSNormGrad: {
		Name: "rms_norm_grad", Nonfinite: only(added, "dy"), Doc: "The gradients of rms_norm.",
		In: normGradIn("rstd"), Out: normGradOut[:2], Attrs: []AttrDef{dimsAttr},
		Class: Keep, Why: normWhy, Unit: UnitProduct, GradOf: OpRMSNorm, Norm: byRMS, Infer: inferLayerNormGrad, Bound: boundNorm, Cost: flops(0, 9), Expand: expandNormGrad,
	},
	OpGroupNorm: {
		Name: "group_norm", Nonfinite: only(added, "x", "scale", "bias"), Doc: "Normalizes each of groups groups of channels over itself and all positions; saves mean and rstd [N,groups].",
		In: normIn("scale", "bias"), Out: normOut("mean", "rstd"), Attrs: []AttrDef{epsAttr, groupsAttr, layoutAttr},
		Flags: Norm, Class: Keep, Why: normWhy, Norm: byGroups, Infer: inferGroupNorm, Bound: boundNorm, Cost: flops(0, 8), Range: rangeNorm,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.normGrad(OpGroupNormGrad, n, d, n.sameWindow())
			return []*Value{b.addStatGrads(n, g[0], d), g[1], g[2]}
		},
		Expand: expandNorm,
	},
	OpGroupNormGrad: {
		Name: "group_norm_grad", Nonfinite: only(added, "dy"), Doc: "The gradients of group_norm, and of instance_norm with as many groups as channels.",
		In: normGradIn("mean", "rstd"), Out: normGradOut, Attrs: []AttrDef{groupsAttr, layoutAttr},
		Class: Keep, Why: normWhy, Unit: UnitProduct, GradOf: OpGroupNorm, Norm: byGroups, Infer: inferGroupNormGrad, Bound: boundNorm, Cost: flops(0, 14), Expand: expandNormGrad,
	},
	OpInstanceNorm: {
		Name: "instance_norm", Nonfinite: only(added, "x", "scale", "bias"), Doc: "Normalizes each channel of each image over its positions; saves mean and rstd [N,C].",
		In: normIn("scale", "bias"), Out: normOut("mean", "rstd"), Attrs: []AttrDef{epsAttr, layoutAttr},
		Flags: Norm, Class: Keep, Why: normWhy, Norm: byGroups, Infer: inferGroupNorm, Bound: boundNorm, Cost: flops(0, 8), Range: rangeNorm,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.normGrad(OpGroupNormGrad, n, d, windowOf(n, "groups", int64(max(n.channels(), 1))))
			return []*Value{b.addStatGrads(n, g[0], d), g[1], g[2]}
		},
		Expand: expandNorm,
	},
	OpBatchNorm: {
		Name: "batch_norm", Nonfinite: only(added, "x", "scale", "bias"), Doc: "Normalizes each channel over batch and positions. new_mean and new_var are the pending next values of the running statistics: old + momentum·(batch − old), the variance unbiased.",
		In:    append(normIn("scale", "bias"), stat("running_mean", true), stat("running_var", true)),
		Out:   append(normOut("mean", "rstd"), Result{Name: "new_mean", Class: Fixed, Optional: true}, Result{Name: "new_var", Class: Fixed, Optional: true}),
		Attrs: []AttrDef{epsAttr, {Name: "momentum", Kind: AttrFloat, Takes: ZeroToOne, Default: 0.1, Doc: "weight of this batch in the running statistics"}, layoutAttr},
		Flags: Norm, Batch: batchRows, Class: Keep, Why: normWhy, Norm: byChannels, Infer: inferBatchNorm, Bound: boundNorm, Cost: flops(0, 8), Range: rangeNorm,
		Grad: func(b *Builder, n *Node, d []*Value) []*Value {
			g := b.normGrad(OpBatchNormGrad, n, d, n.sameWindow())
			return append([]*Value{b.addStatGrads(n, g[0], d), g[1], g[2]}, nil, nil)[:len(n.In)]
		},
		Expand: expandNorm,
	},
	OpBatchNormGrad: {
		Name: "batch_norm_grad", Nonfinite: only(added, "dy"), Doc: "The gradients of batch_norm.",
		In: normGradIn("mean", "rstd"), Out: normGradOut, Attrs: []AttrDef{layoutAttr},
		Class: Keep, Why: normWhy, Unit: UnitProduct, GradOf: OpBatchNorm, Norm: byChannels, Infer: inferBatchNormGrad, Bound: boundNorm, Cost: flops(0, 14), Expand: expandNormGrad,
	},
	OpBatchNormInfer: {
		Name: "batch_norm_infer", Nonfinite: only(added, "x", "scale", "bias"), Doc: "(x − mean)/√(var + eps)·scale + bias per channel, with given statistics.",
		In:  append(normIn("scale", "bias"), stat("mean", false), stat("var", false)),
		Out: normOut(), Attrs: []AttrDef{epsAttr, {Name: "momentum", Kind: AttrFloat, Takes: ZeroToOne, Default: float64(0), Doc: "above 0, and where scale or bias is trained: training computes batch_norm with it instead"}, layoutAttr},
		Batch: batchRows, Class: Keep, Why: normWhy, Norm: byChannels, Infer: inferBatchNormInfer, Items: rowsAreItems, Bound: boundNorm, Cost: flops(0, 4), Expand: expandBatchNormInfer,
	},
}

var (
	byRows, byRMS        = &NormRow{Over: OverRows}, &NormRow{Over: OverRows, RMS: true}
	byGroups, byChannels = &NormRow{Over: OverGroups}, &NormRow{Over: OverChannels}
)

const normWhy = "statistics need f32"

var batchRows = &BatchRows{Train: OpBatchNorm, Infer: OpBatchNormInfer, Grad: OpBatchNormGrad}

var (
	epsAttr  = AttrDef{Name: "eps", Kind: AttrFloat, Takes: AtLeast0, Default: 1e-5, Doc: "added to the variance, in f32"}
	dimsAttr = AttrDef{Name: "dims", Kind: AttrInt, Default: int64(1), Doc: "how many of the last dimensions are normalized together"}
)

func stat(name string, optional bool) Operand {
	return Operand{Name: name, Class: Fixed, Optional: optional}
}

func normIn(params ...string) []Operand {
	ops := in(Operand{Name: "x", ReadsLow: true})
	for _, p := range params {
		ops = append(ops, stat(p, true))
	}
	return ops
}

func normOut(stats ...string) []Result {
	rs := out(Result{Name: "y", StoresLow: true})
	for _, s := range stats {
		rs = append(rs, Result{Name: s, Class: Fixed})
	}
	return rs
}

func normGradIn(stats ...string) []Operand {
	ops := in(Operand{Name: "x", ReadsLow: true}, Operand{Name: "dy", ReadsLow: true})
	for _, s := range stats {
		ops = append(ops, stat(s, false))
	}
	return append(ops, stat("scale", true))
}

var normGradOut = out(Result{Name: "dx", StoresLow: true},
	Result{Name: "dscale", Class: Fixed, Optional: true}, Result{Name: "dbias", Class: Fixed, Optional: true})

// channels is the size of the channel dimension; UnknownDim if it is not known.
func (n *Node) channels() Dim {
	s := n.In[0].Type.Shape
	if s.Rank() < 2 {
		return UnknownDim
	}
	return s.Dim(n.channelAxis(s.Rank()))
}

// normTypes are the results' types: y like x, then k statistics of the given shape.
func (n *Node) normTypes(stats Shape, k int) []Type {
	ts := []Type{{n.keptDType(), n.In[0].Type.Shape}}
	for range k {
		ts = append(ts, Type{n.statDType(), stats})
	}
	return ts
}

// normGradTypes are the types of dx and, if there is a scale, of the gradients of scale and bias.
func (n *Node) normGradTypes() []Type {
	ts := []Type{{n.keptDType(), n.In[0].Type.Shape}}
	if s := n.Operand("scale"); s != nil {
		for range n.Def().Out[1:] {
			ts = append(ts, Type{n.statDType(), s.Type.Shape})
		}
	}
	return ts
}

func (n *Node) checkNorm(least int) error {
	scale, bias := n.Operand("scale"), n.Operand("bias")
	if bias != nil && scale == nil {
		return fmt.Errorf("has a bias and no scale")
	}
	if bias != nil && scale.Type.Shape.Known() {
		if err := wantShape("bias", bias, scale.Type.Shape.Dims()...); err != nil {
			return err
		}
	}
	if l := n.Str("layout"); l != "" && l != "NCHW" && l != "NHWC" {
		return fmt.Errorf("layout %q, want NCHW or NHWC", l)
	}
	return firstError(wantRank("x", n.In[0], least, MaxRank), n.checkOut())
}

// lastDims splits x's shape before its last dims dimensions.
func (n *Node) lastDims() (lead, last []Dim, err error) {
	k, s := int(n.Int("dims")), n.In[0].Type.Shape
	if k < 1 || s.Known() && k > s.Rank() {
		return nil, nil, fmt.Errorf("dims=%d, want 1 to the rank of %s", k, n.In[0].Type)
	}
	if !s.Known() {
		return nil, nil, nil
	}
	d := s.Dims()
	return d[:len(d)-k], d[len(d)-k:], nil
}

func (n *Node) wantParams(d ...Dim) error {
	if !n.In[0].Type.Shape.Known() {
		return nil
	}
	return firstError(wantShape("scale", n.Operand("scale"), d...), wantShape("bias", n.Operand("bias"), d...))
}

func inferLayerNorm(n *Node) ([]Type, error) {
	if err := n.checkNorm(1); err != nil {
		return nil, err
	}
	lead, last, err := n.lastDims()
	if err != nil {
		return nil, err
	}
	var stats Shape
	if n.In[0].Type.Shape.Known() {
		stats = MakeShape(lead...)
	}
	return n.normTypes(stats, len(n.Def().Out)-1), n.wantParams(last...)
}

func inferLayerNormGrad(n *Node) ([]Type, error) {
	if err := n.checkNormGrad(1); err != nil {
		return nil, err
	}
	lead, last, err := n.lastDims()
	if err != nil || !n.In[0].Type.Shape.Known() {
		return n.normGradTypes(), err
	}
	return n.normGradTypes(), firstError(n.wantParams(last...), n.wantStats(lead...))
}

func (n *Node) checkNormGrad(least int) error {
	if err := n.checkNorm(least); err != nil || !n.In[0].Type.Shape.Known() {
		return err
	}
	return wantShape("dy", n.In[1], n.In[0].Type.Shape.Dims()...)
}

func (n *Node) wantStats(d ...Dim) error {
	return firstError(wantShape("mean", n.Operand("mean"), d...), wantShape("rstd", n.Operand("rstd"), d...))
}

// GroupCount is the number of groups of channels that have their own statistics in each image: one
// per channel without the attribute groups. UnknownDim if it is not known.
func (n *Node) GroupCount() Dim {
	if !n.HasAttr("groups") {
		return n.channels()
	}
	return Dim(n.Int("groups"))
}

// NormOperand is the operand that a norm normalizes; of a gradient, the gradient of its result.
func (n *Node) NormOperand() int {
	if n.Def().GradOf != OpInvalid {
		return 1
	}
	return 0
}

func (n *Node) checkGroups() error {
	g, c := n.GroupCount(), n.channels()
	if n.HasAttr("groups") && g < 1 || c > 0 && g > 0 && c%g != 0 {
		return fmt.Errorf("groups=%d do not divide the channels of %s", g, n.In[0].Type)
	}
	return nil
}

func inferGroupNorm(n *Node) ([]Type, error) {
	if err := firstError(n.checkNorm(3), n.checkGroups()); err != nil {
		return nil, err
	}
	var stats Shape
	if s := n.In[0].Type.Shape; s.Known() {
		stats = MakeShape(s.Dim(0), n.GroupCount())
	}
	return n.normTypes(stats, 2), n.wantParams(n.channels())
}

func inferGroupNormGrad(n *Node) ([]Type, error) {
	if err := firstError(n.checkNormGrad(3), n.checkGroups()); err != nil || !n.In[0].Type.Shape.Known() {
		return n.normGradTypes(), err
	}
	return n.normGradTypes(), firstError(n.wantParams(n.channels()), n.wantStats(n.In[0].Type.Shape.Dim(0), n.GroupCount()))
}

func inferBatchNorm(n *Node) ([]Type, error) {
	if err := n.checkNorm(2); err != nil {
		return nil, err
	}
	mean, variance, c := n.operand(3), n.operand(4), n.channels()
	if (mean == nil) != (variance == nil) {
		return nil, fmt.Errorf("has one running statistic, want running_mean and running_var or neither")
	}
	k := 2
	if mean != nil {
		k = 4
	}
	ts := n.normTypes(MakeShape(c), k)
	for i := 3; i < len(ts); i++ {
		ts[i].DType = n.In[i].Type.DType
	}
	return ts, firstError(n.wantParams(c), wantShape("running_mean", mean, c), wantShape("running_var", variance, c))
}

func inferBatchNormGrad(n *Node) ([]Type, error) {
	if err := n.checkNormGrad(2); err != nil || !n.In[0].Type.Shape.Known() {
		return n.normGradTypes(), err
	}
	return n.normGradTypes(), firstError(n.wantParams(n.channels()), n.wantStats(n.channels()))
}

func inferBatchNormInfer(n *Node) ([]Type, error) {
	if err := n.checkNorm(2); err != nil {
		return nil, err
	}
	c := n.channels()
	return n.normTypes(Shape{}, 0), firstError(n.wantParams(c), wantShape("mean", n.In[3], c), wantShape("var", n.In[4], c))
}

// normCount is the number of elements of one pair of statistics.
func (n *Node) normCount() int64 {
	for _, v := range n.Out[1:] {
		if v.Def.Def().Out[v.Idx].Name == "rstd" {
			return max(count(n.In[0].Type)/max(count(v.Type), 1), 1)
		}
	}
	if r := n.Operand("rstd"); r != nil {
		return max(count(n.In[0].Type)/max(count(r.Type), 1), 1)
	}
	return 1
}

// boundNorm: two sums over the normalized elements and three roundings.
func boundNorm(n *Node) Bound { return Bound{ULP: 8, K: 2 * n.normCount()} }

// rangeNorm: the absolute value of a normalized element is at most √(count−1), for any x.
func rangeNorm(n *Node, in []Interval) []Interval {
	m, x := math.Inf(1), n.In[0].Type.Shape
	if x.Known() && symbols(x) == symbols(n.Out[len(n.Out)-1].Type.Shape) { // the normalized dimensions have known sizes
		m = math.Sqrt(float64(n.normCount()))
	}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		switch n.OperandDef(i).Name {
		case "scale":
			m *= in[i].magnitude()
		case "bias":
			m += in[i].magnitude()
		}
	}
	nan := in[0].NaN || math.IsInf(in[0].magnitude(), 0)
	r := []Interval{around(m, nan)}
	for i := range n.Out[1:] {
		switch n.Def().Out[i+1].Name {
		case "mean":
			r = append(r, in[0])
		case "rstd":
			r = append(r, Interval{Lo: 0, Hi: 1 / math.Sqrt(n.Float("eps")), NaN: nan})
		default:
			r = append(r, around(math.Inf(1), true))
		}
	}
	return r
}

// symbols counts the dimensions that are not numbers.
func symbols(s Shape) int {
	k := 0
	for _, d := range s.Dims() {
		if d < 0 {
			k++
		}
	}
	return k
}

// LayerNorm normalizes over the last dims dimensions (attributes dims, eps);
// scale and bias may be nil. The statistics are results 1 and 2 of the node.
func (b *Builder) LayerNorm(x, scale, bias *Value, a Attrs) *Value {
	return b.one(OpLayerNorm, values(x, scale, bias), a)
}

// RMSNorm divides by the root of the mean square over the last dims
// dimensions (attributes dims, eps); scale may be nil.
func (b *Builder) RMSNorm(x, scale *Value, a Attrs) *Value {
	return b.one(OpRMSNorm, values(x, scale), a)
}

// GroupNorm normalizes groups of channels (attributes groups, eps, layout).
func (b *Builder) GroupNorm(x, scale, bias *Value, a Attrs) *Value {
	return b.one(OpGroupNorm, values(x, scale, bias), a)
}

// InstanceNorm normalizes each channel of each image (attributes eps, layout).
func (b *Builder) InstanceNorm(x, scale, bias *Value, a Attrs) *Value {
	return b.one(OpInstanceNorm, values(x, scale, bias), a)
}

// BatchNorm normalizes over batch and positions (attributes eps, momentum,
// layout). With running statistics, results 3 and 4 of the node are their
// pending next values, which training commits.
func (b *Builder) BatchNorm(x, scale, bias, mean, variance *Value, a Attrs) *Value {
	return b.one(OpBatchNorm, values(x, scale, bias, mean, variance), a)
}

// BatchNormInfer normalizes with given statistics (attributes eps, layout).
func (b *Builder) BatchNormInfer(x, scale, bias, mean, variance *Value, a Attrs) *Value {
	return b.one(OpBatchNormInfer, []*Value{x, scale, bias, mean, variance}, a)
}
