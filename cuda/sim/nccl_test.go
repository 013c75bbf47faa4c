package sim

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ampc/cuda"
)

// member is one rank of a test: a device with a buffer of 64 floats on a stream.
type member struct {
	*Device
	rank int
	comm cuda.Comm
	s    cuda.Stream
	p    cuda.Ptr
}

func (m *member) sum(from, to, count int) error {
	return m.comm.AllReduce(m.p+cuda.Ptr(4*from), m.p+cuda.Ptr(4*to), int64(count), cuda.NcclFloat32, cuda.NcclSum, m.s)
}

// onRanks runs f on the ranks of one communicator and returns their errors.
func onRanks(t *testing.T, n int, f func(m *member) error) []error {
	t.Helper()
	var id cuda.NcclID
	copy(id[:], t.Name())
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		d, err := Open(Options{Major: 9, Stall: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { errs[r] = onRank(d, id, n, r, f) })
	}
	all.Wait()
	return errs
}

func onRank(d *Device, id cuda.NcclID, n, rank int, f func(m *member) error) error {
	m := &member{Device: d, rank: rank}
	lib, err := d.OpenNccl()
	if err != nil {
		return err
	}
	if m.comm, err = lib.Join(id, n, rank); err != nil {
		return err
	}
	for errors.Is(m.comm.State(), cuda.ErrPending) {
		time.Sleep(time.Millisecond)
	}
	if m.s, err = d.NewStream(); err != nil {
		return err
	}
	if m.p, err = d.Alloc(256); err != nil {
		return err
	}
	if err := d.Fill32(m.p, 0x3f800000, 64, m.s); err != nil {
		return err
	}
	return f(m)
}

