package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ampc"
	"ampc/models"
	"ampc/world"
)

// faultyBatch is four rows of a batch, the rows of rank 1 with a fault.
func faultyBatch(fault string, rank int) ampc.Feed {
	x, y := make([]float32, 4*8), make([]int32, 4)
	for i := range x {
		x[i] = float32(math.Sin(float64(i + 31*rank)))
	}
	if rank == 1 {
		switch fault {
		case "bad input":
			x[5] = float32(math.NaN())
		case "forward overflow":
			for i := range x {
				x[i] *= 5e4
			}
		}
	}
	return ampc.Feed{"x": x, "y": y}
}

// faultyStep is a step in which rows of large numbers overflow behind the first layer.
func faultyStep(w world.World, change func(c *ampc.TrainConfig)) (*ampc.Model, *ampc.Step, error) {
	m := ampc.New("m")
	x, y := m.Input("x", ampc.F32, 4, 8), m.Input("y", ampc.I32, 4)
	h := m.Relu(m.Affine(m.Linear("fc1", x, 16), 2, 0))
	c := ampc.TrainConfig{Optimizer: ampc.AdamW(0.1), LR: ampc.Constant(1e-3), Policy: ampc.MixedF16(), Clip: ampc.Clip{Norm: 1}, Parallel: ampc.DataParallel(w)}
	change(&c)
	s, err := m.Train(c, ampc.Loss{Value: m.CrossEntropy(m.Linear("fc2", m.Dropout("drop", h, 0.1), 4), y)})
	return m, s, err
}

// TestDiagnoseOnRanks: all ranks find the fault of one, whatever they share, under the names of the
// model and with the number of the rank. A replay that is saved finds it, too.
func TestDiagnoseOnRanks(t *testing.T) {
	variants := map[string]func(c *ampc.TrainConfig){
		"plain":  func(*ampc.TrainConfig) {},
		"shard":  func(c *ampc.TrainConfig) { c.Parallel.Shard, c.EMA = true, 0.9 },
		"micro":  func(c *ampc.TrainConfig) { c.Micro = 2 },
		"slices": func(c *ampc.TrainConfig) { c.Parallel.Slices = 4 },
	}
	for fault, cause := range map[string]ampc.Cause{"bad input": ampc.BadInput, "forward overflow": ampc.ForwardOverflow, "": ampc.NoFault} {
		for name, change := range variants {
			t.Run(fault+"/"+name, func(t *testing.T) {
				found := make([]*ampc.Diagnosis, 2)
				last := 0
				if name == "micro" || name == "slices" {
					last = 1
				}
				saved := filepath.Join(t.TempDir(), "replay")
				onRanks(t, 2, func(w world.World) error {
					m, s, err := faultyStep(w, change)
					if err != nil {
						return err
					}
					defer m.Close()
					feeds := []ampc.Feed{faultyBatch(fault, w.Rank())}
					if last == 1 {
						feeds = []ampc.Feed{faultyBatch("", w.Rank()), feeds[0]}
					}
					if _, err := s.Run(t.Context(), feeds...); err != nil {
						return err
					}
					if found[w.Rank()], err = s.Diagnose(t.Context()); err != nil {
						return err
					}
					return s.SaveReplay(saved)
				})
				d := found[0]
				if d.Cause != cause || d.String() != found[1].String() {
					t.Errorf("rank 0: %s\nrank 1: %s\nwant %s", d, found[1], cause)
				}
				if fault != "" && (!slices.Contains(d.Notes, "on rank 1") || d.Micro != last) || strings.Contains(d.String(), "rank1/") {
					t.Errorf("no note of rank 1, or another micro-batch than %d: %s", last, d)
				}
				if again, err := ampc.DiagnoseFile(t.Context(), saved); err != nil || again.Cause != cause {
					t.Errorf("of the file: %v %v", again, err)
				}
			})
		}
	}
}

// Four ranks find the fault of one of them, whole or sharded.
func TestDiagnoseOnFourRanks(t *testing.T) {
	for _, shard := range []bool{false, true} {
		found := make([]*ampc.Diagnosis, 4)
		onRanks(t, 4, func(w world.World) error {
			m, s, err := faultyStep(w, func(c *ampc.TrainConfig) { c.Parallel.Shard = shard })
			if err != nil {
				return err
			}
			defer m.Close()
			fault := "forward overflow"
			if w.Rank() != 2 {
				fault = ""
			}
			if _, err := s.Run(t.Context(), faultyBatch(fault, w.Rank()/2)); err != nil { // rank 2 has the rows of rank 1
				return err
			}
			found[w.Rank()], err = s.Diagnose(t.Context())
			return err
		})
		for r, d := range found {
			if d.Cause != ampc.ForwardOverflow || !slices.Contains(d.Notes, "on rank 2") || d.String() != found[0].String() {
				t.Errorf("rank %d, sharded %t: %s", r, shard, d)
			}
		}
	}
}

// lengthsOn is a step whose loss is the mean length of rows: its gradient is 0/0 where a row is 0.
func lengthsOn(w world.World, restore ampc.RestoreScale, shard bool) (*ampc.Model, *ampc.Step, error) {
	m := ampc.New("lengths")
	h := m.Linear("fc", m.Input("x", ampc.F32, 4, 8), 8, ampc.LinearOptions{NoBias: true})
	loss := m.ReduceMean(m.Sqrt(m.ReduceSum(m.Square(h), ampc.Axes(1))))
	c := ampc.TrainConfig{Optimizer: ampc.SGD(0), LR: ampc.Constant(0.01), Policy: ampc.MixedF16(), RestoreScale: restore, Parallel: ampc.DataParallel(w)}
	c.Parallel.Shard = shard
	s, err := m.Train(c, ampc.Loss{Value: loss})
	return m, s, err
}

