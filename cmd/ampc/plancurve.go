package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/ir"
	"ampc/passes"
)

const memoryHelp = "let the training step take at most `SIZE`, such as 4GB, variables included, or fit: what the machine has; backward computes again what is not kept"

const chunksHelp = "run the last product and its cross entropy in `N` blocks of rows, so that the logits are never whole (default: whole)"

// parseMemory reads --memory.
func parseMemory(s string) (int64, error) {
	if s == "fit" {
		return ampc.FitMemory, nil
	}
	return parseSize("--memory", s)
}

// planCurve prints what less memory costs.
func planCurve(c *cobra.Command, spec string, f modelFlags, asJSON bool) error {
	o, err := open(c, spec)
	if err == nil {
		err = o.apply(&f)
	}
	if err == nil {
		err = o.bound()
	}
	if err != nil {
		return err
	}
	if o.compiled || len(o.losses) == 0 {
		return usagef("--curve: %s does not train", spec)
	}
	var curve []passes.MemoryPoint
	if _, err := o.compile(func(p *passes.Config) { p.Curve = &curve }); err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), curve)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "peak\tsaved\tflops\ttime\tat least\t")
	for _, p := range curve {
		fmt.Fprintf(w, "%s\t%s\t+%.1f%%\t+%.1f%%\t+%.1f%%\t\n", ir.Bytes(p.Peak), ir.Bytes(p.Saved), 100*p.Flops, 100*p.Time, 100*p.Bound)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), "time: a model, 4 flops for each byte moved; at least: no choice with this peak adds less (linear program)")
	return err
}

// fitAgain finds the largest batch with which a step holds at most limit where backward computes again
// what it can, and what --memory then is: the limit without scratch and results. from is a batch that
// fits without.
func fitAgain(c *cobra.Command, spec string, f modelFlags, limit, from int64) (batch, memory int64, err error) {
	memories := map[int64]int64{}
	batch, err = fitBatch(from, limit, func(batch int64) (int64, error) {
		held, arenas, err := planTotal(c, spec, f, batch)
		if err != nil || held <= limit {
			return held, err
		}
		f := f
		memories[batch] = limit - (held - arenas)
		if memories[batch] <= 0 {
			return held, nil
		}
		f.memory = fmt.Sprint(memories[batch])
		held, _, err = planTotal(c, spec, f, batch)
		var large *passes.MemoryError
		if errors.As(err, &large) {
			return large.Least + limit - memories[batch], nil
		}
		return held, err
	})
	return batch, memories[batch], err
}
