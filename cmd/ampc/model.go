package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/passes/ranges"
	"ampc/runtime/cpu"
)

// openedModel is a MODEL argument: a model with its settings for training.
type openedModel struct {
	ctx    context.Context // context of the command
	spec   string
	model  *ampc.Model
	zoo    *models.Zoo // nil for files
	losses []ampc.Loss // empty if the file names none
	config ampc.TrainConfig
	ranges ranges.Options // ranges of config, in the form that passes take
	sized  bool           // sizes were bound when the model was read: an ONNX model
	infer  bool           // without losses
	ranks  int            // name of the step that the command works on
	// compiled reports whether a file holds a graph that has gone through passes.
	compiled bool
	batch    int64          // replaces the inputs' first size, a number; 0: as written
	targets  bool           // a loss may name a target that the model does not have; it becomes an input
	classes  [2]ampc.Tensor // logits and labels of a cross entropy given by --loss
}

// modelFlags are the flags of every command that compiles a MODEL.
type modelFlags struct {
	policy       string
	memory       string
	algorithm    string // replaces the policy's algorithm; set by plan
	losses       []string
	optimizer    string
	micro        int
	weightCopies bool
	chunks       int
	pad          bool
	step         string
	infer        bool
	ranks        int
	shard        bool
	syncNorms    bool
	slices       int
	message      string
	scale        string
	disable      []string
	set          []string
	dims         []string
	shapes       []string
	guard        float64
	inputs       []string
	arrays       []string
	fed          bool // the command feeds arrays to any model
	record       int
	batch        int64 // of a file's inputs; set by plan --fit. 0: as written
}

func (f *modelFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "mixed-f16", policyHelp)
	fl.StringArrayVar(&f.losses, "train", nil, "`LOSS` to train: the name of a scalar value, ce:LOGITS,LABELS (cross entropy) or mse:VALUE,TARGET (mean squared error); 0.5*LOSS weights it; repeat the flag to train the sum of several")
	fl.StringVar(&f.optimizer, "optimizer", "", "optimizer `NAME`: sgd, adam or adamw (default: the zoo model's own; adamw for a file)")
	fl.StringVar(&f.memory, "memory", "", memoryHelp)
	fl.IntVar(&f.micro, "micro", 1, microHelp)
	fl.IntVar(&f.chunks, "chunks", 0, chunksHelp)
	fl.BoolVar(&f.weightCopies, "weight-copies", false, "let the update write the 16-bit copies of weights, instead of casting them at the start of the next step")
	fl.BoolVar(&f.pad, "pad", false, "pad matrix products with zeros to the size multiples that tensor cores need")
	fl.StringVar(&f.step, "step", "", "`NAME` of the training step, for a model that has several, such as zoo:gan")
	fl.BoolVar(&f.infer, "infer", false, "compile the forward pass only, without backward and update")
	fl.BoolVar(&f.shard, "shard", false, "with --ranks: each rank keeps a part of weights, moments and averages (ZeRO stage 1)")
	fl.StringVar(&f.message, "message", "", "with --ranks: "+messageHelp)
	fl.BoolVar(&f.syncNorms, "sync-norms", false, "with --ranks or --slices: batch norms use the moments of all rows")
	fl.IntVar(&f.slices, "slices", 0, "compile the step of `N` slices, a power of two, that are added in one tree; the model's batch is that of one slice (default: none)")
	fl.IntVar(&f.ranks, "ranks", 1, "compile the step of one of `N` ranks, each of which has the model's batch")
	fl.StringVar(&f.scale, "scaler", "", scalerHelp)
	fl.StringArrayVar(&f.set, "set", nil, setHelp)
	fl.StringSliceVar(&f.disable, "disable", nil, "leave out these optional `PASSES`, separated by commas; ampc passes lists them")
	fl.Float64Var(&f.guard, "guard", 0, "keep a value in f32 where `FACTOR` times its largest magnitude exceeds the largest 16-bit number; --range and --record give magnitudes")
	fl.StringArrayVar(&f.inputs, "range", nil, "range of a float input, as `INPUT=LO..HI` (default: unknown); may be repeated")
	fl.IntVar(&f.record, "record", 0, "first evaluate `N` steps on random inputs, and use the ranges of values that occur")
	fl.StringArrayVar(&f.dims, "dim", nil, dimHelp)
	fl.StringArrayVar(&f.shapes, "shape", nil, shapeHelp)
	fl.StringArrayVar(&f.arrays, "input", nil, arraysHelp)
}

