package ir

// Reshape gives x another shape; -1 stands for what is left, 0 for x's size there.
//
//   - Shapes: x[...] to shape.
//   - DTypes: any; the result has x's.
//   - Errors: a shape of another number of elements.
//   - PyTorch: torch.reshape, Tensor.view, nn.Unflatten.
func (b *Builder) Reshape(x *Value, shape ...int64) *Value {
	return b.one(OpReshape, []*Value{x}, A("shape", shape))
}

// reshapeTo gives x known dimensions.
func (b *Builder) reshapeTo(x *Value, d []Dim) *Value {
	shape := make([]int64, len(d))
	for i, k := range d {
		shape[i] = int64(k)
	}
	return b.Reshape(x, shape...)
}

// reshapeLike gives x the shape of v.
func (b *Builder) reshapeLike(x, v *Value) *Value {
	if b.err != nil || x == nil || x.Type.Shape == v.Type.Shape {
		return x
	}
	a, like := shapeOf(v)
	return b.one(OpReshape, values(x, like), a)
}

// Transpose permutes axes: result axis i is x's axis perm[i].
//
//   - Shapes: x[...] to x's in the order of perm.
//   - DTypes: any; the result has x's.
//   - Errors: perm that is not a permutation of x's axes.
//   - PyTorch: torch.permute; torch.transpose names two axes alone.
func (b *Builder) Transpose(x *Value, perm ...int64) *Value {
	return b.one(OpTranspose, []*Value{x}, A("perm", perm))
}

// Broadcast repeats x to a shape; -1 keeps x's size.
//
//   - Shapes: x to shape; its dimensions are x's or x has 1 there.
//   - DTypes: any; the result has x's.
//   - Errors: a dimension of x that is neither 1 nor that of shape.
//   - PyTorch: torch.broadcast_to, Tensor.expand.
func (b *Builder) Broadcast(x *Value, shape ...int64) *Value {
	return b.one(OpBroadcast, []*Value{x}, A("shape", shape))
}

// broadcastLike repeats x to the shape of v.
func (b *Builder) broadcastLike(x, v *Value) *Value {
	if b.err != nil || x == nil || x.Type.Shape == v.Type.Shape {
		return x
	}
	a, like := shapeOf(v)
	return b.one(OpBroadcast, values(x, like), a)
}

// Squeeze drops axes of size 1.
//
//   - Shapes: x[...] to x's without axes.
//   - DTypes: any; the result has x's.
//   - Errors: an axis whose size is not 1.
//   - PyTorch: torch.squeeze, whose other axes stay.
func (b *Builder) Squeeze(x *Value, axes ...int64) *Value {
	return b.one(OpSqueeze, []*Value{x}, A("axes", axes))
}

// Unsqueeze inserts axes of size 1 at these places of the result.
//
//   - Shapes: x[...] to x's with axes of size 1 more.
//   - DTypes: any; the result has x's.
//   - Errors: an axis that the result does not have.
//   - PyTorch: torch.unsqueeze.
func (b *Builder) Unsqueeze(x *Value, axes ...int64) *Value {
	return b.one(OpUnsqueeze, []*Value{x}, A("axes", axes))
}

// Slice takes elements from starts to before ends along axes.
func (b *Builder) Slice(x *Value, axes, starts, ends []int64) *Value {
	return b.one(OpSlice, []*Value{x}, A("axes", axes, "starts", starts, "ends", ends))
}

// SliceStep is Slice in steps above zero.
func (b *Builder) SliceStep(x *Value, axes, starts, ends, steps []int64) *Value {
	return b.one(OpSlice, []*Value{x}, A("axes", axes, "starts", starts, "ends", ends, "steps", steps))
}

// Concat joins values along an axis.
//
//   - Shapes: x[...,n_i,...] to [...,Σn_i,...].
//   - DTypes: any, one for all.
//   - Errors: no operand, or other dimensions that differ.
//   - PyTorch: torch.cat.
func (b *Builder) Concat(axis int64, x ...*Value) *Value {
	return b.one(OpConcat, x, A("axis", axis))
}

// Split cuts x into pieces of the given sizes along an axis. After a mistake
// it returns as many nil values.
//
//   - Shapes: x[...,n,...] to as many tensors as there are sizes.
//   - DTypes: any; the results have x's.
//   - Errors: sizes whose sum is not n.
//   - PyTorch: torch.split, torch.chunk.
func (b *Builder) Split(x *Value, axis int64, sizes ...int64) []*Value {
	y := b.Emit(OpSplit, []*Value{x}, A("axis", axis, "sizes", sizes))
	for len(y) < len(sizes) {
		y = append(y, nil)
	}
	return y
}

// Tile repeats x reps[i] times along axis i.
//
//   - Shapes: x[...] to x's, each axis reps[i] times as large.
//   - DTypes: any; the result has x's.
//   - Errors: another number of reps than x has axes.
//   - PyTorch: torch.tile, Tensor.repeat.
func (b *Builder) Tile(x *Value, reps ...int64) *Value {
	return b.one(OpTile, []*Value{x}, A("reps", reps))
}

// Flip reverses the order along axes.
//
//   - Shapes: x[...] to the same.
//   - DTypes: any; the result has x's.
//   - Errors: an axis that x does not have.
//   - PyTorch: torch.flip.
func (b *Builder) Flip(x *Value, axes ...int64) *Value {
	return b.one(OpFlip, []*Value{x}, A("axes", axes))
}

// Tril keeps the lower triangle of the last two axes, up to diagonal k.
//
//   - Shapes: x[...,M,N] to the same.
//   - DTypes: float or integer; the result has x's.
//   - Errors: a rank below 2.
//   - PyTorch: torch.tril.
func (b *Builder) Tril(x *Value, k int64) *Value {
	return b.one(OpTril, []*Value{x}, A("k", k))
}

// Triu keeps the upper triangle of the last two axes, from diagonal k.
//
//   - Shapes: x[...,M,N] to the same.
//   - DTypes: float or integer; the result has x's.
//   - Errors: a rank below 2.
//   - PyTorch: torch.triu.
func (b *Builder) Triu(x *Value, k int64) *Value {
	return b.one(OpTriu, []*Value{x}, A("k", k))
}

// DepthToSpace moves blocks of channels into blocks of pixels; mode is "dcr" or "crd".
//
//   - Shapes: x[N,C,H,W] to [N,C/block²,H·block,W·block].
//   - DTypes: any; the result has x's.
//   - Errors: channels that block² does not divide.
//   - PyTorch: nn.PixelShuffle, which is mode crd.
func (b *Builder) DepthToSpace(x *Value, block int64, mode string) *Value {
	return b.one(OpDepthToSpace, []*Value{x}, A("block", block, "mode", mode))
}

// SpaceToDepth moves blocks of pixels into channels.
//
//   - Shapes: x[N,C,H,W] to [N,C·block²,H/block,W/block].
//   - DTypes: any; the result has x's.
//   - Errors: sizes that block does not divide.
//   - PyTorch: nn.PixelUnshuffle, which is mode crd.
func (b *Builder) SpaceToDepth(x *Value, block int64, mode string) *Value {
	return b.one(OpSpaceToDepth, []*Value{x}, A("block", block, "mode", mode))
}
