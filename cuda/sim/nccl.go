package sim

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ampc/cuda"
)

// Status codes of NCCL that the simulator returns.
const (
	ncclInvalidArgument = 4
	ncclInvalidUsage    = 5
	ncclRemote          = 6
)

var ncclNames = map[int]string{ncclInvalidArgument: "invalid argument", ncclInvalidUsage: "invalid usage", ncclRemote: "remote process exited or there was a network error"}

func ncclFail(call string, code int, format string, args ...any) *cuda.Error {
	return &cuda.Error{Lib: "nccl", Call: call, Code: code, Name: ncclNames[code], Text: fmt.Sprintf(format, args...)}
}

// nccl is NCCL of one simulated device. It implements cuda.Nccl.
type nccl struct{ d *Device }

// OpenNccl opens the library; the error wraps cuda.ErrUnavailable if the device has none.
func (d *Device) OpenNccl() (cuda.Nccl, error) {
	if d.opt.NoNccl {
		return nil, fmt.Errorf("%w: no NCCL", cuda.ErrUnavailable)
	}
	return nccl{d}, nil
}

// Version implements cuda.Nccl.
func (nccl) Version() int { return 22203 }

// NewID implements cuda.Nccl.
func (nccl) NewID() (id cuda.NcclID, err error) {
	_, err = rand.Read(id[:])
	return id, err
}

// rooms are the communicators of this process: the ranks of one meet in a room.
var rooms = struct {
	sync.Mutex
	byID map[cuda.NcclID]*room
}{byID: map[cuda.NcclID]*room{}}

// room is a communicator of all its ranks.
type room struct {
	comms []*comm // by rank; nil: it has not joined yet
	turns map[int]*turn
	fault *cuda.Error // returned to all ranks
}

// turn is one operation of all ranks.
type turn struct {
	calls [][]ncclCall // by rank; nil: the rank has not come yet
	done  chan struct{}
	taken int
}

// absent lists the ranks that have not come.
func (t *turn) absent() (list []int) {
	for r, calls := range t.calls {
		if calls == nil {
			list = append(list, r)
		}
	}
	return list
}

// comm is one rank's part of a communicator. It implements cuda.Comm. What several ranks read is
// guarded by rooms.
type comm struct {
	d       *Device
	room    *room
	rank    int
	open    []ncclCall // of a group
	grouped bool
	issued  map[string]bool // kinds of calls that were issued outside a capture

	number  int   // operations executed
	waiting *turn // nil: it does not wait
	aborted chan struct{}
	gone    bool // aborted or closed
}

// Join implements cuda.Nccl.
func (n nccl) Join(id cuda.NcclID, ranks, rank int) (cuda.Comm, error) {
	const call = "ncclCommInitRankConfig"
	if err := n.d.outside(call); err != nil {
		return nil, err
	}
	rooms.Lock()
	defer rooms.Unlock()
	m := rooms.byID[id]
	if m == nil {
		m = &room{comms: make([]*comm, ranks), turns: map[int]*turn{}}
		rooms.byID[id] = m
	}
	switch {
	case ranks != len(m.comms) || rank < 0 || rank >= ranks:
		return nil, ncclFail(call, ncclInvalidArgument, "rank %d of %d joins a communicator of %d ranks", rank, ranks, len(m.comms))
	case m.comms[rank] != nil:
		return nil, ncclFail(call, ncclInvalidUsage, "rank %d has joined already", rank)
	case slices.ContainsFunc(m.comms, func(c *comm) bool { return c != nil && c.d == n.d }):
		return nil, ncclFail(call, ncclInvalidUsage, "two ranks are on one device")
	}
	c := &comm{d: n.d, room: m, rank: rank, issued: map[string]bool{}, aborted: make(chan struct{})}
	m.comms[rank] = c
	if !slices.Contains(m.comms, nil) {
		delete(rooms.byID, id)
	}
	return c, nil
}

// State implements cuda.Comm.
func (c *comm) State() error {
	rooms.Lock()
	defer rooms.Unlock()
	return c.state()
}

func (c *comm) state() error {
	switch {
	case c.room.fault != nil:
		return c.room.fault
	case c.gone:
		return ncclFail("ncclCommAbort", ncclInvalidUsage, "the communicator was aborted or destroyed")
	case slices.Contains(c.room.comms, nil):
		return cuda.ErrPending
	}
	if c.waiting == nil {
		return nil
	}
	for _, r := range c.waiting.absent() {
		if c.room.comms[r].gone {
			return ncclFail("ncclCommGetAsyncError", ncclRemote, "")
		}
	}
	return nil
}