// open reads a MODEL argument.
func open(c *cobra.Command, spec string) (*openedModel, error) {
	if name, ok := strings.CutPrefix(spec, "zoo:"); ok {
		z, err := models.Open(name)
		if err != nil {
			return nil, err
		}
		return &openedModel{ctx: c.Context(), spec: spec, model: z.Model, zoo: z, losses: z.Steps[0].Losses, config: z.Steps[0].Config}, nil
	}
	if spec == "" {
		return nil, usagef("the MODEL is empty")
	}
	if strings.HasSuffix(spec, ".onnx") {
		return openONNX(c, spec)
	}
	name, src, err := readSource(c, spec)
	if err != nil {
		return nil, err
	}
	g, err := ir.ParseOpaque(name, src)
	if err != nil {
		return nil, err
	}
	o := &openedModel{ctx: c.Context(), spec: spec, config: ampc.TrainConfig{Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-3)}}
	for s, n := range g.Nodes {
		o.compiled = o.compiled || s != ir.Forward || n.Why.Cluster != 0
	}
	stage := ir.Source
	if o.compiled {
		stage = ir.Training
	}
	if err := ir.Verify(g, stage); err != nil {
		return nil, err
	}
	for _, v := range g.Vars {
		if v.Kind != ir.Const && v.Type.Shape.Elements() == 0 {
			return nil, &ir.Error{Pos: v.Pos, Msg: fmt.Sprintf("%s %s is %s: want no dimension of 0", v.Kind, v, g.TypeString(v.Type))}
		}
	}
	o.model = ampc.FromGraph(g)
	for _, v := range g.Return {
		if v.Type == ir.T(ir.F32) && !o.compiled {
			o.losses = []ampc.Loss{{Value: o.model.FromIR(v)}}
			break
		}
	}
	return o, nil
}

// opened reads a model for a command that runs a step of it; takes says what the command wants instead
// of a compiled graph.
func opened(c *cobra.Command, spec string, f *modelFlags, takes string) (*openedModel, error) {
	o, err := open(c, spec)
	if err != nil {
		return nil, err
	}
	if o.compiled {
		return nil, fmt.Errorf("%s: is compiled already; %s", spec, takes)
	}
	if err := o.apply(f); err != nil {
		return nil, err
	}
	return o, o.whole()
}

func readSource(c *cobra.Command, spec string) (name string, src []byte, err error) {
	if spec == "-" {
		src, err = io.ReadAll(c.InOrStdin())
		return "stdin", src, err
	}
	src, err = file.Read(spec)
	if err != nil {
		return "", nil, missing(spec, err)
	}
	return spec, src, nil
}

// apply merges the flags into the model's configuration.
func (o *openedModel) apply(f *modelFlags) error {
	if len(f.arrays) > 0 && !f.fed && !strings.HasSuffix(o.spec, ".onnx") {
		return usagef("%s: --input is for an ONNX model, whose sizes it gives", o.spec)
	}
	if f.step != "" {
		if err := o.choose(f.step); err != nil {
			return err
		}
	}
	p, err := loadPolicy(f.policy, f.set...)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if o.config.Memory, err = parseMemory(f.memory); err != nil {
		return err
	}
	p = withAlgorithm(p, f.algorithm)
	o.config.Policy, o.config.Micro, o.ranks = p, f.micro, f.ranks
	o.config.Parallel.Shard, o.config.Chunks = f.shard, f.chunks
	o.config.Parallel.SyncNorms, o.config.Parallel.Slices = f.syncNorms, f.slices
	switch {
	case f.slices < 0:
		return usagef("--slices %d: want a power of two, or 0 for none", f.slices)
	case f.slices > 0 && f.micro > 1:
		return usagef("--micro %d: slices are the micro-batches: leave --micro out", f.micro)
	case f.slices > 0:
		o.config.Micro = max(f.slices/max(f.ranks, 1), 1)
	}
	if o.config.Parallel.Message, err = parseMessage(f.message); err != nil {
		return err
	}
	o.config.Compile = ampc.CompileOptions{Pad: f.pad, WeightCopies: f.weightCopies, Disable: f.disable}
	if f.scale != "" {
		if o.config.Scaler, err = parseScaler(f.scale); err != nil {
			return err
		}
	}
	if err := o.train(f.losses, f.optimizer); err != nil {
		return err
	}
	if o.infer = f.infer; f.infer {
		o.losses = nil
	}
	if len(o.losses) == 0 {
		o.config.Micro = 1 // inference has no optimizer
	}
	if !o.sized {
		if o.config.Sizes, err = parseDims(f.dims); err != nil {
			return err
		}
	}
	if name := ampc.Dim(o.model.Graph().BatchDim()); name != "" && f.batch > 0 {
		sizes := ampc.Sizes{name: f.batch}
		for dim, n := range o.config.Sizes {
			if dim != name {
				sizes[dim] = n
			}
		}
		o.config.Sizes = sizes
	} else {
		o.batch = f.batch
	}
	if f.guard != 0 {
		o.config.Policy.Guard = f.guard
	}
	return o.calibrate(f)
}