// TestNcclFaults: each fault of one rank is caught, in one line that names it.
func TestNcclFaults(t *testing.T) {
	second := func(m *member) error { // another communicator
		var id cuda.NcclID
		copy(id[:], t.Name()+"again")
		c, err := nccl{m.Device}.Join(id, 2, m.rank)
		if err != nil {
			return err
		}
		for errors.Is(c.State(), cuda.ErrPending) {
			time.Sleep(time.Millisecond)
		}
		first := *m
		if m.rank == 1 {
			first.comm, c = c, first.comm
		}
		return errors.Join(first.sum(0, 0, 4), (&member{comm: c, p: m.p, s: m.s}).sum(0, 0, 4))
	}
	for _, c := range []struct {
		name string
		f    func(m *member) error
		want string
	}{
		{"order", func(m *member) error { return errors.Join(m.sum(0, 0, 4+m.rank), m.sum(8, 8, 5-m.rank)) },
			"rank 0 calls ncclAllReduce of 4 float32, and rank 1 ncclAllReduce of 5 float32 in its place"},
		{"count", func(m *member) error { return m.sum(0, 0, 4+m.rank/1) }, "rank 1 ncclAllReduce of 5 float32 in its place"},
		{"dtype", func(m *member) error {
			return m.comm.AllReduce(m.p, m.p, 4, cuda.NcclFloat32-cuda.NcclType(4*m.rank), cuda.NcclSum, m.s)
		}, "rank 0 calls ncclAllReduce of 4 float32, and rank 1 ncclAllReduce of 4 uint32 in its place"},
		{"op", func(m *member) error {
			return m.comm.AllReduce(m.p, m.p, 4, cuda.NcclFloat32, cuda.NcclOp(2*m.rank), m.s)
		}, "rank 1 ncclAllReduce of 4 float32 with max in its place"},
		{"call", func(m *member) error {
			if m.rank == 1 {
				return m.comm.AllGather(m.p, m.p+128, 4, cuda.NcclFloat32, m.s)
			}
			return m.sum(0, 0, 4)
		}, "rank 0 calls ncclAllReduce of 4 float32, and rank 1 ncclAllGather of 4 float32 in its place"},
		{"group", func(m *member) error {
			return m.comm.Group(func() error {
				if m.rank == 1 {
					return m.sum(0, 0, 4)
				}
				return errors.Join(m.sum(0, 0, 4), m.sum(8, 8, 4))
			})
		}, "rank 0 makes 2 calls in a group, and rank 1 1"},
		{"peer", func(m *member) error {
			return m.comm.Group(func() error {
				return errors.Join(m.comm.Send(m.p, 4, cuda.NcclFloat32, 0, m.s), m.comm.Recv(m.p+128, 4, cuda.NcclFloat32, 0, m.s))
			})
		}, "rank 1 calls ncclSend of 4 float32 to rank 0, and rank 0 has no call for it"},
		{"message", func(m *member) error {
			return m.comm.Group(func() error {
				return errors.Join(m.comm.Send(m.p, int64(4+m.rank), cuda.NcclFloat32, 1-m.rank, m.s), m.comm.Recv(m.p+128, int64(4+m.rank), cuda.NcclFloat32, 1-m.rank, m.s))
			})
		}, "rank 0 calls ncclSend of 4 float32 to rank 1, and rank 1 ncclRecv of 5 float32 from rank 0"},
		{"in use", func(m *member) error { // a stream that nothing orders writes the operand
			s, err := m.NewStream()
			if err != nil {
				return err
			}
			return errors.Join(m.sum(0, 0, 4), m.Fill8(m.p, 0, 4, s))
		}, "cuMemsetD8Async writes page"},
		{"part of the operand", func(m *member) error { return m.sum(0, 1, 4) }, "the result of ncclAllReduce of 4 float32 overlaps a buffer of ncclAllReduce of 4 float32"},
		{"result of another call", func(m *member) error {
			return m.comm.Group(func() error { return errors.Join(m.sum(0, 16, 4), m.sum(8, 17, 4)) })
		}, "overlaps a buffer of"},
		{"deadlock", second, "deadlock: rank"},
		{"stall", func(m *member) error {
			if m.rank == 1 {
				time.Sleep(time.Second / 2)
			}
			return m.sum(0, 0, 4)
		}, "rank 1 has not called it within 200ms"},
		{"captured first", func(m *member) error {
			if err := m.BeginCapture(m.s); err != nil {
				return err
			}
			return m.sum(0, 0, 4)
		}, "the first ncclAllReduce of a communicator is captured"},
		{"graph outlives", func(m *member) error {
			err := errors.Join(m.sum(0, 0, 4), m.BeginCapture(m.s), m.sum(0, 0, 4))
			g, end := m.EndCapture(m.s)
			x, made := m.Instantiate(g)
			return errors.Join(err, end, made, m.LaunchGraph(x, m.s), m.comm.Close())
		}, "a graph that calls the communicator is not freed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := 0
			for _, err := range onRanks(t, 2, c.f) {
				if err != nil && strings.Contains(err.Error(), c.want) {
					found++
				}
			}
			if found == 0 {
				t.Errorf("%v, want %q", onRanks(t, 2, c.f), c.want)
			}
		})
	}
}

// A rank that has left is reported to the ranks that wait for it, which wait until they abort.
func TestNcclRankLeaves(t *testing.T) {
	for r, err := range onRanks(t, 3, func(m *member) error {
		m.opt.Stall = 0
		if m.rank == 1 {
			return errors.Join(m.sum(0, 0, 4), m.comm.Close())
		}
		if err := errors.Join(m.comm.State(), m.sum(0, 0, 4)); err != nil {
			return err
		}
		heard := make(chan error)
		go func() {
			for m.comm.State() == nil {
				time.Sleep(time.Millisecond)
			}
			heard <- m.comm.State()
			_ = m.comm.Abort()
		}()
		err := make(chan error)
		go func() { err <- m.sum(0, 0, 4) }()
		if e := <-heard; !strings.Contains(e.Error(), "remote process exited") {
			return e
		}
		if e := <-err; e == nil || !strings.Contains(e.Error(), "the communicator was aborted while the call waited") {
			return fmt.Errorf("after the abort: %w", e)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
