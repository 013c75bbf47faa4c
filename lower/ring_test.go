package lower

import (
	"fmt"
	"testing"
)

// The simulated step has three products, the first message, two products and the second message.
func TestDelays(t *testing.T) {
	p := lowered(t, twoBuckets)
	second := func(s *Step) float64 { return 1 }
	for _, c := range []struct {
		bandwidth, latency float64
		link, waited       float64
	}{
		{1024, 0, 2, 1},     // from 3 to 4, from 5 to 6
		{512, 0, 4, 2},      // from 3 to 5, from 5 to 7
		{256, 0, 8, 6},      // from 3 to 7, from 7 to 11
		{1024, .25, 3, 1.5}, // half a second for two turns: from 3 to 4.5, from 5 to 6.5
	} {
		x := p.Delays(Ring{2, c.latency, c.bandwidth}, second)
		if x.Messages != 2 || x.Sent != 2048 || x.Room != 2 {
			t.Errorf("%+v: %d messages, %g bytes, %g seconds behind the first, want 2, 2048 and 2\n%s", c, x.Messages, x.Sent, x.Room, p)
		}
		if x.Link != c.link || x.Waited != c.waited {
			t.Errorf("%+v: the link is busy for %g s and steps wait for %g s\n%s", c, x.Link, x.Waited, p)
		}
	}
	if x := p.Delays(Ring{4, 0, 1024}, second); fmt.Sprint(x.Sent, x.Link) != "3072 3" {
		t.Errorf("each of 4 ranks sends %g bytes in %g s, want 3/2 times 2048 bytes", x.Sent, x.Link)
	}
}
