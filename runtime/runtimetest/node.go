package runtimetest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"ampc/ir"
	"ampc/ir/eval"
)

// checkNode compares results of n that a backend computed of in with the evaluator's, within the
// row's bound. A result that is nil is not compared, nor are elements whose bound is not finite, nor
// rows that may multiply Inf and NaN by zeros that stand for nothing, if an operand has some. Norms
// of few elements and gradients of norms and attentions are not compared: where operands are nearly
// equal, as those of a random graph may be, differences from means have no useful bound.
func checkNode(n *ir.Node, in, got []*eval.Tensor) error {
	switch d := n.Def(); {
	case d.Family == "norm" && n.In[0].Type.Shape.Elements() < 64, (d.Family == "norm" || d.Family == "attention") && d.GradOf != ir.OpInvalid:
		return nil
	case len(specialsOf(n.Op)) < len(specials) && slices.ContainsFunc(in, nonfinite):
		return nil
	}
	err := closeTo(n, n, in, got)
	if err != nil && n.Str("math") == "tf32" { // a target may keep the operands
		kept := *n
		kept.Attrs = n.Attrs.Without("math")
		return closeTo(n, &kept, in, got)
	}
	return err
}

// nonfinite reports whether x has an Inf or NaN.
func nonfinite(x *eval.Tensor) bool {
	return x != nil && slices.ContainsFunc(x.F, func(v float64) bool { return v-v != 0 })
}

// closeTo compares results of n with those that the evaluator gives for the node as.
func closeTo(n, as *ir.Node, in, got []*eval.Tensor) error {
	s := &sample{node: n, answers: &answers{absolute: func() ([]*eval.Tensor, error) {
		positive := slices.Clone(in)
		for i, x := range positive {
			if x != nil {
				positive[i] = absolute(x)
			}
		}
		return eval.Node(n, positive, eval.Options{Float64: true})
	}}}
	want, err := eval.Node(as, slices.Clone(in), eval.Options{})
	if err != nil {
		return fmt.Errorf("evaluator: %w", err)
	}
	for k, w := range want {
		if k >= len(got) || got[k] == nil {
			continue
		}
		tol, err := s.allowed(k, want, false)
		if err != nil {
			return fmt.Errorf("evaluator: %w", err)
		}
		if tol != nil {
			skipUnbounded(tol, w, got[k])
		}
		if diff, _ := differ(got[k], w, tol); diff != "" {
			return fmt.Errorf("result %d: %s", k, diff)
		}
	}
	return nil
}

// skipUnbounded gives want the elements of got where it or tol is not a finite f32: an inexact row
// may add up Inf in another order.
func skipUnbounded(tol tolerance, want, got *eval.Tensor) {
	for i, w := range want.F {
		if a := tol(i, w); w-w != 0 || !(a <= math.MaxFloat32) {
			want.F[i] = got.F[i]
		}
	}
}

// WithAllReturned is a copy of a compiled step without clusters that returns the results of all
// nodes of forward and backward, behind those that g returns.
func WithAllReturned(g *ir.Graph) *ir.Graph {
	g = g.Clone()
	have := map[*ir.Value]bool{}
	for _, v := range g.Return {
		have[v] = true
	}
	for s, n := range g.Nodes {
		n.Why.Cluster, n.Why.Launch = 0, 0
		for _, v := range n.Out {
			if (s == ir.Forward || s == ir.Backward) && v.Next == nil && !have[v] {
				g.Return, have[v] = append(g.Return, v), true
			}
		}
	}
	return g
}

// CheckNodes compares all nodes of g, a step with all results returned, with the evaluator: each of
// the operands that the backend computed. It returns the problems, a line for each node, and how many
// nodes were compared.
func (l *Loaded) CheckNodes(feed, got map[string]*eval.Tensor) (problems []string, compared int) {
	of := func(v *ir.Value) *eval.Tensor {
		switch {
		case v == nil:
			return nil
		case v.Def != nil:
			return got[v.String()]
		case feed[v.Name] != nil:
			return feed[v.Name]
		case v.Attr.Get("role") == ir.RoleCopy:
			return nil // the backend fills it
		}
		return l.env[v.Name]
	}
	for s, n := range l.Graph.Nodes {
		if s != ir.Forward && s != ir.Backward {
			continue
		}
		in, out := make([]*eval.Tensor, len(n.In)), make([]*eval.Tensor, len(n.Out))
		known := true
		for i, v := range n.In {
			in[i] = of(v)
			known = known && (v == nil || in[i] != nil)
		}
		for i, v := range n.Out {
			out[i] = of(v)
		}
		if !known {
			continue
		}
		compared++
		if err := checkNode(n, in, out); err != nil {
			problems = append(problems, strings.TrimSpace(fmt.Sprintf("%s %s: %v", n.Op, n.Name(), err)))
		}
	}
	return problems, compared
}
