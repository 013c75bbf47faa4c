package models_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// slicedRun is one process of a run in slices: it trains from step to step and has
// loaded and leaves a checkpoint.
type slicedRun struct {
	query  string
	policy ampc.Policy
	slices int
	rows   int    // of all slices
	norms  bool   // use the moments of all slices
	from   string // a checkpoint
	dir    string // where checkpoints go
}

// train runs the steps of feeds, which hold the rows of all slices. It returns the losses
// and scales, and the checkpoint.
func (s slicedRun) train(w world.World, feeds []ampc.Feed) (losses []float64, checkpoint []byte, err error) {
	z, err := models.Open(fmt.Sprintf("%s&batch=%d", s.query, s.rows/s.slices))
	if err != nil {
		return nil, nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy, c.Clip.Norm, c.EMA = s.policy, 1, 0.9
	if s.policy.Low == ampc.F16 {
		c.Scaler = ampc.Dynamic()
		c.Scaler.Init = 1 << 20 // the first steps are skipped
	}
	c.Parallel = ampc.Parallel{World: w, Slices: s.slices, SyncNorms: s.norms, Bucket: 4096}
	step, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, nil, err
	}
	if s.from != "" {
		if err := z.Model.LoadFile(s.from); err != nil {
			return nil, nil, err
		}
	}
	rank, each := 0, s.slices
	if w != nil {
		rank, each = w.Rank(), s.slices/w.Size()
	}
	for _, f := range feeds {
		var micro []ampc.Feed
		for i := range each {
			micro = append(micro, share(f, rank*each+i, s.slices))
		}
		r, err := step.Run(context.Background(), micro...)
		if err != nil {
			return nil, nil, err
		}
		m, err := r.Wait(context.Background())
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, m.Loss, m.Scale)
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%p", step))
	if err := z.Model.SaveFile(path); err != nil {
		return nil, nil, err
	}
	checkpoint, err = os.ReadFile(path)
	return losses, checkpoint, err
}

// on runs it on n ranks, which must end alike, and returns what rank 0 has.
func (s slicedRun) on(t *testing.T, n int, feeds []ampc.Feed) (losses []float64, checkpoint []byte) {
	t.Helper()
	if n == 1 {
		losses, checkpoint, err := s.train(nil, feeds)
		if err != nil {
			t.Fatal(err)
		}
		return losses, checkpoint
	}
	all, kept, errs := make([][]float64, n), make([][]byte, n), make([]error, n)
	var ranks sync.WaitGroup
	for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		ranks.Go(func() {
			defer w.Close()
			all[r], kept[r], errs[r] = s.train(w, feeds)
		})
	}
	ranks.Wait()
	for r := range n {
		if errs[r] != nil {
			t.Fatalf("%d ranks: rank %d: %v", n, r, errs[r])
		}
		if !bytes.Equal(kept[r], kept[0]) {
			t.Errorf("%d ranks: the checkpoint of rank %d is not that of rank 0", n, r)
		}
	}
	return all[0], kept[0]
}

// TestSlicesHaveTheSameBits: with slices, losses and checkpoints after some steps are the
// same bytes on 1, 2 and 4 ranks, dropout, labels that are ignored in unequal numbers, slices
// without any, skipped steps and norms over all slices included, and so they are where another number
// of ranks resumes from a checkpoint.
func TestSlicesHaveTheSameBits(t *testing.T) {
	policies := []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()}
	if testing.Short() {
		policies = policies[1:2]
	}
	for query, slices := range map[string]int{"mlp?in=20&hidden=16": 8, "gpt?layers=1&dim=16&heads=2&seq=8&vocab=24&dropout=0.1": 8, "resnet8?width=4&size=8": 4} {
		rows, steps := 2*slices, 5
		z, err := models.Open(fmt.Sprintf("%s&batch=%d", query, rows))
		if err != nil {
			t.Fatal(err)
		}
		var feeds []ampc.Feed
		for i := range steps {
			f := z.Batch(int64(i))
			for name, v := range f {
				if y, labels := v.([]int32); labels && name != "ids" {
					unlabel(y, i)
				}
			}
			feeds = append(feeds, f)
		}
		for _, p := range policies {
			t.Run(z.Name+"/"+p.Name, func(t *testing.T) {
				s := slicedRun{query: query, norms: z.Name == "resnet8", policy: p, slices: slices, rows: rows, dir: t.TempDir()}
				wantLosses, want := s.on(t, 1, feeds)
				if p.Low == ampc.F16 && wantLosses[1] == wantLosses[3] {
					t.Errorf("the first step was not skipped: scales %v", wantLosses)
				}
				if p.Low == ampc.F16 && wantLosses[2*steps-1] != wantLosses[2*steps-3] {
					t.Errorf("the last step was skipped: scales %v", wantLosses)
				}
				for n := 2; n <= slices; n *= 2 {
					losses, got := s.on(t, n, feeds)
					if fmt.Sprint(losses) != fmt.Sprint(wantLosses) {
						t.Errorf("%d ranks: losses %v, one process has %v", n, losses, wantLosses)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%d ranks: another checkpoint than one process", n)
					}
				}
				if p.Name != policies[0].Name {
					return
				}
				_, half := s.on(t, 4, feeds[:3])
				s.from = filepath.Join(s.dir, "half")
				if err := os.WriteFile(s.from, half, 0o600); err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{1, 2} {
					if _, got := s.on(t, n, feeds[3:]); !bytes.Equal(got, want) {
						t.Errorf("4 ranks, resumed on %d: another checkpoint than one process", n)
					}
				}
			})
		}
	}
}

// unlabel takes labels away: a number of them that differs with the rows and, in the last
// quarter of some steps, all.
func unlabel(y []int32, step int) {
	for i := range y {
		if i*i%7 < step || step%2 == 1 && i >= len(y)*3/4 {
			y[i] = -100
		}
	}
}

// A model whose running statistics depend on the order of slices is refused in one line.
func TestSlicesRefuseStatistics(t *testing.T) {
	s := slicedRun{query: "resnet8?width=4&size=8", slices: 2, rows: 4}
	_, _, err := s.train(nil, nil)
	if err == nil || !strings.Contains(err.Error(), "slices and the running statistics") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
