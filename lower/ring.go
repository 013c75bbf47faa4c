package lower

// Ring models the links between ranks: a message goes around a ring of them, and the slowest link
// is the pace of all.
type Ring struct {
	Ranks     int
	Latency   float64 // seconds that a message takes to the next rank
	Bandwidth float64 // bytes that a link carries in a second
}

// Message is how long a message takes that goes around so many times, and how many bytes each rank
// sends of it.
func (r Ring) Message(bytes, rounds int64) (seconds, sent float64) {
	hops := float64(rounds) * float64(r.Ranks-1)
	sent = hops * float64(bytes) / float64(r.Ranks)
	return hops*r.Latency + sent/r.Bandwidth, sent
}

// Delays is what the messages of a step cost in a model.
type Delays struct {
	Messages int
	Sent     float64 // bytes that each rank sends
	Link     float64 // seconds in which the link is busy
	Waited   float64 // seconds in which steps wait for messages
	Room     float64 // seconds of the steps of Micro behind its first message: what they may hide
	Backward float64 // those of Room that are behind the first message of gradients
}

// Hidden is the share of the messages' time in which no step waits.
func (x Delays) Hidden() float64 {
	if x.Link == 0 {
		return 1
	}
	return 1 - x.Waited/x.Link
}

// Delays simulates a step of one micro-batch on the CPU. Its steps run one after another, each for
// the given number of seconds. Its messages go over the link one after another, beside the steps:
// each starts, and is waited for, where the Program says so.
func (p *Program) Delays(r Ring, seconds func(s *Step) float64) (x Delays) {
	type arrival struct {
		until int
		at    float64
	}
	now, link := 0.0, 0.0 // the end of the last step, and of the last message that has started
	var flight []arrival
	await := func(i int) {
		for len(flight) > 0 && flight[0].until <= i {
			x.Waited += max(0, flight[0].at-now)
			now, flight = max(now, flight[0].at), flight[1:]
		}
	}
	for part := range NumParts {
		sends, gradients := false, false
		for i := range p.Parts[part] {
			await(i)
			s := &p.Parts[part][i]
			m := p.message(part, i)
			if m == nil {
				took := seconds(s)
				now += took
				if sends && part == Micro {
					x.Room += took
				}
				if gradients && part == Micro {
					x.Backward += took
				}
				continue
			}
			took, sent := r.Message(s.Kernel.Node.Wire())
			link = max(link, now) + took
			flight = append(flight, arrival{m.Until, link})
			x.Messages, x.Sent, x.Link, sends = x.Messages+1, x.Sent+sent, x.Link+took, true
			gradients = gradients || s.Kernel.Node.Attrs.Get("shapes") == nil // no gathering of weights
		}
		await(len(p.Parts[part]))
	}
	return x
}

// flopsPerByte is how much a processor computes in the time in which it moves a byte, in a model.
const flopsPerByte = 40

// Work is how long a step takes on a processor that reads and writes a byte in one unit of time: for
// its products or for its bytes, whichever takes longer. A message takes none of that time.
func (s *Step) Work() float64 {
	if s.sends() {
		return 0
	}
	return max(float64(s.Bytes), float64(s.Flops())/flopsPerByte)
}

// Work is the sum over the steps of prepare, one micro-batch and update.
func (p *Program) Work() (sum float64) {
	for _, part := range p.Parts {
		for i := range part {
			sum += part[i].Work()
		}
	}
	return sum
}
