package models_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// chunked trains three steps of a model and returns losses, weights and the step's program.
func chunked(t *testing.T, spec string, change func(c *ampc.TrainConfig)) ([]float64, map[string][]float32, *ampc.Step) {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Model.Close() })
	c := z.Steps[0].Config
	c.Optimizer, c.LR = ampc.SGD(0.9), ampc.Constant(0.1) // Adam would enlarge the rounding of small gradients
	change(&c)
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for i := range 3 {
		r, err := s.Run(t.Context(), z.Batch(int64(i)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, m.Loss)
	}
	weights := map[string][]float32{}
	for _, p := range z.Model.Graph().Vars {
		if p.Kind != ir.Param {
			continue
		}
		v, err := z.Model.Variable(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		weights[p.Name] = v.Floats()
	}
	return losses, weights, s
}

// apart is the largest distance between weights, relative to the norm of a tensor.
func apart(x, y map[string][]float32) float64 {
	worst := 0.0
	for name, w := range x {
		sum, norm := 0.0, 1e-12
		for i := range w {
			sum += math.Pow(float64(y[name][i]-w[i]), 2)
			norm += math.Pow(float64(w[i]), 2)
		}
		worst = max(worst, math.Sqrt(sum/norm))
	}
	return worst
}

// A head in blocks of rows learns what a whole one does except for the order of sums, with a table that
// is shared and with labels that are ignored. No value of its program is as large as the logits. A
// limit of memory changes no bit.
func TestChunks(t *testing.T) {
	for _, spec := range []string{
		"gpt?layers=2&dim=32&heads=2&seq=16&vocab=200&batch=8&dropout=0.1",
		"bert?layers=2&dim=32&heads=2&seq=16&vocab=200&batch=8",
	} {
		for _, p := range []ampc.Policy{{}, ampc.MixedF16(), ampc.MixedBF16()} {
			t.Run(spec+"/"+p.Name, func(t *testing.T) {
				want, weights, whole := chunked(t, spec, func(c *ampc.TrainConfig) { c.Policy = p })
				for _, chunks := range []int{2, 5} {
					got, other, s := chunked(t, spec, func(c *ampc.TrainConfig) { c.Policy, c.Chunks = p, chunks })
					for i := range want {
						if math.Abs(got[i]-want[i]) > 1e-4*want[i] {
							t.Errorf("%d blocks: loss %d is %g, want %g", chunks, i, got[i], want[i])
						}
					}
					if far := apart(weights, other); far > 1e-3 {
						t.Errorf("%d blocks: a weight differs by %g of its norm", chunks, far)
					}
					if large := likeLogits(s.Program()); large != "" || likeLogits(whole.Program()) == "" {
						t.Errorf("%d blocks: %q is as large as the logits", chunks, large)
					}
					total := s.Program().Total()
					_, same, s := chunked(t, spec, func(c *ampc.TrainConfig) { c.Policy, c.Chunks, c.Memory = p, chunks, total*9/10 })
					if far := apart(other, same); far != 0 || s.Program().Total() > total*9/10 {
						t.Errorf("%d blocks: a limit of memory changes weights by %g and leaves %d of %d bytes", chunks, far, s.Program().Total(), total)
					}
				}
			})
		}
	}
}

// likeLogits names a buffer with as many elements as 8 x 16 rows of 200 logits, in such rows.
func likeLogits(p *lower.Program) string {
	for _, b := range p.Buffers {
		if d := b.Type.Shape.Dims(); len(d) > 0 && d[len(d)-1] == 200 && b.Type.Shape.Elements() >= 8*16*200 {
			return b.Name
		}
	}
	return ""
}

// What cannot run in blocks runs whole, with a note.
func TestChunksAreNoted(t *testing.T) {
	const gpt = "gpt?layers=1&dim=32&heads=2&seq=16&vocab=200&batch=8"
	for _, x := range []struct {
		spec, note string
		change     func(c *passes.Config)
	}{
		{gpt, "", func(c *passes.Config) {}},
		{gpt, "", func(c *passes.Config) { c.Parallel = passes.Parallel{Ranks: 4} }},
		{gpt, "", func(c *passes.Config) { c.Parallel = passes.Parallel{Ranks: 4, Shard: true} }},
		{gpt, "", func(c *passes.Config) { c.Micro = 2 }},
		{gpt, "", func(c *passes.Config) { c.Micro, c.BadMicro = 2, passes.DropMicro }},
		{gpt, "", func(c *passes.Config) {
			c.Micro, c.Parallel = 2, passes.Parallel{Ranks: 4, Shard: true, Message: ir.F16}
		}},
		{gpt, "", func(c *passes.Config) { c.Micro, c.Parallel = 4, passes.Parallel{Ranks: 2, Slices: 8} }},
		{gpt, "it has 128 rows", func(c *passes.Config) { c.Chunks = 129 }},
		{"lenet", "", func(c *passes.Config) {}},
		{"gan", "no product is followed by a cross entropy", func(c *passes.Config) {}},
	} {
		z, err := models.Open(x.spec)
		if err != nil {
			t.Fatal(err)
		}
		train := z.Steps[0].Config
		train.Policy, train.Chunks = ampc.MixedF16(), 4
		g, c, err := z.Model.Source(train, z.Steps[0].Losses...)
		if err != nil {
			t.Fatal(err)
		}
		c.Prove = true
		x.change(&c)
		var notes []string
		count := 0
		c.After = func(e passes.Event) {
			if e.Pass == "chunks" {
				notes, count = slices.Clone(e.Notes), e.Counters["chunked"]
			}
		}
		if err := passes.Run(g, c); err != nil {
			t.Errorf("%s, %q: %v", x.spec, x.note, err)
		} else if text := strings.Join(notes, "; "); !strings.Contains(text, x.note) || (x.note == "") != (count == 1) || x.note == "" && text != "" {
			t.Errorf("%s: chunked %d, notes %q, want %q", x.spec, count, text, x.note)
		}
	}
}

// Ranks whose head runs in blocks of rows learn what one process with a whole head learns, where the
// ranks have unequal numbers of labels, too.
func TestChunksOnRanks(t *testing.T) {
	const batch = 8
	for _, query := range []string{"gpt?layers=1&dim=32&heads=2&seq=16&vocab=200", "bert?layers=1&dim=32&heads=2&seq=16&vocab=200"} {
		for _, p := range []ampc.Policy{{}, ampc.MixedF16()} {
			t.Run(query+"/"+p.Name, func(t *testing.T) {
				z, err := models.Open(query + "&batch=8")
				if err != nil {
					t.Fatal(err)
				}
				feeds := []ampc.Feed{z.Batch(0), z.Batch(1), z.Batch(2)}
				want, _, err := trainedOn(query, batch, nil, p, feeds, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{2, 4} {
					onRanks(t, n, query, batch, p, feeds, 3, func(losses []float64) error {
						for i := range losses {
							if math.Abs(losses[i]-want[i]) > 3e-3*(1+math.Abs(want[i])) {
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
