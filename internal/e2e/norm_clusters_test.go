package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"ampc"
)

// Whichever values of a norm, the sum and the ReLU behind it are checkpoints, and under every policy, the
// norms' kernels run what is in their clusters.
func TestNormsWithCheckpointsLower(t *testing.T) {
	for _, policy := range ampc.PolicyNames() {
		for _, kept := range []string{"", "conv", "norm", "sum", "relu", "out", "norm out", "sum out"} {
			p, err := ampc.PolicyNamed(policy)
			if err != nil {
				t.Fatal(err)
			}
			m := ampc.New("norms", ampc.Seed(1))
			keep := func(name string, x ampc.Tensor) ampc.Tensor {
				if slices.Contains(strings.Fields(kept), name) {
					return m.Checkpoint(x)
				}
				return x
			}
			x := keep("conv", m.Conv2d("conv", m.Input("x", ampc.F32, 2, 3, 8, 8), 4, 3))
			y := keep("norm", m.BatchNorm("norm", x))
			y = keep("relu", m.Named("relu").Relu(keep("sum", m.Add(y, m.Tanh(x)))))
			y = keep("out", m.Relu(m.GroupNorm("last", m.Conv2d("second", y, 4, 1), 2)))
			if _, err := m.Train(ampc.TrainConfig{Policy: p, Optimizer: ampc.SGD(0.9), LR: ampc.Constant(1e-3)}, ampc.Loss{Value: m.ReduceMean(m.Square(y))}); err != nil {
				t.Errorf("%s, checkpoints %q: %v", policy, kept, err)
			}
			m.Close()
		}
	}
}
