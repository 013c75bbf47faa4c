package lower_test

import (
	"strings"
	"testing"

	"ampc/lower"
)

// two buckets, the first of which is final while the second one is computed.
const twoMessages = `graph @p {
  input %x : f32[8,16]
  param %w : f32[16,16] = ones()
  param %u : f32[16,16] = ones()
forward:
  %h = matmul %x, %w : f32[8,16]
  %y = matmul %h, %u : f32[8,16]
backward:
  %du = matmul %h, %y {ta} : f32[16,16]
  %su = all_reduce %du {MSG ranks=3 seq=1} : f32[16,16]
  %dh = matmul %y, %u {tb} : f32[8,16]
  %dw = matmul %x, %dh {ta} : f32[16,16]
  %sw = all_reduce %dw {MSG ranks=3 seq=2} : f32[16,16]
update:
  %u' = sub %u, %su
  %w' = sub %w, %sw
  return %y
}
`

// TestTransfers: on a GPU messages run beside the backward pass, whether NCCL adds them or kernels do. A
// program without one of their waits is refused.
func TestTransfers(t *testing.T) {
	for msg, transfers := range map[string]int{"msg=f32": 2, "msg=bf16 shift=2": 4} {
		p := lowered(t, strings.ReplaceAll(twoMessages, "MSG", msg), "sm_90")
		steps := p.Parts[lower.Micro]
		sent, waits, byComm := 0, 0, map[lower.EventID]bool{}
		for i := range steps {
			s := &steps[i]
			if s.Transfer != nil {
				sent++
			}
			if s.Stream == lower.CommStream {
				waits += len(s.Wait)
				byComm[s.Record] = true
				continue
			}
			for _, e := range s.Wait {
				if byComm[e] {
					t.Errorf("%s: step %d of the backward pass waits for a message\n%s", msg, i, p)
				}
			}
		}
		if sent != transfers || len(p.Messages) != transfers || waits == 0 {
			t.Errorf("%s: %d transfers, %d messages, want %d; %d waits\n%s", msg, sent, len(p.Messages), transfers, waits, p)
		}
		for i := range steps {
			for k := range steps[i].Wait {
				kept := steps[i].Wait
				steps[i].Wait = append(append([]lower.EventID(nil), kept[:k]...), kept[k+1:]...)
				if err := lower.Verify(p); err == nil || !strings.Contains(err.Error(), "nothing orders them") {
					t.Errorf("%s: without a wait of step %d: %v", msg, i, err)
				}
				steps[i].Wait = kept
			}
		}
	}
}

// Verify finds transfers that do not move what their buffers hold.
func TestVerifyTransfers(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *lower.Program, s *lower.Step)
		want  string
	}{
		"stream":   {func(p *lower.Program, s *lower.Step) { s.Stream = 0 }, "it is on stream 0, and messages on 2"},
		"operands": {func(p *lower.Program, s *lower.Step) { s.In = append(s.In, s.In[0]) }, "exchange has 2 operands and 1 results"},
		"ranks":    {func(p *lower.Program, s *lower.Step) { s.Transfer.Ranks = 7 }, "has no part for each of 7 ranks"},
		"result":   {func(p *lower.Program, s *lower.Step) { s.Transfer.Op = lower.GatherAll }, "gather_all of %su.packed, bf16[264], does not give %su.parts, bf16[264]"},
		"number":   {func(p *lower.Program, s *lower.Step) { s.Transfer.Seq = 2 }, "sends message 1 after message 2"},
	} {
		t.Run(name, func(t *testing.T) {
			p := lowered(t, strings.ReplaceAll(twoMessages, "MSG", "msg=bf16"), "sm_90")
			m := p.Messages[0]
			c.spoil(p, &p.Parts[m.Part][m.Step])
			if err := lower.Verify(p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v\n%s", c.want, err, p)
			}
		})
	}
}
