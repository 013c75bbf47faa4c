// Package world connects the ranks of a data-parallel run: processes, or goroutines,
// that run the same step at the same time on their parts of a batch and meet at
// collectives. Local makes the ranks of one process; packages of their own open MPI.
package world

import (
	"context"
	"fmt"
	"os"
	"time"

	"ampc/ir"
)

// World is this rank's connection to the others. All ranks start the same messages in
// the same order. A World is for one goroutine at a time.
//
// When a message fails, the World has failed: every later message fails with the same
// error, which names the rank and the message at fault where they are known.
type World interface {
	// Rank is this rank's number, from 0 to Size-1.
	Rank() int
	Size() int
	// Engine names the implementation: "MPI (Open MPI 4.1.4)".
	Engine() string
	// Start begins a message. Until Wait returns, the caller must not change its operands or read
	// its results.
	Start(m *Message) error
	// Wait returns when the results of m are complete. If ctx ends, the World fails. The caller
	// must wait for messages in the order in which it started them.
	Wait(ctx context.Context, m *Message) error
	// Close states that this rank sends no further messages.
	Close() error
}

// Op is what becomes of the same element of all ranks.
type Op uint8

// The operations.
const (
	Sum    Op = iota
	Mean      // of floats
	Max       // NaN wins
	Gather    // no element meets another: every rank gets the tensors of all
)

func (o Op) String() string { return [...]string{"sum", "mean", "max", "gathering"}[o] }

// Message is an all-reduce of some tensors of one dtype: every element becomes the
// sum, mean or largest of the ranks' elements. With Scatter it is a reduce-scatter: Out[i]
// holds this rank's part of what becomes of In[i], which is cut into Size equal parts. Or it
// gathers tensors: Out[i] holds In[i] of all ranks, one after the other, as it was; up to Size-1
// elements that fill up a tensor at its end may be missing.
//
// Floats of 16 and 32 bits are multiplied by 2^-Shift, rounded to Wire, added in f32
// in the order of ranks (or a Tree), rounded to Wire once more, and multiplied by 2^Shift. So all
// ranks receive the same bits, whatever carries the message.
type Message struct {
	Name  string // for error messages
	Op    Op
	DType ir.DType
	Wire  ir.DType // F32, F16 or BF16; a Gather takes any float of up to 32 bits
	Shift int
	Tree  bool // of a Sum: neighbours are added first, then their sums; the ranks are a power of two
	// Scatter, of all but a Gather, leaves each rank its part of each tensor alone.
	Scatter bool
	In      [][]byte // little-endian elements; equal sizes on all ranks; with Scatter multiples of Size elements
	Out     [][]byte // may be In, except for a Scatter or a Gather

	buffer []byte // set by the World that carries it: the bytes that this rank sends, later those that it has received
}

// Elements is how many numbers a message holds.
func (m *Message) Elements() int {
	n := 0
	for _, in := range m.In {
		n += len(in) / int(m.DType.Size())
	}
	return n
}

// Plain reports whether elements are sent as they are in memory.
func (m *Message) Plain() bool {
	return m.Op == Gather || m.DType == ir.F64 || m.DType == ir.F32 && m.Wire == ir.F32 && m.Shift == 0
}

// unit is the size in bytes of an element as it is sent.
func (m *Message) unit() int {
	switch {
	case m.Op == Gather:
		return int(m.DType.Size())
	case m.DType == ir.F64 || !m.DType.Float():
		return 8
	case m.Wire.Low():
		return 2
	}
	return 4
}

// Bytes is the size of what a rank contributes, as it is sent.
func (m *Message) Bytes() int { return m.Elements() * m.unit() }

// arrives is the number of bytes that every rank receives with the given number of ranks.
func (m *Message) arrives(size int) int {
	if m.Op == Gather {
		return size * m.Bytes()
	}
	return m.Bytes()
}

// own is what rank r of size ranks takes of the result of all.
func (m *Message) own(result []byte, r, size int) []byte {
	if !m.Scatter {
		return result
	}
	from, to := m.Segment(r, size)
	return result[from*m.unit() : to*m.unit()]
}

// signature describes what must be equal on all ranks.
func (m *Message) signature() string {
	op := m.Op.String()
	if m.Tree {
		op = "tree sum"
	}
	if m.Scatter {
		op = "scattered " + op
	}
	return fmt.Sprintf("%s (%s of %d %s, sent as %s with shift %d)", m.Name, op, m.Elements(), m.DType, m.Wire, m.Shift)
}

// otherSizes says which tensor of two messages of equal signatures differs in size between
// two ranks, "" where none does.
func (m *Message) otherSizes(own, rank int, x *Message) string {
	if len(m.In) != len(x.In) {
		return fmt.Sprintf("rank %d sends %d tensors in the message %s, and rank %d sends %d", own, len(m.In), m.Name, rank, len(x.In))
	}
	unit := int(m.DType.Size())
	for i := range m.In {
		if a, b := len(m.In[i])/unit, len(x.In[i])/unit; a != b {
			return fmt.Sprintf("tensor %d of the message %s has %d elements on rank %d, and %d on rank %d", i, m.Name, a, own, b, rank)
		}
	}
	return ""
}

// Check refuses a message whose tensors do not fit each other, or size ranks.
func (m *Message) Check(size int) error {
	if len(m.In) != len(m.Out) {
		return fmt.Errorf("the message %s has %d operands and %d results", m.Name, len(m.In), len(m.Out))
	}
	for i, in := range m.In {
		want := len(in)
		switch {
		case m.Op == Gather:
			want *= size
			if cut := want - len(m.Out[i]); cut > 0 && cut < 8*size { // elements have up to 8 bytes
				continue
			}
		case m.Scatter && len(in)/int(m.DType.Size())%size != 0:
			return fmt.Errorf("tensor %d of the message %s has %d elements, which %d ranks cannot share equally", i, m.Name, len(in)/int(m.DType.Size()), size)
		case m.Scatter:
			want /= size
		}
		if len(m.Out[i]) != want {
			return fmt.Errorf("result %d of the message %s has %d bytes, want %d", i, m.Name, len(m.Out[i]), want)
		}
	}
	return nil
}

// InTurn returns an error if m is not next, which is the oldest message that this rank has started
// and not waited for; nil: there is none.
func (m *Message) InTurn(next *Message) error {
	switch {
	case next == nil:
		return fmt.Errorf("wait: the message %s has not been started", m.Name)
	case next != m:
		return fmt.Errorf("wait: the message %s is waited for before %s, which was started first", m.Name, next.Name)
	}
	return nil
}

// Exit ends the process with an error that it could not report otherwise. It is the default of the
// options of that name.
func Exit(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Timeout is how long a rank waits for the others at one message, unless a World says
// otherwise: longer than ranks of one program drift apart, short enough to notice a rank that hangs.
const Timeout = 5 * time.Minute
