package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/casts"
	"ampc/ir"
	"ampc/runtime"
)

// trainFlags are the flags of train; advise shares most of them.
type trainFlags struct {
	policy, scaler string
	text, data     []string
	heldOut        string
	losses, dims   []string // for a model file
	optimizer      string
	memory         string
	chunks         int
	steps, micro   int
	slices         int
	shard          bool
	syncNorms      bool
	message        string
	seed           int64
	initScale      float64
	growthEvery    int64
	rate           float64
	resume, out    string
	saveEvery      time.Duration
	saveBad        string
	device         string
	force, quiet   bool
	gradNorm       bool
	serve          string

	group *rankGroup // the ranks that train together; nil: one process

	// settings of a continued run:
	from       *origin // nil: a new run
	policyText string  // replaces policy
	newData    bool    // the command line names other data
	newScale   bool    // or another loss scaling
	newRate    bool    // or another learning rate
}

func (f *trainFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.text, "text", nil, "train on these text `FILES` or folders, separated by commas (default: the source of your Go toolchain)")
	fl.StringSliceVar(&f.data, "data", nil, "train on the records in these `FILES`: for a zoo model labelled images, CSV (pixels, then class) or IDX; for a model file also arrays of the inputs' names in .npz or .jsonl; gzipped or not")
	fl.StringArrayVar(&f.losses, "loss", nil, "of a model file, the `LOSS` to train: as --train of dump; a target that is no value of the model is an input of that name")
	fl.StringArrayVar(&f.dims, "dim", nil, dimHelp)
	fl.StringArray("shape", nil, shapeHelp)
	fl.StringVar(&f.optimizer, "optimizer", "", "of a model file, the optimizer `NAME`: sgd, adam or adamw (default)")
	fl.StringVar(&f.heldOut, "held-out", "", "text or images in this `FILE` to test on (default: the last tenth of the text, or every tenth image)")
	fl.IntVar(&f.steps, "steps", 0, "total number of steps, those before a resume included (default: as many as take about two minutes)")
	fl.IntVar(&f.micro, "micro", 1, microHelp)
	fl.BoolVar(&f.shard, "shard", false, "on several ranks: each keeps and updates a part of weights, moments and averages (ZeRO stage 1)")
	fl.BoolVar(&f.syncNorms, "sync-norms", false, "on several ranks, or with --slices: batch norms use the moments of the whole batch")
	fl.StringVar(&f.message, "message", "", "on several ranks: "+messageHelp)
	fl.IntVar(&f.slices, "slices", 0, "cut each batch into `N` slices, a power of two, that are added in one tree: the same bits for every number of ranks up to N (default: none)")
	fl.StringVar(&f.memory, "memory", "", memoryHelp)
	fl.IntVar(&f.chunks, "chunks", 0, chunksHelp)
	fl.Int64Var(&f.seed, "seed", 1, "seed of initial weights, dropout and batches")
	fl.Float64Var(&f.initScale, "init-scale", 0, "initial loss `SCALE` (default: 65536)")
	fl.Int64Var(&f.growthEvery, "growth-every", 0, "double the loss scale after `N` steps without overflow (default: 2000)")
	fl.StringVar(&f.scaler, "scaler", "", scalerHelp)
	fl.Float64Var(&f.rate, "lr", 0, "peak learning `RATE` (default: the model's own)")
}

const trainHelp = `Train a zoo model, or a model file (.ir, .onnx) on records whose fields are named as
its inputs. Of the zoo, language models train on text (--text), classifiers on labelled
images (--data); unet3d and convlstm train on scenes that are generated from the seed:
volumes to segment, videos to continue.

The run writes to a folder: its last two checkpoints, one every few minutes; the
annotated IR; the curves of loss and loss scale as an image; and the numbers of each
step as CSV, JSON lines and events for TensorBoard. The folder is --out, which must not
hold a run, or else the first of out, out-2, out-3, ... that holds none.

--resume continues a run from its last checkpoint. Model, policy, data and seed are
those of the run. Other flags change their setting from there on; --seed and another
MODEL are refused. --steps also moves the end of the learning rate's schedule.

Ctrl-C saves and stops the run; a second Ctrl-C stops it without saving. A run stops
by itself when 25 steps in a row, or 180 of the last 200, were skipped or not finite,
unless the loss scale is still searching for its value.

`

