package models_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// microLosses trains steps of several micro-batches and returns their losses. Each rank runs its rows
// of each feed; with slices its slices of the feeds.
func microLosses(query string, w world.World, parallel ampc.Parallel, change func(c *ampc.TrainConfig), steps [][]ampc.Feed) ([]float64, error) {
	const rows = 8
	rank, ranks := 0, 1
	if w != nil {
		rank, ranks = w.Rank(), w.Size()
	}
	cut := max(ranks, parallel.Slices)
	z, err := models.Open(fmt.Sprintf("%s&batch=%d", query, rows/cut))
	if err != nil {
		return nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Clip.Norm, c.EMA, c.Parallel = 1, 0.9, parallel
	c.Parallel.World, c.Parallel.Bucket = w, 4096
	if parallel.Slices == 0 {
		c.Micro = len(steps[0])
	}
	change(&c)
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, err
	}
	var losses []float64
	for _, feeds := range steps {
		var mine []ampc.Feed
		if n := parallel.Slices; n > 0 {
			for i := range n / ranks {
				mine = append(mine, share(feeds[0], rank*n/ranks+i, n))
			}
		} else {
			for _, f := range feeds {
				mine = append(mine, share(f, rank, ranks))
			}
		}
		r, err := s.Run(context.Background(), mine...)
		if err != nil {
			return nil, err
		}
		m, err := r.Wait(context.Background())
		if err != nil {
			return nil, err
		}
		losses = append(losses, m.Loss)
	}
	return losses, nil
}

// microOnRanks are the losses of rank 0 of n, which the others must have, too.
func microOnRanks(t *testing.T, n int, query string, parallel ampc.Parallel, change func(c *ampc.TrainConfig), steps [][]ampc.Feed) []float64 {
	t.Helper()
	all, errs := make([][]float64, n), make([]error, n)
	var ranks sync.WaitGroup
	for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		ranks.Go(func() {
			defer w.Close()
			all[r], errs[r] = microLosses(query, w, parallel, change, steps)
		})
	}
	ranks.Wait()
	for r := range n {
		if errs[r] != nil || !slices.Equal(all[r], all[0]) {
			t.Fatalf("rank %d: %v, losses %v, of rank 0 %v", r, errs[r], all[r], all[0])
		}
	}
	return all[0]
}

// A head in blocks of rows learns in several micro-batches what a whole head does, alone, on ranks, with
// parts of the state and 16-bit messages, and where bad micro-batches are dropped. In slices the
// bits do not depend on the number of ranks.
func TestChunksInMicroBatches(t *testing.T) {
	const query = "bert?layers=1&dim=32&heads=2&seq=16&vocab=200"
	z, err := models.Open(query + "&batch=8")
	if err != nil {
		t.Fatal(err)
	}
	var steps [][]ampc.Feed
	for i := range 3 {
		steps = append(steps, []ampc.Feed{z.Batch(int64(2 * i)), z.Batch(int64(2*i + 1))})
	}
	for _, p := range []ampc.Policy{{}, ampc.MixedF16()} {
		with := func(chunks int, bad ampc.BadMicro) func(c *ampc.TrainConfig) {
			return func(c *ampc.TrainConfig) { c.Policy, c.Chunks, c.BadMicro = p, chunks, bad }
		}
		alone := func(parallel ampc.Parallel, change func(c *ampc.TrainConfig)) []float64 {
			got, err := microLosses(query, nil, parallel, change, steps)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		want := alone(ampc.Parallel{}, with(0, 0))
		for what, got := range map[string][]float64{
			"alone":                       alone(ampc.Parallel{}, with(3, 0)),
			"alone, dropping":             alone(ampc.Parallel{}, with(3, ampc.DropMicro)),
			"2 ranks":                     microOnRanks(t, 2, query, ampc.Parallel{}, with(3, 0), steps),
			"4 ranks, parts":              microOnRanks(t, 4, query, ampc.Parallel{Shard: true}, with(3, 0), steps),
			"2 ranks, parts, f16 is sent": microOnRanks(t, 2, query, ampc.Parallel{Shard: true, Message: ampc.F16}, with(3, 0), steps),
		} {
			for i := range want {
				if math.Abs(got[i]-want[i]) > 3e-3*(1+math.Abs(want[i])) {
					t.Errorf("%s: %s: loss %d is %g, of a whole head %g", p.Name, what, i, got[i], want[i])
				}
			}
		}
		sliced := alone(ampc.Parallel{Slices: 4}, with(3, 0))
		if got := microOnRanks(t, 2, query, ampc.Parallel{Slices: 4}, with(3, 0), steps); !slices.Equal(got, sliced) {
			t.Errorf("%s: slices on 2 ranks: losses %v, in one process %v", p.Name, got, sliced)
		}
	}
}