// Abort implements cuda.Comm.
func (c *comm) Abort() error {
	rooms.Lock()
	defer rooms.Unlock()
	if !c.gone {
		c.gone = true
		close(c.aborted)
	}
	return nil
}

// Close implements cuda.Comm. Graphs that call the communicator must be freed before.
func (c *comm) Close() error {
	const call = "ncclCommDestroy"
	rooms.Lock()
	gone := c.gone
	rooms.Unlock()
	if gone {
		return nil
	}
	for _, g := range c.d.execs {
		if slices.ContainsFunc(g.steps, func(s step) bool { return s.op != nil && s.op.comm == c }) {
			return ncclFail(call, ncclInvalidUsage, "a graph that calls the communicator is not freed")
		}
	}
	return c.Abort()
}

// enter waits until all ranks have come with their calls, and joins them.
func (c *comm) enter(calls []ncclCall) error {
	rooms.Lock()
	m := c.room
	if err := c.state(); err != nil {
		rooms.Unlock()
		if errors.Is(err, cuda.ErrPending) {
			return ncclFail(calls[0].name, ncclInvalidUsage, "the communicator is not ready: wait for its State")
		}
		return err
	}
	n := c.number
	c.number++
	t := m.turns[n]
	if t == nil {
		t = &turn{calls: make([][]ncclCall, len(m.comms)), done: make(chan struct{})}
		m.turns[n] = t
	}
	t.calls[c.rank] = calls
	if len(t.absent()) == 0 {
		if err := m.join(t); err != nil {
			m.fail(err)
		} else {
			close(t.done)
		}
	}
	c.waiting, c.d.waits = t, c
	if loop := c.deadlock(); loop != "" {
		m.fail(ncclFail(calls[0].name, ncclInvalidUsage, "deadlock: %s", loop))
	}
	rooms.Unlock()
	err := c.wait(t, calls[0].name)
	rooms.Lock()
	defer rooms.Unlock()
	c.waiting, c.d.waits = nil, nil
	if t.taken++; t.taken == len(m.comms) {
		delete(m.turns, n)
	}
	if m.fault != nil {
		return m.fault
	}
	return err
}

// wait waits until an operation is complete, the communicator is aborted, or the time that
// Options gives is over.
func (c *comm) wait(t *turn, call string) error {
	var over <-chan time.Time
	if c.d.opt.Stall > 0 {
		timer := time.NewTimer(c.d.opt.Stall)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-t.done:
		return nil
	case <-c.aborted:
		return ncclFail(call, ncclRemote, "the communicator was aborted while the call waited for other ranks")
	case <-over:
	}
	rooms.Lock()
	defer rooms.Unlock()
	if len(t.absent()) > 0 {
		c.room.fail(ncclFail(call, ncclRemote, "rank %s has not called it within %v", numbers(t.absent()), c.d.opt.Stall))
	}
	return nil
}

func numbers(list []int) string {
	var text []string
	for _, r := range list {
		text = append(text, fmt.Sprint(r))
	}
	return strings.Join(text, ", ")
}

// fail ends the operations that wait; the first fault counts.
func (m *room) fail(err *cuda.Error) {
	if m.fault != nil {
		return
	}
	m.fault = err
	for _, t := range m.turns {
		select {
		case <-t.done:
		default:
			close(t.done)
		}
	}
}

// deadlock follows the devices that c's waits for, and what they wait for on other communicators, back
// to c's device. It returns "" if there is no such way.
func (c *comm) deadlock() string {
	seen := map[*Device]bool{}
	var follow func(x *comm) string
	follow = func(x *comm) string {
		for _, r := range x.waiting.absent() {
			d := x.room.comms[r].d
			if d == c.d {
				return fmt.Sprintf("rank %d waits for rank %d", x.rank, r)
			}
			if d.waits == nil || seen[d] {
				continue
			}
			seen[d] = true
			if loop := follow(d.waits); loop != "" {
				return fmt.Sprintf("rank %d waits for rank %d, and on another communicator %s", x.rank, r, loop)
			}
		}
		return ""
	}
	return follow(c)
}
