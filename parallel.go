package ampc

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	platform "runtime"
	"runtime/debug"
	"sync"

	"ampc/ir"
	"ampc/passes"
	"ampc/runtime"
	"ampc/world"
)

// Parallel says how a step is shared with other ranks. Make one with DataParallel and
// change fields of the copy; the zero Parallel is one process.
type Parallel struct {
	World world.World
	// Bucket is how many bytes of gradients one message holds at least; zero: 1.25 MB for
	// each rank, up to 25 MiB, of which latency takes a small part.
	Bucket int64
	// Message is the dtype of gradients on their way; zero: F32. Sums are f32 all the same.
	Message DType
	// Shift says that 16-bit messages hold gradients times 2^-Shift; zero: the least for
	// which the sum over all ranks overflows only where the mean does.
	Shift int
	// SyncNorms makes batch norms normalize by the statistics of all ranks, as one process
	// with the whole batch does. Each norm then sends two messages of its channels in the
	// forward pass and two in the backward pass, and waits for them. False: each rank
	// normalizes by its own rows, and the running statistics are the means over the ranks.
	SyncNorms bool
	// Shard divides the weights, moments and averages of the training state among the ranks, as
	// ZeRO stage 1 and PyTorch's ZeroRedundancyOptimizer do: each rank keeps and updates one part
	// of each tensor, and the step gathers the weights that it reads, in 16 bits if every reader
	// of a weight reads 16 bits. The result is the same, bit for bit, with two exceptions: a clip
	// by a norm, which is added in another order, and lookups of a table that nothing reads in
	// f32, which read a 16-bit copy unless the policy keeps them in f32. All ranks save, read and
	// evaluate the model together. A tensor that an UpdateRule updates stays whole unless the rule
	// is Elementwise. Slices, TrainConfig.Gradients and policies without f32 weights are refused.
	Shard bool
	// Slices gives the same bits whatever the number of ranks: one step takes Slices
	// micro-batches of all ranks together, Slices/ranks on each, and adds gradients, losses
	// and counts of all in one fixed binary tree. Build the model for the rows of one slice;
	// rank r runs the slices from r·Slices/ranks on. Slices and the number of ranks are powers
	// of two; World may be nil, for one process. Batch norms with running statistics need
	// SyncNorms, by which all slices of a rank run together, each with memory of its own (on
	// CPUs). Messages in 16 bits and DropMicro are refused. The accumulators take
	// log2(Slices/ranks) times the memory of the gradients. Zero: sums are added in the order
	// of ranks.
	Slices int
}

// DataParallel shares each batch among the ranks of w. Every rank compiles the same
// step over the same variables and runs it with its own part of the batch. Gradients,
// losses and counts are summed over the ranks before they are divided or checked, so
// all ranks take the same update, or skip it together.
//
// Variables start equal where the ranks have the same Seed, or load the same
// checkpoint. Results that are no losses, means or sums are those of the rank alone.
// Run is collective: all ranks call it in the same order, and the first one compares
// their steps and variables.
func DataParallel(w world.World) Parallel { return Parallel{World: w} }

// Parallel says how the step is shared with other ranks: World is nil where it is not.
func (s *Step) Parallel() Parallel {
	p := s.config.Parallel
	return Parallel{World: s.world, Bucket: p.Bucket, Message: DType(p.Message), Shift: p.Shift, SyncNorms: p.SyncNorms, Shard: p.Shard, Slices: p.Slices}
}

func (p Parallel) compiler() passes.Parallel {
	c := passes.Parallel{Bucket: p.Bucket, Message: irDType(p.Message), Shift: p.Shift, SyncNorms: p.SyncNorms, Shard: p.Shard, Slices: p.Slices}
	if p.World != nil {
		c.Ranks = p.World.Size()
	}
	return c
}

