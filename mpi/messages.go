//go:build linux && (amd64 || arm64) && !nompi

package mpi

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"ampc/world"
)

// largeTensor is the size in bytes from which a tensor is sent from where it lies. Below it, to copy a
// tensor into a message with others takes less time than a collective of its own.
const largeTensor = 128 << 10

// sending is a message in flight.
type sending struct {
	m      *world.Message   // as it was started
	large  []*world.Message // one tensor each, sent and received in place
	packed *world.Message   // the other tensors
	own    []byte           // packed as it is sent, and as it is received except for a Gather
	all    []byte           // of a Gather: what is received
	err    error
	done   chan struct{}
}

// split divides the tensors of m. All ranks divide them alike, because sizes are equal.
func split(m *world.Message) *sending {
	s, packed := &sending{m: m, done: make(chan struct{})}, *m
	packed.In, packed.Out = nil, nil
	for i, in := range m.In {
		if m.Plain() && len(in) >= largeTensor {
			one := *m
			one.In, one.Out = m.In[i:i+1], m.Out[i:i+1]
			s.large = append(s.large, &one)
			continue
		}
		packed.In, packed.Out = append(packed.In, in), append(packed.Out, m.Out[i])
	}
	if len(packed.In) > 0 {
		s.packed = &packed
	}
	return s
}

func (r *ranks) Start(m *world.Message) error {
	if err := m.Check(r.size); err != nil {
		return fmt.Errorf("mpi: rank %d: %w", r.rank, err)
	}
	s := split(m)
	if s.packed != nil {
		s.own = r.take(s.packed.Bytes())
		s.packed.Pack(s.own, r.size)
		if m.Op == world.Gather {
			s.all = r.take(len(s.own) * r.size)
		}
	}
	r.sent = append(r.sent, s)
	r.queue <- s
	return nil
}

func (r *ranks) Wait(ctx context.Context, m *world.Message) error {
	if len(r.sent) == 0 {
		return fmt.Errorf("mpi: rank %d: %w", r.rank, m.InTurn(nil))
	}
	s := r.sent[0]
	if err := m.InTurn(s.m); err != nil {
		return fmt.Errorf("mpi: rank %d: %w", r.rank, err)
	}
	r.sent = slices.Delete(r.sent, 0, 1)
	select {
	case <-s.done:
	case <-ctx.Done():
		return fmt.Errorf("rank %d was interrupted at the message %s: %w", r.rank, m.Name, context.Cause(ctx))
	}
	if s.err != nil || s.packed == nil {
		return s.err
	}
	if m.Op == world.Gather {
		s.packed.Unpack(s.all)
		r.free = append(r.free, s.all)
	} else {
		s.packed.Unpack(s.own)
	}
	r.free = append(r.free, s.own)
	return nil
}

// take returns a buffer of n bytes, which has an address even if n is 0: the smallest free one that
// is large enough, or a new one.
func (r *ranks) take(n int) []byte {
	best := -1
	for i, b := range r.free {
		if cap(b) > n && (best < 0 || cap(b) < cap(r.free[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, n, n+1)
	}
	b := r.free[best]
	r.free = slices.Delete(r.free, best, best+1)
	return b[:n]
}

// send carries the large tensors of a message, then the packed ones.
func (r *ranks) send(s *sending) error {
	for _, m := range s.large {
		if err := r.carry(m, m.In[0], m.Out[0]); err != nil {
			return err
		}
	}
	switch {
	case s.packed == nil:
		return nil
	case s.all != nil:
		return r.carry(s.packed, s.own, s.all)
	}
	return r.carry(s.packed, s.own, s.own)
}

func (r *ranks) carry(m *world.Message, in, out []byte) error {
	if m.Op == world.Gather {
		return r.gather(m, in, out)
	}
	return r.reduce(m, in, out)
}

// gather writes the elements of all ranks to all: in of each, the last one without what fills it up.
func (r *ranks) gather(m *world.Message, in, all []byte) error {
	if len(all) != int(int32(len(all))) {
		return tooLarge(m, len(all))
	}
	counts, at := r.counts[0], r.counts[1]
	for k := range counts {
		counts[k], at[k] = int32(min(len(in), max(len(all)-k*len(in), 0))), int32(min(k*len(in), len(all)))
	}
	return r.finish(m, "MPI_Iallgatherv", address(in), uintptr(counts[r.rank]), r.lib.bytes, address(all), address(counts), address(at), r.lib.bytes, r.comm)
}

// reduce sends each rank its segment of in, adds up this rank's segment over all ranks, and gathers
// the sums in out, which may be in. A Scatter leaves this rank's sums at the beginning of out.
func (r *ranks) reduce(m *world.Message, in, out []byte) error {
	unit := 1
	if n := m.Elements(); n > 0 {
		unit = len(in) / n
	}
	if len(in) != int(int32(len(in))) {
		return tooLarge(m, len(in))
	}
	counts, at, got, gotAt := r.counts[0], r.counts[1], r.counts[2], r.counts[3]
	for k := range counts {
		from, to := m.Segment(k, r.size)
		at[k], counts[k] = int32(from*unit), int32((to-from)*unit)
	}
	from, n := int(at[r.rank]), int(counts[r.rank])
	own := in[from : from+n]
	parts := r.place(got, gotAt, own)
	counts[r.rank] = 0 // own elements stay where they are
	if err := r.finish(m, "MPI_Ialltoallv", address(in), address(counts), address(at), r.lib.bytes, address(r.parts), address(got), address(gotAt), r.lib.bytes, r.comm); err != nil {
		return err
	}
	if counts[r.rank] = int32(n); m.Scatter {
		m.Reduce(out[:n], parts)
		return nil
	}
	m.Reduce(out[from:from+n], parts)
	return r.finish(m, "MPI_Iallgatherv", r.lib.inPlace, 0, r.lib.bytes, address(out), address(counts), address(at), r.lib.bytes, r.comm)
}

// place lays out memory for the segment own as the other ranks send it, in order of ranks. It sets
// the sizes and offsets of what arrives in r.parts, and returns the segments of all ranks.
func (r *ranks) place(sizes, offsets []int32, own []byte) [][]byte {
	n := len(own)
	if need := n*(r.size-1) + 1; cap(r.parts) < need {
		r.parts = make([]byte, need)
	}
	r.parts = r.parts[:cap(r.parts)]
	parts, at := make([][]byte, r.size), 0
	for k := range parts {
		if sizes[k], offsets[k] = 0, int32(at); k == r.rank {
			parts[k] = own
			continue
		}
		sizes[k], parts[k] = int32(n), r.parts[at:at+n]
		at += n
	}
	return parts
}

func tooLarge(m *world.Message, bytes int) error {
	return fmt.Errorf("mpi: the message %s has %d bytes in one tensor: the most is 2 GiB", m.Name, bytes)
}

// address is the address of a slice, which must not be on the stack.
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
