package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"strings"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/mpi"
	"ampc/nccl"
	"ampc/runtime"
	"ampc/runtime/cpu"
	"ampc/runtime/gpu"
	"ampc/world"
)

// rankGroup is the group of ranks that a launcher has started to train together. It is nil if this
// process trains alone. Rank 0 writes files and prints.
type rankGroup struct {
	world.World
	host world.World // of ranks on GPUs that MPI has started
}

// joinRanks connects the ranks if a launcher started this process as one of several: by MPI, and on a
// GPU by NCCL.
func joinRanks(device runtime.Backend) (*rankGroup, error) {
	b, onGPU := device.(*gpu.Backend)
	switch {
	case !mpi.Launched() && !nccl.Launched():
		return nil, nil
	case onGPU && strings.HasPrefix(b.Name(), "sim:"):
		return nil, usagef("--device %s: simulated GPUs of several processes do not reach each other", b.Name())
	case mpi.Launched():
		return joinByMPI(b)
	case !onGPU:
		return nil, usagef("RANK and WORLD_SIZE start one process for each GPU: give --device cuda, or unset them and start ranks on CPUs by mpirun")
	}
	w, err := nccl.Open(b, nccl.Options{})
	if err != nil {
		return nil, err
	}
	return &rankGroup{World: w}, nil
}

// joinByMPI connects the ranks that a launcher of MPI programs has started. b is nil on the CPU.
func joinByMPI(b *gpu.Backend) (*rankGroup, error) {
	w, err := mpi.Open(mpi.Options{})
	if err != nil {
		return nil, err
	}
	if w.Size() == 1 {
		return nil, w.Close()
	}
	n, _ := mpi.Cores()
	threadBeside(n)
	if b == nil {
		return &rankGroup{World: w}, nil
	}
	linked, err := nccl.Open(b, nccl.Options{Host: w})
	if err != nil {
		return nil, err
	}
	return &rankGroup{linked, w}, nil
}

// threadBeside lets Go code run on one thread more than the workers of this rank keep in kernels: see
// mpi.Open.
func threadBeside(workers int) { goruntime.GOMAXPROCS(max(goruntime.GOMAXPROCS(0), workers+1)) }

// Close ends the group.
func (c *rankGroup) Close() error {
	err := c.World.Close()
	if c.host != nil {
		err = errors.Join(err, c.host.Close())
	}
	return err
}

// ownDevice is the --device of this process: that of its rank if ranks on GPUs were started and
// no device was given.
func ownDevice(name string, given bool) string {
	if !given && nccl.Launched() && !mpi.Launched() {
		return "cuda"
	}
	return name
}

func (c *rankGroup) rank() int {
	if c == nil {
		return 0
	}
	return c.Rank()
}

func (c *rankGroup) ranks() int {
	if c == nil {
		return 1
	}
	return c.Size()
}

// isRoot reports whether this process writes files and prints.
func (c *rankGroup) isRoot() bool { return c == nil || c.Rank() == 0 }

// out returns the writer for results; it discards them on ranks other than 0.
func (c *rankGroup) out(w io.Writer) io.Writer {
	if c.isRoot() {
		return w
	}
	return io.Discard
}

// backend opens the CPU with this rank's share of the machine's processors.
func (c *rankGroup) backend(errs io.Writer) (runtime.Backend, error) {
	n, warning := mpi.Cores()
	if warning != "" {
		fmt.Fprintf(errs, "warning: rank %d: %s\n", c.Rank(), warning)
	}
	return cpu.Open(n)
}

// any reports whether flag is true on some rank.
func (c *rankGroup) any(flag bool) (bool, error) {
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

// errOther is the error of ranks without an error of their own when another rank has failed.
var errOther = errors.New("another rank has failed")

// agree makes all ranks fail if one has an error.
func (c *rankGroup) agree(err error) error {
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

// place calls trainFlags.place on rank 0, which claims the folder. The other ranks only read the
// settings of a run that continues.
func (c *rankGroup) place(f *trainFlags, spec string, given func(flag string) bool) (dir *folder, model string, err error) {
	if c.isRoot() {
		dir, model, err = f.place(spec, given)
	}
	if err := c.agree(err); err != nil {
		return nil, "", err
	}
	if !c.isRoot() {
		model = spec
		if f.resume != "" {
			model, err = f.resumedModel(spec, given)
		}
	}
	return dir, model, c.agree(err)
}

// resumedModel is continueRun without a folder to write to.
func (f *trainFlags) resumedModel(spec string, given func(flag string) bool) (string, error) {
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
	return f.inheritSettings(o, spec, given)
}

// parts is how many parts a batch is cut into: slices, else one for each rank.
func (f *trainFlags) parts() int { return max(f.slices, f.group.ranks()) }

// open opens the model for one part of the batch. The option batch in a query counts the examples
// of all ranks.
func (f *trainFlags) open(name, query string) (*models.Zoo, error) {
	z, err := models.Open(name + "?" + query)
	parts := f.parts()
	if err != nil || parts == 1 {
		return z, err
	}
	batch := z.Options.Int("batch")
	if batch%parts != 0 {
		what := "ranks"
		if f.slices > 0 {
			what = "slices"
		}
		return nil, fmt.Errorf("zoo:%s: a batch of %d is not divisible among %d %s: give batch=%d", name, batch, parts, what, (batch/parts+1)*parts)
	}
	var rest []string
	for _, o := range strings.Split(query, "&") {
		if o != "" && !strings.HasPrefix(o, "batch=") {
			rest = append(rest, o)
		}
	}
	return models.Open(name + "?" + strings.Join(append(rest, fmt.Sprintf("batch=%d", batch/parts)), "&"))
}

// feeds are what this rank runs in the step that begins with batch number at of all ranks:
// its rows of each micro-batch, or its slices.
func (t *trainer) feeds(at int64) ([]ampc.Feed, error) {
	group := t.flags.group
	if n := t.flags.slices; n > 0 {
		feed, err := t.batch(at)
		if err != nil {
			return nil, err
		}
		each := n / group.ranks()
		feeds := make([]ampc.Feed, each)
		for i := range feeds {
			feeds[i] = shard(feed, group.rank()*each+i, n)
		}
		return feeds, nil
	}
	feeds := make([]ampc.Feed, t.flags.micro)
	for i := range feeds {
		feed, err := t.batch(at + int64(i))
		if err != nil {
			return nil, err
		}
		feeds[i] = group.shard(feed)
	}
	return feeds, nil
}

// shard returns this rank's rows of a feed for all ranks.
func (c *rankGroup) shard(f ampc.Feed) ampc.Feed {
	if c == nil {
		return f
	}
	return shard(f, c.Rank(), c.Size())
}

// shard returns the rows of a feed for all ranks that belong to one rank.
func shard(f ampc.Feed, rank, size int) ampc.Feed {
	mine := ampc.Feed{}
	for name, v := range f {
		switch v := v.(type) {
		case []float32:
			mine[name] = shardRows(v, rank, size)
		case []int32:
			mine[name] = shardRows(v, rank, size)
		}
	}
	return mine
}

func shardRows[T any](all []T, rank, size int) []T {
	n := len(all) / size
	return all[rank*n : (rank+1)*n]
}

// stopped returns the reason for all ranks to end the run here, or nil.
func (c *rankGroup) stopped(ctx context.Context) error {
	if c == nil {
		return nil // Run checks ctx itself
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

// stepContext returns the context of a step. It is never cancelled with several ranks, because a
// step must not end on one rank only.
func (c *rankGroup) stepContext(ctx context.Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}