// micro is how many micro-batches a step of c takes at most, and with slices in all.
func (c TrainConfig) micro() int {
	n := c.Parallel.Slices
	if c.Parallel.World != nil {
		n /= max(c.Parallel.World.Size(), 1)
	}
	if c.Micro == 0 && n > 1 {
		return n
	}
	return c.Micro
}

// join connects a loaded step with the other ranks, where its program sends anything.
func (s *session) join(step *Step) error {
	if step.config.Parallel.Ranks <= 1 {
		return nil
	}
	d, ok := step.exec.(runtime.Distributed)
	if !ok {
		return fmt.Errorf("%s: this backend has no collectives: train across ranks on the CPU", s.backend.Name())
	}
	return d.Join(step.world)
}

// meet compares this rank's step and variables with those of the others, before the
// first run of a step: ranks that differ would wait for each other, or learn something
// that no single process learns.
func (s *Step) meet(ctx context.Context) error {
	root := s
	if s.of != nil {
		root = s.of
	}
	if s.world == nil || root.met {
		return nil
	}
	state, err := s.digestOfState()
	if err != nil {
		return err
	}
	build, machine := buildDigest()
	own := []uint64{s.digest(), state, build, machine}
	n := len(own)
	data := make([]byte, 8*n*s.world.Size())
	for i, x := range own {
		binary.LittleEndian.PutUint64(data[8*(s.world.Rank()*n+i):], x)
	}
	m := &world.Message{Name: "step and variables", Op: world.Sum, DType: ir.I64, Wire: ir.F32, In: [][]byte{data}, Out: [][]byte{data}}
	if err := s.world.Start(m); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := s.world.Wait(ctx, m); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := otherThanRank0(s.world.Size(), func(rank, i int) uint64 { return binary.LittleEndian.Uint64(data[8*(rank*n+i):]) }); err != nil {
		return err
	}
	root.met = true
	return nil
}

// otherThanRank0 names a rank that has another step, other variables or another build than rank 0. of are
// the numbers that ranks have sent: digests of step, variables, build and kind of machine.
func otherThanRank0(size int, of func(rank, i int) uint64) error {
	for r := range size {
		if of(r, 0) != of(0, 0) {
			return fmt.Errorf("run: rank %d has compiled another step than rank 0: give all ranks the same model, policy, optimizer and version of the program", r)
		}
		if of(r, 3) == of(0, 3) && of(r, 2) != of(0, 2) { // builds for other machines differ
			return fmt.Errorf("run: rank %d runs another build of the program than rank 0, and the version of one does not say what it was built from: give all ranks the same executable", r)
		}
		if of(r, 1) != of(0, 1) {
			return fmt.Errorf("run: rank %d has other variables than rank 0: give all ranks the same Seed, or load the same checkpoint", r)
		}
	}
	return nil
}

var polynomial = crc64.MakeTable(crc64.ECMA)

// digest is of what must be equal on all ranks: the program, the model, the policy, the variables, the messages with
// their sizes and the update, which does not depend on the sizes of a rank's batch.
func (s *Step) digest() uint64 {
	sum := crc64.New(polynomial)
	describeProgram(sum)
	fmt.Fprintln(sum, s.config.Policy)
	s.describeModel(sum)
	for _, v := range s.graph.Vars {
		if v.Kind != ir.Input {
			fmt.Fprintln(sum, v.Name, v.Kind, v.Type)
		}
	}
	for sec, n := range s.graph.Nodes {
		if sec == ir.Update || n.Def().Is(ir.Collective) {
			describe(sum, n)
		}
	}
	return sum.Sum64()
}

// describeProgram writes the versions of the program and of what it is built from.
func describeProgram(w io.Writer) {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	fmt.Fprintln(w, b.Main.Path, b.Main.Version, b.Main.Sum)
	for _, d := range b.Deps {
		fmt.Fprintln(w, d.Path, d.Version, d.Sum)
	}
	for _, x := range b.Settings {
		if x.Key == "vcs.revision" {
			fmt.Fprintln(w, x.Value)
		}
	}
}

