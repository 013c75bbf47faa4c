package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"ampc"
	"ampc/ir"
	"ampc/models"
	"ampc/mpi"
	"ampc/runtime/cpu"
	"ampc/world"
)

// openMPI starts ranks on this machine.
const openMPI = "mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none"

// rankBench compares one process of several threads with as many ranks of one thread each, which
// share the same batch over MPI. They, and other commands beside them, are measured in turn.
type rankBench struct {
	spec, policy, launcher string
	message                string   // dtype of gradients in messages
	beside                 []string // commands that measure others and print a rankRun
	ranks, rounds, steps   int
	shard                  bool // each rank keeps a part of the state
	hidden                 bool // also measure how much of the messages' time steps hide
	worker                 bool // this process is the one that is measured, or one of the ranks
}

func (b *rankBench) flags(f *flag.FlagSet) {
	f.StringVar(&b.policy, "policy", "mixed-bf16", "precision policy")
	f.StringVar(&b.message, "message", "f32", "dtype of gradients in messages")
	f.StringVar(&b.launcher, "mpirun", openMPI, "launcher of the ranks, to which -n RANKS is added")
	f.IntVar(&b.ranks, "ranks", 2, "ranks, and threads of the one process")
	f.IntVar(&b.rounds, "rounds", 3, "how often both are measured in turn")
	f.IntVar(&b.steps, "steps", 3, "steps of a measurement, after two that warm up")
	f.BoolVar(&b.shard, "shard", false, "each rank keeps and updates a part of the training state")
	f.BoolVar(&b.hidden, "hidden", false, "also measure steps that send nothing, and the messages alone")
	f.Func("beside", "`COMMAND` that is measured in turn, too, and prints what -worker prints, such as bench/torch/ddp.py; may be repeated", func(s string) error {
		b.beside = append(b.beside, s)
		return nil
	})
	f.BoolVar(&b.worker, "worker", false, "be what is measured, for this command itself")
}

// rankRun is what one measurement found, as a worker prints it.
type rankRun struct {
	By     string  `json:"by"`
	Rate   float64 `json:"tokens_per_second"`
	Step   float64 `json:"step_s"`
	Silent float64 `json:"silent_s,omitempty"`   // a step on the same rows that sends nothing
	Alone  float64 `json:"messages_s,omitempty"` // the messages of a step and nothing else
	// Processor is the time of processors that a step takes, of all threads and ranks together. Other work
	// on the machine changes it less than Step.
	Processor float64 `json:"processor_s"`
	Sent      int64   `json:"sent_bytes"` // by each rank, around a ring
}

// hiddenShare is the share of the messages' time that does not lengthen the step.
func (r rankRun) hiddenShare() float64 { return 1 - (r.Step-r.Silent)/r.Alone }

// run measures a zoo model, whose option batch counts the rows of all ranks, and prints a line for
// each round and a table of medians.
func (b *rankBench) run(spec string, out io.Writer) error {
	if b.spec = spec; b.worker {
		return b.work(out)
	}
	if b.ranks < 2 || b.rounds < 1 || b.steps < 1 {
		return fmt.Errorf("ranks: want 2 ranks or more, and 1 round and step or more")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own := []string{self, "ranks", "-worker", "-policy", b.policy, "-message", b.message, "-ranks", strconv.Itoa(b.ranks), "-steps", strconv.Itoa(b.steps), fmt.Sprintf("-shard=%t", b.shard), fmt.Sprintf("-hidden=%t", b.hidden), b.spec}
	commands := [][]string{own, append(append(strings.Fields(b.launcher), "-n", strconv.Itoa(b.ranks)), own...)}
	for _, s := range b.beside {
		commands = append(commands, strings.Fields(s))
	}
	runs := make([][]rankRun, len(commands))
	for round := range b.rounds {
		for i, c := range commands {
			var r rankRun
			if err := lastLine(c, &r); err != nil {
				return err
			}
			runs[i] = append(runs[i], r)
		}
		fmt.Fprintf(out, "round %d: %.1f%%\n", round+1, 100*runs[1][round].Rate/runs[0][round].Rate)
	}
	return b.print(out, runs)
}

// lastLine runs a command and reads the last line that it prints in JSON. Launchers may print lines of
// their own behind it.
func lastLine(args []string, to any) error {
	c := exec.Command(args[0], args[1:]...)
	var said, errs bytes.Buffer
	c.Stdout, c.Stderr = &said, &errs
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	err := errors.New("it prints nothing")
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(said.String()), "\n")) {
		if err = json.Unmarshal([]byte(line), to); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said.String())
}

