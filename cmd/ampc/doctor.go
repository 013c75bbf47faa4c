package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/passes/ranges"
	"ampc/runtime/doctor"
)

const doctorHelp = `Says why a step is not finite: the first node whose operands are finite and whose
result is not, in which direction and micro-batch, what it read, and the cause.

Of a MODEL it prints what its ranges say, runs a step on given or seeded random
inputs, on a checkpoint's variables where --state names one, and diagnoses it. Of
a file that Step.SaveReplay or ampc train --save-bad wrote it replays the step in
it. Causes:

  scale too high           a smaller loss scale leaves the gradients finite
  gradient overflow        gradients overflow even at scale 1
  forward overflow         a value of the forward pass is beyond its dtype
  singular                 rounding made a root, logarithm or quotient singular
  vanished constant        a constant is 0 in its dtype, or its reciprocal overflows
  bad input                the batch holds NaN or Inf
  bad state                parameters or optimizer state hold NaN or Inf
  not a precision problem  f32 is not finite either
  diverged                 losses and weights had grown before: f32 ends so as well

An overflow that ends by itself, as a dynamic loss scale looks for its place, is
no fault.`

// doctorFlags are the flags of doctor beside those of the model.
type doctorFlags struct {
	modelFlags
	feeds       []string
	state, save string
	seed        int64
	json        bool
}

func doctorCommand() *cobra.Command {
	var f doctorFlags
	c := command("doctor MODEL|FILE.ampc", "say why a step is not finite", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if strings.HasSuffix(args[0], ".ampc") {
			return f.file(c, args[0])
		}
		if err := writable(f.save); err != nil {
			return err
		}
		o, err := open(c, args[0])
		if err != nil {
			return err
		}
		if o.compiled {
			return fmt.Errorf("%s: is compiled already; doctor takes a source graph, or a step saved by Step.SaveReplay as FILE.ampc", args[0])
		}
		if err := o.apply(&f.modelFlags); err != nil {
			return err
		}
		return f.model(c, o)
	})
	c.Long = doctorHelp
	f.add(c)
	fl := c.Flags()
	fl.StringArrayVar(&f.feeds, "feed", nil, "NAME=FILE.npy, or FILE.npz or FILE.safetensors with arrays by name; what is missing is random")
	fl.StringVar(&f.state, "state", "", "a checkpoint: variables as they were before the step (default: as they start)")
	fl.Int64Var(&f.seed, "seed", 1, "of parameters and random inputs")
	fl.StringVar(&f.save, "save", "", "write the step to this file, which doctor reads")
	fl.BoolVar(&f.json, "json", false, "the report as JSON")
	return c
}

// doctorReport is what doctor says of a step.
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

// model runs a step of a model and diagnoses it.
func (f *doctorFlags) model(c *cobra.Command, o *opened) error {
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

// load reads the checkpoint, if there is one.
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

// writtenBy is why a checkpoint does not load, in words that help: that another model wrote it, where one did.
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

func (f *doctorFlags) run(ctx context.Context, o *opened, step *ampc.Step) (*ampc.Diagnosis, error) {
	feed, err := readInputs(f.feeds)
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
