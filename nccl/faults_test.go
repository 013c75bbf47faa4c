package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/models"
	"ampc/nccl"
	"ampc/runtime/gpu"
	"ampc/world"
)

// A rank that dies, hangs or leaves ends the others within the timeout, with a line that names it.
func TestLostRanks(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	u := run{query: smallMLP, dir: t.TempDir(), policy: ampc.MixedF16(), rows: 6, steps: 3}
	for name, c := range map[string]struct {
		lose  func(w world.World, others *sync.WaitGroup)
		wants []string
	}{
		"dies":   {func(w world.World, _ *sync.WaitGroup) { nccl.Kill(w) }, []string{"step 3 of mlp", "not heard of for ", ": rank 1"}},
		"hangs":  {func(_ world.World, others *sync.WaitGroup) { others.Wait() }, []string{"nccl: step 3 of mlp was not finished within 1.5s: has not begun it: rank 1"}},
		"leaves": {func(w world.World, _ *sync.WaitGroup) { _ = w.Close() }, []string{"step 3 of mlp", "remote process exited or there was a network error", "not heard of for ", ": rank 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			lost := errors.New("lost")
			var others sync.WaitGroup
			others.Add(2)
			for r, err := range onRanks(t, 3, timeout, func(w world.World, b *gpu.Backend) error {
				v := u
				if w.Rank() == 1 {
					v.steps = 2
				} else {
					defer others.Done()
				}
				_, err := v.train(w, b)
				if w.Rank() == 1 && err == nil {
					c.lose(w, &others)
					return lost
				}
				return err
			}) {
				if r == 1 {
					continue // what it returns is of no interest
				}
				for _, want := range c.wants {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d: %v, want %q", r, err, want)
						break
					}
				}
			}
		})
	}
}

// TestDroppedWaits: without one of the waits between streams the simulator finds that a buffer of a
// message is in use.
func TestDroppedWaits(t *testing.T) {
	u := run{query: smallMLP, dir: t.TempDir(), policy: ampc.MixedF16(), rows: 4, steps: 1, parallel: ampc.Parallel{Message: ampc.BF16}}
	found := 0
	for wait := 1; wait <= 12; wait++ {
		for _, err := range onDevices(t, 2, time.Second, func(r int) sim.Options { return sim.Options{Major: 9, DropWait: wait * (1 - r)} }, func(w world.World, b *gpu.Backend) error {
			_, err := u.train(w, b)
			return err
		}) {
			if err != nil && strings.Contains(err.Error(), "with nothing to order them") {
				found++
			}
		}
	}
	if found < 6 {
		t.Errorf("%d of 12 waits are missed when they are dropped", found)
	}
}

// Ranks that do not find each other say what is missing.
func TestMeeting(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("another run"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]nccl.Options{
		"nccl: " + old + " exists: remove it if it is of an earlier run, or give all ranks another AMPC_NCCL_FILE":                         {Size: 2, File: old},
		"nccl: " + old + " holds no id: it has 11 bytes, want 128":                                                                         {Rank: 1, Size: 2, File: old},
		"nccl: rank 0 has not written " + filepath.Join(dir, "new") + " within 50ms: do all ranks see it?":                                 {Rank: 1, Size: 2, File: filepath.Join(dir, "new"), Timeout: 50 * time.Millisecond},
		"nccl: the ranks have not met within 50ms: not heard of for ":                                                                      {Size: 2, File: filepath.Join(dir, "alone"), Timeout: 50 * time.Millisecond},
		"nccl: rank 2 of 2 ranks: want 0 to 1":                                                                                             {Rank: 2, Size: 2},
		"nccl: no way for the ranks to meet: give all ranks the same NCCL_COMM_ID=HOST:PORT of rank 0, or the same AMPC_NCCL_FILE, a path": {Size: 2},
	} {
		b, err := gpu.OpenSim("sm_90")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nccl.Open(b, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		b.Close()
	}
	if b, err := gpu.OpenSimulator(sim.Options{Major: 9, NoNccl: true}); err != nil {
		t.Fatal(err)
	} else if _, err := nccl.Open(b, nccl.Options{Size: 1}); err == nil || err.Error() != "nccl: cuda: not available: no NCCL" {
		t.Errorf("%v", err)
	}
}

// With a World of the hosts the id and the messages between hosts travel over it.
func TestHostWorld(t *testing.T) {
	u := run{query: smallMLP, dir: t.TempDir(), policy: ampc.MixedBF16(), rows: 4, steps: 2}
	hosts := world.Local(2, world.LocalOptions{Timeout: time.Minute})
	errs := make(chan error)
	for r := range 2 {
		go func() {
			errs <- func() error {
				b, err := gpu.OpenSim("sm_90")
				if err != nil {
					return err
				}
				w, err := nccl.Open(b, nccl.Options{Host: hosts[r]})
				if err != nil {
					return err
				}
				if w.Rank() != r || w.Size() != 2 || w.Engine() != "NCCL 2.22.3" {
					return fmt.Errorf("rank %d of %d on %s", w.Rank(), w.Size(), w.Engine())
				}
				_, err = u.train(w, b)
				return errors.Join(err, w.Close(), b.Close(), hosts[r].Close())
			}()
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A message that is interrupted ends all ranks.
func TestInterrupted(t *testing.T) {
	errs := onRanks(t, 2, time.Second, func(w world.World, _ *gpu.Backend) error {
		ctx, stop := context.WithCancelCause(context.Background())
		defer stop(nil)
		if w.Rank() == 1 {
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		go stop(errors.New("Ctrl-C"))
		data := make([]byte, 4)
		m := &world.Message{Name: "flag", Op: world.Max, DType: ir.I32, In: [][]byte{data}, Out: [][]byte{data}}
		if err := w.Start(m); err != nil {
			return err
		}
		return w.Wait(ctx, m)
	})
	if err := errs[0]; err == nil || !strings.Contains(err.Error(), "rank 0 was interrupted at the message flag: Ctrl-C") {
		t.Errorf("%v", err)
	}
}

// A world that is closed before its steps frees their graphs first, and the steps do not run any more.
func TestClosedWorld(t *testing.T) {
	for r, err := range onRanks(t, 2, time.Minute, func(w world.World, b *gpu.Backend) error {
		z, err := models.Open(smallMLP+"&batch=2", ampc.On(b))
		if err != nil {
			return err
		}
		defer z.Model.Close()
		c := z.Steps[0].Config
		c.Parallel = ampc.DataParallel(w)
		s, err := z.Model.Train(c, z.Steps[0].Losses...)
		if err != nil {
			return err
		}
		for i := range 3 { // the third one is a graph
			if _, err := s.Run(context.Background(), z.Batch(int64(i))); err != nil {
				return err
			}
		}
		if err := w.Close(); err != nil {
			return err
		}
		_, err = s.Run(context.Background(), z.Batch(3))
		if err == nil || !strings.Contains(err.Error(), "the step is compiled for 2 ranks and runs on one") {
			return fmt.Errorf("after Close: %w", err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
