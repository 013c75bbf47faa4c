package nccl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"ampc/cuda"
	"ampc/ir"
	"ampc/world"
)

// commID is the environment variable of which NCCL makes an id: the address of rank 0.
const commID = "NCCL_COMM_ID"

// meet gives all ranks the id that rank 0 makes.
func meet(o Options, lib cuda.Nccl) (cuda.NcclID, error) {
	switch {
	case os.Getenv(commID) != "":
		return lib.NewID()
	case o.Host != nil:
		return byHost(o, lib)
	case o.File != "":
		return byFile(o, lib)
	case o.Size == 1:
		return lib.NewID()
	}
	return cuda.NcclID{}, fmt.Errorf("%w: give all ranks the same %s=HOST:PORT of rank 0, or the same AMPC_NCCL_FILE, a path that all of them see, or start them by mpirun", ErrEnvironment, commID)
}

// byHost sends the id, or rank 0's reason why there is none, to the other ranks.
func byHost(o Options, lib cuda.Nccl) (id cuda.NcclID, err error) {
	mine := make([]byte, 1+len(id))
	if o.Rank == 0 {
		if id, err = lib.NewID(); err == nil {
			mine[0] = 1
		}
		copy(mine[1:], id[:])
	}
	all := make([]byte, o.Size*len(mine))
	m := &world.Message{Name: "NCCL's id", Op: world.Gather, DType: ir.U8, Wire: ir.F32, In: [][]byte{mine}, Out: [][]byte{all}}
	if err := errors.Join(err, o.Host.Start(m)); err != nil {
		return id, err
	}
	if err := o.Host.Wait(context.Background(), m); err != nil {
		return id, err
	}
	if all[0] == 0 {
		return id, errors.New("nccl: rank 0 has no id: see its error")
	}
	copy(id[:], all[1:])
	return id, nil
}

// byFile writes the id to a file, or waits for it. The file appears whole.
func byFile(o Options, lib cuda.Nccl) (id cuda.NcclID, err error) {
	if o.Rank == 0 {
		if id, err = lib.NewID(); err != nil {
			return id, err
		}
		part := o.File + ".part"
		if err := os.WriteFile(part, id[:], 0o600); err != nil {
			return id, fmt.Errorf("nccl: the id: %w", err)
		}
		defer os.Remove(part)
		if err := os.Link(part, o.File); errors.Is(err, fs.ErrExist) { // a link, unlike a rename, replaces nothing
			return id, fmt.Errorf("nccl: %s exists: remove it if it is of an earlier run, or give all ranks another AMPC_NCCL_FILE", o.File)
		} else if err != nil {
			return id, fmt.Errorf("nccl: the id: %w", err)
		}
		return id, nil
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(o.File)
		switch {
		case err == nil && len(data) != len(id):
			return id, fmt.Errorf("nccl: %s holds no id: it has %d bytes, want %d", o.File, len(data), len(id))
		case err == nil:
			copy(id[:], data)
			return id, nil
		case !errors.Is(err, fs.ErrNotExist):
			return id, fmt.Errorf("nccl: the id: %w", err)
		case time.Since(began) > o.Timeout:
			return id, fmt.Errorf("nccl: rank 0 has not written %s within %v: do all ranks see it?", o.File, o.Timeout)
		}
	}
}
