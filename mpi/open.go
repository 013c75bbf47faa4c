//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"ampc/world"
)

const threadFunneled = 1 // MPI_THREAD_FUNNELED: one thread calls MPI

// ranks is a World over MPI. One goroutine makes all calls of MPI. It is locked to the thread that
// initialized MPI.
type ranks struct {
	lib        *library
	comm       uintptr // communicator of the messages
	beats      *beats
	rank, size int
	timeout    time.Duration

	// memory that MPI reads and writes during a message; on the heap, because stacks move
	counts  [4][]int32
	parts   []byte // of the other ranks, to be added up
	request uintptr
	done    int32

	queue chan *sending
	sent  []*sending // started and not yet waited for, the oldest first
	free  [][]byte   // buffers of messages that have ended
	fault error      // error of the MPI goroutine
	lost  *sending   // at which it failed: MPI may still hold its memory
	// Close closes queue. Then the MPI goroutine sets closing. It closes met when all ranks have
	// called Close or one is lost, and ended when MPI is finalized.
	closing    bool
	met, ended chan struct{}
}

// Open initializes MPI. It is called once in a process, by every rank. The library must
// be that of the launcher; that they agree on the number of ranks is checked.
//
// A goroutine calls MPI and sleeps between calls. To go on it needs one of the GOMAXPROCS threads
// that may run Go code, which the CPU backend's workers may all keep in kernels. Messages need not
// wait for a kernel if a rank has one thread more than workers, which the program says itself:
//
//	n, _ := mpi.Cores()
//	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), n+1))
func Open(o Options) (world.World, error) {
	r := &ranks{timeout: cmp.Or(o.Timeout, world.Timeout), queue: make(chan *sending, 1024), met: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error)
	go r.serve(o, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

// serve is the MPI goroutine.
func (r *ranks) serve(o Options, started chan<- error) {
	runtime.LockOSThread()
	err := r.open(o)
	started <- err
	if err != nil {
		return
	}
	defer close(r.ended)
	go r.guard(o.Exit)
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case s, open := <-r.queue:
			if !open {
				r.finalize()
				return
			}
			if r.fault == nil {
				r.beats.at++
				if r.fault = r.send(s); r.fault != nil {
					r.lost = s
				}
			}
			s.err = r.fault
			close(s.done)
		case <-beat.C:
			if r.fault == nil { // calls of MPI would continue the lost message, in memory that is free by now
				r.beats.beat()
			}
		}
	}
}

// guard is the watchdog. It ends the process, on a thread of its own, if a call of MPI does not
// return: the MPI goroutine is inside it and can report nothing. It calls nothing of MPI itself.
func (r *ranks) guard(exit func(error)) {
	runtime.LockOSThread()
	every := max(min(r.timeout/20, beatEvery), time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, waited := int64(0), time.Duration(0) // counted in ticks: a process that was stopped has not waited
	for {
		select {
		case <-r.met: // Close waits for MPI_Finalize
			return
		case <-tick.C:
		}
		waited += every
		if at := r.lib.began.Load(); at != last || at == 0 {
			last, waited = at, 0
		}
		if waited > r.timeout {
			if exit == nil {
				exit = world.Exit
			}
			exit(fmt.Errorf("mpi: rank %d: a call of %s has not returned within %v", r.rank, r.lib.name, r.timeout))
			return
		}
	}
}

// finalize waits for ranks that still have work of their own, such as an evaluation. MPI_Finalize
// cannot do that: it sends no heartbeats and does not notice a lost rank.
func (r *ranks) finalize() {
	if r.fault == nil {
		r.closing = true
		r.fault = r.gather(&world.Message{Name: "close"}, r.take(1), r.take(r.size))
	}
	close(r.met)
	if r.fault == nil {
		r.fault = r.lib.call("MPI_Finalize")
	}
}

func (r *ranks) open(o Options) error {
	var err error
	if r.lib, err = openLibrary(libraries(o.Library)); err != nil {
		return err
	}
	var provided, rank, size int32
	l := r.lib
	if err := l.call("MPI_Init_thread", 0, 0, threadFunneled, uintptr(unsafe.Pointer(&provided))); err != nil {
		return fmt.Errorf("mpi: %w", err)
	}
	err = errors.Join(
		l.call("MPI_Comm_set_errhandler", l.world, l.errorsReturn),
		l.call("MPI_Comm_rank", l.world, uintptr(unsafe.Pointer(&rank))),
		l.call("MPI_Comm_size", l.world, uintptr(unsafe.Pointer(&size))))
	if err != nil {
		return fmt.Errorf("mpi: %w", err)
	}
	if provided < threadFunneled {
		return fmt.Errorf("mpi: %s was built without threads: its MPI_THREAD_FUNNELED is missing", l.name)
	}
	if err := wrongLauncher(l.name, int(size)); err != nil {
		return err
	}
	r.rank, r.size, r.comm = int(rank), int(size), l.world
	for i := range r.counts {
		r.counts[i] = make([]int32, size)
	}
	r.beats, err = newBeats(l, r.rank, r.size)
	return err
}

func (r *ranks) Rank() int      { return r.rank }
func (r *ranks) Size() int      { return r.size }
func (r *ranks) Engine() string { return "MPI (" + r.lib.name + ")" }

// Close finalizes MPI when all ranks have called it. It waits for ranks as long as they send
// heartbeats, even beyond the timeout. After a failure it does not wait.
func (r *ranks) Close() error {
	close(r.queue)
	<-r.met
	select {
	case <-r.ended:
		return r.fault
	case <-time.After(r.timeout):
		return fmt.Errorf("mpi: MPI_Finalize has not ended within %v: %s", r.timeout, r.beats.missing())
	}
}
