package ampc

import (
	"context"
	"fmt"
)

// gate lets one call at a time at what the steps of a model share: the session,
// its variables, and what a step keeps between runs.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits for the gate, or for the end of ctx.
func (g gate) enter(ctx context.Context) error {
	if g.try() {
		return nil
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try enters unless somebody is inside.
func (g gate) try() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

// hold waits for the gate and returns what opens it again: `defer g.hold()()`.
func (g gate) hold() func() {
	g <- struct{}{}
	return g.leave
}

func (g gate) leave() { <-g }

// begin lets one call at a time run the step. A training step that another
// goroutine is running is an error, since the order of its batches would be
// chance; calls of inference steps wait for each other.
func (s *Step) begin(ctx context.Context, call string) (end func(), err error) {
	root := s
	if s.of != nil {
		root = s.of
	}
	leave := s.model.gate.leave
	if len(s.losses) > 0 {
		if !root.turn.try() {
			return nil, fmt.Errorf("%s: another goroutine is running this training step: call it from one goroutine at a time", call)
		}
		leave = func() {
			s.model.gate.leave()
			root.turn.leave()
		}
	}
	if err := s.model.gate.enter(ctx); err != nil {
		if len(s.losses) > 0 {
			root.turn.leave()
		}
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	if s.exec == nil {
		leave()
		return nil, errClosed
	}
	return leave, nil
}
