package sim

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"ampc/cuda"
)

// ncclCall is one call of a group.
type ncclCall struct {
	name     string
	src, dst cuda.Ptr // 0: none
	count    int64
	t        cuda.NcclType
	op       cuda.NcclOp
	peer     int
	stream   cuda.Stream
	data     []byte // what this rank sends
	result   []byte // what it receives
}

const (
	callReduce = "ncclAllReduce"
	callGather = "ncclAllGather"
	callSend   = "ncclSend"
	callRecv   = "ncclRecv"
)

var ncclTypes = map[cuda.NcclType]string{cuda.NcclUint8: "uint8", cuda.NcclInt32: "int32", cuda.NcclUint32: "uint32", cuda.NcclInt64: "int64",
	cuda.NcclUint64: "uint64", cuda.NcclFloat16: "float16", cuda.NcclFloat32: "float32", cuda.NcclBfloat: "bfloat16"}

func (k *ncclCall) String() string {
	s := fmt.Sprintf("%s of %d %s", k.name, k.count, ncclTypes[k.t])
	switch {
	case k.name == callSend:
		return fmt.Sprintf("%s to rank %d", s, k.peer)
	case k.name == callRecv:
		return fmt.Sprintf("%s from rank %d", s, k.peer)
	case k.name == callReduce && k.op == cuda.NcclMax:
		return s + " with max"
	}
	return s
}

func (k *ncclCall) bytes() int64 { return k.count * k.t.Size() }

// reads and writes are the memory of a call.
func (k *ncclCall) reads() span { return span{k.src, k.bytes(), false} }

func (k *ncclCall) writes(ranks int) span {
	if k.name == callGather {
		return span{k.dst, int64(ranks) * k.bytes(), true}
	}
	return span{k.dst, k.bytes(), true}
}

// Group implements cuda.Comm.
func (c *comm) Group(f func() error) error {
	if c.grouped {
		return ncclFail("ncclGroupStart", ncclInvalidUsage, "groups inside groups are not simulated")
	}
	c.grouped, c.open = true, nil
	err := f()
	c.grouped = false
	if err != nil || len(c.open) == 0 {
		return err
	}
	return c.issue(c.open)
}

func (c *comm) call(k ncclCall) error {
	if k.count < 0 || k.peer < 0 || k.peer >= len(c.room.comms) || ncclTypes[k.t] == "" {
		return ncclFail(k.name, ncclInvalidArgument, "%s, peer %d of %d ranks", &k, k.peer, len(c.room.comms))
	}
	if c.grouped {
		c.open = append(c.open, k)
		return nil
	}
	return c.issue([]ncclCall{k})
}

// AllReduce implements cuda.Comm.
func (c *comm) AllReduce(src, dst cuda.Ptr, count int64, t cuda.NcclType, op cuda.NcclOp, s cuda.Stream) error {
	if t == cuda.NcclFloat16 || t == cuda.NcclBfloat {
		return ncclFail(callReduce, ncclInvalidUsage, "sums in 16 bits are not simulated")
	}
	return c.call(ncclCall{name: callReduce, src: src, dst: dst, count: count, t: t, op: op, stream: s})
}

// AllGather implements cuda.Comm.
func (c *comm) AllGather(src, dst cuda.Ptr, count int64, t cuda.NcclType, s cuda.Stream) error {
	return c.call(ncclCall{name: callGather, src: src, dst: dst, count: count, t: t, stream: s})
}

// Send implements cuda.Comm.
func (c *comm) Send(src cuda.Ptr, count int64, t cuda.NcclType, peer int, s cuda.Stream) error {
	return c.call(ncclCall{name: callSend, src: src, count: count, t: t, peer: peer, stream: s})
}

// Recv implements cuda.Comm.
func (c *comm) Recv(dst cuda.Ptr, count int64, t cuda.NcclType, peer int, s cuda.Stream) error {
	return c.call(ncclCall{name: callRecv, dst: dst, count: count, t: t, peer: peer, stream: s})
}

// issue executes a group on its stream, or records it where the stream is captured.
func (c *comm) issue(calls []ncclCall) error {
	first := &calls[0]
	if i := slices.IndexFunc(calls, func(k ncclCall) bool { return k.stream != first.stream }); i >= 0 {
		return ncclFail(first.name, ncclInvalidUsage, "a group on two streams is not simulated")
	}
	l, err := c.d.lane(first.name, first.stream)
	if err != nil {
		return err
	}
	for i := range calls {
		kind := calls[i].name
		if l.graph != nil && !c.issued[kind] {
			return c.d.spoil(l.graph, kind, codeCaptureUnsupported, "the first %s of a communicator is captured: it makes connections", kind)
		}
		c.issued[kind] = c.issued[kind] || l.graph == nil
	}
	if err := c.apart(calls); err != nil {
		return err
	}
	what := first.name
	if len(calls) > 1 {
		what = fmt.Sprintf("%s and %d more calls", what, len(calls)-1)
	}
	return c.d.issue(first.stream, op{what: what, comm: c, run: func() ([]span, error) { return c.run(calls) }})
}

// apart checks that results lie apart from each other and from what other calls send, except for a
// reduction in place and a gathering whose operand is its own part of the result.
func (c *comm) apart(calls []ncclCall) error {
	meet := func(a, b span) bool { return a.at < b.at+cuda.Ptr(b.bytes) && b.at < a.at+cuda.Ptr(a.bytes) }
	n := len(c.room.comms)
	for i := range calls {
		w := &calls[i]
		for k := range calls {
			r := &calls[k]
			inPlace := i == k && (w.name == callReduce && w.src == w.dst || w.name == callGather && w.src == w.dst+cuda.Ptr(int64(c.rank)*w.bytes()))
			if w.dst == 0 {
				continue
			}
			if r.src != 0 && !inPlace && meet(w.writes(n), r.reads()) || r.dst != 0 && i < k && meet(w.writes(n), r.writes(n)) {
				return ncclFail(w.name, ncclInvalidArgument, "rank %d: the result of %s overlaps a buffer of %s", c.rank, w, r)
			}
		}
	}
	return nil
}