// print writes a table of the medians of all rounds.
func (b *rankBench) print(out io.Writer, runs [][]rankRun) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "median\ttokens/s\tof the first\tstep\tprocessors\twithout messages\tmessages alone\thidden\tsent by each\t")
	of := func(rs []rankRun, f func(rankRun) float64) float64 {
		var xs []float64
		for _, r := range rs {
			xs = append(xs, f(r))
		}
		return middle(xs)
	}
	rate := func(r rankRun) float64 { return r.Rate }
	first := of(runs[0], rate)
	for _, rs := range runs {
		x := of(rs, rate)
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f%%\t", rs[0].By, x, 100*x/first)
		ms := func(f func(rankRun) float64) {
			text := ""
			if x := of(rs, f); x > 0 {
				text = fmt.Sprintf("%.0fms", 1e3*x)
			}
			fmt.Fprint(tw, text, "\t")
		}
		ms(func(r rankRun) float64 { return r.Step })
		ms(func(r rankRun) float64 { return r.Processor })
		ms(func(r rankRun) float64 { return r.Silent })
		ms(func(r rankRun) float64 { return r.Alone })
		sent, hidden := "", ""
		if rs[0].Sent > 0 {
			sent = ir.Bytes(rs[0].Sent)
		}
		if rs[0].Alone > 0 {
			hidden = fmt.Sprintf("%.0f%%", 100*of(rs, rankRun.hiddenShare))
		}
		fmt.Fprintf(tw, "%s\t%s\t\n", hidden, sent)
	}
	return tw.Flush()
}

// openRank is mpi.Open for a rank of one worker or more, as ampc train opens it.
func openRank() (world.World, error) {
	n, _ := mpi.Cores()
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), n+1))
	return mpi.Open(mpi.Options{})
}

// work trains for some steps and prints what it measured, on rank 0.
func (b *rankBench) work(out io.Writer) error {
	r := &rankWork{rankBench: b, threads: b.ranks, parts: 1}
	r.By = fmt.Sprintf("one process, %d threads", b.ranks)
	if mpi.Launched() {
		w, err := openRank()
		if err != nil {
			return err
		}
		r.world, r.threads, r.parts, r.rank = w, 1, w.Size(), w.Rank()
		r.By = fmt.Sprintf("%d ranks, %s", r.parts, w.Engine())
	}
	if err := r.measure(); err != nil {
		return err
	}
	if r.rank == 0 {
		if err := json.NewEncoder(out).Encode(r.rankRun); err != nil {
			return err
		}
	}
	if r.world != nil {
		return r.world.Close()
	}
	return nil
}

// rankWork is one process that is measured.
type rankWork struct {
	*rankBench
	rankRun
	world                world.World // nil in one process
	threads, parts, rank int
}

func (r *rankWork) measure() error {
	backend, err := cpu.Open(r.threads)
	if err != nil {
		return err
	}
	whole, err := models.Open(r.spec)
	if err != nil {
		return err
	}
	defer whole.Model.Close()
	rows, seq := whole.Options.Int("batch"), whole.Options.Int("seq")
	if rows%r.parts != 0 || seq == 0 {
		return fmt.Errorf("ranks: %s: want a language model whose batch is divisible among %d ranks", r.spec, r.parts)
	}
	part := models.With(r.spec, "batch", int64(rows/r.parts))
	s, err := r.train(part, backend, r.world, &r.Step)
	if err != nil {
		return err
	}
	r.Rate = float64(rows*seq) / r.Step
	if r.world == nil {
		return nil
	}
	messages := messagesOf(s.Graph(), r.parts)
	for _, n := range s.Graph().Nodes {
		if n.Def().Is(ir.Collective) {
			bytes, rounds := n.Wire()
			r.Sent += rounds * int64(r.parts-1) * bytes / int64(r.parts)
		}
	}
	if !r.hidden {
		return nil
	}
	if r.Alone, err = r.send(messages); err != nil {
		return err
	}
	_, err = r.train(part, backend, nil, &r.Silent)
	return err
}

