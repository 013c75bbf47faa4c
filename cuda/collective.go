package cuda

import "errors"

// NcclID is the name of a group of ranks: one rank makes it, and all ranks of the group join by it.
type NcclID [128]byte

// NcclType is an element type by its NCCL number.
type NcclType int32

// The types that messages have.
const (
	NcclUint8   NcclType = 1
	NcclInt32   NcclType = 2
	NcclUint32  NcclType = 3
	NcclInt64   NcclType = 4
	NcclUint64  NcclType = 5
	NcclFloat16 NcclType = 6
	NcclFloat32 NcclType = 7
	NcclBfloat  NcclType = 9
)

// Size is the bytes of an element.
func (t NcclType) Size() int64 {
	switch t {
	case NcclUint8:
		return 1
	case NcclFloat16, NcclBfloat:
		return 2
	case NcclInt64, NcclUint64:
		return 8
	}
	return 4
}

// NcclOp is a reduction by its NCCL number.
type NcclOp int32

// The reductions. Of floats, NcclMax drops NaN.
const (
	NcclSum NcclOp = 0
	NcclMax NcclOp = 2
)

// ncclOldest is the oldest version of NCCL that is used: the first whose ncclConfig_t has the
// fields that are passed.
const ncclOldest = 21800

// ErrPending is returned by Comm.State while a call that does not block is under way.
var ErrPending = errors.New("under way")

// Nccl is NCCL, the library of messages between GPUs.
type Nccl interface {
	// Version is the library's number, 22203 for 2.22.3.
	Version() int
	// NewID makes the name of a new group. If the environment has NCCL_COMM_ID, every rank gets
	// the same one.
	NewID() (NcclID, error)
	// Join makes the communicator of one rank on the device that is bound to this thread. It
	// does not wait for the other ranks: the communicator is ready when its State is nil.
	Join(id NcclID, ranks, rank int) (Comm, error)
}

// Comm is one rank's part of a communicator. State and Abort may be called from any goroutine,
// the rest from the one that is bound to the device. All ranks issue the same calls in the same
// order. Calls may be captured after the first ones of their kind.
type Comm interface {
	// Group issues the calls that f makes as one operation.
	Group(f func() error) error
	// AllReduce gives every rank the sum or maximum over all ranks. dst is src or apart from it. Sums are
	// added in an order that NCCL chooses.
	AllReduce(src, dst Ptr, count int64, t NcclType, op NcclOp, s Stream) error
	// AllGather gives every rank the count elements of each rank, one after the other.
	AllGather(src, dst Ptr, count int64, t NcclType, s Stream) error
	// Send and Recv meet on another rank.
	Send(src Ptr, count int64, t NcclType, peer int, s Stream) error
	Recv(dst Ptr, count int64, t NcclType, peer int, s Stream) error
	// State is nil, ErrPending, or the error that has ended the communicator.
	State() error
	// Abort ends all calls, those on the device included. The communicator is gone then.
	Abort() error
	// Close waits for calls under way. Graphs that were captured with the communicator must be
	// freed before.
	Close() error
}