// train sets losses and an optimizer from flags. Without flags the model's own apply.
func (o *openedModel) train(losses []string, optimizer string) error {
	if len(losses) > 0 {
		o.losses = nil
	}
	for _, spec := range losses {
		l, err := o.loss(spec)
		if err != nil {
			return err
		}
		o.losses = append(o.losses, l)
	}
	if optimizer == "" {
		return nil
	}
	return o.optimize(optimizer)
}

// check validates the flags that do not depend on a model.
func (f *modelFlags) check() error {
	switch {
	case f.micro < 1 || f.micro > models.MaxOption:
		return usagef("--micro %d: want 1 to %d", f.micro, models.MaxOption)
	case f.record < 0:
		return usagef("--record %d: want 0 or more steps", f.record)
	case f.guard != 0 && !(f.guard >= 1 && ir.AnyFinite.Holds(f.guard)):
		return usagef("--guard %g: want a finite factor, 1 or more, or 0 for none", f.guard)
	}
	return checkPasses("--disable", f.disable...)
}

// checkPasses rejects unknown names of passes.
func checkPasses(flag string, names ...string) error {
	for _, name := range names {
		if !slices.ContainsFunc(passes.Pipeline(), func(p passes.Pass) bool { return p.Name == name }) {
			return usagef("%s %s: no such pass; ampc passes lists them", flag, name)
		}
	}
	return nil
}

// calibrate measures what passes and reports may assume: the ranges of inputs and, with --record,
// the ranges of all values in steps of the f32 model.
func (o *openedModel) calibrate(f *modelFlags) error {
	inputs, err := parseRanges(o.model.Graph(), f.inputs)
	if err != nil {
		return err
	}
	o.ranges = ranges.Options{Inputs: inputs}
	if f.record > 0 {
		if o.ranges.Recorded, err = o.recorded(inputs, f.record); err != nil {
			return err
		}
	}
	o.config.Compile.Ranges = assumed(o.ranges)
	return nil
}

// assumed converts ranges to the form that a configuration takes.
func assumed(r ranges.Options) ampc.Ranges {
	out := ampc.Ranges{Inputs: map[string]ampc.Interval{}, Growth: r.Growth}
	for name, i := range r.Inputs {
		out.Inputs[name] = ampc.Interval(i)
	}
	if r.Recorded != nil {
		out.Recorded = map[string]ampc.Recorded{}
	}
	for name, x := range r.Recorded {
		out.Recorded[name] = ampc.Recorded(x)
	}
	return out
}

// recorded measures the ranges of values in some steps in f32, with loss scales as configured.
func (o *openedModel) recorded(inputs map[string]ir.Interval, steps int) (map[string]ranges.Recorded, error) {
	g := o.model.Graph()
	if !o.compiled {
		var err error
		if g, err = o.compile((*passes.Config).Widen); err != nil {
			return nil, err
		}
	}
	rec, err := recordRanges(o.ctx, g, inputs, steps)
	if err != nil {
		return nil, err
	}
	return rec.Ranges(), nil
}

