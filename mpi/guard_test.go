//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"strings"
	"testing"
	"time"
)

// The watchdog ends the process if a call of MPI does not return, and not while none is under way.
func TestGuard(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		r := &ranks{rank: 1, timeout: 60 * time.Millisecond, lib: &library{name: "Test MPI"}, met: make(chan struct{})}
		ended := make(chan error, 1)
		gone := make(chan struct{})
		go func() {
			r.guard(func(err error) { ended <- err })
			close(gone)
		}()
		if !stuck {
			time.Sleep(3 * r.timeout)
			close(r.met)
			<-gone
			if len(ended) > 0 {
				t.Errorf("ended: %v", <-ended)
			}
			continue
		}
		r.lib.began.Store(1)
		if err := <-ended; !strings.Contains(err.Error(), "mpi: rank 1: a call of Test MPI has not returned within 60ms") {
			t.Error(err)
		}
		<-gone
	}
}