func trainCommand() *cobra.Command {
	var f trainFlags
	c := command("train [MODEL]", "Train a zoo model on text, labelled images or generated scenes, or a model file on records", cobra.MaximumNArgs(2), func(c *cobra.Command, args []string) error {
		spec, err := f.arguments(args)
		if err != nil {
			return err
		}
		f.device = ownDevice(f.device, c.Flags().Changed("device"))
		return onDevice(f.device, func(b runtime.Backend) error { return train(c, spec, &f, b) })
	})
	c.Long = trainHelp + zooList()
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "mixed-f16", policyHelp)
	fl.StringVar(&f.device, "device", "cpu", deviceHelp)
	fl.StringVar(&f.resume, "resume", "", "continue the run in this `FOLDER` or checkpoint; without a value: the run in --out, or the newest one here")
	fl.Lookup("resume").NoOptDefVal = resumeNewest
	fl.StringVar(&f.out, "out", "", "`FOLDER` to write to (default: out; if that holds a run, the first free one of out-2, out-3, ...)")
	fl.BoolVar(&f.force, "force", false, "overwrite the run that --out holds")
	fl.DurationVar(&f.saveEvery, "save-every", 5*time.Minute, "`TIME` between checkpoints; 0: save at the end only")
	fl.StringVar(&f.saveBad, "save-bad", "", "if training gets stuck, write its last step to this `FILE`, which ampc doctor replays")
	fl.StringVar(&f.serve, "serve", "", "show the run in a browser while it goes on, at this `ADDRESS`; :0 is a free port of the loopback address")
	fl.BoolVar(&f.gradNorm, "grad-norm", false, "also log the norm of the gradients where nothing clips by it: a further pass over them in each step")
	fl.BoolVar(&f.quiet, "quiet", false, "print no progress")
	return c
}

// arguments separates the MODEL from the argument of --resume, which may follow as a separate word.
func (f *trainFlags) arguments(args []string) (spec string, err error) {
	for _, a := range args {
		switch {
		case f.resume == resumeNewest && !strings.HasPrefix(a, "zoo:") && !isModelFile(a):
			f.resume = a
		case spec == "":
			spec = a
		default:
			return "", usagef("want [MODEL], got %q", args)
		}
	}
	if f.saveEvery < 0 {
		return "", usagef("--save-every %v: want a time, or 0 for the end alone", f.saveEvery)
	}
	return spec, nil
}

// isModelFile reports whether a file name is that of a model.
func isModelFile(name string) bool {
	return strings.HasSuffix(name, ".ir") || strings.HasSuffix(name, ".onnx")
}

// trainer is one training run.
type trainer struct {
	task
	flags  *trainFlags
	step   *ampc.Step
	eval   *ampc.Step
	report *casts.Report
	curves curves

	policy ampc.Policy
	scaler ampc.Scaler
	recent recent
	live   *livePage // nil: no page shows the run
	saver  *saver    // nil: nothing is saved
	notes  []string  // message about a continued run

	shards  string // the folder for shards; "": nothing is saved in shards
	saved   int    // the last step that was saved in shards
	unsaved error  // of saving the last step in shards

	explained bool // whether the annotated IR has been written

	evalEvery      int       // steps between evaluations for the curves; 0: none
	position       int64     // batches drawn: steps times micro-batches
	errs           io.Writer // writer for the explanation if training makes no progress; nil: none
	bar            *progress
	done, started  int // steps made, including those before a resume; steps of this process
	skipped        int
	skippedAtStart int // skipped steps before the first step that was taken
	grown          int // number of times that the scale doubled
	backed         int // number of times that the scale was halved
	scale          float64
	took           time.Duration
}

