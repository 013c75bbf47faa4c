package main

import (
	"fmt"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu"
)

// held is the memory that a step holds on this machine, with a thread for each processor.
type held struct {
	cpu.Plan
	Total int64 `json:"total"`
}

// hold sets what a step of p holds. A program that cannot be loaded here, such as one with a custom
// op that only its text describes, gets a note.
func (r *planRow) hold(p *lower.Program) {
	plan, err := cpu.PlanMemory(p, 0)
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("outputs and scratch memory are not known: %v", err))
		return
	}
	r.Held = &held{plan, plan.Total()}
}

// String is the part of the table.
func (h *held) String() string {
	if h == nil {
		return "-\t-\t-\t"
	}
	return fmt.Sprintf("%s\t%s\t%s\t", ir.Bytes(h.Outputs), ir.Bytes(h.Scratch), ir.Bytes(h.Total))
}
