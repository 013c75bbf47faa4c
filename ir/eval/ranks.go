package eval

import (
	"fmt"
	"slices"
	"sync"

	"ampc/ir"
)

// Ranks evaluates one step on several ranks at once, each with its own graph, variables
// and micro-batches, which meet at collectives. It fails where they do not meet: ranks
// that reach different collectives, and ranks that end while others wait.
func Ranks(graphs []*ir.Graph, env []map[string]*Tensor, feeds [][]map[string]*Tensor, o Options) ([]*Result, error) {
	m := &barrier{ranks: len(env), at: make([]*arrival, len(env))}
	m.moved.L = &m.mu
	results, errs := make([]*Result, len(env)), make([]error, len(env))
	var all sync.WaitGroup
	for r := range env {
		all.Go(func() {
			own := o
			own.Rank, own.Exchange = r, func(n *ir.Node, sent []*Tensor) ([][]*Tensor, error) { return m.await(r, n, sent) }
			results[r], errs[r] = Step(graphs[r], env[r], feeds[r], own)
			m.leave(r, errs[r])
		})
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return results, nil
}

// barrier is where ranks wait for each other at a collective.
type barrier struct {
	mu    sync.Mutex
	moved sync.Cond
	ranks int
	at    []*arrival // by rank: where it waits
	round int
	got   [][]*Tensor // of the last round
	gone  bool        // a rank has ended
	fault error       // not nil: all ranks have stopped waiting
}

type arrival struct {
	name string
	sent []*Tensor
}

// compare is an error where rank sends tensors of other types than rank 0.
func (a *arrival) compare(rank int, b *arrival) error {
	if len(a.sent) != len(b.sent) {
		return fmt.Errorf("rank 0 sends %d tensors to the collective %s, and rank %d sends %d", len(a.sent), a.name, rank, len(b.sent))
	}
	for i, x := range a.sent {
		if y := b.sent[i]; x.Type != y.Type {
			return fmt.Errorf("tensor %d of the collective %s is %s on rank 0, and %s on rank %d", i, a.name, x.Type, y.Type, rank)
		}
	}
	return nil
}

func (m *barrier) await(rank int, n *ir.Node, sent []*Tensor) ([][]*Tensor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone && m.fault == nil {
		m.fault = fmt.Errorf("reaches the collective %s, and another rank has ended", n.Name())
	}
	if m.fault != nil {
		return nil, m.fault
	}
	m.at[rank] = &arrival{n.Name(), sent}
	if round := m.round; slices.Contains(m.at, nil) {
		for m.round == round && m.fault == nil {
			m.moved.Wait()
		}
	} else {
		m.exchange()
	}
	return m.got, m.fault
}

// exchange ends a round after all ranks have arrived.
func (m *barrier) exchange() {
	m.got = make([][]*Tensor, m.ranks)
	for r, a := range m.at {
		if a.name != m.at[0].name {
			m.fault = fmt.Errorf("rank 0 is at the collective %s and rank %d at %s", m.at[0].name, r, a.name)
		} else if m.fault == nil {
			m.fault = m.at[0].compare(r, a)
		}
		m.got[r] = a.sent
	}
	m.round++
	clear(m.at)
	m.moved.Broadcast()
}

// leave ends the wait of ranks for one that has ended.
func (m *barrier) leave(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.at {
		if a != nil && m.fault == nil {
			m.fault = fmt.Errorf("waits at the collective %s, which rank %d has not reached", a.name, rank)
		}
	}
	m.gone = true
	if err != nil && m.fault == nil {
		m.fault = fmt.Errorf("rank %d has ended: %w", rank, err)
	}
	m.moved.Broadcast()
}
