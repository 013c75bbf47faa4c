package cpu

import (
	"context"
	"slices"
	"sync"
)

// gate lets a number of places be taken, one by most, all of them by who must be alone. Who waits is let in in the order
// of arrival, so that nobody waits for good.
type gate struct {
	mu    sync.Mutex
	all   int
	taken int
	queue []*waiter
}

type waiter struct {
	places int
	let    chan struct{}
}

func newGate(places int) *gate { return &gate{all: places} }

// enter takes places, or returns the cause of ctx's end.
func (g *gate) enter(ctx context.Context, places int) error {
	g.mu.Lock()
	if len(g.queue) == 0 && g.taken+places <= g.all {
		g.taken += places
		g.mu.Unlock()
		return nil
	}
	w := &waiter{places, make(chan struct{})}
	g.queue = append(g.queue, w)
	g.mu.Unlock()
	select {
	case <-w.let:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 { // it was let in meanwhile
		g.taken -= places
	} else {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.next()
	return context.Cause(ctx)
}

func (g *gate) leave(places int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken -= places
	g.next()
}

// next lets in who waits, as far as there are places.
func (g *gate) next() {
	for len(g.queue) > 0 && g.taken+g.queue[0].places <= g.all {
		g.taken += g.queue[0].places
		close(g.queue[0].let)
		g.queue = g.queue[1:]
	}
}
