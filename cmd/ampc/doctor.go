package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/passes/ranges"
	"ampc/runtime/doctor"
)

const doctorHelp = `Explain why a step is not finite. The report names the first node whose operands are
finite and whose result is not, the direction (forward or backward), the micro-batch,
the operands, and the cause.

Given a MODEL, doctor prints what its ranges say, runs one step and diagnoses it. The
inputs are random unless --feed names files; the variables are initial unless --state
names a checkpoint. Given a FILE.ampc, it replays the step in that file, which
Step.SaveReplay or ampc train --save-bad wrote. Causes:

  scale too high           with a smaller loss scale the gradients are finite
  gradient overflow        gradients overflow even with a loss scale of 1
  forward overflow         a value of the forward pass exceeds the range of its dtype
  singular                 a value that rounding made 0 is divided by, or its logarithm
                           or derivative of a root is taken
  vanished constant        a constant is 0 in its dtype, or its reciprocal overflows
  bad input                the batch contains NaN or Inf
  bad state                parameters or optimizer state contain NaN or Inf
  not a precision problem  the step is not finite in f32 either
  diverged                 losses and weights grew in earlier steps; f32 would diverge, too

A dynamic loss scale overflows from time to time while it searches for its value. That
is not a fault, and doctor says so.`

// doctorFlags are the flags of doctor other than those of the model.
type doctorFlags struct {
	modelFlags
	feeds       []string
	state, save string
	seed        int64
	json        bool
}

func doctorCommand() *cobra.Command {
	var f doctorFlags
	c := command("doctor MODEL|FILE.ampc", "Explain why a step is not finite", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if strings.HasSuffix(args[0], ".ampc") {
			return f.file(c, args[0])
		}
		if err := checkWritable(f.save); err != nil {
			return err
		}
		o, err := opened(c, args[0], &f.modelFlags, "doctor takes a source graph, or a step saved by Step.SaveReplay as FILE.ampc")
		if dynamic(err) {
			return fmt.Errorf("doctor replays one compiled step: %w", err)
		}
		if err != nil {
			return err
		}
		return f.model(c, o)
	})
	c.Long = doctorHelp
	f.add(c)
	fl := c.Flags()
	fl.StringArrayVar(&f.feeds, "feed", nil, tensorsHelp)
	fl.Lookup("input").Usage, f.fed = "`NAME=FILE`, the same as --feed", true
	fl.StringVar(&f.state, "state", "", "start from the variables of this checkpoint `FILE` (default: initial values)")
	fl.Int64Var(&f.seed, "seed", 1, seedHelp)
	fl.StringVar(&f.save, "save", "", "write the step to this `FILE`, which ampc doctor replays")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON")
	return c
}

// doctorReport is the JSON form of a diagnosis.
type doctorReport struct {
	Findings  []ranges.Finding `json:"findings"`
	Diagnosis fmt.Stringer     `json:"diagnosis"`
}

func (f *doctorFlags) print(w io.Writer, r doctorReport) error {
	if f.json {
		return json.NewEncoder(w).Encode(r)
	}
	for _, x := range r.Findings {
		fmt.Fprintln(w, x)
	}
	fmt.Fprintln(w, r.Diagnosis)
	return nil
}

// file diagnoses a saved step.
func (f *doctorFlags) file(c *cobra.Command, path string) error {
	saved, err := doctor.Load(path)
	if err != nil {
		return err
	}
	d, err := doctor.Diagnose(c.Context(), saved)
	if err != nil {
		return err
	}
	return f.print(c.OutOrStdout(), doctorReport{ranges.Static(saved.Graph, ranges.Options{}).Findings(), d})
}

// model runs and diagnoses a step of a model.
func (f *doctorFlags) model(c *cobra.Command, o *openedModel) error {
	defer o.model.Close()
	if err := o.model.Set(ampc.Seed(f.seed)); err != nil {
		return err
	}
	step, _, err := o.runnable(o.model.Graph())
	if err != nil {
		return err
	}
	if err := f.load(c, o.spec, o.model); err != nil {
		return err
	}
	d, err := f.run(c.Context(), o, step)
	if err != nil {
		return err
	}
	return f.print(c.OutOrStdout(), doctorReport{ranges.Static(step.Graph(), o.ranges).Findings(), d})
}

// load reads the checkpoint if one is given.
func (f *doctorFlags) load(c *cobra.Command, spec string, m *ampc.Model) error {
	if f.state == "" {
		return nil
	}
	if err := m.LoadFile(f.state, ampc.LeaveState()); err != nil {
		return writtenBy(f.state, spec, err)
	}
	for _, w := range m.Warnings() {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
	}
	return nil
}

// writtenBy explains why a checkpoint does not load. If another model wrote it, the error names
// that model.
func writtenBy(path, spec string, err error) error {
	f, openErr := safetensors.Open(path)
	if openErr != nil {
		return err
	}
	defer f.Close()
	if by := f.Meta["user.spec"]; by != "" && by != spec {
		return fmt.Errorf("%s: written by %s; give that MODEL", path, by)
	}
	return err
}

func (f *doctorFlags) run(ctx context.Context, o *openedModel, step *ampc.Step) (*ampc.Diagnosis, error) {
	feed, err := readInputs(slices.Concat(f.feeds, f.arrays))
	if err != nil {
		return nil, err
	}
	micro, err := o.fill(step, feed, f.seed, "--feed")
	if err != nil {
		return nil, err
	}
	if _, err := step.Run(ctx, micro...); err != nil {
		return nil, err
	}
	if f.save != "" {
		if err := step.SaveReplay(f.save); err != nil {
			return nil, err
		}
	}
	return step.Diagnose(ctx)
}
