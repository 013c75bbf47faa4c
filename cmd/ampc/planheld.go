package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/runtime/cpu"
)

// heldRow is the memory that a step under one policy holds on this machine.
type heldRow struct {
	Policy string `json:"policy"`
	cpu.Plan
	Total int64 `json:"total"`
}

// planHeld prints what steps hold on this machine.
func planHeld(c *cobra.Command, spec string, flags []modelFlags, asJSON bool) error {
	var rows []heldRow
	for _, f := range flags {
		_, p, compiled, err := planModel(c, spec, f)
		if err != nil {
			return err
		}
		plan, err := cpu.PlanMemory(p, 0)
		if err != nil {
			return err
		}
		name := strings.TrimSpace(f.policy + " " + f.algorithm)
		if compiled {
			name = "as compiled"
		}
		rows = append(rows, heldRow{name, plan, plan.Total()})
		if compiled {
			break
		}
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), rows)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\theld\tvariables\twork\tinputs\toutputs\tscratch\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Policy, ir.Bytes(r.Total), ir.Bytes(r.Variables), ir.Bytes(r.Work), ir.Bytes(r.Inputs), ir.Bytes(r.Outputs), ir.Bytes(r.Scratch))
	}
	return w.Flush()
}
