package e2e_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/models"
	"ampc/world"
)

// shardedRun is a zoo model on one rank.
type shardedRun struct {
	zoo  *models.Zoo
	step *ampc.Step
	rank int
	size int
}

func openShards(w world.World, zoo string, p ampc.Policy, change func(c *ampc.TrainConfig)) (*shardedRun, error) {
	z, err := models.Open(zoo)
	if err != nil {
		return nil, err
	}
	c := z.Steps[0].Config
	c.Policy, c.EMA = p, 0.9
	r := &shardedRun{zoo: z, size: 1}
	if w != nil {
		c.Parallel = ampc.DataParallel(w)
		c.Parallel.Bucket = 1 << 14
		r.rank, r.size = w.Rank(), w.Size()
	}
	change(&c)
	r.step, err = z.Model.Train(c, z.Steps[0].Losses...)
	return r, err
}

// train runs steps over this rank's rows of batches of 8; bad is the number of one in which
// the last rank has an infinite pixel.
func (r *shardedRun) train(from, to, bad int) error {
	for i := from; i < to; i++ {
		n := 8 / r.size
		feed := pixels(i, n*r.rank, n)
		if i == bad && r.rank == r.size-1 {
			feed["x"].([]float32)[0] = float32(math.Inf(1))
		}
		res, err := r.step.Run(context.Background(), feed)
		if err != nil {
			return err
		}
		m, err := res.Wait(context.Background())
		if err != nil {
			return err
		}
		if m.Skipped != (i == bad) {
			return fmt.Errorf("step %d: skipped is %t", i, m.Skipped)
		}
	}
	return nil
}

// Checkpoints of sharded and whole runs are the same files after the same steps, one of which
// an overflow on one rank skips, and each kind continues from the other, on other ranks.
func TestShardedCheckpoints(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
		for _, ranks := range []int{2, 4, 8} {
			t.Run(fmt.Sprintf("%s/%d ranks", p.Name, ranks), func(t *testing.T) {
				if testing.Short() && ranks == 4 {
					t.Skip("2 and 8 ranks are enough in short runs")
				}
				dir := t.TempDir()
				zoo := fmt.Sprintf("mlp?batch=%d", 8/ranks)
				run := func(name string, load string, from, to int, shard bool) {
					onRanks(t, ranks, func(w world.World) error {
						r, err := openShards(w, zoo, p, func(c *ampc.TrainConfig) { c.Parallel.Shard = shard })
						if err != nil {
							return err
						}
						defer r.zoo.Model.Close()
						if load != "" {
							if err := r.zoo.Model.LoadFile(filepath.Join(dir, load)); err != nil {
								return err
							}
						}
						if err := r.train(from, to, 2); err != nil {
							return err
						}
						if !shard && w.Rank() > 0 {
							return nil
						}
						return r.zoo.Model.SaveFile(filepath.Join(dir, name))
					})
				}
				run("whole", "", 0, 5, false)
				run("sharded", "", 0, 5, true)
				run("whole.on", "sharded", 5, 7, false)
				run("sharded.on", "whole", 5, 7, true)
				sameFiles(t, filepath.Join(dir, "whole"), filepath.Join(dir, "sharded"))
				sameFiles(t, filepath.Join(dir, "whole.on"), filepath.Join(dir, "sharded.on"))
			})
		}
	}
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, err := safetensors.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := safetensors.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if len(x.Tensors) != len(y.Tensors) || !maps.Equal(x.Meta, y.Meta) {
		t.Errorf("%s holds %v and %v, %s %v and %v", filepath.Base(a), x.Tensors, x.Meta, filepath.Base(b), y.Tensors, y.Meta)
	}
	for _, info := range x.Tensors {
		other, ok := y.Lookup(info.Name)
		if !ok || !slices.Equal(other.Shape, info.Shape) || other.DType != info.DType {
			t.Errorf("%s holds %s, %s %s", filepath.Base(a), info, filepath.Base(b), other)
			continue
		}
		p, q := make([]byte, info.Bytes()), make([]byte, info.Bytes())
		if err := errors.Join(x.Read(info.Name, p), y.Read(info.Name, q)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, q) {
			t.Errorf("%s: other bits in %s than in %s", info.Name, filepath.Base(a), filepath.Base(b))
		}
	}
}

