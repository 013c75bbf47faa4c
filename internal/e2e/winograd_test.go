package e2e_test

import (
	"strings"
	"testing"

	"ampc"
)

// Policy.Direct reaches every convolution of the Program, gradients included.
func TestDirectConvolutions(t *testing.T) {
	for _, direct := range []bool{false, true} {
		m := ampc.New("net")
		x, y := m.Input("x", ampc.F32, 4, 64, 8, 8), m.Input("y", ampc.I32, 4)
		h := m.Relu(m.Conv2d("conv1", x, 64, 3, ampc.Conv2dOptions{Padding: 1}))
		h = m.Conv2d("conv2", h, 64, 3, ampc.Conv2dOptions{Padding: 1})
		loss := m.CrossEntropy(m.Linear("fc", m.Flatten(h), 10), y)
		step, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.1), Policy: ampc.Policy{Name: "exact", Direct: direct}}, ampc.Loss{Value: loss})
		if err != nil {
			t.Fatal(err)
		}
		convs, marked := 0, 0
		for _, line := range strings.Split(step.Program().String(), "\n") {
			if strings.Contains(line, "  conv.") {
				convs++
				if strings.Contains(line, " direct") {
					marked++
				}
			}
		}
		want := 0
		if direct {
			want = convs
		}
		if convs != 5 || marked != want {
			t.Errorf("direct %t: %d of %d convolutions are marked, want %d of 5\n%s", direct, marked, convs, want, step.Program())
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
