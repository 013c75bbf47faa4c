package nccl_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/cuda/sim"
	"ampc/models"
	"ampc/nccl"
	"ampc/runtime/gpu"
	"ampc/world"
)

// onRanks runs f on every rank of one process, each with a simulated device of its own, and
// returns what it returned by rank.
func onRanks(t *testing.T, n int, timeout time.Duration, f func(w world.World, b *gpu.Backend) error) []error {
	t.Helper()
	return onDevices(t, n, timeout, func(int) sim.Options { return sim.Options{Major: 9} }, f)
}

// onDevices is onRanks with options for the device of each rank.
func onDevices(t *testing.T, n int, timeout time.Duration, device func(rank int) sim.Options, f func(w world.World, b *gpu.Backend) error) []error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "id")
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			b, err := gpu.OpenSimulator(device(r))
			if err != nil {
				errs[r] = err
				return
			}
			w, err := nccl.Open(b, nccl.Options{Rank: r, Size: n, File: file, Timeout: timeout})
			if err == nil {
				err = errors.Join(f(w, b), w.Close())
			}
			errs[r] = errors.Join(err, b.Close())
		})
	}
	all.Wait()
	return errs
}

// run is one process of a run: it trains a zoo model on its rows of each batch.
type run struct {
	query    string
	policy   ampc.Policy
	parallel ampc.Parallel // except for the World
	scaler   ampc.Scaler
	rows     int // of all ranks
	steps    int
	spoil    func(step, rank int) bool // rows of which an element is infinite
	dir      string                    // for checkpoints
}

// learned is what a run leaves.
type learned struct {
	losses []float64
	skips  string // of each step, with the loss scale
	start  map[string][]byte
	state  map[string][]byte
	saved  string // the checkpoint
}

func (u run) batch() (*models.Zoo, error) {
	return models.Open(fmt.Sprintf("%s&batch=%d", u.query, u.rows))
}

// train trains as one of the ranks of w, or alone.
func (u run) train(w world.World, b *gpu.Backend) (*learned, error) {
	rank, ranks := 0, 1
	if w != nil {
		rank, ranks = w.Rank(), w.Size()
	}
	parts, each := ranks, 1 // of the batch, and of those this rank's
	if u.parallel.Slices > 0 {
		parts, each = u.parallel.Slices, u.parallel.Slices/ranks
	}
	whole, err := u.batch()
	if err != nil {
		return nil, err
	}
	z, err := models.Open(fmt.Sprintf("%s&batch=%d", u.query, u.rows/parts), ampc.On(b))
	if err != nil {
		return nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy, c.Clip.Norm, c.EMA, c.Parallel, c.Scaler = u.policy, 1, 0.9, u.parallel, u.scaler
	c.Parallel.World, c.Parallel.Bucket = w, 4096
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, err
	}
	l := &learned{}
	if l.start, err = variables(z.Model); err != nil {
		return nil, err
	}
	for i := range u.steps {
		var feeds []ampc.Feed
		for k := range each {
			f := share(whole.Batch(int64(i)), rank*each+k, parts)
			if x, ok := f["x"].([]float32); ok && u.spoil != nil && u.spoil(i, rank) {
				x[3] = float32(math.Inf(1))
			}
			feeds = append(feeds, f)
		}
		r, err := s.Run(context.Background(), feeds...)
		if err != nil {
			return nil, err
		}
		m, err := r.Wait(context.Background())
		if err != nil {
			return nil, err
		}
		l.losses = append(l.losses, m.Loss)
		l.skips += fmt.Sprintf("%t %g\n", m.Skipped, m.Scale)
	}
	if l.state, err = variables(z.Model); err != nil {
		return nil, err
	}
	path := filepath.Join(u.dir, "shared")
	if !u.parallel.Shard {
		path = filepath.Join(u.dir, fmt.Sprint("rank", rank))
	}
	if err := z.Model.SaveFile(path); err != nil {
		return nil, err
	}
	saved, err := os.ReadFile(path)
	l.saved = string(saved)
	return l, err
}

func variables(m *ampc.Model) (map[string][]byte, error) {
	state := map[string][]byte{}
	for _, name := range m.Variables() {
		v, err := m.Variable(name)
		if err != nil {
			return nil, err
		}
		state[name] = v.Bytes
	}
	return state, nil
}

// share is the part of a feed that a rank or slice has.
func share(f ampc.Feed, part, parts int) ampc.Feed {
	mine := ampc.Feed{}
	for name, v := range f {
		x := reflect.ValueOf(v)
		n := x.Len() / parts
		mine[name] = x.Slice(part*n, (part+1)*n).Interface()
	}
	return mine
}

