package models_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/runtime/cpu"
	"ampc/world"
)

// overlapShape is GPT-2's width and context, with fewer layers and words: 2,048 tokens a rank.
const overlapShape = "gpt2?layers=4&vocab=8192&batch=2"

// BenchmarkOverlap trains on two ranks of one process, one thread each, over a simulated
// link. The link is so slow that the messages of a step take a part of its backward pass.
// hidden-% is the part of the messages' time that no step waited.
func BenchmarkOverlap(b *testing.B) {
	alone, bytes, _ := linked(b, world.LocalOptions{}, 2)
	backward := alone * 2 / 3
	for _, percent := range []int{50, 100} {
		b.Run(fmt.Sprintf("%d%%", percent), func(b *testing.B) {
			link := time.Duration(percent) * backward / 100
			took, _, awaited := linked(b, world.LocalOptions{Bandwidth: float64(bytes) / link.Seconds()}, b.N)
			b.ReportMetric(100*(1-awaited.Seconds()/link.Seconds()), "hidden-%")
			b.ReportMetric(100*link.Seconds()/(took-awaited).Seconds()*3/2, "link-of-backward-%")
			b.ReportMetric(float64(took.Milliseconds()), "step-ms")
		})
	}
}

// linked runs n steps after a first one, and returns what one took, the bytes that each
// rank sends in it, and how long the slower rank, which waits for no other, had to wait for
// messages.
func linked(b *testing.B, o world.LocalOptions, n int) (took time.Duration, bytes int64, awaited time.Duration) {
	b.Helper()
	o.Timeout, awaited = 5*time.Minute, time.Hour
	var mu sync.Mutex
	var all sync.WaitGroup
	for r, w := range world.Local(2, o) {
		all.Go(func() {
			defer w.Close()
			s, f, sent, err := overlapStep(w)
			if err != nil {
				b.Errorf("rank %d: %v", r, err)
				return
			}
			if err := runFor(s, f, 1); err != nil {
				b.Errorf("rank %d: %v", r, err)
				return
			}
			before, began := s.Counters().Awaited, time.Now()
			if err := runFor(s, f, n); err != nil {
				b.Errorf("rank %d: %v", r, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took, bytes = time.Since(began)/time.Duration(n), sent
			awaited = min(awaited, (s.Counters().Awaited-before)/time.Duration(n))
		})
	}
	all.Wait()
	return took, bytes, awaited
}

func runFor(s *ampc.Step, f ampc.Feed, steps int) error {
	for range steps {
		r, err := s.Run(context.Background(), f)
		if err != nil {
			return err
		}
		if _, err := r.Wait(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// overlapStep compiles the step of one rank with one thread.
func overlapStep(w world.World) (*ampc.Step, ampc.Feed, int64, error) {
	backend, err := cpu.Open(1)
	if err != nil {
		return nil, nil, 0, err
	}
	z, err := models.Open(overlapShape, ampc.On(backend))
	if err != nil {
		return nil, nil, 0, err
	}
	c := z.Steps[0].Config
	c.Policy, c.Parallel = ampc.MixedBF16(), ampc.DataParallel(w)
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, nil, 0, err
	}
	sent := int64(0)
	for _, n := range s.Graph().Nodes {
		for _, v := range n.In {
			switch n.Op { // around a ring of two, in units of an all-reduce
			case ir.OpAllReduce:
				sent += v.Type.Bytes()
			case ir.OpAllGather:
				sent += v.Type.Bytes() // half the rounds of twice the bytes
			}
		}
	}
	return s, z.Batch(int64(w.Rank())), sent, nil
}
