package models_test

import (
	"fmt"
	"strings"
	"testing"

	"ampc"
	"ampc/models"
)

// Under a limit of memory the program of a zoo model takes no more, and the model learns the
// same to the last bit: with dropout, batch norms and micro-batches.
func TestMemoryOfZooModels(t *testing.T) {
	for _, m := range []struct {
		spec     string
		policies []ampc.Policy
	}{
		{"gpt?layers=4&dim=32&heads=2&seq=32&vocab=48&dropout=0.1&batch=16", []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()}},
		{"resnet8?width=8&size=16&batch=16", []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()}},
		{"unet?width=8&batch=8", []ampc.Policy{ampc.MixedF16()}},
		{"vit?batch=8", []ampc.Policy{ampc.MixedBF16()}},
	} {
		for _, p := range m.policies {
			t.Run(m.spec+"/"+p.Name, func(t *testing.T) {
				want, whole, err := trainedWithin(t, m.spec, p, 0)
				if err != nil {
					t.Fatal(err)
				}
				fitted := 0
				for _, percent := range []int64{90, 75, 60} {
					limit := whole * percent / 100
					got, peak, err := trainedWithin(t, m.spec, p, limit)
					if err != nil {
						if least := leastNamed(err); least <= limit || least > whole {
							t.Errorf("%d of %d bytes: %v", limit, whole, err)
						}
						continue
					}
					fitted++
					if peak > limit {
						t.Errorf("the program takes %d bytes, want at most %d", peak, limit)
					}
					for name, v := range want {
						if got[name] != v {
							t.Errorf("%s differs under a limit of %d of %d bytes", name, limit, whole)
						}
					}
				}
				if fitted == 0 {
					t.Errorf("no limit could be met")
				}
			})
		}
	}
}

// leastNamed is the least number of bytes that an error gives.
func leastNamed(err error) (least int64) {
	_, rest, _ := strings.Cut(err.Error(), " set TrainConfig.Memory to ")
	fmt.Sscan(rest, &least)
	return least
}

// trainedWithin trains three steps of two micro-batches and returns the variables and the bytes of the program.
func trainedWithin(t *testing.T, spec string, p ampc.Policy, memory int64) (map[string]string, int64, error) {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy, c.Memory, c.EMA, c.Clip.Norm, c.Micro = p, memory, 0.9, 1, 2
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, 0, err
	}
	for i := range 3 {
		r, err := s.Run(t.Context(), z.Batch(int64(2*i)), z.Batch(int64(2*i+1)))
		if err == nil {
			_, err = r.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state := map[string]string{}
	for _, name := range z.Model.Variables() {
		v, err := z.Model.Variable(name)
		if err != nil {
			t.Fatal(err)
		}
		state[name] = string(v.Bytes)
	}
	return state, s.Program().Total(), nil
}
