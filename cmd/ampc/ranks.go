package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/mpi"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/world"
)

// crew is the ranks that a launcher has started to train together; nil: this process
// trains alone. Rank 0 writes and prints.
type crew struct{ world.World }

// muster connects the ranks where a launcher of MPI programs has started this process.
func muster() (*crew, error) {
	if !mpi.Launched() {
		return nil, nil
	}
	w, err := mpi.Open(mpi.Options{})
	if err != nil {
		return nil, err
	}
	if w.Size() == 1 {
		return nil, w.Close()
	}
	return &crew{w}, nil
}

func (c *crew) ranks() int {
	if c == nil {
		return 1
	}
	return c.Size()
}

// leads reports whether this process writes and prints.
func (c *crew) leads() bool { return c == nil || c.Rank() == 0 }

// out is where this rank's results go.
func (c *crew) out(w io.Writer) io.Writer {
	if c.leads() {
		return w
	}
	return io.Discard
}

// backend is the CPU with this rank's share of the machine's processors.
func (c *crew) backend(errs io.Writer) (runtime.Backend, error) {
	n, warning := mpi.Cores()
	if warning != "" {
		fmt.Fprintf(errs, "warning: rank %d: %s\n", c.Rank(), warning)
	}
	return cpu.Open(n)
}

// any reports whether some rank raises the flag.
func (c *crew) any(flag bool) (bool, error) {
	if c == nil {
		return flag, nil
	}
	data := make([]byte, 4)
	if flag {
		data[0] = 1
	}
	m := &world.Message{Name: "flag", Op: world.Max, DType: ir.I32, Wire: ir.F32, In: [][]byte{data}, Out: [][]byte{data}}
	if err := c.Start(m); err != nil {
		return false, err
	}
	err := c.Wait(context.Background(), m)
	return binary.LittleEndian.Uint32(data) != 0, err
}

// errOther is what the ranks return that nothing is wrong with when another has failed.
var errOther = errors.New("another rank has failed")

// agree makes an error of one rank one of all.
func (c *crew) agree(err error) error {
	failed, lost := c.any(err != nil)
	switch {
	case err != nil:
		return err
	case lost != nil:
		return lost
	case failed:
		return errOther
	}
	return nil
}

// place is trainFlags.place on rank 0, which claims the folder. The others read what a
// run that continues was.
func (c *crew) place(f *trainFlags, spec string, given func(flag string) bool) (dir *folder, model string, err error) {
	if c.leads() {
		dir, model, err = f.place(spec, given)
	}
	if err := c.agree(err); err != nil {
		return nil, "", err
	}
	if !c.leads() {
		model = spec
		if f.resume != "" {
			model, err = f.follow(spec, given)
		}
	}
	return dir, model, c.agree(err)
}

// follow is goOn without a folder to write to.
func (f *trainFlags) follow(spec string, given func(flag string) bool) (string, error) {
	from := f.resume
	if from == resumeNewest {
		from = f.out
	}
	if from == "" {
		var err error
		if from, err = newest(); err != nil {
			return "", err
		}
	}
	o, err := original(from)
	if err != nil {
		return "", err
	}
	return f.adopt(o, spec, given)
}

// open opens the model for this rank's part of the batch. The option batch of a query
// is that of all ranks.
func (c *crew) open(name, query string) (*models.Zoo, error) {
	z, err := models.Open(name + "?" + query)
	if err != nil || c.ranks() == 1 {
		return z, err
	}
	batch := z.Options.Int("batch")
	if batch%c.ranks() != 0 {
		return nil, fmt.Errorf("zoo:%s: a batch of %d is not divisible among %d ranks: give batch=%d", name, batch, c.ranks(), (batch/c.ranks()+1)*c.ranks())
	}
	var rest []string
	for _, o := range strings.Split(query, "&") {
		if o != "" && !strings.HasPrefix(o, "batch=") {
			rest = append(rest, o)
		}
	}
	return models.Open(name + "?" + strings.Join(append(rest, fmt.Sprintf("batch=%d", batch/c.ranks())), "&"))
}

// part is this rank's part of a feed of all ranks: its rows in their order.
func (c *crew) part(f ampc.Feed) ampc.Feed {
	if c == nil {
		return f
	}
	return part(f, c.Rank(), c.Size())
}

// part is the part of a feed of all ranks that one of them takes.
func part(f ampc.Feed, rank, size int) ampc.Feed {
	mine := ampc.Feed{}
	for name, v := range f {
		switch v := v.(type) {
		case []float32:
			mine[name] = rows(v, rank, size)
		case []int32:
			mine[name] = rows(v, rank, size)
		}
	}
	return mine
}

func rows[T any](all []T, rank, size int) []T {
	n := len(all) / size
	return all[rank*n : (rank+1)*n]
}

// stopped is why all ranks end a run here, nil where none wants to.
func (c *crew) stopped(ctx context.Context) error {
	if c == nil {
		return nil // Run looks at ctx
	}
	stop, err := c.any(ctx.Err() != nil)
	switch {
	case err != nil:
		return err
	case stop && ctx.Err() != nil:
		return context.Cause(ctx)
	case stop:
		return errors.New("another rank was interrupted")
	}
	return nil
}

// step is the context that a step runs under: one that ends on one rank must not end a
// step that the others take.
func (c *crew) step(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}
