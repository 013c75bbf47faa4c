package cpu

import (
	"context"
	"slices"
	"sync"
)

// gate is a counting semaphore with a first-in, first-out queue: no caller starves. A step that may run beside others
// takes one place, a step that must run alone takes all.
type gate struct {
	mu    sync.Mutex
	all   int // places
	taken int
	queue []*waiter // in the order of arrival
}

type waiter struct {
	places int
	let    chan struct{} // closed when the places are taken
}

func newGate(places int) *gate { return &gate{all: places} }

// enter takes places, waiting until they are free, or returns the cause of ctx's end and takes none.
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
	if i < 0 { // next gave it the places meanwhile
		g.taken -= places
	} else {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.next()
	return context.Cause(ctx)
}

// leave gives back places that enter has taken.
func (g *gate) leave(places int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken -= places
	g.next()
}

// next gives places to those that wait, in order, until too few are left for the first. g.mu is held.
func (g *gate) next() {
	for len(g.queue) > 0 && g.taken+g.queue[0].places <= g.all {
		g.taken += g.queue[0].places
		close(g.queue[0].let)
		g.queue = g.queue[1:]
	}
}
