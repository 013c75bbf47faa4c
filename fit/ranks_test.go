package fit_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/data"
	"ampc/fit"
	"ampc/world"
)

// onRanks fits on so many ranks, which change their runs, and returns what each came to.
func onRanks(t *testing.T, n int, folder string, change func(rank int, r *fit.Run, p *ampc.Parallel)) ([]fit.Summary, []error) {
	t.Helper()
	all, errs := make([]fit.Summary, n), make([]error, n)
	var ranks sync.WaitGroup
	for rank, w := range world.Local(n, world.LocalOptions{Timeout: time.Minute}) {
		p := ampc.DataParallel(w)
		change(rank, nil, &p)
		r := classifierOf(t, folder, p)
		change(rank, r, nil)
		ranks.Go(func() {
			defer w.Close()
			all[rank], errs[rank] = r.Fit(t.Context())
		})
	}
	ranks.Wait()
	return all, errs
}

// Ranks that fit together come to what one process comes to: as many steps and skips, its losses and
// metrics within the order of sums, on every rank. Rank 0 alone writes and prints.
func TestRanks(t *testing.T) {
	alone := t.TempDir()
	want, err := classifier(t, alone).Fit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range []bool{false, true} {
		folder := t.TempDir()
		var said [2]strings.Builder
		got, errs := onRanks(t, 2, folder, func(rank int, r *fit.Run, p *ampc.Parallel) {
			if r != nil {
				r.Progress = &said[rank]
			} else {
				p.Shard = shard
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for rank, g := range got {
			if g.Steps != want.Steps || g.Epochs != want.Epochs || g.Skipped != want.Skipped || g.BestStep != want.BestStep {
				t.Errorf("rank %d came to %+v, one process to %+v", rank, g, want)
			}
			for name, x := range want.Eval {
				if y := g.Eval[name]; math.Abs(x-y) > 2e-2 || y != got[0].Eval[name] {
					t.Errorf("rank %d: %s is %g, in one process %g, on rank 0 %g", rank, name, y, x, got[0].Eval[name])
				}
			}
			if math.Abs(g.Loss-want.Loss) > 2e-2 {
				t.Errorf("rank %d: loss %g, in one process %g", rank, g.Loss, want.Loss)
			}
		}
		if said[0].Len() == 0 || said[1].Len() > 0 {
			t.Errorf("rank 0 said %q and rank 1 %q", &said[0], &said[1])
		}
		if a, b := read(t, alone, "log.csv"), read(t, folder, "log.csv"); strings.Count(a, "\n") != strings.Count(b, "\n") {
			t.Errorf("the log has %d lines, in one process %d", strings.Count(b, "\n"), strings.Count(a, "\n"))
		}
	}
}

// A run that ends at some step, because the context of one rank ends, goes on with another number of
// ranks.
func TestRanksResume(t *testing.T) {
	want, err := classifier(t, t.TempDir()).Fit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for rank, w := range world.Local(2, world.LocalOptions{Timeout: time.Minute}) {
		r := classifierOf(t, folder, ampc.DataParallel(w))
		own := t.Context()
		if rank == 1 {
			own = ctx
			r.OnStep = func(at fit.Report) error {
				if at.Step == 10 {
					cancel()
				}
				return nil
			}
		}
		ranks.Go(func() {
			defer w.Close()
			_, errs[rank] = r.Fit(own)
		})
	}
	ranks.Wait()
	if !errors.Is(errs[1], context.Canceled) || errs[0] == nil || !strings.Contains(errs[0].Error(), "ended on rank 1") {
		t.Fatal(errs)
	}
	got, errs := onRanks(t, 4, folder, func(int, *fit.Run, *ampc.Parallel) {})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got[3].Steps != want.Steps || math.Abs(got[3].Loss-want.Loss) > 2e-2 || got[3].Skipped != want.Skipped {
		t.Errorf("the resumed run came to %+v, one process to %+v", got[3], want)
	}
}

// What happens on one rank ends all at the same step.
func TestRanksEndTogether(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		change func(rank int, r *fit.Run)
		errs   []string // of each rank; "": none
		steps  int
	}{
		"a callback stops": {func(rank int, r *fit.Run) {
			if rank == 1 {
				r.OnStep = func(at fit.Report) error {
					if at.Step == 5 {
						return fit.ErrStop
					}
					return nil
				}
			}
		}, []string{"", ""}, 5},
		"a callback fails": {func(rank int, r *fit.Run) {
			if rank == 1 {
				r.OnStep = func(at fit.Report) error {
					if at.Step == 5 {
						return broken
					}
					return nil
				}
			}
		}, []string{"fit: rank 1: broken", "fit: broken"}, 5},
		"no improvement": {func(_ int, r *fit.Run) { r.EvalEvery, r.Patience, r.MinGain = 2, 2, 100 }, []string{"", ""}, 6},
		"another seed": {func(rank int, r *fit.Run) {
			if rank == 1 {
				r.Steps = 7
			}
		}, []string{"rank 1 makes another run than rank 0", "rank 1 makes another run than rank 0"}, 0},
		"a folder that holds a run": {func(rank int, r *fit.Run) {
			r.Resume = false
			if rank == 0 {
				if err := os.WriteFile(filepath.Join(r.Folder, fit.LastFile), nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"holds a run", "rank 0: "}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := onRanks(t, 2, t.TempDir(), func(rank int, r *fit.Run, _ *ampc.Parallel) {
				if r != nil {
					c.change(rank, r)
				}
			})
			for rank, err := range errs {
				want := c.errs[rank]
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || got[rank].Steps != c.steps {
					t.Errorf("rank %d: %v after %d steps, want %q after %d", rank, err, got[rank].Steps, want, c.steps)
				}
			}
		})
	}
}

// A metric that does not merge sees all batches on every rank.
func TestRanksOwnMetrics(t *testing.T) {
	_, errs := onRanks(t, 2, t.TempDir(), func(_ int, r *fit.Run, _ *ampc.Parallel) {
		if r != nil {
			r.Steps, r.Epochs = 2, 0
			r.Eval.Metrics = append(r.Eval.Metrics, &records{})
			r.OnEval = func(at fit.Report) error {
				if at.Eval["records"] != 50 {
					t.Errorf("%g records were measured", at.Eval["records"])
				}
				return nil
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// records counts records.
type records struct{ n int }

func (*records) Name() string { return "records" }
func (r *records) Reset()     { r.n = 0 }
func (r *records) Add(_ *ampc.Result, b data.Batch) error {
	r.n += b.Count
	return nil
}
func (r *records) Value() float64 { return float64(r.n) }