func train(c *cobra.Command, spec string, f *trainFlags, device runtime.Backend) error {
	if err := checkWritable(f.saveBad); err != nil {
		return err
	}
	group, err := joinRanks(device)
	if err != nil {
		return err
	}
	if f.group = group; group == nil {
		return trainOn(c, spec, f, device)
	}
	fmt.Fprintf(group.out(c.OutOrStdout()), "%d ranks on %s\n", group.Size(), group.Engine())
	if device == nil {
		if device, err = group.backend(c.ErrOrStderr()); err != nil {
			return err
		}
		defer device.Close()
	}
	if err = trainOn(c, spec, f, device); err == nil {
		err = group.Close()
	}
	return err
}

// trainOn trains on a device, as one of the ranks of f.group.
func trainOn(c *cobra.Command, spec string, f *trainFlags, device runtime.Backend) error {
	dir, spec, err := f.group.place(f, spec, c.Flags().Changed)
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.release()
	}
	t, err := newTrainer(c, spec, f, device)
	if err := f.group.agree(err); err != nil {
		return err
	}
	defer t.model.Close()
	t.errs = c.ErrOrStderr()
	if dir != nil {
		t.saveTo(dir)
		defer t.curves.logs.close()
	}
	if err := t.placeShards(); err != nil {
		return err
	}
	out := f.group.out(c.OutOrStdout())
	if err := f.group.agree(t.begin(out)); err != nil {
		return err
	}
	t.curves.ranges = f.serve != ""
	if f.serve != "" && f.group.isRoot() {
		if err := t.serveRun(c.Context(), f.serve, out); err != nil {
			return err
		}
		defer t.live.close()
	}
	t.evalEvery = max(f.steps/10, 1)
	ctx, stopWatching := untilClosed(c.Context())
	defer stopWatching()
	defer delayExit(ctx)()
	t.bar = newProgress(t.errs, f.quiet || !f.group.isRoot(), t.done, f.steps)
	err = t.run(ctx)
	t.bar.close()
	if lost := t.saveLast(ctx); lost != nil {
		if err == nil {
			err = lost
		}
		return err
	}
	if t.saver == nil {
		return err
	}
	return t.finish(ctx, out, err)
}

// begin prints the model and its data, and restores the state of a run that continues.
func (t *trainer) begin(out io.Writer) error {
	f := t.flags
	if err := f.group.agree(t.sameData()); err != nil {
		return err
	}
	if t.saver != nil {
		fmt.Fprintf(out, "%s on %s, policy %s, %d parameters, saved to %s\n", t.spec, t.source, f.policy, t.parameters(), t.saver.dir)
	}
	if f.from != nil {
		if err := t.load(); err != nil {
			return err
		}
		if f.from.note != "" {
			t.notes = append(t.notes, f.from.note)
		}
		for _, w := range append(t.notes, t.model.Warnings()...) {
			fmt.Fprintln(t.errs, "warning:", w)
		}
		fmt.Fprintf(out, "resumed after step %d of %s\n", t.done, f.from.path)
		if t.done >= f.steps {
			return fmt.Errorf("%s: %d steps are done already: give more with --steps", f.from.path, t.done)
		}
	}
	t.started = t.done
	if t.saver == nil {
		return nil
	}
	if t.saver.mine {
		t.saver.step = t.done
		if len(eventFiles(t.saver.dir)) > 0 {
			t.curves.logs = logsIn(t.saver.dir, len(t.curves.points))
		}
	}
	return t.saver.makeSpace(2 * t.report.State) // the checkpoint and the previous one
}

// finish saves the weights, prints a summary and returns the reason why the run ended.
func (t *trainer) finish(ctx context.Context, out io.Writer, ended error) error {
	interrupted := interruption(ctx, ended)
	if t.done == t.started {
		return ended
	}
	if interrupted != nil {
		unsaved := t.done - max(t.saver.step, t.started)
		t.bar.note("%v after step %d: saving to %s; a second Ctrl-C would lose %s", interrupted, t.done, t.saver.dir, count(unsaved, "step"))
	}
	err := t.save(ctx)
	if ended != nil && interrupted == nil { // the command's own error says more
		if err != nil {
			t.bar.note("%v", err)
		} else {
			t.bar.note("wrote step %d: %s", t.done, filepath.Join(t.saver.dir, checkpointFile))
		}
		return ended
	}
	if err != nil {
		return err
	}
	err = t.summary(ctx, out, interrupted != nil)
	if interrupted == nil {
		return cmp.Or(interruption(ctx, err), err)
	}
	t.bar.note("continue with: ampc train --resume=%s", t.saver.dir)
	return interrupted
}

