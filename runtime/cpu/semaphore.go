package cpu

import (
	"context"
	"slices"
	"sync"
)

// semaphore is a counting semaphore with a first-in, first-out queue, so no caller starves. A step
// that may run concurrently acquires one permit; an exclusive step acquires all.
type semaphore struct {
	limit func() int // the number of steps that may run at the same time now
	mu    sync.Mutex
	used  int
	queue []*waiter // in the order of arrival
}

type waiter struct {
	permits int
	granted chan struct{} // closed when the permits are granted
}

// allPermits is more than the steps that run at the same time.
const allPermits = 1 << 30

func newSemaphore(limit func() int) *semaphore { return &semaphore{limit: limit} }

// free reports whether permits can be taken now. g.mu must be held.
func (g *semaphore) free(permits int) bool {
	return g.used == 0 || permits < allPermits && g.used+permits <= g.limit()
}

// acquire takes permits and waits until they are free. If ctx ends first, it returns the cause and
// takes none.
func (g *semaphore) acquire(ctx context.Context, permits int) error {
	g.mu.Lock()
	if len(g.queue) == 0 && g.free(permits) {
		g.used += permits
		g.mu.Unlock()
		return nil
	}
	w := &waiter{permits, make(chan struct{})}
	g.queue = append(g.queue, w)
	g.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 { // grant gave the permits to w in the meantime
		g.used -= permits
	} else {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.grant()
	return context.Cause(ctx)
}

// release returns permits that acquire has taken.
func (g *semaphore) release(permits int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= permits
	g.grant()
}

// grant gives permits to waiters in order, until too few are left for the first one. g.mu must be
// held.
func (g *semaphore) grant() {
	for len(g.queue) > 0 && g.free(g.queue[0].permits) {
		g.used += g.queue[0].permits
		close(g.queue[0].granted)
		g.queue = g.queue[1:]
	}
}
