package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc/cuda"
	"ampc/ir"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime/cpu"
)

func opsCommand() *cobra.Command {
	var asJSON bool
	c := command("ops [NAME...]", "list the op set with classes and reasons", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		ops := ir.Ops()
		if len(args) > 0 {
			ops = nil
			for _, name := range args {
				op, ok := ir.OpNamed(name)
				if !ok {
					return fmt.Errorf("no op %q; ampc ops lists them", name)
				}
				ops = append(ops, op)
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), opRows(ops))
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "OP\tFAMILY\tCLASS\tWHY\tDOES")
		for _, r := range opRows(ops) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Family, r.Class, r.Why, r.Doc)
		}
		return w.Flush()
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

type opRow struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	Class  string `json:"class"`
	Why    string `json:"why"`
	Doc    string `json:"doc"`
}

func opRows(ops []ir.Op) []opRow {
	rows := make([]opRow, len(ops))
	for i, op := range ops {
		d := op.Def()
		rows[i] = opRow{d.Name, d.Family, d.Class.String(), d.Why, d.Doc}
	}
	return rows
}

func passesCommand() *cobra.Command {
	return command("passes", "list the passes in the order they run", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "PASS\tLEAVES\tDOES")
		for _, p := range passes.Pipeline() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.Stage, p.Doc)
		}
		return w.Flush()
	})
}

func devicesCommand() *cobra.Command {
	c := command("devices", "say what this machine can run on", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		b, err := cpu.Open(0)
		if err != nil {
			return err
		}
		defer b.Close()
		out := c.OutOrStdout()
		fmt.Fprintf(out, "cpu: %s, %s/%s, %d threads\n", b.Name(), runtime.GOOS, runtime.GOARCH, b.Threads())
		_, err = io.WriteString(out, cuda.Discover().String())
		return err
	})
	c.Long = `Says what this machine can run on: the CPU's set of kernels and threads, and what it has of CUDA.

Environment: AMPC_CPU=go|avx2|avx512|avx512bf16|neon picks a set of kernels that the processor has, GOMAXPROCS the
threads; AMPC_WINOGRAD=off keeps convolutions to their definition.`
	return c
}

// zooList is the zoo as help texts show it.
func zooList() string {
	s := "Models of the zoo:\n"
	for _, m := range models.Names() {
		s += fmt.Sprintf("  zoo:%-8s %s\n", m[0], m[1])
	}
	return s
}
