package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
	"ampc/runtime"
)

// trainFlags are the flags of train; advise shares most of them.
type trainFlags struct {
	policy, scaler string
	text, data     []string
	heldOut        string
	steps, micro   int
	seed           int64
	initScale      float64
	growthEvery    int64
	rate           float64
	resume, out    string
	saveBad        string
	device         string
	quiet          bool
}

func (f *trainFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.text, "text", nil, "train on these text files or directories (default: the Go source of your toolchain)")
	fl.StringSliceVar(&f.data, "data", nil, "train on labelled images: CSV (pixels, then class) or IDX, gzipped or not")
	fl.StringVar(&f.heldOut, "held-out", "", "images to test on (default: every tenth of the training file)")
	fl.IntVar(&f.steps, "steps", 0, "steps in all (default: what takes about two minutes)")
	fl.IntVar(&f.micro, "micro", 1, "micro-batches per step")
	fl.Int64Var(&f.seed, "seed", 1, "of initial weights, dropout and batches")
	fl.Float64Var(&f.initScale, "init-scale", 0, "loss scale at start (default: 65536)")
	fl.Int64Var(&f.growthEvery, "growth-every", 0, "clean steps before the loss scale doubles (default: 2000)")
	fl.StringVar(&f.scaler, "scaler", "", "loss scaling: none, dynamic, torch, apex, deepspeed, oneflow, keras, paddle, or a power of two")
	fl.Float64Var(&f.rate, "lr", 0, "peak learning rate (default: the model's)")
}

func trainCommand() *cobra.Command {
	var f trainFlags
	c := command("train [MODEL]", "train on text or labelled images", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		return train(c, append(args, "")[0], &f)
	})
	c.Long = "Trains a zoo model on real data and writes a checkpoint, the annotated IR and the loss and scale curves.\n\n" + zooList()
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "mixed-f16", "a policy by name, or a policy file")
	fl.StringVar(&f.device, "device", "cpu", deviceHelp)
	fl.StringVar(&f.resume, "resume", "", "go on from this checkpoint")
	fl.StringVar(&f.out, "out", "out", "directory for checkpoint.safetensors, step.ir and curves.svg")
	fl.StringVar(&f.saveBad, "save-bad", "", "write the step that training is stuck at to this file, which ampc doctor replays")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

// trainer is one training run.
type trainer struct {
	task
	flags  *trainFlags
	model  *ampc.Model
	step   *ampc.Step
	eval   *ampc.Step
	report *castReport
	curves curves

	scaler ampc.Scaler
	recent recent

	heldEvery      int       // steps between evaluations for the curves; 0: none
	position       int64     // batches drawn, steps times micro-batches
	errs           io.Writer // where a step that training is stuck at is explained; nil: nowhere
	bar            *progress
	done           int // steps made, those before a resume included
	skipped        int
	skippedAtStart int // before the first step that was taken
	grown          int // times the scale doubled
	backed         int // times it was halved
	scale          float64
	took           time.Duration
	made           int // steps of this process
}

func train(c *cobra.Command, spec string, f *trainFlags) error {
	return onDevice(f.device, func(b runtime.Backend) error { return trainOn(c, spec, f, b) })
}

func trainOn(c *cobra.Command, spec string, f *trainFlags, device runtime.Backend) error {
	t, err := newTrainer(spec, f, device)
	if err != nil {
		return err
	}
	defer t.model.Close()
	t.errs = c.ErrOrStderr()
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return file.Error(f.out, err)
	}
	if err := writable(f.saveBad, filepath.Join(f.out, checkpointFile), filepath.Join(f.out, graphFile), filepath.Join(f.out, curvesFile)); err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "%s on %s, policy %s, %d parameters\n", t.spec, t.source, f.policy, t.parameters())
	if f.resume != "" {
		if err := t.load(f.resume); err != nil {
			return err
		}
		if was := t.model.Meta("spec"); was != t.spec {
			fmt.Fprintf(c.ErrOrStderr(), "warning: the checkpoint was written by %s\n", was)
		}
		for _, w := range t.model.Warnings() {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
		}
		fmt.Fprintf(out, "resumed after step %d\n", t.done)
	}
	if t.done >= f.steps {
		return fmt.Errorf("%s: %d steps are done already: give more with --steps", f.resume, t.done)
	}
	t.heldEvery = max(f.steps/10, 1)
	before := t.done
	ctx, unwatch := untilClosed(c.Context())
	defer unwatch()
	defer hold(ctx)()
	t.bar = newProgress(c.ErrOrStderr(), f.quiet, t.done, f.steps)
	err = t.run(ctx)
	t.bar.close()
	interrupted := interruption(ctx, err)
	if err != nil && interrupted == nil {
		if t.done > before && t.save() == nil { // what was learned until then
			fmt.Fprintf(c.ErrOrStderr(), "wrote step %d: %s\n", t.done, filepath.Join(f.out, checkpointFile))
		}
		return err
	}
	if interrupted != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%v after step %d: saving\n", interrupted, t.done)
	}
	if err := t.save(); err != nil {
		return err
	}
	if err := t.summary(ctx, out, interrupted != nil); err != nil {
		return err
	}
	return interrupted
}

