package ampc_test

import (
	"ampc"
	"testing"
)

func TestSeveralLossesAndWeights(t *testing.T) {
	m := ampc.New("two")
	x := m.Input("x", ampc.F32, 4)
	w := m.Param("w", ampc.Fill(1), 4)
	a := m.Named("a").ReduceSum(m.Mul(w, x))
	b := m.Named("b").ReduceSum(m.Square(w))
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.25)}
	s, err := m.Train(c, ampc.Loss{Value: a, Weight: 2}, ampc.Loss{Value: b})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := run(t, s, ampc.Feed{"x": []float32{1, 2, 3, 4}})
	if metrics(t, r).Loss != 2*10+4 {
		t.Errorf("loss %g, want 24", metrics(t, r).Loss)
	}
	got, _ := m.Variable("w")
	for i, want := range []float64{1 - 0.25*(2+2), 1 - 0.25*(4+2), 1 - 0.25*(6+2), 1 - 0.25*(8+2)} {
		if got.At(i) != want {
			t.Errorf("w[%d] = %g, want %g", i, got.At(i), want)
		}
	}
}
