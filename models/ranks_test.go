package models_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// sharedModels are small forms of zoo models that ranks can share: their rows do not
// depend on each other, so ranks compute what one process computes. Batch norms do, over
// the batch; their steps are compiled and run, and compared between ranks alone.
var sharedModels = []struct {
	name, query string
	norms       bool
}{
	{"mlp", "in=20&hidden=16", false},
	{"lenet", "size=20&pad=2&fc1=16&fc2=8", false},
	{"resnet8", "width=4&size=8", true},
	{"gpt", "layers=1&dim=16&heads=2&seq=8&vocab=24&dropout=0.1", false},
	{"lstm", "dim=16&seq=6&vocab=24", false},
	{"bert", "layers=1&dim=16&heads=2&seq=8&vocab=24", false},
	{"vit", "layers=1&dim=16&heads=2&size=8", false},
}

// share is the rows of a feed that a rank has.
func share(f ampc.Feed, rank, size int) ampc.Feed {
	mine := ampc.Feed{}
	for name, v := range f {
		x := reflect.ValueOf(v)
		n := x.Len() / size
		mine[name] = x.Slice(rank*n, (rank+1)*n).Interface()
	}
	return mine
}

// trainedOn runs steps of a model on its part of the batches and returns losses and state.
func trainedOn(query string, batch int, w world.World, p ampc.Policy, feeds []ampc.Feed, chunks int) (losses []float64, state map[string]string, err error) {
	z, err := models.Open(fmt.Sprintf("%s&batch=%d", query, batch))
	if err != nil {
		return nil, nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy, c.Clip.Norm, c.EMA, c.Chunks = p, 1, 0.9, chunks
	if w != nil {
		c.Parallel = ampc.DataParallel(w)
		c.Parallel.Bucket = 4096
	}
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range feeds {
		r, err := s.Run(context.Background(), f)
		if err != nil {
			return nil, nil, err
		}
		m, err := r.Wait(context.Background())
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, m.Loss)
	}
	state = map[string]string{}
	for _, name := range z.Model.Variables() {
		v, err := z.Model.Variable(name)
		if err != nil {
			return nil, nil, err
		}
		state[name] = string(v.Bytes)
	}
	return losses, state, nil
}

func TestZooOnRanks(t *testing.T) {
	const batch, steps = 8, 3
	policies := []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()}
	if testing.Short() {
		policies = policies[1:2]
	}
	for _, m := range sharedModels {
		for _, p := range policies {
			t.Run(m.name+"/"+p.Name, func(t *testing.T) {
				z, err := models.Open(fmt.Sprintf("%s?%s&batch=%d", m.name, m.query, batch))
				if err != nil {
					t.Fatal(err)
				}
				var feeds []ampc.Feed
				for i := range steps {
					feeds = append(feeds, z.Batch(int64(i)))
				}
				query := m.name + "?" + m.query
				want, _, err := trainedOn(query, batch, nil, p, feeds, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{2, 4} {
					onRanks(t, n, query, batch, p, feeds, 0, func(losses []float64) error {
						for i := range losses {
							if !m.norms && math.Abs(losses[i]-want[i]) > 3e-3*(1+math.Abs(want[i])) {
								return fmt.Errorf("loss %g at step %d, one process has %g", losses[i], i, want[i])
							}
						}
						return nil
					})
				}
			})
		}
	}
}

// onRanks trains on n ranks of this process, which must end with the same bits.
func onRanks(t *testing.T, n int, query string, batch int, p ampc.Policy, feeds []ampc.Feed, chunks int, check func(losses []float64) error) {
	t.Helper()
	states, errs := make([]map[string]string, n), make([]error, n)
	var all sync.WaitGroup
	for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		all.Go(func() {
			defer w.Close()
			var mine []ampc.Feed
			for _, f := range feeds {
				mine = append(mine, share(f, r, n))
			}
			var losses []float64
			if losses, states[r], errs[r] = trainedOn(query, batch/n, w, p, mine, chunks); errs[r] == nil {
				errs[r] = check(losses)
			}
		})
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("%d ranks: rank %d: %v", n, r, err)
		}
	}
	for name, v := range states[0] {
		for r := 1; r < n; r++ {
			if states[r][name] != v {
				t.Errorf("%d ranks: %s differs on ranks 0 and %d", n, name, r)
			}
		}
	}
}

// TestOneRankSkipsForAll: over 100 steps, rows of one rank that are not finite, and scales
// that overflow, skip the same steps on all ranks, which end with the same bits.
func TestOneRankSkipsForAll(t *testing.T) {
	const n, each, steps = 4, 2, 100
	z, err := models.Open(fmt.Sprintf("mlp?in=20&hidden=16&batch=%d", n*each))
	if err != nil {
		t.Fatal(err)
	}
	skips, states, errs := make([]string, n), make([]map[string]string, n), make([]error, n)
	var all sync.WaitGroup
	for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		all.Go(func() {
			defer w.Close()
			errs[r] = func() error {
				own, err := models.Open(fmt.Sprintf("mlp?in=20&hidden=16&batch=%d", each))
				if err != nil {
					return err
				}
				defer own.Model.Close()
				c := own.Steps[0].Config
				c.Policy, c.Scaler, c.Parallel = ampc.MixedF16(), ampc.Dynamic(), ampc.DataParallel(w)
				c.Scaler.Init, c.Scaler.Every = 1<<22, 10
				s, err := own.Model.Train(c, own.Steps[0].Losses...)
				if err != nil {
					return err
				}
				for i := range steps {
					f := share(z.Batch(int64(i)), r, n)
					if x := f["x"].([]float32); i%17 == 5 && r == i%n {
						x[3] = float32(math.Inf(1))
					}
					got, err := s.Run(context.Background(), f)
					if err != nil {
						return err
					}
					m, err := got.Wait(context.Background())
					if err != nil {
						return err
					}
					skips[r] += fmt.Sprintf("%t %g\n", m.Skipped, m.Scale)
					if i%17 == 5 && !m.Skipped {
						return fmt.Errorf("step %d: taken although rank %d fed an Inf", i, i%n)
					}
				}
				states[r] = map[string]string{}
				for _, name := range own.Model.Variables() {
					v, err := own.Model.Variable(name)
					if err != nil {
						return err
					}
					states[r][name] = string(v.Bytes)
				}
				return nil
			}()
		})
	}
	all.Wait()
	for r := range n {
		if errs[r] != nil {
			t.Fatalf("rank %d: %v", r, errs[r])
		}
		if skips[r] != skips[0] {
			t.Errorf("rank %d skips other steps than rank 0:\n%s\n%s", r, skips[r], skips[0])
		}
		if !reflect.DeepEqual(states[r], states[0]) {
			t.Errorf("the state of rank %d is not that of rank 0", r)
		}
	}
	if !regexp.MustCompile("(?s)true.*false").MatchString(skips[0]) {
		t.Errorf("no step was skipped, or none taken:\n%s", skips[0])
	}
}