// count formats a number with its noun.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// newTrainer opens the data, builds the model for it and compiles its steps.
func newTrainer(c *cobra.Command, spec string, f *trainFlags, device runtime.Backend) (*trainer, error) {
	if f.steps < 0 {
		return nil, usagef("--steps %d: want 1 or more, or 0 for about two minutes", f.steps)
	}
	if f.micro < 1 {
		return nil, usagef("--micro %d: want 1 or more", f.micro)
	}
	switch {
	case f.slices < 0:
		return nil, usagef("--slices %d: want a power of two, or 0 for none", f.slices)
	case f.slices > 0 && f.micro > 1:
		return nil, usagef("--micro %d: --slices cuts the batch into micro-batches: leave --micro out", f.micro)
	case f.slices > 0 && isModelFile(spec):
		return nil, usagef("--slices %d: zoo models alone are trained in slices", f.slices)
	case f.slices > 0 && f.shard:
		return nil, usagef("--slices %d and --shard: what each rank has depends on the number of ranks: leave one out", f.slices)
	}
	if err := ir.AtLeast0.Check("--lr", f.rate); err != nil {
		return nil, usageError{err}
	}
	policy, err := f.loadPolicy()
	if err != nil {
		return nil, err
	}
	scaler, err := f.lossScaling(policy)
	if err != nil {
		return nil, err
	}
	message, err := parseMessage(f.message)
	if err != nil {
		return nil, err
	}
	job, err := newTask(c, spec, f)
	if err != nil {
		return nil, err
	}
	t := &trainer{task: job, flags: f, policy: policy, scaler: scaler, report: &casts.Report{}, bar: newProgress(io.Discard, true, 0, f.steps)}
	t.curves.title, t.curves.unit = fmt.Sprintf("%s, %s", job.name, f.policy), job.unit
	config := job.config
	config.Policy, config.Scaler = policy, scaler
	if f.steps == 0 {
		f.steps = job.steps
	}
	config.Optimizer, config.LR, config.Clip = job.optimizer(f)
	config.Groups = nil
	if config.Memory, err = parseMemory(f.memory); err != nil {
		return nil, err
	}
	config.Chunks = f.chunks
	config.GradNorm = config.GradNorm || f.gradNorm || f.serve != ""
	config.Micro = f.micro
	if f.group != nil {
		config.Parallel = ampc.DataParallel(f.group)
		config.Parallel.Shard, config.Parallel.Message = f.shard, message
	}
	config.Parallel.SyncNorms = f.syncNorms
	if config.Parallel.Slices = f.slices; f.slices > 0 {
		config.Micro = 0
	}
	config.Compile.After = func(e ampc.PassEvent) { t.report.After(e.Counters, e.Notes) }
	if err := t.model.Set(ampc.Seed(f.seed), ampc.On(device), ampc.Fed(f.micro+batchesAhead)); err != nil {
		return nil, err
	}
	if t.step, err = t.model.Train(config, job.losses...); err != nil {
		return nil, namingFlags(err)
	}
	limitHeap()
	t.report.Program(t.step.Graph(), t.step.Program())
	results := []ampc.Tensor{job.losses[0].Value}
	if n := job.correct; !n.Absent() {
		results = append(results, n)
	}
	t.eval, err = t.step.Eval(results...)
	return t, err
}

// batchesAhead is how many batches train has in memory beside those of a step: what its loader makes
// before it is asked, and what it is making.
const batchesAhead = 3