func (o *openedModel) choose(step string) error {
	if o.zoo == nil {
		return fmt.Errorf("%s: a file has one step, --step chooses among those of a zoo model", o.spec)
	}
	var names []string
	for _, s := range o.zoo.Steps {
		if s.Name == step {
			o.losses, o.config = s.Losses, s.Config
			return nil
		}
		names = append(names, s.Name)
	}
	return fmt.Errorf("%s: no step %q; it has %s", o.spec, step, strings.Join(names, ", "))
}

func (o *openedModel) optimize(name string) error {
	opt := map[string]ampc.Optimizer{"sgd": ampc.SGD(0.9), "adam": ampc.Adam(), "adamw": ampc.AdamW(0.01)}
	chosen, ok := opt[name]
	if !ok {
		return usagef("--optimizer %s: want sgd, adam or adamw", name)
	}
	o.config.Optimizer = chosen
	for i := range o.config.Groups {
		o.config.Groups[i].Optimizer = chosen
	}
	return nil
}

// loss finds or builds the loss that --train names, with its weight.
func (o *openedModel) loss(spec string) (ampc.Loss, error) {
	l := ampc.Loss{}
	what := spec
	if weight, rest, weighed := strings.Cut(spec, "*"); weighed {
		x, err := strconv.ParseFloat(weight, 64)
		if err != nil || x == 0 || !ir.AnyFinite.Holds(x) {
			return l, usagef(o.lossFlag()+" %s: want WEIGHT*LOSS with a finite weight that is not 0", spec)
		}
		l.Weight, what = x, rest
	}
	kind, list, made := strings.Cut(what, ":")
	if !made {
		l.Value = o.model.Lookup(strings.TrimPrefix(what, "%"))
		if l.Value.Absent() {
			return l, fmt.Errorf("%s: no value %s to train%s", o.spec, what, candidates(o.model.Graph()))
		}
		return l, nil
	}
	names := strings.Split(list, ",")
	if len(names) != 2 {
		return l, usagef(o.lossFlag()+" %s: want %s:VALUE,TARGET", spec, kind)
	}
	var x [2]ampc.Tensor
	for i, n := range names {
		x[i] = o.model.Lookup(strings.TrimPrefix(n, "%"))
		if x[i].Absent() && i == 1 && o.targets {
			x[i] = o.target(kind, n, x[0])
		}
		if x[i].Absent() {
			return l, fmt.Errorf("%s: no value %s", o.spec, n)
		}
	}
	b := o.model.Named("loss")
	switch kind {
	case "ce":
		l.Value, o.classes = b.CrossEntropy(x[0], x[1]), x
	case "mse":
		l.Value = b.MSE(x[0], x[1])
	default:
		return l, usagef(o.lossFlag()+" %s: no loss %q; there are ce and mse", spec, kind)
	}
	var wrong *ir.Error
	if errors.As(o.model.Err(), &wrong) { // its position is a line of this program; the flag's name is clearer
		return l, fmt.Errorf("%s %s: %s", o.lossFlag(), spec, wrong.Msg)
	}
	return l, nil
}

// lossFlag returns the name of the flag that gives losses.
func (o *openedModel) lossFlag() string {
	if o.targets {
		return "--loss"
	}
	return "--train"
}

// target declares the input with which a loss compares a value.
func (o *openedModel) target(kind, name string, value ampc.Tensor) ampc.Tensor {
	t := value.IR().Type
	if kind == "ce" {
		dims := t.Shape.Dims()
		if len(dims) == 0 {
			return ampc.Tensor{}
		}
		t = ir.Type{DType: ir.I32, Shape: ir.MakeShape(dims[:len(dims)-1]...)}
	} else {
		t.DType = ir.F32
	}
	return o.model.FromIR(o.model.IR().Declare(ir.Input, strings.TrimPrefix(name, "%"), t, nil, nil))
}

