package sm

import (
	"fmt"

	"ampc/ir"
	"ampc/lower"
)

// ProblemOf names what a library is asked for by a step, so that equal steps have one name.
func ProblemOf(p *lower.Program, s *lower.Step) string {
	typed := func(id lower.BufferID) ir.DType { return p.Buffers[id].Type.DType }
	switch {
	case s.Gemm != nil:
		return productProblem(typed(s.In[0]), s.Gemm)
	case wideGrad(s, typed):
		return wideProblem(s.Conv.Window)
	case s.Conv != nil:
		return convProblem(s, typed)
	}
	return attentionProblem(typed(s.In[0]), s.Attn)
}

// productProblem is a product with something in its epilogue that not every target supports.
func productProblem(d ir.DType, g *lower.Gemm) string {
	return fmt.Sprintf("gemm %s %dx%dx%d", d, g.M, g.N, g.K)
}

// wideGrad reports whether a step computes an f32 gradient of a filter from 16-bit operands.
func wideGrad(s *lower.Step, typed func(lower.BufferID) ir.DType) bool {
	return s.Conv != nil && s.Conv.Dir == lower.ConvGradW && typed(s.In[0]).Low() && typed(s.Out[0]) == ir.F32
}

// wideProblem is an f32 gradient of a filter from 16-bit operands. It has no dtypes: these are chosen with
// the knowledge whether there is one.
func wideProblem(w ir.Window) string { return fmt.Sprintf("f32 gradient of a filter %v", w) }

func convProblem(s *lower.Step, typed func(lower.BufferID) ir.DType) string {
	return fmt.Sprintf("conv %d %s to %s %v bias=%t", s.Conv.Dir, typed(s.In[0]), typed(s.Out[0]), s.Conv.Window, s.Conv.Epilogue.Bias != 0)
}

func attentionProblem(d ir.DType, a *lower.Attention) string {
	return fmt.Sprintf("attention %s %dx%dx%d,%dx%d causal=%t backward=%t", d, a.Batch, a.Heads, a.Queries, a.Keys, a.Width, a.Causal, a.Backward)
}