// buildDigest is of the executable where its version does not say what it was built from, else 0, and of
// the kind of machine that it runs on.
var buildDigest = sync.OnceValues(func() (build, machine uint64) {
	machine = crc64.Checksum([]byte(platform.GOOS+"/"+platform.GOARCH), polynomial)
	if b, ok := debug.ReadBuildInfo(); ok && committed(b) {
		return 0, machine
	}
	path, err := os.Executable()
	if err != nil {
		return 0, machine
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, machine
	}
	defer f.Close()
	sum := crc64.New(polynomial)
	if _, err := io.Copy(sum, f); err != nil {
		return 0, machine
	}
	return sum.Sum64(), machine
})

// committed reports whether the version of a program says what its source was: a release, or a commit
// without changes.
func committed(b *debug.BuildInfo) bool {
	changed, revision := "true", ""
	for _, x := range b.Settings {
		switch x.Key {
		case "vcs.modified":
			changed = x.Value
		case "vcs.revision":
			revision = x.Value
		}
	}
	local := false // a module in a folder of its own, which has no version
	for _, d := range b.Deps {
		local = local || d.Replace != nil && d.Replace.Version == ""
	}
	return !local && (b.Main.Sum != "" || revision != "" && changed == "false")
}

// describeModel writes what the losses are computed by, except for sizes, which may differ between ranks,
// and for names, which depend on what else a rank has built.
func (s *Step) describeModel(w io.Writer) {
	number := map[*ir.Node]int{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		n := v.Def
		if n == nil || number[n] > 0 {
			return
		}
		for _, x := range n.In {
			if x != nil {
				walk(x)
			}
		}
		number[n] = len(number) + 1
		fmt.Fprint(w, n.Op, n.Pin, n.Out[0].Type.DType)
		for _, x := range n.In {
			switch {
			case x == nil:
				fmt.Fprint(w, " _")
			case x.Def == nil:
				fmt.Fprint(w, " ", x.Name)
			default:
				fmt.Fprint(w, " ", number[x.Def], ".", x.Idx)
			}
		}
		for _, a := range n.Attrs {
			_, real := a.Value.(float64) // such as a share that depends on the number of rows
			switch a.Value.(type) {
			case bool, string, float64, ir.DType:
				if !real || n.Def().Is(ir.Random) {
					fmt.Fprint(w, " ", a.Name, "=", a.Value)
				}
			}
		}
		fmt.Fprintln(w)
	}
	for _, l := range s.losses {
		walk(l.Value.v)
	}
}

func describe(w io.Writer, n *ir.Node) {
	fmt.Fprint(w, n.Op, n.Name())
	for _, v := range n.In {
		if v != nil {
			fmt.Fprint(w, " ", v.Name, v.Type.DType)
		}
		if v != nil && n.Def().Is(ir.Collective) { // each tensor of a message has one size on all ranks
			fmt.Fprint(w, v.Type.Shape.Dims())
		}
	}
	for _, a := range n.Attrs {
		switch a.Value.(type) {
		case bool, int64, float64, string, ir.DType, []int64, []float64:
			fmt.Fprint(w, " ", a.Name, "=", a.Value)
		}
	}
	fmt.Fprintln(w)
}

// digestOfState is of the variables that outlive a step.
func (s *Step) digestOfState() (uint64, error) {
	sum := uint64(0)
	for _, v := range s.program.Vars {
		if v.Kind != ir.Param && v.Kind != ir.State || !lasting(v) {
			continue
		}
		if w, part := wholeOf(v); part {
			sum = sum<<1 ^ s.model.session.parts[w.Name].sum
			continue
		}
		data, err := s.model.session.show(v)
		if err != nil {
			return 0, err
		}
		sum = crc64.Update(sum, polynomial, data.Bytes())
		data.Release()
	}
	return sum, nil
}
