package models_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// TestSyncNorms: a ResNet on 2 and 4 ranks whose batch norms are over all ranks has the
// losses of one process with the whole batch.
func TestSyncNorms(t *testing.T) {
	const batch, steps = 16, 4
	losses := func(w world.World, p ampc.Policy, rank, ranks int) ([]float64, error) {
		all, err := models.Open(fmt.Sprintf("resnet8?width=4&size=8&batch=%d", batch))
		if err != nil {
			return nil, err
		}
		z, err := models.Open(fmt.Sprintf("resnet8?width=4&size=8&batch=%d", batch/ranks))
		if err != nil {
			return nil, err
		}
		defer z.Model.Close()
		c := z.Steps[0].Config
		c.Policy, c.Parallel = p, ampc.Parallel{World: w, SyncNorms: true}
		s, err := z.Model.Train(c, z.Steps[0].Losses...)
		if err != nil {
			return nil, err
		}
		var list []float64
		for i := range steps {
			r, err := s.Run(context.Background(), share(all.Batch(int64(i)), rank, ranks))
			if err != nil {
				return nil, err
			}
			m, err := r.Wait(context.Background())
			if err != nil {
				return nil, err
			}
			list = append(list, m.Loss)
		}
		e, err := s.Eval(z.Steps[0].Losses[0].Value) // by the running statistics
		if err != nil {
			return nil, err
		}
		r, err := e.Run(context.Background(), share(all.Batch(0), 0, ranks))
		if err != nil {
			return nil, err
		}
		_, err = r.Wait(context.Background())
		return list, err
	}
	for p, bound := range map[string]float64{"f32": 1e-4, "mixed-bf16": 3e-2} {
		policy, err := ampc.PolicyNamed(p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := losses(nil, policy, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{2, 4} {
			errs := make(chan error, n)
			for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
				go func() {
					defer w.Close()
					got, err := losses(w, policy, r, n)
					for i := range got {
						if math.Abs(got[i]-want[i]) > bound*(1+math.Abs(want[i])) && err == nil {
							err = fmt.Errorf("%s, %d ranks: losses %v, one process has %v", p, n, got, want)
						}
					}
					errs <- err
				}()
			}
			for range n {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		}
	}
}
