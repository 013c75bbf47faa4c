package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// LocalOptions change how the ranks of one process meet, for tests and simulation.
type LocalOptions struct {
	Timeout time.Duration // timeout of one message; zero: Timeout
	// Latency and Bandwidth (bytes per second) describe a simulated link. A message takes at least
	// the time of a ring over such links. Zero: no delay.
	Latency   time.Duration
	Bandwidth float64
	// Before is called by each rank before it sends a message. An error ends the rank, as if its
	// process had died. nil: nothing is called.
	Before func(rank int, m *Message) error
}

// Local makes a World for each of size ranks in this process. Ranks that send
// different messages, or stop sending while others wait, fail all of them.
func Local(size int, o LocalOptions) []World {
	if o.Timeout == 0 {
		o.Timeout = Timeout
	}
	s := &local{opt: o, size: size, turns: map[int]*turn{}, left: make([]bool, size), sent: make([]int, size)}
	worlds := make([]World, size)
	for r := range worlds {
		worlds[r] = &place{s, r, 0}
	}
	return worlds
}

// local is what the ranks of one process share.
type local struct {
	opt  LocalOptions
	size int

	mu    sync.Mutex
	turns map[int]*turn // by index of the message, until all ranks have it
	sent  []int         // number of messages that each rank has started
	left  []bool
	fault error
	busy  time.Time // time until which the simulated link is busy with earlier messages
}

// turn is one message of all ranks.
type turn struct {
	at     []*Message
	ready  chan struct{} // closed when all ranks have sent theirs, or the World has failed
	result []byte
	due    time.Time
	taken  int
}

type place struct {
	*local
	rank  int
	taken int // number of messages waited for
}

func (p *place) Rank() int      { return p.rank }
func (p *place) Size() int      { return p.size }
func (p *place) Engine() string { return "goroutines of one process" }

func (p *place) Start(m *Message) error {
	if p.opt.Before != nil {
		if err := p.opt.Before(p.rank, m); err != nil {
			p.Close()
			return err
		}
	}
	if err := m.Check(p.size); err != nil {
		p.end(fmt.Errorf("rank %d: %w", p.rank, err))
		return err
	}
	m.buffer = slices.Grow(m.buffer[:0], m.Bytes())[:m.Bytes()]
	m.Pack(m.buffer, p.size)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		return p.fault
	}
	if gone := p.gone(); len(gone) > 0 {
		p.fail(fmt.Errorf("rank %s has left, and rank %d sends the message %s", strings.Join(gone, ", "), p.rank, m.Name))
		return p.fault
	}
	n := p.sent[p.rank]
	p.sent[p.rank]++
	t := p.turns[n]
	if t == nil {
		t = &turn{at: make([]*Message, p.size), ready: make(chan struct{})}
		p.turns[n] = t
	}
	t.at[p.rank] = m
	if !slices.Contains(t.at, nil) {
		p.exchange(t)
	}
	return p.fault
}

// exchange adds or gathers a message that all ranks have sent.
func (s *local) exchange(t *turn) {
	parts := make([][]byte, s.size)
	for r, m := range t.at {
		if a, b := t.at[0].signature(), m.signature(); a != b {
			s.fail(fmt.Errorf("rank 0 sends the message %s, and rank %d sends %s in its place", a, r, b))
			return
		}
		if differ := t.at[0].otherSizes(0, r, m); differ != "" {
			s.fail(errors.New(differ))
			return
		}
		parts[r] = m.buffer
	}
	m := t.at[0]
	t.result = make([]byte, m.arrives(s.size))
	m.Reduce(t.result, parts)
	t.due = s.due(m)
	close(t.ready)
}

// due returns when the simulated link has carried a message: around the ring once to add and once
// to gather.
func (s *local) due(m *Message) time.Time {
	rounds := 2.0
	if m.Op == Gather || m.Scatter {
		rounds = 1
	}
	took := time.Duration(rounds*float64(s.size-1)) * s.opt.Latency
	if s.opt.Bandwidth > 0 {
		took += time.Duration(rounds * float64(s.size-1) / float64(s.size) * float64(m.arrives(s.size)) / s.opt.Bandwidth * 1e9)
	}
	from := time.Now()
	if s.busy.After(from) {
		from = s.busy
	}
	s.busy = from.Add(took)
	return s.busy
}

func (p *place) Wait(ctx context.Context, m *Message) error {
	p.mu.Lock()
	n := p.taken
	t := p.turns[n]
	var next *Message
	if t != nil {
		next = t.at[p.rank]
	}
	if err := m.InTurn(next); err != nil {
		p.mu.Unlock()
		return err
	}
	p.taken++
	p.mu.Unlock()
	timer := time.NewTimer(p.opt.Timeout)
	defer timer.Stop()
	select {
	case <-t.ready:
	case <-ctx.Done():
		p.end(fmt.Errorf("rank %d was interrupted at the message %s: %w", p.rank, m.Name, context.Cause(ctx)))
	case <-timer.C:
		p.end(p.late(t, m))
	}
	p.mu.Lock()
	fault := p.fault
	if t.taken++; t.taken == p.size {
		delete(p.turns, n)
	}
	p.mu.Unlock()
	if fault != nil && t.result == nil {
		return fault
	}
	time.Sleep(time.Until(t.due))
	m.Unpack(m.own(t.result, p.rank, p.size))
	return nil
}

// late names the ranks that have not sent a message.
func (p *place) late(t *turn, m *Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var absent []string
	for r, x := range t.at {
		if x == nil {
			absent = append(absent, fmt.Sprint(r))
		}
	}
	return fmt.Errorf("rank %s has not sent the message %s within %v", strings.Join(absent, ", "), m.Name, p.opt.Timeout)
}

func (p *place) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
}

// fail makes all waits return an error; the first error counts.
func (s *local) fail(err error) {
	if s.fault != nil {
		return
	}
	s.fault = err
	for _, t := range s.turns {
		if t.result == nil {
			close(t.ready)
		}
	}
}

// gone lists the ranks that have left.
func (s *local) gone() []string {
	var gone []string
	for r, left := range s.left {
		if left {
			gone = append(gone, fmt.Sprint(r))
		}
	}
	return gone
}

// Close makes other ranks fail if they wait for this rank.
func (p *place) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[p.rank] = true
	for _, t := range p.turns {
		if t.result == nil && t.at[p.rank] == nil && p.fault == nil {
			i := slices.IndexFunc(t.at, func(m *Message) bool { return m != nil })
			p.fail(fmt.Errorf("rank %d has left before the message %s", p.rank, t.at[i].Name))
		}
	}
	return nil
}
