package models_test

import (
	"testing"

	"ampc"
	"ampc/models"
)

// An evaluation stores what the training step stores, whatever else reads it, and
// is proved: of each value that a model computes alone, and of all together.
func TestEvaluationsAreProved(t *testing.T) {
	for k, spec := range inSmall {
		for i, policy := range policies(t) {
			if !*everyPolicy && i%2 != k%2 || testing.Short() && i%5 != 0 {
				continue
			}
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range z.Steps {
				c := s.Config
				c.Policy = policy
				step, err := z.Model.Train(c, s.Losses...)
				if err != nil {
					t.Fatal(err)
				}
				evaluations(t, spec+" "+s.Name+" under "+policy.Name, z, step, i)
			}
			z.Model.Close()
		}
	}
}

// evaluations compiles evaluations of the model's values: all together, and of
// every seventh alone, from the one at first on.
func evaluations(t *testing.T, what string, z *models.Zoo, step *ampc.Step, first int) {
	t.Helper()
	var all []ampc.Tensor
	for _, n := range z.Model.Graph().Nodes {
		for _, v := range n.Out {
			if v.Next == nil && v.Type.DType.Float() {
				all = append(all, z.Model.FromIR(v))
			}
		}
	}
	asked := [][]ampc.Tensor{all}
	for i := first % 7; i < len(all); i += 7 {
		asked = append(asked, all[i:i+1])
	}
	for _, out := range asked {
		eval, err := step.Eval(out...)
		if err != nil {
			t.Errorf("%s, %d values from %s on: %v", what, len(out), out[0], err)
			continue
		}
		eval.Close()
	}
}
