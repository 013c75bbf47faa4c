// Package nccl makes a World of GPUs: one process for each, which exchange gradients by NCCL. It
// opens libnccl.so.2 when the program runs, so a program that imports it builds without cgo and
// headers.
//
// The steps' messages are calls of NCCL on a stream of their own, part of the captured graph. Other
// messages, such as the comparison of steps and variables before the first run, travel over the
// device as well, or over a World of the hosts, where there is one.
//
// Ranks find each other by an id that rank 0 makes. It travels through Options.Host, through a file
// that all ranks see, or every rank makes the same one from NCCL_COMM_ID.
package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"ampc/world"
)

// Options say which rank this is and how the ranks meet. The zero Options take all from the
// environment.
type Options struct {
	// Host connects the processes of the ranks, such as a World of package mpi. It gives rank and
	// size, carries the id and the messages between hosts. nil: there is none. The caller closes it after
	// the World of Open.
	Host world.World
	// Rank and Size are this rank's number and the number of ranks. Size 0: RANK and WORLD_SIZE.
	Rank, Size int
	// File is a path that all ranks see and that does not exist yet: rank 0 writes the id there, and
	// each rank writes heartbeats to File.0, File.1 and so on. "": AMPC_NCCL_FILE. Without heartbeats a
	// lost rank is noticed, but not named.
	File string
	// Timeout is how long a call may wait for other ranks. Zero: world.Timeout.
	Timeout time.Duration
	// Exit ends this process if it waits for a call of NCCL that does not return after the
	// communicator was aborted. It is called on a thread of its own. Nil: world.Exit.
	Exit func(error)
}

// grace is how long a call may take to return after an abort.
func (o Options) grace() time.Duration { return max(o.Timeout/10, 50*time.Millisecond) }

// ErrEnvironment is wrapped by the error for ranks that do not know of each other.
var ErrEnvironment = errors.New("nccl: no way for the ranks to meet")

// Launched reports whether the environment says that this process is one of several ranks: by RANK
// and WORLD_SIZE, as torchrun sets them.
func Launched() bool {
	_, size, err := fromEnvironment()
	return err == nil && size > 1
}

// Device is the number of this rank's GPU on its machine, by the variables of torchrun, Open MPI, MPICH
// and Slurm. It is RANK if none of them is set, and 0 without that.
func Device() int {
	for _, name := range []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "RANK"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n >= 0 {
			return n
		}
	}
	return 0
}

func fromEnvironment() (rank, size int, err error) {
	rank, errRank := strconv.Atoi(os.Getenv("RANK"))
	size, errSize := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if errRank != nil || errSize != nil {
		return 0, 0, fmt.Errorf("%w: RANK and WORLD_SIZE are not set: start one process for each GPU with both", ErrEnvironment)
	}
	return rank, size, nil
}

// complete fills in what Options leave out.
func (o Options) complete() (Options, error) {
	o.File, o.Timeout = cmp.Or(o.File, os.Getenv("AMPC_NCCL_FILE")), cmp.Or(o.Timeout, world.Timeout)
	if o.Exit == nil {
		o.Exit = world.Exit
	}
	switch {
	case o.Host != nil:
		o.Rank, o.Size = o.Host.Rank(), o.Host.Size()
	case o.Size == 0:
		var err error
		if o.Rank, o.Size, err = fromEnvironment(); err != nil {
			return o, err
		}
	}
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return o, fmt.Errorf("nccl: rank %d of %d ranks: want 0 to %d", o.Rank, o.Size, o.Size-1)
	}
	return o, nil
}