// alone trains on one simulated device.
func (u run) alone(t *testing.T) *learned {
	t.Helper()
	b, err := gpu.OpenSim("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	u.dir = t.TempDir()
	l, err := u.train(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// on trains on several ranks, which must learn the same bits, and returns what they have learned.
func (u run) on(t *testing.T, ranks int) *learned {
	t.Helper()
	all := make([]*learned, ranks)
	u.dir = t.TempDir()
	for r, err := range onRanks(t, ranks, time.Minute, func(w world.World, b *gpu.Backend) (err error) {
		all[w.Rank()], err = u.train(w, b)
		return err
	}) {
		if err != nil {
			t.Fatalf("%d ranks: rank %d: %v", ranks, r, err)
		}
	}
	for r := 1; r < ranks; r++ {
		same := all[r].saved == all[0].saved
		if u.parallel.Shard {
			same = reflect.DeepEqual(all[r].state, all[0].state)
		}
		if !same || all[r].skips != all[0].skips {
			t.Errorf("%d ranks: rank %d has learned something else than rank 0", ranks, r)
		}
	}
	return all[0]
}

const (
	smallMLP = "mlp?in=20&hidden=16"
	smallGPT = "gpt?layers=1&dim=16&heads=2&seq=8&vocab=24&dropout=0.1"
)

// policies are those that ranks are compared under.
func policies() []ampc.Policy {
	if testing.Short() {
		return []ampc.Policy{ampc.MixedF16()}
	}
	return []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()}
}

var everyNumber = flag.Bool("every-number", false, "TestRanksLearnAsOne trains every model on 2, 4 and 8 ranks")

// TestRanksLearnAsOne: 2, 4 and 8 GPUs that share the batches of one learn what it learns, except for the
// order of sums, whatever dtype messages have.
func TestRanksLearnAsOne(t *testing.T) {
	for _, query := range []string{smallMLP, smallGPT} {
		for i, p := range policies() {
			for j, message := range []ampc.DType{0, ampc.BF16} {
				numbers := [][]int{{2, 8}, {4}}[(i+j)%2]
				if *everyNumber {
					numbers = []int{2, 4, 8}
				}
				u := run{query: query, policy: p, rows: 8, steps: 3, parallel: ampc.Parallel{Message: message}}
				t.Run(fmt.Sprintf("%s/%s/%v", query[:3], p.Name, message), func(t *testing.T) {
					want := u.alone(t)
					for _, n := range numbers {
						got := u.on(t, n)
						got.near(t, want, n)
						if far := distance(got.state, want.state) / distance(want.start, want.state); p.Name == "" && message == 0 && far > 1e-3 {
							t.Errorf("%d ranks: the weights are %g of their way from those of one device", n, far)
						}
					}
				})
			}
		}
	}
}

// near compares the losses of so many ranks with those of one device.
func (l *learned) near(t *testing.T, want *learned, ranks int) {
	t.Helper()
	for i := range l.losses {
		if math.Abs(l.losses[i]-want.losses[i]) > 3e-3*(1+math.Abs(want.losses[i])) {
			t.Errorf("%d ranks: loss %g at step %d, one device has %g", ranks, l.losses[i], i, want.losses[i])
		}
	}
}

// distance is the sum of the differences of all f32 parameters.
func distance(a, b map[string][]byte) (sum float64) {
	for name, x := range a {
		if y := b[name]; !strings.Contains(name, "/") {
			for i := 0; i+4 <= len(x); i += 4 {
				u, v := math.Float32frombits(binary.LittleEndian.Uint32(x[i:])), math.Float32frombits(binary.LittleEndian.Uint32(y[i:]))
				sum += math.Abs(float64(u - v))
			}
		}
	}
	return sum
}

// TestSlicesHaveTheSameBits: with slices, checkpoints are the same bytes on 1, 2, 4 and 8 GPUs.
func TestSlicesHaveTheSameBits(t *testing.T) {
	for _, query := range []string{smallMLP, smallGPT} {
		for _, p := range policies() {
			u := run{query: query, policy: p, rows: 16, steps: 2, parallel: ampc.Parallel{Slices: 8}}
			want := u.alone(t)
			for _, n := range []int{2, 4, 8} {
				if got := u.on(t, n); got.saved != want.saved || !slices.Equal(got.losses, want.losses) {
					t.Errorf("%s, %s: %d ranks have other bits than one device", query, p.Name, n)
				}
			}
		}
	}
}

// TestSharded: GPUs that share masters, moments and averages learn what one GPU learns.
func TestSharded(t *testing.T) {
	for _, p := range policies() {
		u := run{query: smallMLP, policy: p, rows: 8, steps: 3, parallel: ampc.Parallel{Shard: true}}
		want := run{query: u.query, policy: p, rows: 8, steps: 3}.alone(t)
		for _, n := range []int{2, 4} {
			u.on(t, n).near(t, want, n)
		}
	}
}

// TestShardedTable: of a table that a head shares, each GPU takes its part of the rows that all look up.
func TestShardedTable(t *testing.T) {
	u := run{query: smallGPT + "&vocab=901", policy: ampc.Policy{}, rows: 8, steps: 2, parallel: ampc.Parallel{Shard: true}}
	want := run{query: u.query, policy: u.policy, rows: u.rows, steps: u.steps}.alone(t)
	u.on(t, 2).near(t, want, 2)
}

// TestSyncNorms: batch norms over all GPUs normalize as one GPU does with the whole batch.
func TestSyncNorms(t *testing.T) {
	u := run{query: "resnet8?width=4&size=8", policy: ampc.MixedF16(), rows: 8, steps: 2, parallel: ampc.Parallel{SyncNorms: true}}
	want := run{query: u.query, policy: u.policy, rows: u.rows, steps: u.steps}.alone(t)
	u.on(t, 2).near(t, want, 2)
}

// TestOneRankSkipsForAll: rows of one GPU that are not finite, and scales that overflow, skip the same
// steps on all.
func TestOneRankSkipsForAll(t *testing.T) {
	const ranks = 4
	u := run{query: smallMLP, policy: ampc.MixedF16(), rows: 8, steps: 30, scaler: ampc.Dynamic(),
		spoil: func(step, rank int) bool { return step%7 == 5 && rank == step%ranks }}
	u.scaler.Init, u.scaler.Every = 1<<22, 5
	got := u.on(t, ranks)
	lines := strings.Split(got.skips, "\n")
	taken := 0
	for i := range u.steps {
		skipped := strings.HasPrefix(lines[i], "true")
		if !skipped {
			taken++
		}
		if i%7 == 5 && !skipped {
			t.Errorf("step %d: taken although rank %d fed an Inf", i, i%ranks)
		}
	}
	if taken == 0 || !strings.HasPrefix(lines[0], "true") {
		t.Errorf("no step was taken, or the first scale did not overflow:\n%s", got.skips)
	}
}
