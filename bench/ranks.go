package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"ampc"
	"ampc/models"
	"ampc/mpi"
	"ampc/runtime/cpu"
	"ampc/world"
)

// rankBench compares one process of several threads with as many ranks of one thread each,
// which share the same batch over MPI. Both are measured in turn.
type rankBench struct {
	spec, policy, launcher string
	ranks, rounds, steps   int
	shard                  bool // each rank keeps a part of the state
	worker                 bool // this process is the one that is measured, or one of the ranks
}

func (b *rankBench) flags(f *flag.FlagSet) {
	f.StringVar(&b.policy, "policy", "mixed-bf16", "precision policy")
	f.StringVar(&b.launcher, "mpirun", "mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none", "launcher of the ranks, to which -n RANKS is added")
	f.IntVar(&b.ranks, "ranks", 2, "ranks, and threads of the one process")
	f.IntVar(&b.rounds, "rounds", 3, "how often both are measured in turn")
	f.IntVar(&b.steps, "steps", 3, "steps of a measurement, after two that warm up")
	f.BoolVar(&b.shard, "shard", false, "each rank keeps and updates a part of the training state")
	f.BoolVar(&b.worker, "worker", false, "be what is measured, for this command itself")
}

// run measures a zoo model, whose option batch counts the rows of all ranks, and prints a
// line for each round and one for the medians.
func (b *rankBench) run(spec string, out io.Writer) error {
	if b.spec = spec; b.worker {
		return b.work(out)
	}
	if b.ranks < 2 || b.rounds < 1 || b.steps < 1 {
		return fmt.Errorf("ranks: want 2 ranks or more, and 1 round and step or more")
	}
	var one, several []float64
	for round := range b.rounds {
		x, err := b.measure()
		if err != nil {
			return err
		}
		y, err := b.measure(append(strings.Fields(b.launcher), "-n", strconv.Itoa(b.ranks))...)
		if err != nil {
			return err
		}
		one, several = append(one, x), append(several, y)
		b.print(out, fmt.Sprintf("round %d", round+1), x, y)
	}
	b.print(out, "median", middle(one), middle(several))
	return nil
}

func (b *rankBench) print(out io.Writer, what string, one, several float64) {
	fmt.Fprintf(out, "%s: one process with %d threads %.1f tokens/s, %d ranks of one thread %.1f tokens/s: %.1f%%\n", what, b.ranks, one, b.ranks, several, 100*several/one)
}

// measure starts this program behind a launcher, if there is one, and reads what it prints.
func (b *rankBench) measure(launcher ...string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	args := append(launcher, self, "ranks", "-worker", "-policy", b.policy, "-ranks", strconv.Itoa(b.ranks), "-steps", strconv.Itoa(b.steps), fmt.Sprintf("-shard=%t", b.shard), b.spec)
	c := exec.Command(args[0], args[1:]...)
	var said, errs bytes.Buffer
	c.Stdout, c.Stderr = &said, &errs
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strconv.ParseFloat(strings.TrimSpace(said.String()), 64)
}

// work trains for some steps and prints tokens a second of all ranks, on rank 0.
func (b *rankBench) work(out io.Writer) error {
	var w world.World
	threads, parts, rank := b.ranks, 1, 0
	if mpi.Launched() {
		var err error
		if w, err = mpi.Open(mpi.Options{}); err != nil {
			return err
		}
		threads, parts, rank = 1, w.Size(), w.Rank()
	}
	rate, err := b.train(w, threads, parts, rank)
	if err != nil {
		return err
	}
	if rank == 0 {
		fmt.Fprintln(out, rate)
	}
	if w != nil {
		return w.Close()
	}
	return nil
}

// train returns tokens a second of all parts of the batch.
func (b *rankBench) train(w world.World, threads, parts, rank int) (float64, error) {
	backend, err := cpu.Open(threads)
	if err != nil {
		return 0, err
	}
	whole, err := models.Open(b.spec)
	if err != nil {
		return 0, err
	}
	defer whole.Model.Close()
	rows, seq := whole.Options.Int("batch"), whole.Options.Int("seq")
	if rows%parts != 0 || seq == 0 {
		return 0, fmt.Errorf("ranks: %s: want a language model whose batch is divisible among %d ranks", b.spec, parts)
	}
	z, err := models.Open(models.With(b.spec, "batch", int64(rows/parts)), ampc.On(backend))
	if err != nil {
		return 0, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	if c.Policy, err = ampc.PolicyNamed(b.policy); err != nil {
		return 0, err
	}
	if w != nil {
		c.Parallel = ampc.DataParallel(w)
		c.Parallel.Shard = b.shard
	}
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return 0, err
	}
	var began time.Time
	for i := range b.steps + 2 {
		if i == 2 {
			began = time.Now()
		}
		r, err := s.Run(context.Background(), z.Batch(int64(i*parts+rank)))
		if err != nil {
			return 0, err
		}
		if _, err := r.Wait(context.Background()); err != nil {
			return 0, err
		}
	}
	return float64(rows*seq*b.steps) / time.Since(began).Seconds(), nil
}
