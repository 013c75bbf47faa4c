package ampc

// InstanceNormOptions are the options of InstanceNorm.
type InstanceNormOptions struct {
	Eps    *float64 // added to the variance, in f32: new(1e-12); nil: 1e-5
	Affine bool     // parameters scale[C] and bias[C]
}

// InstanceNorm normalizes each channel of each image.
//
//   - Shapes: x[N,C,...] to the same; C is a number.
//   - DTypes: float; statistics are f32, the result has x's.
//   - Errors: a name that is taken, or x without channels of known number.
//   - PyTorch: nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d; without running statistics.
func (m *Model) InstanceNorm(name string, x Tensor, opts ...InstanceNormOptions) Tensor {
	o := option(m.ops, "instance_norm", opts)
	l, ok := m.layer("instance_norm", name)
	n := l.channels("instance_norm", name, x, 1)
	if !ok || n < 0 {
		return Tensor{}
	}
	var scale, bias Tensor
	if o.Affine {
		scale, bias = l.affine(n, false)
	}
	return m.at(name).InstanceNormWith(x, scale, bias, NormWithOptions{Eps: o.Eps})
}

// BlockOptions are the options of EncoderBlock and DecoderBlock.
type BlockOptions struct {
	Hidden    int              // width of the feed-forward layers; 0: four times x's
	Dropout   float64          // behind attention, and behind both feed-forward layers
	Gelu      bool             // between the feed-forward layers, in place of relu
	NormFirst bool             // norms stand before attention and feed-forward layers, not behind the sums
	Attention AttentionOptions // of self-attention; in a DecoderBlock it is causal anyway
	Memory    Tensor           // of a DecoderBlock: [N,M,width], what it attends to
	Mask      Tensor           // of a DecoderBlock: added to the scores of the memory
	Eps       *float64         // of the norms; nil: 1e-5
}

// EncoderBlock is a block of a transformer: self-attention "attn" and the feed-forward
// layers "fc1" and "fc2", each added to what it is computed from, with the layer norms
// "norm1" and "norm2".
//
//   - Shapes: x[N,T,dim] to the same; dim is a number that heads divides.
//   - DTypes: float; weights are f32.
//   - Errors: as of Attention, or Memory is set.
//   - PyTorch: nn.TransformerEncoderLayer(batch_first=True); without dropout on the weights of attention.
func (m *Model) EncoderBlock(name string, x Tensor, heads int, opts ...BlockOptions) Tensor {
	o := option(m.ops, "encoder_block", opts)
	if o.Memory.v != nil || o.Mask.v != nil {
		m.Fail("encoder_block %q: Memory and Mask are for a DecoderBlock; Attention.Mask is that of self-attention", name)
		return Tensor{}
	}
	return m.block("encoder_block", name, x, heads, o)
}

// DecoderBlock is EncoderBlock with causal self-attention and, behind it, attention
// "cross" to Memory with a norm of its own: norm1 to norm3 in this order.
//
//   - Shapes: x[N,T,dim] and Memory[N,M,dim] to x's; dim is a number that heads divides.
//   - DTypes: float; weights are f32.
//   - Errors: as of Attention, or Memory is absent.
//   - PyTorch: nn.TransformerDecoderLayer(batch_first=True) with tgt_is_causal; without dropout on the weights of attention.
func (m *Model) DecoderBlock(name string, x Tensor, heads int, opts ...BlockOptions) Tensor {
	o := option(m.ops, "decoder_block", opts)
	if m.Err() == nil && o.Memory.v == nil {
		m.Fail("decoder_block %q: BlockOptions.Memory is absent: give what it attends to, or take EncoderBlock with Attention.Causal", name)
	}
	o.Attention.Causal = true
	return m.block("decoder_block", name, x, heads, o)
}

// block builds a block of a transformer.
func (m *Model) block(kind, name string, x Tensor, heads int, o BlockOptions) Tensor {
	l, ok := m.layer(kind, name)
	dim := l.size(kind, name, x, -1)
	if !ok || dim < 0 {
		return Tensor{}
	}
	norms := 0
	add := func(x Tensor, part string, f func(x Tensor) Tensor) Tensor {
		norms++
		norm := func(x Tensor) Tensor {
			return l.LayerNorm("norm"+string(rune('0'+norms)), x, LayerNormOptions{Eps: o.Eps})
		}
		if o.NormFirst {
			return l.at(part+".sum").Add(x, l.Dropout(part+".drop", f(norm(x)), o.Dropout))
		}
		return norm(l.at(part+".sum").Add(x, l.Dropout(part+".drop", f(x), o.Dropout)))
	}
	x = add(x, "attn", func(x Tensor) Tensor { return l.Attention("attn", x, heads, o.Attention) })
	if o.Memory.v != nil {
		cross := AttentionOptions{Memory: o.Memory, Mask: o.Mask, NoBias: o.Attention.NoBias, Init: o.Attention.Init, KVHeads: o.Attention.KVHeads}
		x = add(x, "cross", func(x Tensor) Tensor { return l.Attention("cross", x, heads, cross) })
	}
	x = add(x, "fc", func(x Tensor) Tensor {
		hidden := o.Hidden
		if hidden == 0 {
			hidden = 4 * dim
		}
		h := l.Linear("fc1", x, hidden)
		if o.Gelu {
			h = l.at("act").Gelu(h)
		} else {
			h = l.at("act").Relu(h)
		}
		return l.Linear("fc2", l.Dropout("drop", h, o.Dropout), dim)
	})
	return m.rename(x, name)
}
