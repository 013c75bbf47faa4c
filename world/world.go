// Package world connects the ranks of a data-parallel run: processes, or goroutines,
// that run the same step at the same time on their parts of a batch and meet at
// collectives. Local makes the ranks of one process; packages of their own open MPI.
package world

import (
	"context"
	"fmt"
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
// sum, mean or largest of the ranks' elements. Or it gathers one tensor: Out[0] holds
// In[0] of all ranks, one after the other, as it was.
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
	Tree  bool     // of a Sum: neighbours are added first, then their sums; the ranks are a power of two
	In    [][]byte // little-endian elements; equal sizes on all ranks; one tensor to gather
	Out   [][]byte // may be In

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

// signature describes what must be equal on all ranks.
func (m *Message) signature() string {
	op := m.Op.String()
	if m.Tree {
		op = "tree sum"
	}
	return fmt.Sprintf("%s (%s of %d %s, sent as %s with shift %d)", m.Name, op, m.Elements(), m.DType, m.Wire, m.Shift)
}

// Timeout is how long a rank waits for the others at one message, unless a World says
// otherwise: longer than ranks of one program drift apart, short enough to notice a rank that hangs.
const Timeout = 5 * time.Minute