// lossScaling merges --scaler, --init-scale and --growth-every with the policy's default.
func (f *trainFlags) lossScaling(p ampc.Policy) (ampc.Scaler, error) {
	s := p.Scaler
	if f.scaler != "" {
		var err error
		if s, err = parseScaler(f.scaler); err != nil {
			return s, err
		}
	}
	if f.initScale == 0 && f.growthEvery == 0 {
		return s, nil
	}
	if s == (ampc.Scaler{}) {
		s = ampc.Dynamic()
	}
	if f.initScale != 0 {
		s.Init = f.initScale
	}
	if f.growthEvery != 0 {
		s.Every = f.growthEvery
	}
	if err := s.Check(); err != nil {
		return s, usagef("--init-scale or --growth-every: %w", err)
	}
	return s, nil
}

// run trains up to the requested step or until ctx ends.
func (t *trainer) run(ctx context.Context) error {
	start := time.Now()
	group := t.flags.group
	for t.done < t.flags.steps {
		if err := group.stopped(ctx); err != nil {
			return err
		}
		feeds, err := t.feeds(t.position)
		if err != nil {
			return err
		}
		worst, stopWatching := t.watch()
		r, err := t.step.Run(group.stepContext(ctx), feeds...)
		stopWatching()
		if err != nil {
			return err
		}
		t.position += int64(t.flags.micro)
		if t.done++; t.done == t.started+1 {
			limitHeap() // kernels have their memory now
		}
		got, err := r.Wait(group.stepContext(ctx))
		if err != nil {
			return err
		}
		t.took = time.Since(start)
		t.record(got, *worst)
		t.bar.show(status{t.done, got.Loss, t.recent.meanText(), !got.Skipped, t.scale, t.skipped, t.throughput(), t.unit})
		if err := t.stuck(ctx); err != nil {
			return err
		}
		if t.evalEvery > 0 && t.done%t.evalEvery == 0 {
			loss, _, err := t.evaluate(group.stepContext(ctx))
			if err != nil {
				return err
			}
			t.curves.points[len(t.curves.points)-1].heldOut = loss
		}
		if err := t.showLive(); err != nil {
			return err
		}
		if t.done < t.flags.steps && (t.saver != nil || t.sharded()) {
			t.saveDue()
		}
	}
	return nil
}

// throughput returns the number of tokens or images per second.
func (t *trainer) throughput() float64 {
	if t.took == 0 {
		return 0
	}
	return float64((t.done-t.started)*t.unitsPerBatch*t.flags.micro) / t.took.Seconds()
}

// recordScale records a change of the loss scale.
func (t *trainer) recordScale(scale float64) {
	if t.scale != 0 && scale > t.scale {
		t.grown++
	} else if scale < t.scale {
		t.backed++
	}
	t.scale = scale
}

// record records the result of a step.
func (t *trainer) record(r ampc.Metrics, worst worstRanges) {
	loss, skipped, scale := r.Loss, r.Skipped, r.Scale
	t.recordScale(scale)
	t.recent.add(loss, scale, skipped)
	if skipped {
		t.skipped++
		if t.skippedAtStart == t.done-t.started-1 {
			t.skippedAtStart++
		}
	}
	if scale == 1 && !t.step.Scaled() {
		scale = 0 // there is nothing to draw
	}
	p := point{step: t.done, time: time.Now(), loss: loss, rate: r.LR, scale: scale, skipped: skipped, heldOut: math.NaN(), norm: math.NaN(), pace: t.throughput(), worst: worst}
	if t.epoch > 0 {
		p.epoch = int((t.position - 1) / t.epoch)
	}
	if norm, err := r.GradNorm(); err == nil {
		p.norm = norm
	}
	if t.done == t.started+1 {
		for _, n := range t.step.Program().Arenas {
			p.memory += n
		}
	}
	t.curves.add(p)
}

// evaluate returns the mean held-out loss, and the accuracy if the task has one.
func (t *trainer) evaluate(ctx context.Context) (loss, accuracy float64, err error) {
	return t.heldOut(ctx, t.eval)
}

func (t *trainer) parameters() (n int64) {
	for _, v := range t.step.Graph().Vars {
		of := v
		if v.PartOf() != "" {
			of = t.model.Graph().Var(v.PartOf()) // nil of what the optimizer keeps
		}
		if of != nil && of.Kind == ir.Param {
			n += of.Type.Shape.Elements()
		}
	}
	return n
}
