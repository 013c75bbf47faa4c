package main

import (
	"testing"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/models"
)

// What plan shows is the program that Train makes for the CPU, except for some of its scalars.
func TestPlanIsTheStepsProgram(t *testing.T) {
	for _, spec := range []string{"lenet", "gpt?layers=1", "unet?batch=2&size=16&width=16", "lstm?seq=4", "resnet8?batch=8&size=16"} {
		for _, policy := range []string{"f32", "mixed-f16", "torch-f16"} {
			_, p, _, err := planModel(&cobra.Command{}, "zoo:"+spec, modelFlags{policy: policy, micro: 1})
			if err != nil {
				t.Fatal(err)
			}
			total := p.Total()
			z, err := models.Open(spec)
			if err != nil {
				t.Fatal(err)
			}
			c := z.Steps[0].Config
			if c.Policy, err = ampc.PolicyNamed(policy); err != nil {
				t.Fatal(err)
			}
			s, err := z.Model.Train(c, z.Steps[0].Losses...)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Program().Total(); max(got-total, total-got) > 1024 {
				t.Errorf("%s under %s: plan shows %d bytes, and the step has %d", spec, policy, total, got)
			}
			z.Model.Close()
		}
	}
}
