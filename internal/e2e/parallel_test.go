package e2e_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// rank trains a zoo model for some steps as one of several and returns its variables.
func rankOf(w world.World, zoo string, p ampc.Policy, steps int, feed func(step int) ampc.Feed) (map[string][]byte, []float64, error) {
	z, err := models.Open(zoo)
	if err != nil {
		return nil, nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	c.Policy = p
	if w != nil {
		c.Parallel = ampc.DataParallel(w)
		c.Parallel.Bucket = 1 << 14
	}
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, nil, err
	}
	var losses []float64
	for i := range steps {
		r, err := s.Run(context.Background(), feed(i))
		if err != nil {
			return nil, nil, err
		}
		m, err := r.Wait(context.Background())
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, m.Loss)
	}
	state := map[string][]byte{}
	for _, name := range z.Model.Variables() {
		v, err := z.Model.Variable(name)
		if err != nil {
			return nil, nil, err
		}
		state[name] = v.Bytes
	}
	return state, losses, nil
}

// onRanks runs f on every rank of one process and returns what it returned by rank.
func onRanks(t *testing.T, n int, f func(w world.World) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		all.Go(func() {
			defer w.Close()
			errs[r] = f(w)
		})
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// Ranks that start from other weights, or compile another step, end with a line that names one.
func TestRanksDisagree(t *testing.T) {
	for name, c := range map[string]struct {
		odd  func(m *ampc.Model, c *ampc.TrainConfig)
		want string
	}{
		"seed": {func(m *ampc.Model, c *ampc.TrainConfig) { m.Set(ampc.Seed(9)) }, "run: rank 1 has other variables than rank 0: give all ranks the same Seed, or load the same checkpoint"},
		"clip": {func(m *ampc.Model, c *ampc.TrainConfig) { c.Clip.Norm = 3 }, "run: rank 1 has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program"},
		"phase": {func(m *ampc.Model, c *ampc.TrainConfig) {
			c.LR = ampc.Phases(1e-3, ampc.Phase{Steps: 5 + int64(c.Parallel.World.Rank()%2), From: 1, Power: 1})
		}, "run: rank 1 has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program"},
		"policy": {func(m *ampc.Model, c *ampc.TrainConfig) { c.Policy = ampc.MixedBF16() }, "run: rank 1 has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program"},
		"bucket": {func(m *ampc.Model, c *ampc.TrainConfig) { c.Parallel.Bucket = 8 }, "run: rank 1 has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := make([]error, 3)
			onRanks(t, 3, func(w world.World) error {
				z, err := models.Open("mlp?batch=4")
				if err != nil {
					return err
				}
				defer z.Model.Close()
				config := z.Steps[0].Config
				config.Parallel = ampc.DataParallel(w)
				if w.Rank() == 1 || name == "phase" { // there all have phases, rank 1 longer ones
					c.odd(z.Model, &config)
				}
				s, err := z.Model.Train(config, z.Steps[0].Losses...)
				if err != nil {
					return err
				}
				_, errs[w.Rank()] = s.Run(context.Background(), pixels(0, 4*w.Rank(), 4))
				return nil
			})
			for r, err := range errs {
				if err == nil || err.Error() != c.want {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// A rank whose model has the same weights and computes something else with them ends all, too.
func TestRanksDisagreeOnTheModel(t *testing.T) {
	for name, odd := range map[string]func(m *ampc.Model, x ampc.Tensor) ampc.Tensor{
		"op":      func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Tanh(m.Dropout("drop", x, 0.1)) },
		"dropout": func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Relu(m.Dropout("drop", x, 0.3)) },
		"twice":   func(m *ampc.Model, x ampc.Tensor) ampc.Tensor { return m.Relu(m.Relu(m.Dropout("drop", x, 0.1))) },
	} {
		t.Run(name, func(t *testing.T) {
			errs := make([]error, 2)
			onRanks(t, 2, func(w world.World) error {
				m := ampc.New("m")
				defer m.Close()
				x, y := m.Input("x", ampc.F32, 2, 4), m.Input("y", ampc.I32, 2)
				if w.Rank() == 0 {
					m.Exp(x) // what the loss does not read may differ
				}
				h := m.Linear("fc1", x, 4)
				if w.Rank() == 1 {
					h = odd(m, h)
				} else {
					h = m.Relu(m.Dropout("drop", h, 0.1))
				}
				s, err := m.Train(ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(1), Parallel: ampc.DataParallel(w)}, ampc.Loss{Value: m.CrossEntropy(m.Linear("fc2", h, 2), y)})
				if err != nil {
					return err
				}
				_, errs[w.Rank()] = s.Run(t.Context(), ampc.Feed{"x": make([]float32, 8), "y": make([]int32, 2)})
				return nil
			})
			for r, err := range errs {
				if err == nil || !strings.HasPrefix(err.Error(), "run: rank 1 has compiled another step than rank 0") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// A gradient that no data reach, that of a bias under a mean, is as large on ranks as in one process.
func TestGradientWithoutDataOnRanks(t *testing.T) {
	const rows, steps = 8, 3
	x := make([]float32, rows*4)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	train := func(w world.World, from, n int) (ampc.HostTensor, error) {
		m := ampc.New("m", ampc.Seed(1))
		defer m.Close()
		c := ampc.TrainConfig{Optimizer: ampc.SGD(0.9), LR: ampc.Constant(0.1)}
		if w != nil {
			c.Parallel = ampc.DataParallel(w)
		}
		s, err := m.Train(c, ampc.Loss{Value: m.ReduceMean(m.Linear("fc", m.Input("x", ampc.F32, n, 4), 2))})
		if err != nil {
			return ampc.HostTensor{}, err
		}
		for range steps {
			if _, err := s.Run(t.Context(), ampc.Feed{"x": x[4*from : 4*(from+n)]}); err != nil {
				return ampc.HostTensor{}, err
			}
		}
		return m.Variable("fc.b")
	}
	want, err := train(nil, 0, rows)
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, 2, func(w world.World) error {
		got, err := train(w, w.Rank()*rows/2, rows/2)
		if err == nil && string(got.Bytes) != string(want.Bytes) {
			err = fmt.Errorf("%v on two ranks, %v in one process", got, want)
		}
		return err
	})
}

// pixels are rows of images and classes, drawn by their number in the global batch.
func pixels(step, from, n int) ampc.Feed {
	x, y := make([]float32, n*784), make([]int32, n)
	for i := range n {
		row := step*64 + from + i
		y[i] = int32(row * 7 % 10)
		for k := range 784 {
			x[i*784+k] = float32(math.Sin(float64(row*784+k)*0.37) + float64(y[i])/10)
		}
	}
	return ampc.Feed{"x": x, "y": y}
}

// TestDataParallel: ranks that share the batches of one process learn what it learns,
// and hold the same bits.
func TestDataParallel(t *testing.T) {
	for _, p := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
		name := p.Name
		if name == "" {
			name = "f32"
		}
		t.Run(name, func(t *testing.T) {
			const rows, steps = 64, 4
			_, want, err := rankOf(nil, "mlp?batch=64", p, steps, func(s int) ampc.Feed { return pixels(s, 0, rows) })
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{2, 4} {
				states := make([]map[string][]byte, n)
				onRanks(t, n, func(w world.World) error {
					each := rows / n
					state, losses, err := rankOf(w, fmt.Sprintf("mlp?batch=%d", each), p, steps, func(s int) ampc.Feed { return pixels(s, w.Rank()*each, each) })
					states[w.Rank()] = state
					for i := range losses {
						if math.Abs(losses[i]-want[i]) > 2e-4*want[i] {
							return fmt.Errorf("loss %g after %d steps, one process has %g", losses[i], i, want[i])
						}
					}
					return err
				})
				for name, v := range states[0] {
					for r := 1; r < n; r++ {
						if string(states[r][name]) != string(v) {
							t.Errorf("%d ranks: %s differs on ranks 0 and %d", n, name, r)
						}
					}
				}
			}
		})
	}
}

// Slices that do not fit the step or its feeds are one line that names the fields.
func TestSlicesAreRefused(t *testing.T) {
	for want, edit := range map[string]func(c *ampc.TrainConfig){
		"parallel: 6 slices: want a power of two":                                            func(c *ampc.TrainConfig) { c.Parallel.Slices = 6 },
		"parallel: of 4 slices each rank has 4 in one step, and Micro is 3: leave Micro out": func(c *ampc.TrainConfig) { c.Parallel.Slices, c.Micro = 4, 3 },
		"run: 1 feeds: Parallel.Slices is 4, of which each rank takes 4 in one step":         func(c *ampc.TrainConfig) { c.Parallel.Slices = 4 },
	} {
		z, err := models.Open("mlp?batch=4")
		if err != nil {
			t.Fatal(err)
		}
		c := z.Steps[0].Config
		edit(&c)
		s, err := z.Model.Train(c, z.Steps[0].Losses...)
		if err == nil {
			_, err = s.Run(context.Background(), pixels(0, 0, 4))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		z.Model.Close()
	}
}
