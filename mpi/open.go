//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	part    []byte
	request uintptr
	done    int32

	queue chan *sending
	sent  []*sending // started and not yet waited for, the oldest first
	fault error      // error of the MPI goroutine
	// Close closes queue. Then the MPI goroutine sets closing. It closes met when all ranks have
	// called Close or one is lost, and ended when MPI is finalized.
	closing    bool
	met, ended chan struct{}
}

// sending is a message in flight.
type sending struct {
	m    *world.Message
	own  []byte // data as it is sent
	err  error
	done chan struct{}
}

// Open initializes MPI. It is called once in a process, by every rank. The library must
// be that of the launcher; that they agree on the number of ranks is checked. GOMAXPROCS is
// raised to one more than Cores, so that messages need not wait for a kernel to end.
func Open(o Options) (world.World, error) {
	r := &ranks{timeout: cmp.Or(o.Timeout, world.Timeout), queue: make(chan *sending, 1024), met: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error)
	go r.serve(o, started)
	if err := <-started; err != nil {
		return nil, err
	}
	if n, _ := Cores(); runtime.GOMAXPROCS(0) <= n { // kernels may occupy n threads for long
		runtime.GOMAXPROCS(n + 1)
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
				r.fault = r.send(s)
			}
			s.err = r.fault
			close(s.done)
		case <-beat.C:
			r.beats.beat()
		}
	}
}

// finalize waits for ranks that still have work of their own, such as an evaluation. MPI_Finalize
// cannot do that: it sends no heartbeats and does not notice a lost rank.
func (r *ranks) finalize() {
	if r.fault == nil {
		r.closing = true
		r.fault = r.gather(&sending{m: &world.Message{Name: "close"}, own: make([]byte, 1)})
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

func (r *ranks) Start(m *world.Message) error {
	if err := m.Check(r.size); err != nil {
		return fmt.Errorf("mpi: rank %d: %w", r.rank, err)
	}
	s := &sending{m: m, own: make([]byte, m.Bytes(), m.Bytes()+1), done: make(chan struct{})}
	m.Pack(s.own, r.size)
	r.sent = append(r.sent, s)
	r.queue <- s
	return nil
}

func (r *ranks) Wait(ctx context.Context, m *world.Message) error {
	s := r.sent[0]
	r.sent = slices.Delete(r.sent, 0, 1)
	select {
	case <-s.done:
	case <-ctx.Done():
		return fmt.Errorf("rank %d was interrupted at the message %s: %w", r.rank, m.Name, context.Cause(ctx))
	}
	if s.err != nil {
		return s.err
	}
	m.Unpack(s.own)
	return nil
}

func (r *ranks) send(s *sending) error {
	if s.m.Op == world.Gather {
		return r.gather(s)
	}
	return r.allReduce(s)
}

// gather gives every rank the elements of all ranks.
func (r *ranks) gather(s *sending) error {
	n := len(s.own)
	if total := n * r.size; total != int(int32(total)) {
		return fmt.Errorf("mpi: the message %s has %d bytes: the most is 2 GiB", s.m.Name, total)
	}
	counts, at := r.counts[0], r.counts[1]
	for k := range counts {
		counts[k], at[k] = int32(n), int32(k*n)
	}
	all := make([]byte, n*r.size, n*r.size+1)
	err := r.finish(s.m, "MPI_Iallgatherv", address(s.own), uintptr(n), r.lib.bytes, address(all), address(counts), address(at), r.lib.bytes, r.comm)
	runtime.KeepAlive(s)
	s.own = all
	return err
}

// allReduce sends each rank its segment of this rank's elements, adds up this rank's segment over
// all ranks, and gathers the sums. A Scatter ends before it gathers.
func (r *ranks) allReduce(s *sending) error {
	unit := 1
	if n := s.m.Elements(); n > 0 {
		unit = len(s.own) / n
	}
	counts, at, got, gotAt := r.counts[0], r.counts[1], r.counts[2], r.counts[3]
	for k := range counts {
		from, to := s.m.Segment(k, r.size)
		if to*unit != int(int32(to*unit)) {
			return fmt.Errorf("mpi: the message %s has %d bytes: the most is 2 GiB", s.m.Name, len(s.own))
		}
		at[k], counts[k] = int32(from*unit), int32((to-from)*unit)
	}
	mine := int(counts[r.rank])
	r.part = slices.Grow(r.part[:0], mine*r.size+1)[:mine*r.size]
	parts := make([][]byte, r.size)
	for k := range got {
		got[k], gotAt[k] = int32(mine), int32(k*mine)
		parts[k] = r.part[k*mine : (k+1)*mine]
	}
	own, part := address(s.own), address(r.part)
	err := r.finish(s.m, "MPI_Ialltoallv", own, address(counts), address(at), r.lib.bytes, part, address(got), address(gotAt), r.lib.bytes, r.comm)
	if err != nil {
		return err
	}
	s.m.Reduce(parts[0], parts)
	if s.m.Scatter {
		s.own = append(make([]byte, 0, mine+1), parts[0]...)
		return nil
	}
	err = r.finish(s.m, "MPI_Iallgatherv", part, uintptr(mine), r.lib.bytes, own, address(counts), address(at), r.lib.bytes, r.comm)
	runtime.KeepAlive(s)
	return err
}

// address is the address of a slice, which must be on the heap.
func address[T any](list []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(list))) }

// finish starts a non-blocking collective and polls until it has completed.
func (r *ranks) finish(m *world.Message, call string, args ...uintptr) error {
	r.request, r.done = 0, 0
	if err := r.lib.call(call, append(args, uintptr(unsafe.Pointer(&r.request)))...); err != nil {
		return fmt.Errorf("mpi: the message %s: %w", m.Name, err)
	}
	began, pause := time.Now(), pauses{}
	for {
		if err := r.lib.call("MPI_Test", uintptr(unsafe.Pointer(&r.request)), uintptr(unsafe.Pointer(&r.done)), r.lib.statusIgnore); err != nil {
			return fmt.Errorf("mpi: the message %s: %w", m.Name, err)
		}
		if r.done != 0 {
			return nil
		}
		waited := time.Since(began)
		if waited > r.timeout && (!r.closing || r.beats.silence() > r.timeout) {
			return fmt.Errorf("mpi: the message %s was not answered within %v: %s", m.Name, r.timeout, r.beats.missing())
		}
		r.beats.during(waited)
		pause.next()
	}
}

// pauses are the waits between polls: none at first, when a result may be near, then short ones, so
// that kernels can use the processor.
type pauses struct{ polls int }

func (p *pauses) next() {
	p.polls++
	switch {
	case p.polls < 200:
		runtime.Gosched()
	case p.polls < 2000:
		time.Sleep(20 * time.Microsecond)
	default:
		time.Sleep(200 * time.Microsecond)
	}
}

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
