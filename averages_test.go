package ampc_test

import (
	"strings"
	"testing"

	"ampc"
)

// Averages that no step keeps are an error: the live weights are not read in their place.
func TestAveragesThatNoStepKeeps(t *testing.T) {
	const add = "no training step keeps averages: compile Train with TrainConfig.EMA first"
	for name, c := range map[string]struct {
		train []ampc.TrainConfig
		step  string
		want  string // "": no error
	}{
		"never trained":         {nil, "", "InferConfig.Weights is EMA and " + add},
		"never trained, a name": {nil, "a", `InferConfig.Step is "a" and ` + add},
		"trained without":       {[]ampc.TrainConfig{{}}, "", "InferConfig.Weights is EMA and " + add},
		"another step":          {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "b", `InferConfig.Step is "b", which keeps no averages: steps that do are ["a"]`},
		"that step":             {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "a", ""},
		"the only one":          {[]ampc.TrainConfig{{Name: "a", EMA: 0.5}, {Name: "b"}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := ampc.New("average")
			defer m.Close()
			y := m.Mul(m.Param("w", ampc.Fill(1), 1), m.Input("x", ampc.F32, 1))
			loss := m.ReduceSum(y)
			for _, config := range c.train {
				config.Optimizer, config.LR = ampc.SGD(0), ampc.Constant(1)
				train(t, m, loss, config)
			}
			_, err := m.Infer(ampc.InferConfig{Weights: ampc.EMA, Step: c.step}, y)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); !strings.Contains(text, c.want) || !strings.Contains(text, "averages_test.go:") || strings.Contains(text, "\n") {
				t.Errorf("%s\nwant one line with its place and %s", text, c.want)
			}
		})
	}
}
