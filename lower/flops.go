package lower

// Flops counts the multiplications and additions of a step's matrix product, convolution or
// attention. It is 0 for other steps. A causal attention counts half. The backward pass of
// attention counts five products where the forward pass counts two, because it recomputes the
// scores.
func (s *Step) Flops() int64 {
	switch {
	case s.Gemm != nil:
		n := 2 * s.Gemm.M * s.Gemm.N * s.Gemm.K
		for _, b := range s.Gemm.Batch {
			n *= b
		}
		return n
	case s.Conv != nil:
		w := s.Conv.Window
		n := 2 * w.N * w.O * w.C / w.Groups
		for i := range w.Out {
			n *= w.Out[i] * w.Kernel[i]
		}
		return n
	case s.Attn != nil:
		return s.Attn.flops()
	}
	return 0
}

func (a *Attention) flops() int64 {
	n := 2 * a.Batch * a.Heads * a.Queries * a.Keys * (a.Width + a.VWidth)
	if a.Causal {
		n /= 2
	}
	if a.Backward {
		n = n * 5 / 2
	}
	return n
}

// Flops is the sum over the steps of prepare, one micro-batch and update.
func (p *Program) Flops() (n int64) {
	for _, part := range p.Parts {
		for i := range part {
			n += part[i].Flops()
		}
	}
	return n
}
