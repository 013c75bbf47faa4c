package lower

import "fmt"

// Transfer is a step between GPUs as the library of collectives runs it, beside the
// description. It runs on the stream of messages.
type Transfer struct {
	Op    TransferOp
	Ranks int64
	Seq   int64 // of the message that it is a part of
}

// TransferOp is what a Transfer does.
type TransferOp uint8

// The transfers.
const (
	SumAll    TransferOp = iota // Out[i] is the sum of In[i] over all ranks, in an order that the library chooses
	MaxAll                      // Out[i] is the largest of In[i] over all ranks; of integers
	GatherAll                   // Out[i] is In[i] of all ranks, one after the other
	Exchange                    // In[0] and Out[0] have a part for each rank: part r goes to rank r, and comes from it
)

var transferNames = [...]string{"sum_all", "max_all", "gather_all", "exchange"}

func (t TransferOp) String() string { return transferNames[t] }

// transferLibrary runs transfers.
const transferLibrary = "nccl"

// verifyTransfer checks that a transfer is on the stream of messages and that its buffers
// hold what it moves.
func (p *Program) verifyTransfer(s *Step) error {
	t := s.Transfer
	if t == nil {
		return nil
	}
	if s.Stream != CommStream {
		return fmt.Errorf("it is on stream %d, and messages on %d", s.Stream, CommStream)
	}
	elements := func(id BufferID) int64 { return p.Buffers[id].Type.Shape.Elements() }
	if len(s.In) != len(s.Out) || len(s.In) == 0 || t.Op == Exchange && len(s.In) != 1 {
		return fmt.Errorf("%s has %d operands and %d results", t.Op, len(s.In), len(s.Out))
	}
	for i, in := range s.In {
		want := elements(in)
		if t.Op == GatherAll {
			want *= t.Ranks
		}
		switch out := s.Out[i]; {
		case p.dtype(in) != p.dtype(out) || elements(out) != want:
			return fmt.Errorf("%s of %%%s, %s, does not give %%%s, %s", t.Op, p.Buffers[in].Name, p.Buffers[in].Type, p.Buffers[out].Name, p.Buffers[out].Type)
		case t.Op == Exchange && want%t.Ranks != 0:
			return fmt.Errorf("%%%s has no part for each of %d ranks", p.Buffers[in].Name, t.Ranks)
		case !p.Buffers[in].dense() || !p.Buffers[out].dense():
			return fmt.Errorf("%s of a view that is not dense", t.Op)
		}
	}
	return nil
}