// A checkpoint of sharded ranks loads into one process and another number of ranks, and an
// evaluation and averages of sharded weights are those of one process.
func TestShardedModelIsOneModel(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "four")
	var want []float64
	evaluate := func(m *ampc.Model, r *shardedRun) ([]float64, error) {
		var out []float64
		for _, weights := range []ampc.Weights{ampc.Live, ampc.EMA} {
			loss := r.zoo.Steps[0].Losses[0].Value
			s, err := m.Infer(ampc.InferConfig{Weights: weights}, loss)
			if err != nil {
				return nil, err
			}
			res, err := s.Run(context.Background(), pixels(9, 0, 2))
			if err != nil {
				return nil, err
			}
			v, err := res.Value(loss)
			if err != nil {
				return nil, err
			}
			out = append(out, v.At(0))
			if err := s.Close(); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	onRanks(t, 4, func(w world.World) error {
		r, err := openShards(w, "mlp?batch=2", ampc.MixedF16(), func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
		if err != nil {
			return err
		}
		defer r.zoo.Model.Close()
		if err := r.train(0, 3, -1); err != nil {
			return err
		}
		if err := r.zoo.Model.SaveFile(path); err != nil {
			return err
		}
		losses, err := evaluate(r.zoo.Model, r)
		if w.Rank() == 0 {
			want = losses
		}
		return err
	})
	r, err := openShards(nil, "mlp?batch=2", ampc.MixedF16(), func(c *ampc.TrainConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.zoo.Model.Close()
	if err := r.zoo.Model.LoadFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := evaluate(r.zoo.Model, r)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("losses %v in one process, on sharded ranks %v", got, want)
	}
	again := filepath.Join(dir, "two")
	onRanks(t, 2, func(w world.World) error {
		r, err := openShards(w, "mlp?batch=4", ampc.MixedF16(), func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
		if err != nil {
			return err
		}
		defer r.zoo.Model.Close()
		if err := r.zoo.Model.LoadFile(path); err != nil {
			return err
		}
		return r.zoo.Model.SaveFile(again)
	})
	sameFiles(t, path, again)
}

// Each of k ranks stores a k-th of the weights, moments and averages.
func TestShardedStateIsAKth(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.MixedBF16()} {
		whole := int64(0)
		for _, ranks := range []int{1, 2, 4, 8} {
			onRanks(t, ranks, func(w world.World) error {
				r, err := openShards(w, "mlp?batch=1", p, func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
				if err != nil {
					return err
				}
				defer r.zoo.Model.Close()
				state := int64(0)
				for _, v := range r.step.Program().Vars {
					if (v.Kind == ir.Param || v.Kind == ir.State) && v.Role() != "acc" {
						state += v.Type.Bytes()
					}
				}
				if ranks == 1 {
					whole = state
				}
				if most := whole/int64(ranks) + 400; state > most { // counters, and what fills tensors up
					return fmt.Errorf("%d bytes of state, want at most %d of %d", state, most, whole)
				}
				return nil
			})
		}
	}
}

// A model that is saved on one rank alone ends with a line that says what all ranks must call.
func TestSavingShardsAlone(t *testing.T) {
	worlds := world.Local(2, world.LocalOptions{Timeout: 100 * time.Millisecond})
	var saved error
	done := make(chan error)
	for r, w := range worlds {
		go func() {
			run, err := openShards(w, "mlp?batch=4", ampc.Policy{}, func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
			if err == nil && r == 0 {
				saved = run.zoo.Model.SaveFile(filepath.Join(t.TempDir(), "one"))
			}
			done <- err
		}()
	}
	for range worlds {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if want := "rank 1 has not sent the message SaveFile"; saved == nil || !strings.Contains(saved.Error(), want) || !strings.Contains(saved.Error(), "a call of all ranks") {
		t.Errorf("%v, want %q", saved, want)
	}
}

// Where rank 0 cannot write, all ranks return its error, however long.
func TestSavingShardsFailsOnAllRanks(t *testing.T) {
	errs := make([]error, 2)
	path := "/nowhere" + strings.Repeat("/deeper", 60)
	onRanks(t, 2, func(w world.World) error {
		r, err := openShards(w, "mlp?batch=4", ampc.Policy{}, func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
		if err != nil {
			return err
		}
		defer r.zoo.Model.Close()
		errs[w.Rank()] = r.zoo.Model.SaveFile(path)
		return nil
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "/nowhere") || r > 0 && !strings.HasPrefix(err.Error(), "rank 0: ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Ranks that do not see the same files cannot save their shards: all are told, nothing is left, and what
// rank 0 has saved before stays.
func TestSavingShardsToOtherFiles(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	path := filepath.Join(dirs[0], "saved.safetensors")
	errs := make([]error, 2)
	onRanks(t, 2, func(w world.World) error {
		r, err := openShards(w, "mlp?batch=4", ampc.Policy{}, func(c *ampc.TrainConfig) { c.Parallel.Shard = true })
		if err != nil {
			return err
		}
		defer r.zoo.Model.Close()
		if err := r.zoo.Model.SaveFile(path); err != nil {
			return err
		}
		before, err := r.zoo.Model.Variable("fc1.w")
		if err != nil {
			return err
		}
		if err := r.train(0, 1, -1); err != nil {
			return err
		}
		errs[w.Rank()] = r.zoo.Model.SaveFile(filepath.Join(dirs[w.Rank()], "saved.safetensors"))
		if err := r.zoo.Model.LoadFile(path); err != nil {
			return err
		}
		after, err := r.zoo.Model.Variable("fc1.w")
		if err == nil && !bytes.Equal(before.Bytes, after.Bytes) {
			err = errors.New("the checkpoint is not that of before")
		}
		return err
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "the file system is not shared") || r == 0 && !strings.HasPrefix(err.Error(), "rank 1: ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dirs[0], "*.shards")); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A parameter of which one rank has a part that is not finite is named on all ranks.
func TestNotFinite(t *testing.T) {
	for _, shard := range []bool{false, true} {
		onRanks(t, 2, func(w world.World) error {
			r, err := openShards(w, "mlp?batch=4", ampc.Policy{}, func(c *ampc.TrainConfig) { c.Parallel.Shard = shard })
			if err != nil {
				return err
			}
			defer r.zoo.Model.Close()
			if name, err := r.zoo.Model.NotFinite(); err != nil || name != "" {
				return fmt.Errorf("%q is not finite, %w", name, err)
			}
			v, err := r.zoo.Model.Variable("fc2.w")
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(v.Bytes[len(v.Bytes)-4:], math.Float32bits(float32(math.NaN())))
			if err := r.zoo.Model.SetVariable("fc2.w", v); err != nil {
				return err
			}
			if name, err := r.zoo.Model.NotFinite(); err != nil || name != "fc2.w" {
				return fmt.Errorf("%q is not finite, %w; want fc2.w", name, err)
			}
			return nil
		})
	}
}

// Ranks whose file systems are not shared load one checkpoint or none: all are told of a rank that
// has no file, or another one, and keep what they had. Copies of one file are as good as the file.
func TestLoadingOtherFiles(t *testing.T) {
	for _, shard := range []bool{false, true} {
		for want, c := range map[string]struct {
			file [2]int // that a rank has, 0 for none
		}{
			"":                        {[2]int{2, 2}},
			"no such file":            {[2]int{1, 0}},
			"rank 1 has read another": {[2]int{1, 2}},
		} {
			t.Run(fmt.Sprintf("shard %t, %q", shard, want), func(t *testing.T) {
				dirs := [2]string{t.TempDir(), t.TempDir()}
				onRanks(t, 2, func(w world.World) error {
					r, err := openShards(w, "mlp?batch=4", ampc.Policy{}, func(c *ampc.TrainConfig) { c.Parallel.Shard = shard })
					if err != nil {
						return err
					}
					defer r.zoo.Model.Close()
					path := filepath.Join(dirs[w.Rank()], "saved")
					for i := range 3 {
						if err := r.train(i, i+1, -1); err != nil {
							return err
						}
						var snap *ampc.Snapshot
						if snap, err = r.zoo.Model.Snapshot(); err != nil {
							return err
						}
						for rank, dir := range dirs { // of rank 0, which has all
							if w.Rank() == 0 && c.file[rank] == i+1 {
								err = errors.Join(err, snap.WriteFile(filepath.Join(dir, "saved")))
							}
						}
						if err != nil {
							return err
						}
					}
					before, err := r.zoo.Model.Variable("fc1.w")
					if err != nil {
						return err
					}
					err = r.zoo.Model.LoadFile(path)
					after, lost := r.zoo.Model.Variable("fc1.w")
					switch same := slices.Equal(before.Floats(), after.Floats()); {
					case lost != nil:
						return lost
					case want == "" && (err != nil || same):
						return fmt.Errorf("not loaded: %v", err)
					case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !same):
						return fmt.Errorf("%v, want %q; the same weights %t", err, want, same)
					}
					return r.train(3, 4, -1)
				})
			})
		}
	}
}
