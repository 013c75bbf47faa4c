package runtimetest

import (
	"fmt"
	"math"
	"sync"

	"ampc/ir/eval"
)

// answers are what the evaluator gives for a sample, computed at the first use. A backend with
// several paths runs the suite once for each, and every suite draws the same samples.
type answers struct {
	exact    func() ([]*eval.Tensor, error) // the results
	kept     func() ([]*eval.Tensor, error) // the results where operands are not rounded to tf32
	absolute func() ([]*eval.Tensor, error) // the results of the operands' absolute values, not rounded
}

var allAnswers sync.Map // by sample

func (s *sample) answered(special bool) *answers {
	a := &answers{
		exact: sync.OnceValues(func() ([]*eval.Tensor, error) {
			return eval.Node(s.node, s.operands(), eval.Options{})
		}),
		kept: sync.OnceValues(func() ([]*eval.Tensor, error) {
			n := *s.node
			n.Attrs = n.Attrs.Without("math")
			return eval.Node(&n, s.operands(), eval.Options{})
		}),
		absolute: sync.OnceValues(func() ([]*eval.Tensor, error) {
			in := s.operands()
			for i, x := range in {
				if x != nil {
					in[i] = absolute(x)
				}
			}
			return eval.Node(s.node, in, eval.Options{Float64: true})
		}),
	}
	if s.large() {
		return a // keeping them all would take 600 MB
	}
	known, _ := allAnswers.LoadOrStore(fmt.Sprintf("%s, special values: %t", s.name, special), a)
	return known.(*answers)
}

// operands are the tensors that the sample feeds, nil where the node has no operand.
func (s *sample) operands() []*eval.Tensor {
	in := make([]*eval.Tensor, len(s.node.In))
	for i, v := range s.node.In {
		if v != nil {
			in[i] = s.feed[v.Name]
		}
	}
	return in
}

func absolute(x *eval.Tensor) *eval.Tensor {
	y := *x
	if x.F != nil {
		y.F = make([]float64, len(x.F))
		for i, v := range x.F {
			y.F[i] = math.Abs(v)
		}
	}
	return &y
}
