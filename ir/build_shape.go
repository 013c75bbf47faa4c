package ir

// Reshape gives x another shape; -1 stands for what is left, 0 for x's size there.
func (b *Builder) Reshape(x *Value, shape ...int64) *Value {
	return b.Emit(OpReshape, []*Value{x}, A("shape", shape))[0]
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
	return b.Emit(OpReshape, values(x, like), a)[0]
}

// Transpose permutes axes: result axis i is x's axis perm[i].
func (b *Builder) Transpose(x *Value, perm ...int64) *Value {
	return b.Emit(OpTranspose, []*Value{x}, A("perm", perm))[0]
}

// Broadcast repeats x to a shape; -1 keeps x's size.
func (b *Builder) Broadcast(x *Value, shape ...int64) *Value {
	return b.Emit(OpBroadcast, []*Value{x}, A("shape", shape))[0]
}

// broadcastLike repeats x to the shape of v.
func (b *Builder) broadcastLike(x, v *Value) *Value {
	if b.err != nil || x == nil || x.Type.Shape == v.Type.Shape {
		return x
	}
	a, like := shapeOf(v)
	return b.Emit(OpBroadcast, values(x, like), a)[0]
}

// Squeeze drops axes of size 1.
func (b *Builder) Squeeze(x *Value, axes ...int64) *Value {
	return b.Emit(OpSqueeze, []*Value{x}, A("axes", axes))[0]
}

// Unsqueeze inserts axes of size 1 at these places of the result.
func (b *Builder) Unsqueeze(x *Value, axes ...int64) *Value {
	return b.Emit(OpUnsqueeze, []*Value{x}, A("axes", axes))[0]
}

// Slice takes elements from starts to before ends along axes.
func (b *Builder) Slice(x *Value, axes, starts, ends []int64) *Value {
	return b.Emit(OpSlice, []*Value{x}, A("axes", axes, "starts", starts, "ends", ends))[0]
}

// SliceStep is Slice in steps above zero.
func (b *Builder) SliceStep(x *Value, axes, starts, ends, steps []int64) *Value {
	return b.Emit(OpSlice, []*Value{x}, A("axes", axes, "starts", starts, "ends", ends, "steps", steps))[0]
}

// Concat joins values along an axis.
func (b *Builder) Concat(axis int64, x ...*Value) *Value {
	return b.Emit(OpConcat, x, A("axis", axis))[0]
}

// Split cuts x into pieces of the given sizes along an axis. After a mistake
// it returns as many nil values.
func (b *Builder) Split(x *Value, axis int64, sizes ...int64) []*Value {
	y := b.Emit(OpSplit, []*Value{x}, A("axis", axis, "sizes", sizes))
	for len(y) < len(sizes) {
		y = append(y, nil)
	}
	return y
}

// Tile repeats x reps[i] times along axis i.
func (b *Builder) Tile(x *Value, reps ...int64) *Value {
	return b.Emit(OpTile, []*Value{x}, A("reps", reps))[0]
}

// Flip reverses the order along axes.
func (b *Builder) Flip(x *Value, axes ...int64) *Value {
	return b.Emit(OpFlip, []*Value{x}, A("axes", axes))[0]
}

// Tril keeps the lower triangle of the last two axes, up to diagonal k.
func (b *Builder) Tril(x *Value, k int64) *Value {
	return b.Emit(OpTril, []*Value{x}, A("k", k))[0]
}

// Triu keeps the upper triangle of the last two axes, from diagonal k.
func (b *Builder) Triu(x *Value, k int64) *Value {
	return b.Emit(OpTriu, []*Value{x}, A("k", k))[0]
}

// DepthToSpace moves blocks of channels into blocks of pixels; mode is "dcr" or "crd".
func (b *Builder) DepthToSpace(x *Value, block int64, mode string) *Value {
	return b.Emit(OpDepthToSpace, []*Value{x}, A("block", block, "mode", mode))[0]
}

// SpaceToDepth moves blocks of pixels into channels.
func (b *Builder) SpaceToDepth(x *Value, block int64, mode string) *Value {
	return b.Emit(OpSpaceToDepth, []*Value{x}, A("block", block, "mode", mode))[0]
}