// run sends what the calls read, waits for the other ranks, and stores what they bring.
func (c *comm) run(calls []ncclCall) (uses []span, err error) {
	calls = slices.Clone(calls) // a graph runs them again
	for i := range calls {
		k := &calls[i]
		if k.src == 0 {
			continue
		}
		k.data = make([]byte, k.bytes())
		if err := c.d.memory(k.name, c.d.mem.Read(k.data, uint64(k.src))); err != nil {
			return nil, err
		}
		uses = append(uses, k.reads())
	}
	if err := c.enter(calls); err != nil {
		return nil, err
	}
	for i := range calls {
		k := &calls[i]
		if k.dst == 0 {
			continue
		}
		if err := c.d.memory(k.name, c.d.mem.Write(uint64(k.dst), k.result)); err != nil {
			return nil, err
		}
		uses = append(uses, k.writes(len(c.room.comms)))
	}
	return uses, nil
}

// join compares the calls of all ranks and computes what each receives.
func (m *room) join(t *turn) *cuda.Error {
	for r := range t.calls {
		if err := m.agree(t, r); err != nil {
			return err
		}
	}
	for r, calls := range t.calls {
		for i := range calls {
			k := &calls[i]
			switch k.name {
			case callReduce:
				k.result = reduced(t, i)
			case callGather:
				for q := range t.calls {
					k.result = append(k.result, t.calls[q][i].data...)
				}
			case callRecv:
				k.result = t.calls[k.peer][m.partner(t, r, i)].data
			}
		}
	}
	return nil
}

// agree compares rank r's calls with those of rank 0, or of their peers.
func (m *room) agree(t *turn, r int) *cuda.Error {
	calls, zero := t.calls[r], t.calls[0]
	for i := range calls {
		k := &calls[i]
		if k.name == callSend || k.name == callRecv {
			if p := m.partner(t, r, i); p < 0 {
				return ncclFail(k.name, ncclInvalidUsage, "rank %d calls %s, and rank %d has no call for it", r, k, k.peer)
			} else if o := &t.calls[k.peer][p]; o.count != k.count || o.t != k.t {
				return ncclFail(k.name, ncclInvalidUsage, "rank %d calls %s, and rank %d %s", r, k, k.peer, o)
			}
			continue
		}
		if i >= len(zero) || zero[i].String() != k.String() {
			return ncclFail(k.name, ncclInvalidUsage, "rank 0 calls %s, and rank %d %s in its place", described(zero, i), r, k)
		}
	}
	if len(calls) != len(zero) {
		return ncclFail(zero[0].name, ncclInvalidUsage, "rank 0 makes %d calls in a group, and rank %d %d", len(zero), r, len(calls))
	}
	return nil
}

func described(calls []ncclCall, i int) string {
	if i >= len(calls) {
		return "nothing"
	}
	return calls[i].String()
}

// partner is the place of the peer's call that meets call i of rank r: the nth send to a rank meets
// its nth receive. It is -1 if there is none.
func (m *room) partner(t *turn, r, i int) int {
	mine := &t.calls[r][i]
	nth := 0
	for _, k := range t.calls[r][:i] {
		if k.name == mine.name && k.peer == mine.peer {
			nth++
		}
	}
	other := map[string]string{callSend: callRecv, callRecv: callSend}[mine.name]
	for p := range t.calls[mine.peer] {
		if k := &t.calls[mine.peer][p]; k.name == other && k.peer == r {
			if nth == 0 {
				return p
			}
			nth--
		}
	}
	return -1
}

// reduced joins call i of all ranks. A ring starts the sum of each part on another rank.
func reduced(t *turn, i int) []byte {
	first, le := &t.calls[0][i], binary.LittleEndian
	ranks := len(t.calls)
	out := make([]byte, first.bytes())
	size := first.t.Size()
	for e := range first.count {
		start := int(e * int64(ranks) / first.count)
		at := out[e*size:]
		element := func(n int) []byte { return t.calls[(start+n)%ranks][i].data[e*size:] }
		switch {
		case first.t == cuda.NcclFloat32:
			y := math.Float32frombits(le.Uint32(element(0)))
			for n := 1; n < ranks; n++ {
				x := math.Float32frombits(le.Uint32(element(n)))
				if first.op == cuda.NcclSum {
					y += x
				} else if x > y || y != y { // as fmaxf: a NaN loses
					y = x
				}
			}
			le.PutUint32(at, math.Float32bits(y))
		default:
			y := whole(element(0), first.t)
			for n := 1; n < ranks; n++ {
				if x := whole(element(n), first.t); first.op == cuda.NcclSum {
					y += x
				} else {
					y = max(y, x)
				}
			}
			for b := range size {
				at[b] = byte(y >> (8 * b))
			}
		}
	}
	return out
}

// whole reads an integer.
func whole(p []byte, t cuda.NcclType) int64 {
	switch t {
	case cuda.NcclUint8:
		return int64(p[0])
	case cuda.NcclInt32:
		return int64(int32(binary.LittleEndian.Uint32(p)))
	case cuda.NcclUint32:
		return int64(binary.LittleEndian.Uint32(p))
	}
	return int64(binary.LittleEndian.Uint64(p))
}
