// Command ampc shows, explains and runs mixed-precision training steps.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"ampc/runtime/cpu"
)

func main() {
	limitHeap()
	os.Exit(runSupervised(os.Args[1:]))
}

// limitHeap has garbage collected early enough that Go's heap stays within what is available to it. A
// command calls it again when it has loaded a step, whose memory lies outside the heap.
func limitHeap() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(cpu.Available() / 10 * 9) // the rest is for stacks, code and kernels
	}
}

// run executes one command line. Results go to stdout, messages to stderr; an
// error is one line.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would mean the process's own arguments
	root.SetIn(stdin)
	out := &checked{w: stdout}
	root.SetOut(out)
	root.InitDefaultCompletionCmd() // writes to the current output
	addExamples(root)
	addCompletion(root)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	if failed := out.failed(); failed != nil && (err == nil || errors.Is(err, out.err)) {
		err = failure{failed}
	}
	var f failure
	switch {
	case err == nil:
		return exitOK
	case interruption(ctx, err) != nil:
		fmt.Fprintln(stderr, interruption(ctx, err))
		return exitInterrupted
	case errors.As(err, &f):
		fmt.Fprintln(stderr, oneLine(f.Error()))
		if errors.As(err, &stuckError{}) {
			return exitStuck
		}
		return exitInput
	}
	fmt.Fprintln(stderr, oneLine(fmt.Sprintf("%s: %v; see %[1]s --help", c.CommandPath(), err)))
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "ampc",
		Short:         "Automatic mixed precision, decided ahead of time",
		Long:          "ampc compiles models to mixed precision ahead of time, shows every decision and runs the result.\n\nA MODEL is a zoo model with options, such as 'zoo:gpt?layers=2&dim=64', an .ir file, an .onnx file,\nor - for a graph on standard input. ampc train --help lists the zoo.\n\n" + exitHelp(),
		SilenceErrors: true,
		SilenceUsage:  true,
		// a command without arguments has nothing to run
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
		Args:                       noSuchCommand,
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(dumpCommand(), whyCommand(), whyNotCommand(), opsCommand(), passesCommand(), policyCommand(), planCommand(), proveCommand(), convertCommand(), exportCommand(), rangesCommand(),
		doctorCommand(), runCommand(), trainCommand(), generateCommand(), benchCommand(), adviseCommand(), compareCommand(), devicesCommand(), viewCommand(), versionCommand())
	return root
}

// command makes a subcommand. Errors of its arguments count as bad input.
func command(use, short string, args cobra.PositionalArgs, f func(c *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: wanted(use, args), RunE: func(c *cobra.Command, args []string) error {
		if err := f(c, args); err != nil {
			var wrong usageError
			if errors.As(err, &wrong) {
				return err
			}
			return failure{err}
		}
		return nil
	}}
}

// wanted checks arguments like args; its error quotes the usage line.
func wanted(use string, args cobra.PositionalArgs) cobra.PositionalArgs {
	_, names, _ := strings.Cut(use, " ")
	return func(c *cobra.Command, given []string) error {
		switch {
		case args(c, given) == nil:
			return nil
		case len(given) == 0:
			return fmt.Errorf("want %s", names)
		}
		return fmt.Errorf("want %s, got %q", cmp.Or(names, "no arguments"), given)
	}
}