// parseDims reads NAME=SIZE pairs.
func parseDims(pairs []string) (ampc.Sizes, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := ampc.Sizes{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		size, err := strconv.ParseInt(value, 10, 64)
		switch {
		case !ok || name == "":
			return nil, usagef("--dim %s: want NAME=SIZE, such as batch=64", p)
		case err != nil:
			return nil, usagef("--dim %s: %q is not a whole number: want NAME=SIZE, such as %s=64", p, value, name)
		case size < 1:
			return nil, usagef("--dim %s: the size is %d, want 1 or more", p, size)
		}
		out[ampc.Dim(name)] = size
	}
	return out, nil
}

// bound returns an error if a dimension has no size.
func (o *openedModel) bound() error {
	for _, s := range o.model.Graph().Syms {
		if _, ok := o.config.Sizes[ampc.Dim(s.Name)]; !ok {
			return usagef("%s: dimension %s has no size: give it with --dim %[2]s=SIZE", o.spec, s.Name)
		}
	}
	return nil
}

// source returns the model's graph with its dimensions bound, and the configuration for its passes.
func (o *openedModel) source() (*ir.Graph, passes.Config, error) {
	c := o.config
	c.Outputs, c.Grads = o.outputs(), nil
	g, p, err := o.model.Source(c, o.losses...)
	if err == nil && o.batch > 0 {
		if was := g.Batch(); was != o.batch {
			err = rebatched(g.Rebatch(o.batch), o.spec, was)
		}
	}
	p.Parallel.Ranks = o.ranks
	if len(o.losses) > 0 && !c.NoSkip {
		p.Outputs = append(p.Outputs, passes.Output{Kind: passes.OfSkip})
	}
	return g, p, err
}

// rebatched explains an error of ir.Graph.Rebatch.
func rebatched(err error, spec string, was int64) error {
	if err == nil || was == 0 {
		return err
	}
	return fmt.Errorf("%s is written for a batch of %d, and it is not known what another one takes: %w", spec, was, err)
}

// compile runs the passes on a model that has a result or a loss. edit changes the configuration.
func (o *openedModel) compile(edit func(*passes.Config)) (*ir.Graph, error) {
	if err := o.checkHasOutput(); err != nil {
		return nil, err
	}
	return o.pass(edit)
}

// pass runs the passes on the model's graph, even if it has no result.
func (o *openedModel) pass(edit func(*passes.Config)) (*ir.Graph, error) {
	g, p, err := o.source()
	if err != nil {
		return nil, err
	}
	p.Caps, p.Peak = lower.CPU.Caps(), lower.Peak(lower.CPU)
	if p.Memory == ampc.FitMemory { // no session resolves it
		p.Memory = cpu.Available()
	}
	if edit != nil {
		edit(&p)
	}
	if err := passes.Run(g, p); err != nil {
		return nil, namingFlags(err)
	}
	return g, nil
}

// kernels returns an error if the graph has a custom op.
func (o *openedModel) kernels() error {
	n := ir.Opaque(o.model.Graph())
	if n == nil {
		return nil
	}
	return fmt.Errorf("%s: @%s is a custom op, whose kernel is in a Go program: run the step there (Step.Run, Step.Diagnose); why, plan, prove and dump need no kernel", n.Pos, n.Def().Name)
}

// namingFlags names the flag to give in errors about dimensions without sizes and about too little
// memory.
func namingFlags(err error) error {
	var m *passes.MemoryError
	if errors.As(err, &m) {
		m.Option = "--memory"
		return err
	}
	var e *ir.Error
	if !errors.As(err, &e) || len(e.Unsized) == 0 {
		return err
	}
	var flags []string
	for _, name := range e.Unsized {
		flags = append(flags, "--dim "+name+"=SIZE")
	}
	return fmt.Errorf("%w: give %s with %s", err, e.ItOrThem(), strings.Join(flags, " "))
}

// outputs are what a compiled graph returns: the losses, or the model's results. A training step
// also returns whether it was skipped.
func (o *openedModel) outputs() []ampc.Output {
	var out []ampc.Output
	for _, l := range o.losses {
		if !slices.Contains(o.model.Graph().Return, l.Value.IR()) {
			out = append(out, ampc.Output{Tensor: l.Value})
		}
	}
	if len(o.losses) == 0 && o.zoo != nil {
		out = append(out, ampc.Output{Tensor: o.zoo.Output})
	}
	return out
}