// newTrainer opens the data, builds the model for it and compiles its steps.
func newTrainer(spec string, f *trainFlags, device runtime.Backend) (*trainer, error) {
	if f.steps < 0 {
		return nil, usagef("--steps %d: want 1 or more, or 0 for about two minutes", f.steps)
	}
	if f.micro < 1 {
		return nil, usagef("--micro %d: want 1 or more", f.micro)
	}
	job, err := newTask(spec, f)
	if err != nil {
		return nil, err
	}
	t := &trainer{task: job, flags: f, model: job.zoo.Model, report: &castReport{}, bar: newProgress(io.Discard, true, 0, f.steps)}
	c := job.zoo.Steps[0].Config
	if c.Policy, err = loadPolicy(f.policy); err != nil {
		return nil, err
	}
	if c.Scaler, err = f.lossScaling(c.Policy); err != nil {
		return nil, err
	}
	t.scaler = c.Scaler
	if f.steps == 0 {
		f.steps = job.steps
	}
	c.Optimizer, c.LR, c.Clip = job.optimizer(f)
	c.Groups = nil
	c.Micro, c.Seed, c.After, c.Backend = f.micro, f.seed, t.report.after, device
	if t.step, err = t.model.Train(c, job.zoo.Steps[0].Losses...); err != nil {
		return nil, err
	}
	t.report.program(t.step.Graph(), t.step.Program())
	results := []ampc.Tensor{job.zoo.Steps[0].Losses[0].Value}
	if n := job.zoo.Metrics["correct"]; n != nil {
		results = append(results, n)
	}
	t.eval, err = t.step.Eval(results, nil)
	return t, err
}

// lossScaling merges --scaler, --init-scale and --growth-every into what the
// policy wants.
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
	return s, nil
}

// run trains up to the wanted step or until ctx ends.
func (t *trainer) run(ctx context.Context) error {
	start := time.Now()
	for t.done < t.flags.steps {
		feeds := make([]ampc.Feed, t.flags.micro)
		for i := range feeds {
			feeds[i] = t.batch(t.position + int64(i))
		}
		r, err := t.step.Run(ctx, feeds...)
		if err != nil {
			return err
		}
		t.position += int64(len(feeds))
		t.done++
		t.made++
		t.record(r)
		t.took = time.Since(start)
		t.bar.show(status{t.done, r.Loss(), t.recent.meanText(), !r.Skipped(), t.scale, t.skipped, t.pace(), t.unit})
		if err := t.stuck(ctx, r); err != nil {
			return err
		}
		if t.heldEvery > 0 && t.done%t.heldEvery == 0 {
			loss, _, err := t.evaluate(ctx)
			if err != nil {
				return err
			}
			t.curves.points[len(t.curves.points)-1].held = loss
		}
	}
	return nil
}

// pace is how many tokens or images a second were trained on.
func (t *trainer) pace() float64 {
	if t.took == 0 {
		return 0
	}
	return float64(t.made*t.unitsPerBatch*t.flags.micro) / t.took.Seconds()
}

// record takes in what a step came to.
func (t *trainer) record(r ampc.Result) {
	loss, skipped, scale := r.Loss(), r.Skipped(), r.Scale()
	if t.scale != 0 && scale > t.scale {
		t.grown++
	} else if scale < t.scale {
		t.backed++
	}
	t.scale = scale
	t.recent.add(loss, scale, skipped)
	if skipped {
		t.skipped++
		if t.skippedAtStart == t.made-1 {
			t.skippedAtStart++
		}
	}
	if scale == 1 && !t.step.Scaled() {
		scale = 0 // nothing to draw
	}
	t.curves.add(point{t.done, loss, r.LR(), scale, skipped, math.NaN()})
}

// evaluate returns the mean held-out loss, and the accuracy where the task has one.
func (t *trainer) evaluate(ctx context.Context) (loss, accuracy float64, err error) {
	return t.heldOut(ctx, t.eval)
}

// What is written to the output directory.
const (
	checkpointFile = "checkpoint.safetensors"
	graphFile      = "step.ir"
	curvesFile     = "curves.svg"
	curvesLines    = "curves.jsonl" // the numbers behind the picture
	curvesTable    = "curves.csv"
)

// checkpoint writes the model and where its training stands.
func (t *trainer) checkpoint() error {
	meta := map[string]string{
		"spec": t.spec, "position": strconv.FormatInt(t.position, 10), "steps": strconv.Itoa(t.done),
		"skipped": strconv.Itoa(t.skipped), "seed": strconv.FormatInt(t.flags.seed, 10),
	}
	for k, v := range t.meta {
		meta[k] = v
	}
	for k, v := range meta {
		if err := t.model.SetMeta(k, v); err != nil {
			return err
		}
	}
	return t.model.SaveFile(filepath.Join(t.flags.out, checkpointFile))
}

// save writes all there is to keep.
func (t *trainer) save() error {
	if err := t.checkpoint(); err != nil {
		return err
	}
	t.curves.title = fmt.Sprintf("zoo:%s, %s", t.zoo.Name, t.flags.policy)
	if err := t.curves.flush(t.flags.out); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.flags.out, curvesFile), t.curves.svg()); err != nil {
		return err
	}
	return writeGraph(filepath.Join(t.flags.out, graphFile), t.step.Graph())
}

func (t *trainer) load(path string) error {
	if err := t.model.LoadFile(path); err != nil {
		return err
	}
	for _, f := range []struct {
		key string
		set func(int64)
	}{
		{"position", func(n int64) { t.position = n }},
		{"steps", func(n int64) { t.done = int(n) }},
		{"skipped", func(n int64) { t.skipped = int(n) }},
		{"seed", func(n int64) { t.reseed(n) }},
	} {
		n, err := strconv.ParseInt(t.model.Meta(f.key), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: not a checkpoint of ampc train: metadata %q is %q", path, f.key, t.model.Meta(f.key))
		}
		f.set(n)
	}
	return nil
}

func (t *trainer) parameters() (n int64) {
	for _, v := range t.step.Graph().Vars {
		if v.Kind == ir.Param {
			n += v.Type.Shape.Elements()
		}
	}
	return n
}
