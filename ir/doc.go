// Package ir is ampc's graph: one training step as typed, named values in four sections; one row
// for each op, with everything that the compiler knows about it; and a text form that reads back
// exactly.
//
// A graph has no control flow and no side effects. Variables are declared. The value of a variable
// after the step is written with a prime (%w'). Sections run as three parts: prepare once per
// optimizer step, forward and backward once per micro-batch, update once.
package ir
