package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/cuda/sim"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/world"
)

// Linked is a World whose ranks are GPUs. Package nccl makes them.
type Linked interface {
	world.World
	// Link returns the communicator of the backend that this rank was opened with, and an error for
	// any other backend.
	Link(b *Backend) (cuda.Comm, error)
	// Begin notes that this rank begins a step, or something else that all ranks do.
	Begin(what string)
}

// Watch begins to watch a call of the backend. The function that it returns ends that, and gives
// the error of the World if it has failed. done says that all that was issued before has ended.
type Watch func() (end func(done bool) error)

// OpenNccl opens the NCCL that belongs to the device, on the goroutine that is bound to it.
func (b *Backend) OpenNccl() (n cuda.Nccl, err error) {
	err = b.call(func() error {
		if d, ok := b.d.(*sim.Device); ok {
			n, err = d.OpenNccl()
		} else {
			n, err = cuda.OpenNccl()
		}
		return err
	})
	return n, err
}

// Connect makes the communicator of this device. w watches all later calls of the backend. It
// returns an error if the backend has a communicator.
func (b *Backend) Connect(join func() (cuda.Comm, error), w Watch) error {
	return b.call(func() error {
		if b.comm != nil {
			return fmt.Errorf("%s: it is a rank of another world: close that first", b.name)
		}
		c, err := join()
		if err == nil {
			b.comm, b.watch = c, w
		}
		return err
	})
}

// Disconnect destroys the communicator, and before that the graphs that call it.
func (b *Backend) Disconnect() error {
	err := b.call(func() error {
		c := b.comm
		if c == nil {
			return nil
		}
		var err error
		if b.lost == nil {
			err = b.d.Synchronize(b.stream())
			for e := range b.linked {
				err = errors.Join(err, e.unlink())
			}
		}
		b.comm, b.watch = nil, nil
		return errors.Join(err, c.Close())
	})
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// unlink frees the graphs of an Exec, which ends its part in a world.
func (e *Exec) unlink() error {
	var err error
	for v, g := range e.graphs {
		err = errors.Join(err, e.b.d.FreeExec(g))
		delete(e.graphs, v)
	}
	e.world, e.comm = nil, nil
	delete(e.b.linked, e)
	return err
}

// Exchange gives all ranks the bytes of each, one rank's after the other's. All ranks give
// the same number. It waits for them.
func (b *Backend) Exchange(mine []byte, ranks int) ([]byte, error) {
	all := make([]byte, ranks*len(mine))
	if len(mine) == 0 {
		return all, nil
	}
	err := b.do(func() error {
		if b.comm == nil {
			return fmt.Errorf("%s: it is no rank of a world", b.name)
		}
		src, err := b.alloc(int64(len(mine)), "a message")
		if err != nil {
			return err
		}
		dst, err := b.alloc(int64(len(all)), "a message")
		if err != nil {
			return errors.Join(err, b.d.Free(src))
		}
		err = b.upload(src, mine)
		if err == nil {
			err = b.comm.AllGather(src, dst, int64(len(mine)), cuda.NcclUint8, b.stream())
		}
		if err == nil {
			err = b.download(all, dst)
		}
		return errors.Join(err, b.d.Synchronize(b.stream()), b.d.Free(src), b.d.Free(dst))
	})
	return all, err
}

// Join implements runtime.Distributed.
func (e *Exec) Join(w world.World) error {
	l, ok := w.(Linked)
	if !ok {
		return fmt.Errorf("%s: its ranks meet by %s, which does not reach GPUs: open the world by package nccl, on this device", e.b.name, w.Engine())
	}
	c, err := l.Link(e.b)
	if err != nil {
		return err
	}
	return e.b.call(func() error {
		e.world, e.comm = l, c
		e.b.linked[e] = true
		return nil
	})
}

var _ runtime.Distributed = (*Exec)(nil)

// ncclTypes are the types of messages. Bools are bytes.
var ncclTypes = map[ir.DType]cuda.NcclType{ir.F32: cuda.NcclFloat32, ir.F16: cuda.NcclFloat16, ir.BF16: cuda.NcclBfloat, ir.I32: cuda.NcclInt32,
	ir.I64: cuda.NcclInt64, ir.U8: cuda.NcclUint8, ir.Bool: cuda.NcclUint8}

// transfer returns the call that issues a message to other ranks.
func (e *Exec) transfer(s *lower.Step) call {
	return func(on workStream) error {
		if e.comm == nil {
			return fmt.Errorf("the step is compiled for %d ranks and runs on one: give TrainConfig.Parallel the world of all", s.Transfer.Ranks)
		}
		return e.comm.Group(func() error { return e.send(s, on.stream) })
	}
}

// send issues the calls of a message.
func (e *Exec) send(s *lower.Step, on cuda.Stream) error {
	t, ranks := s.Transfer, s.Transfer.Ranks
	for i, id := range s.In {
		n, d := e.p.Buffers[id].Type.Shape.Elements(), e.p.Buffers[id].Type.DType
		src, dst := e.at[id], e.at[s.Out[i]]
		if n == 0 {
			continue
		}
		var err error
		switch t.Op {
		case lower.SumAll:
			err = e.comm.AllReduce(src, dst, n, ncclTypes[d], cuda.NcclSum, on)
		case lower.MaxAll:
			err = e.comm.AllReduce(src, dst, n, ncclTypes[d], cuda.NcclMax, on)
		case lower.GatherAll:
			err = e.comm.AllGather(src, dst, n*d.Size(), cuda.NcclUint8, on)
		case lower.Exchange:
			for r := range ranks {
				at := cuda.Ptr(r * n / ranks * d.Size())
				err = errors.Join(err, e.comm.Send(src+at, n/ranks*d.Size(), cuda.NcclUint8, int(r), on),
					e.comm.Recv(dst+at, n/ranks*d.Size(), cuda.NcclUint8, int(r), on))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
