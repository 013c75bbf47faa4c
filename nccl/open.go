package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"ampc/cuda"
	"ampc/runtime/gpu"
	"ampc/world"
)

// ranks is a World over NCCL. It implements gpu.Linked.
type ranks struct {
	o       Options
	b       *gpu.Backend
	comm    cuda.Comm
	version int
	beats   *beats
	sent    []*sending // messages between hosts, started and not waited for

	mu      sync.Mutex
	busy    bool      // a call of the backend is under way
	since   time.Time // when it began
	doing   string    // what this rank has begun last
	pending bool      // and is not known to have ended
	leaving bool      // by Close: other ranks may have work of their own
	fault   error
	once    sync.Once
	closing chan struct{}
	watcher sync.WaitGroup
}

// sending is a message between hosts.
type sending struct {
	m    *world.Message
	mine []byte
}

var _ gpu.Linked = (*ranks)(nil)

// Open connects the GPU of this rank with those of the others. Every rank calls it once for its
// backend, before it compiles a step. It waits for all of them, at most Options.Timeout.
func Open(b *gpu.Backend, o Options) (world.World, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	lib, err := b.OpenNccl()
	if err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	r := &ranks{o: o, b: b, version: lib.Version(), beats: newBeats(o), closing: make(chan struct{}), doing: "the first meeting"}
	id, err := meet(o, lib)
	if err != nil {
		return nil, err
	}
	if err := b.Connect(func() (cuda.Comm, error) { return r.join(lib, id) }, r.watch); err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	r.watcher.Add(1)
	go r.guard()
	return r, nil
}

// join makes the communicator and waits until all ranks have.
func (r *ranks) join(lib cuda.Nccl, id cuda.NcclID) (cuda.Comm, error) {
	c, err := lib.Join(id, r.o.Size, r.o.Rank)
	if err != nil {
		return nil, err
	}
	r.comm = c
	r.beats.begin()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		switch err := c.State(); {
		case err == nil:
			if r.o.Rank == 0 && r.o.File != "" { // a later run may take the name again
				err = os.Remove(r.o.File)
			}
			return c, err
		case !errors.Is(err, cuda.ErrPending):
			return nil, errors.Join(err, c.Abort(), c.Close())
		case time.Since(began) > r.o.Timeout:
			missing, _ := r.beats.missing()
			return nil, errors.Join(fmt.Errorf("the ranks have not met within %v: %s", r.o.Timeout, missing), c.Abort(), c.Close())
		}
		r.beats.beat()
	}
}

func (r *ranks) Rank() int { return r.o.Rank }
func (r *ranks) Size() int { return r.o.Size }

// Engine implements world.World: NCCL 2.22.3.
func (r *ranks) Engine() string {
	return fmt.Sprintf("NCCL %d.%d.%d", r.version/10000, r.version/100%100, r.version%100)
}

// Link implements gpu.Linked.
func (r *ranks) Link(b *gpu.Backend) (cuda.Comm, error) {
	if b != r.b {
		return nil, fmt.Errorf("nccl: this World connects %s, and the step runs on %s: compile it for the backend that Open was given", r.b.Name(), b.Name())
	}
	return r.comm, r.failed()
}

// Begin implements gpu.Linked.
func (r *ranks) Begin(what string) {
	r.mu.Lock()
	r.doing, r.pending = what, true
	r.mu.Unlock()
	r.beats.begin()
}

// Start implements world.World. The message travels when Wait is called.
func (r *ranks) Start(m *world.Message) error {
	if err := r.failed(); err != nil {
		return err
	}
	if err := m.Check(r.o.Size); err != nil {
		return fmt.Errorf("nccl: %w", err)
	}
	if r.o.Host != nil {
		return r.o.Host.Start(m)
	}
	r.Begin("the message " + m.Name)
	s := &sending{m, make([]byte, m.Bytes())}
	m.Pack(s.mine, r.o.Size)
	r.sent = append(r.sent, s)
	return nil
}

// Wait implements world.World. Messages are added on the host, in the order of ranks.
func (r *ranks) Wait(ctx context.Context, m *world.Message) error {
	if r.o.Host != nil {
		return r.o.Host.Wait(ctx, m)
	}
	if len(r.sent) == 0 {
		return fmt.Errorf("nccl: rank %d: %w", r.o.Rank, m.InTurn(nil))
	}
	s := r.sent[0]
	if err := m.InTurn(s.m); err != nil {
		return fmt.Errorf("nccl: rank %d: %w", r.o.Rank, err)
	}
	r.sent = slices.Delete(r.sent, 0, 1)
	stop := context.AfterFunc(ctx, func() {
		r.fail(fmt.Errorf("rank %d was interrupted at the message %s: %w", r.o.Rank, m.Name, context.Cause(ctx)))
	})
	defer stop()
	all, err := r.b.Exchange(s.mine, r.o.Size)
	if err != nil {
		return err
	}
	parts := make([][]byte, r.o.Size)
	for k := range parts {
		parts[k] = all[k*len(s.mine):][:len(s.mine)]
	}
	if m.Op == world.Gather {
		m.Unpack(all)
		return nil
	}
	m.Reduce(s.mine, parts)
	if n := m.Elements(); m.Scatter && n > 0 {
		from, to := m.Segment(r.o.Rank, r.o.Size)
		unit := len(s.mine) / n
		s.mine = s.mine[from*unit : to*unit]
	}
	m.Unpack(s.mine)
	return nil
}

// Close destroys the communicator, with the graphs that call it, or returns the error that has ended it.
// Steps that were compiled for the World cannot run any more.
func (r *ranks) Close() error {
	var err error
	r.once.Do(func() {
		r.leave()
		end := r.watch()
		err = errors.Join(r.b.Disconnect(), end(true))
		close(r.closing)
		r.watcher.Wait()
		r.beats.end()
	})
	return err
}
