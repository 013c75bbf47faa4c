package models_test

import (
	"fmt"
	"math"
	"testing"

	"ampc"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
)

// rankStep is the program of one of several ranks that train a model.
func rankStep(t *testing.T, spec, policy string, p passes.Parallel) *lower.Program {
	t.Helper()
	z, err := models.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := z.Steps[0].Config
	c.EMA = 0.999
	if c.Policy, err = ampc.PolicyNamed(policy); err != nil {
		t.Fatal(err)
	}
	g, config, err := z.Model.Source(c, z.Steps[0].Losses...)
	if err != nil {
		t.Fatal(err)
	}
	config.Parallel, config.Prove = p, true
	if err := passes.Run(g, config); err != nil {
		t.Fatal(err)
	}
	g.DropUnused() // as the session does
	program, err := lower.Lower(g, lower.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// sent are the bytes that each of k ranks sends around rings in a step.
func sent(p *lower.Program, k int64) (sum int64) {
	for _, part := range p.Parts {
		for i := range part {
			if s := &part[i]; s.Kernel != nil && s.Kernel.Node.Def().Is(ir.Collective) {
				bytes, rounds := s.Kernel.Node.Wire()
				sum += rounds * (k - 1) * bytes / k
			}
		}
	}
	return sum
}

// held are the bytes of weights, moments and averages that a rank keeps.
func held(p *lower.Program) map[string]int64 {
	sum := map[string]int64{}
	for _, v := range p.Vars {
		switch {
		case v.Role() != "":
			sum[v.Role()] += v.Type.Bytes()
		case v.Kind == ir.Param || v.Attr.Get(ir.AttrPart) != nil:
			sum["weights"] += v.Type.Bytes()
		}
	}
	return sum
}

// Language models whose head shares the table of their lookups send three quarters of the bytes
// of f32 without shards where ranks keep parts of the state, and half of them where gradients
// travel in 16 bits. What each rank keeps is a k-th.
func TestShardsOfTiedModels(t *testing.T) {
	for _, spec := range []string{"gpt2", "gpt"} {
		if testing.Short() {
			spec += "?layers=2"
		}
		for _, k := range []int64{2, 4, 8} {
			whole := rankStep(t, spec, "f32", passes.Parallel{Ranks: int(k)})
			all := held(whole)
			// Gathering the rows of lookups beside the gradient of the head is not counted.
			f32 := min(sent(whole, k), 2*(k-1)*all["weights"]/k)
			for _, policy := range []string{"mixed-f16", "mixed-bf16"} {
				for _, message := range []ir.DType{ir.F32, ir.F16, ir.BF16} {
					most := 0.76
					if message.Low() {
						most = 0.51
					}
					name := fmt.Sprintf("%s under %s, %d ranks, messages in %s", spec, policy, k, message)
					p := rankStep(t, spec, policy, passes.Parallel{Ranks: int(k), Shard: true, Message: message})
					if share := float64(sent(p, k)) / float64(f32); share > most {
						t.Errorf("%s: sends %.4f of the bytes of f32 without shards, want at most %g", name, share, most)
					} else if message != ir.BF16 {
						t.Logf("%s: %.4f of the bytes", name, share)
					}
					for what, bytes := range held(p) {
						if what != "weights" && what != "optimizer" && what != "ema" {
							continue
						}
						if limit := all[what]/k + 4*k*int64(len(p.Vars)); bytes > limit || bytes < all[what]/k {
							t.Errorf("%s: a rank keeps %d bytes of %s, want a %d-th of %d", name, bytes, what, k, all[what])
						}
					}
				}
			}
		}
	}
}

// A link on which the messages of a step take as long as the backward pass behind the first message
// of gradients hides four fifths of them, at 2,048 tokens on each rank: in a model, in which a step
// takes the time of its products or of its bytes. With shards the table of a tied embedding is
// gathered before the first lookup, which cannot be hidden. Its gradient is: the part of the head is
// scattered as soon as it is there, and the rows of the lookups follow. On 8 ranks they are too many
// for that in 16 bits: the table is scattered at the end, and two thirds are hidden. The bytes on the
// wire are compared with those of f32 without shards.
func TestMessagesAreHidden(t *testing.T) {
	for _, k := range []int{2, 4, 8} {
		f32 := int64(0)
		for _, c := range []struct {
			policy  string
			shard   bool
			message ir.DType
			share   float64 // of the bytes of f32 without shards, at most
		}{
			{"f32", false, ir.F32, 1},
			{"mixed-bf16", false, ir.F32, 1},
			{"f32", true, ir.F32, 1.001}, // parts are filled up
			{"mixed-bf16", true, ir.F32, 0.76},
			{"mixed-f16", true, ir.F16, 0.51},
		} {
			least := 0.8
			switch {
			case c.shard && k == 8 && c.policy == "f32":
				least = 0.75
			case c.shard && (k == 8 || k == 4 && c.message.Low()):
				least = 0.6
			}
			p := rankStep(t, "gpt2?batch=2&seq=1024", c.policy, passes.Parallel{Ranks: k, Shard: c.shard, Message: c.message})
			bytes := sent(p, int64(k))
			if f32 == 0 {
				f32 = bytes
			}
			ring := lower.Ring{Ranks: k, Bandwidth: math.Inf(1)}
			x := p.Delays(ring, (*lower.Step).Work)
			ring.Bandwidth = x.Sent / x.Backward
			hidden, share := p.Delays(ring, (*lower.Step).Work).Hidden(), float64(bytes)/float64(f32)
			what := fmt.Sprintf("%s, %d ranks, shards %t, messages in %s: %.1f%% of the time of %d messages is hidden, %.4f of the bytes", c.policy, k, c.shard, c.message, 100*hidden, x.Messages, share)
			t.Log(what)
			if hidden < least || share > c.share {
				t.Errorf("%s, want %g%% and at most %g", what, 100*least, c.share)
			}
		}
	}
}
