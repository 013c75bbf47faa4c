package lower

import (
	"strings"
	"testing"
)

const twoBuckets = `graph @p {
  input %x : f32[8,16]
  param %w : f32[16,16] = ones()
  param %u : f32[16,16] = ones()
forward:
  %h = matmul %x, %w : f32[8,16]
  %y = matmul %h, %u : f32[8,16]
backward:
  %du = matmul %h, %y {ta} : f32[16,16]
  %su = all_reduce %du {ranks=2 seq=1} : f32[16,16]
  %dh = matmul %y, %u {tb} : f32[8,16]
  %dw = matmul %x, %dh {ta} : f32[16,16]
  %sw = all_reduce %dw {ranks=2 seq=2} : f32[16,16]
update:
  %u' = sub %u, %su
  %w' = sub %w, %sw
  return %y
}
`

// A message starts as soon as its operands are there, the backward pass goes on
// meanwhile, and results lie where the operands lay.
func TestMessagesInFlight(t *testing.T) {
	p := lowered(t, twoBuckets)
	if len(p.Messages) != 2 {
		t.Fatalf("%d messages, want 2\n%s", len(p.Messages), p)
	}
	end := len(p.Parts[Micro])
	for i, m := range p.Messages {
		if m.Part != Micro || m.Until != end {
			t.Errorf("message %d is in flight until step %d of %s, want %d, the end of micro\n%s", i, m.Until, m.Part, end, p)
		}
	}
	for _, of := range [][2]string{{"du", "su"}, {"dw", "sw"}} {
		if a, b := p.find(t, of[0]), p.find(t, of[1]); a.Offset != b.Offset {
			t.Errorf("%%%s lies at %d, its sum at %d: want one place\n%s", of[0], a.Offset, b.Offset, p)
		}
	}
	if su, dh := p.find(t, "su"), p.find(t, "dh"); su.Offset < dh.Offset+dh.Size && dh.Offset < su.Offset+su.Size {
		t.Errorf("%%dh lies where a message is in flight\n%s", p)
	}
}

// Verify finds messages that arrive after their results are read, that are not listed,
// and that others overtake; and memory that is used again while one is in flight.
func TestVerifyMessages(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *Program)
		want  string
	}{
		"late": {func(p *Program) {
			p.Parts[Micro], p.Parts[Update] = append(p.Parts[Micro], p.Parts[Update]...), nil
			for i := range p.Messages {
				p.Messages[i].Until = len(p.Parts[Micro])
			}
		}, "needs it"},
		"unlisted":   {func(p *Program) { p.Messages = p.Messages[:1] }, "not listed"},
		"of no step": {func(p *Program) { p.Messages = append(p.Messages, Message{Part: Update}) }, "of no step"},
		"numbers": {func(p *Program) {
			n := p.Parts[Micro][p.Messages[1].Step].Kernel.Node
			n.Attrs = n.Attrs.With("seq", int64(1))
		}, "sends message 1 after message 1"},
		"memory": {func(p *Program) {
			p.find(t, "dh").Offset = p.find(t, "su").Offset
			p.placeViews()
		}, "share bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := lowered(t, twoBuckets)
			c.spoil(p)
			err := Verify(p)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v\n%s", c.want, err, p)
			}
		})
	}
}