// A row of one rank whose gradient is 0/0 lowers the loss scale of all. All put it back together, in a
// call or by themselves.
func TestRestoreScaleOnRanks(t *testing.T) {
	for _, restore := range []ampc.RestoreScale{ampc.RestoreAuto, ampc.RestoreAlways} {
		for _, shard := range []bool{false, true} {
			onRanks(t, 2, func(w world.World) error {
				m, s, err := lengthsOn(w, restore, shard)
				if err != nil {
					return err
				}
				defer m.Close()
				run := func(zeros bool) (ampc.Metrics, error) {
					x := make([]float32, 4*8)
					for i := range x {
						x[i] = float32(i%5) - 1.5
					}
					if zeros && w.Rank() == 1 {
						clear(x[:8])
					}
					r, err := s.Run(t.Context(), ampc.Feed{"x": x})
					if err != nil {
						return ampc.Metrics{}, err
					}
					return r.Wait(t.Context())
				}
				first, err := run(false)
				if err != nil {
					return err
				}
				if err := s.RestoreScale(); err == nil || !strings.Contains(err.Error(), "was taken") {
					return fmt.Errorf("after a step that was taken: %w", err)
				}
				for range 2 {
					bad, err := run(true)
					if err != nil || !bad.Skipped || bad.Scale != first.Scale || math.IsNaN(bad.Loss) {
						return fmt.Errorf("%+v, %w: want a skipped step at %g", bad, err, first.Scale)
					}
					if restore == ampc.RestoreAuto { // it was not diagnosed
						if err := s.RestoreScale(); err != nil {
							return err
						}
					}
				}
				if good, err := run(false); err != nil || good.Skipped || good.Scale != first.Scale {
					return fmt.Errorf("%+v, %w: want it taken at %g", good, err, first.Scale)
				}
				return nil
			})
		}
	}
}

// One rank alone cannot put the scale back: it is told which call is missing on which rank.
func TestRestoringAlone(t *testing.T) {
	errs := make(chan error, 2)
	for r, w := range world.Local(2, world.LocalOptions{Timeout: 100 * time.Millisecond}) {
		go func() {
			m, s, err := lengthsOn(w, ampc.RestoreNever, false)
			if err == nil {
				_, err = s.Run(t.Context(), ampc.Feed{"x": make([]float32, 4*8)})
			}
			if err == nil && r == 0 {
				if err = s.RestoreScale(); err != nil && strings.Contains(err.Error(), "rank 1 has not sent the message RestoreScale (a call of all ranks)") {
					err = nil
				} else {
					err = fmt.Errorf("alone: %w", err)
				}
			}
			if m != nil && r == 0 {
				err = errors.Join(err, m.Close())
			}
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
}

// TestDiagnoseModelsOnRanks: the steps of language models and of models with batch norms are replayed
// on all ranks, with parts of the state or without.
func TestDiagnoseModelsOnRanks(t *testing.T) {
	for _, spec := range []string{"gpt?layers=1&dim=16&heads=2&seq=8&vocab=24&batch=2&dropout=0.1", "resnet8?batch=2"} {
		for _, shard := range []bool{false, true} {
			t.Run(fmt.Sprint(spec, shard), func(t *testing.T) {
				found := make([]string, 2)
				onRanks(t, 2, func(w world.World) error {
					z, err := models.Open(spec)
					if err != nil {
						return err
					}
					defer z.Model.Close()
					c := z.Steps[0].Config
					c.Policy, c.Parallel = ampc.MixedBF16(), ampc.DataParallel(w)
					c.Parallel.Shard = shard
					s, err := z.Model.Train(c, z.Steps[0].Losses...)
					if err != nil {
						return err
					}
					if _, err := s.Run(t.Context(), z.Batch(int64(w.Rank()))); err != nil {
						return err
					}
					d, err := s.Diagnose(t.Context())
					if err == nil && d.Cause != ampc.NoFault {
						t.Errorf("rank %d: %s", w.Rank(), d)
					}
					if err == nil {
						found[w.Rank()] = d.String()
					}
					return err
				})
				if found[0] != found[1] {
					t.Errorf("rank 0: %s\nrank 1: %s", found[0], found[1])
				}
			})
		}
	}
}

// One rank alone cannot diagnose: it ends within the timeout with the name of the call and of the rank
// that did not come.
func TestDiagnoseOnOneRankAlone(t *testing.T) {
	errs := make([]error, 2)
	var ran [2]chan struct{}
	for i := range ran {
		ran[i] = make(chan struct{})
	}
	worlds := world.Local(2, world.LocalOptions{Timeout: 2 * time.Second})
	done := make(chan int)
	for r, w := range worlds {
		go func() {
			defer func() { done <- r }()
			m, s, err := faultyStep(w, func(*ampc.TrainConfig) {})
			if err == nil {
				defer m.Close()
				_, err = s.Run(context.Background(), faultyBatch("", r))
			}
			if errs[r] = err; err == nil && r == 0 {
				_, errs[r] = s.Diagnose(context.Background())
			}
			if close(ran[r]); r == 1 {
				<-ran[0] // this rank does not come
			}
		}()
	}
	<-done
	<-done
	for _, w := range worlds {
		w.Close()
	}
	if errs[1] != nil {
		t.Fatal(errs[1])
	}
	if err := errs[0]; err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Diagnose (a call of all ranks)") || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("%v", err)
	}
}
