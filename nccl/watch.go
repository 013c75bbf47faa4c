package nccl

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"ampc/cuda"
)

// pollMost is the longest interval at which the watchdog looks at the communicator.
const pollMost = time.Second

// watch notes that a call of the backend has begun. The call ends with the error of the World, if it has
// failed: what the device holds is of no use then.
func (r *ranks) watch() (end func(done bool) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
	r.busy = true
	return func(done bool) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
		if done {
			r.pending = false
		}
		return r.fault
	}
}

// guard is the watchdog. It ends the World if NCCL reports an error, or if a call of the backend
// waits too long: the device then waits for another rank.
func (r *ranks) guard() {
	defer r.watcher.Done()
	tick := time.NewTicker(max(min(r.o.Timeout/20, pollMost), time.Millisecond))
	defer tick.Stop()
	var wrong time.Time // when NCCL has first reported an error
	for {
		select {
		case <-r.closing:
			return
		case <-tick.C:
		}
		r.beats.beat()
		if r.failed() != nil {
			continue // fail ends what cannot be ended otherwise
		}
		if err := r.comm.State(); err != nil && !errors.Is(err, cuda.ErrPending) {
			if wrong.IsZero() {
				wrong = time.Now()
			}
			if missing, known := r.beats.missing(); known || time.Since(wrong) > 2*r.beats.patience() {
				r.fail(fmt.Errorf("nccl: rank %d at %s: %w: %s", r.o.Rank, r.at(), err, missing))
			}
			continue
		}
		if r.waited() > r.o.Timeout {
			missing, known := r.beats.missing()
			if r.isLeaving() && !(known && r.beats.file != "") {
				continue // a rank that sends heartbeats may evaluate; without them none is known to be lost
			}
			r.fail(fmt.Errorf("nccl: %s was not finished within %v: %s", r.at(), r.o.Timeout, missing))
		}
	}
}

func (r *ranks) at() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doing
}

// waited is how long a call of the backend has been under way while something that all ranks do has
// begun and not ended. Other calls, such as the loading of a program, may take their time.
func (r *ranks) waited() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.busy || !r.pending {
		return 0
	}
	return time.Since(r.since)
}

// leave notes that this rank closes the World.
func (r *ranks) leave() {
	r.Begin("the end")
	r.mu.Lock()
	r.leaving = true
	r.mu.Unlock()
}

func (r *ranks) isLeaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving
}

// fail ends the World with an error, and what waits on the device. If NCCL does not return what waits
// there, or does not return from the abort, a thread of its own ends the process.
func (r *ranks) fail(err error) {
	r.mu.Lock()
	if r.fault == nil {
		r.fault = err
		waits := r.since
		time.AfterFunc(r.o.grace(), func() {
			runtime.LockOSThread()
			r.mu.Lock()
			stuck := r.busy && r.since.Equal(waits)
			r.mu.Unlock()
			if stuck {
				r.o.Exit(fmt.Errorf("%w; the call did not return after the communicator was aborted", err))
			}
		})
	}
	r.mu.Unlock()
	_ = r.comm.Abort() // the fault is what is reported
}

func (r *ranks) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}
