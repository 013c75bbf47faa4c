package world_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc/ir"
	"ampc/world"
)

func message(name string, elements int, d ir.DType) *world.Message {
	m := &world.Message{Name: name, DType: d, Wire: ir.F32, In: [][]byte{make([]byte, int64(elements)*d.Size())}}
	m.Out = m.In
	return m
}

// play runs f on every rank and returns their errors.
func play(worlds []world.World, f func(w world.World) error) []error {
	errs := make([]error, len(worlds))
	var all sync.WaitGroup
	for r, w := range worlds {
		all.Go(func() {
			errs[r] = f(w)
			w.Close()
		})
	}
	all.Wait()
	return errs
}

func send(w world.World, ms ...*world.Message) error {
	for _, m := range ms {
		if err := w.Start(m); err != nil {
			return err
		}
	}
	for _, m := range ms {
		if err := w.Wait(context.Background(), m); err != nil {
			return err
		}
	}
	return nil
}

// Ranks that do not agree, or do not come, end all ranks with a line that says so.
func TestLocalNamesTheFault(t *testing.T) {
	died := errors.New("died")
	for name, c := range map[string]struct {
		f    func(w world.World) error
		want string
	}{
		"another order": {func(w world.World) error {
			a, b := message("a", 4, ir.F32), message("b", 4, ir.F32)
			if w.Rank() == 2 {
				a, b = b, a
			}
			return send(w, a, b)
		}, "rank 0 sends the message a (sum of 4 f32, sent as f32 with shift 0), and rank 2 sends b"},
		"another size": {func(w world.World) error { return send(w, message("a", 4+w.Rank()/2, ir.F32)) }, "rank 2 sends a (sum of 5"},
		"another dtype": {func(w world.World) error {
			return send(w, message("a", 4, []ir.DType{ir.F32, ir.I32, ir.F32}[w.Rank()]))
		}, "rank 1 sends a (sum of 4 i32"},
		"one leaves": {func(w world.World) error {
			if w.Rank() == 1 {
				return nil
			}
			return send(w, message("a", 4, ir.F32))
		}, "rank 1 has left"},
		"one stalls": {func(w world.World) error {
			if w.Rank() == 1 {
				time.Sleep(500 * time.Millisecond)
				return nil
			}
			return send(w, message("a", 4, ir.F32))
		}, "rank 1 has not sent the message a within 100ms"},
		"one dies": {func(w world.World) error { return send(w, message("a", 4, ir.F32), message("dies", 4, ir.F32)) }, "rank 1 has left"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := play(world.Local(3, world.LocalOptions{Timeout: 100 * time.Millisecond, Before: func(rank int, m *world.Message) error {
				if rank == 1 && m.Name == "dies" {
					return died
				}
				return nil
			}}), c.f)
			for r, err := range errs {
				switch {
				case r == 1 && (err == nil || err == died):
				case err == nil || !strings.Contains(err.Error(), c.want):
					t.Errorf("rank %d: %v, want %q", r, err, c.want)
				}
			}
		})
	}
}

// A simulated link brings a message no sooner than a ring over such links would.
func TestLocalLink(t *testing.T) {
	start := time.Now()
	o := world.LocalOptions{Latency: time.Millisecond, Bandwidth: 1e6}
	for _, err := range play(world.Local(2, o), func(w world.World) error { return send(w, message("a", 25000, ir.F32)) }) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 102*time.Millisecond {
		t.Errorf("100 kB over 1 MB/s took %v", took)
	}
}