// train trains the part of this process, with others where w is not nil. It sets the seconds of a
// step.
func (r *rankWork) train(spec string, backend *cpu.Backend, w world.World, seconds *float64) (*ampc.Step, error) {
	z, err := models.Open(spec, ampc.On(backend))
	if err != nil {
		return nil, err
	}
	defer z.Model.Close()
	c := z.Steps[0].Config
	if c.Policy, err = ampc.PolicyNamed(r.policy); err != nil {
		return nil, err
	}
	if w != nil {
		c.Parallel = ampc.DataParallel(w)
		c.Parallel.Shard = r.shard
		if c.Parallel.Message, err = messageType(r.message); err != nil {
			return nil, err
		}
	}
	s, err := z.Model.Train(c, z.Steps[0].Losses...)
	if err != nil {
		return nil, err
	}
	var began time.Time
	var used float64
	for i := range r.steps + 2 {
		if i == 2 {
			if err := r.meet(); err != nil {
				return nil, err
			}
			began, used = time.Now(), processorTime()
		}
		x, err := s.Run(context.Background(), z.Batch(int64(i*r.parts+r.rank)))
		if err != nil {
			return nil, err
		}
		if _, err := x.Wait(context.Background()); err != nil {
			return nil, err
		}
	}
	*seconds = time.Since(began).Seconds() / float64(r.steps)
	if w == r.world { // the step that counts
		r.Processor, err = r.sum((processorTime() - used) / float64(r.steps))
	}
	return s, err
}

func messageType(name string) (ampc.DType, error) {
	d, ok := ir.DTypeOf(name)
	if !ok || d != ir.F32 && !d.Low() {
		return 0, fmt.Errorf("-message %s: want f32, f16 or bf16", name)
	}
	return ampc.DType(d), nil
}

// processorTime is the time in seconds that the threads of this process have used, to a hundredth. It
// is 0 where the system has no such file.
func processorTime() float64 {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return (user + system) / 100
}

// sum adds up what all ranks have.
func (r *rankWork) sum(x float64) (float64, error) {
	if r.world == nil {
		return x, nil
	}
	data := binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
	err := exchange(r.world, []*world.Message{{Name: "sum", DType: ir.F64, Wire: ir.F32, In: [][]byte{data}, Out: [][]byte{data}}})
	return math.Float64frombits(binary.LittleEndian.Uint64(data)), err
}

// meet waits for the other ranks.
func (r *rankWork) meet() error {
	if r.world == nil {
		return nil
	}
	flag := [][]byte{make([]byte, 4)}
	return exchange(r.world, []*world.Message{{Name: "meet", DType: ir.I32, Wire: ir.F32, In: flag, Out: flag}})
}

// send returns the seconds that messages take that start together.
func (r *rankWork) send(messages []*world.Message) (float64, error) {
	var began time.Time
	for i := range r.steps + 1 {
		if err := r.meet(); err != nil {
			return 0, err
		}
		if i == 1 {
			began = time.Now()
		}
		if err := exchange(r.world, messages); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds() / float64(r.steps), nil
}

func exchange(w world.World, messages []*world.Message) error {
	for _, m := range messages {
		if err := w.Start(m); err != nil {
			return err
		}
	}
	for _, m := range messages {
		if err := w.Wait(context.Background(), m); err != nil {
			return err
		}
	}
	return nil
}

// messagesOf makes the messages that a step sends, over memory of their own.
func messagesOf(g *ir.Graph, ranks int) (list []*world.Message) {
	for _, n := range g.Nodes {
		if !n.Def().Is(ir.Collective) {
			continue
		}
		m := &world.Message{Name: n.Name(), DType: n.In[0].Type.DType, Wire: n.DT("msg"), Shift: int(n.Int("shift"))}
		if n.Str("op") == "max" {
			m.Op = world.Max
		}
		switch in, out := n.In[0].Type.Bytes(), n.Out[0].Type.Bytes(); {
		case out > in: // an all_gather
			m.Op, m.DType, m.Wire = world.Gather, ir.U8, ir.F32
		case out < in: // a reduce_scatter
			m.Scatter = true
		}
		for i, v := range n.In {
			in, out := v.Type.Bytes(), n.Out[i].Type.Bytes()
			if m.Scatter {
				in = out * int64(ranks)
			}
			x := make([]byte, in)
			y := x // as in a step, where sums lie in place of what is added
			if out != in {
				y = make([]byte, out)
			}
			m.In, m.Out = append(m.In, x), append(m.Out, y)
		}
		list = append(list, m)
	}
	return list
}
