// Package bridge runs Gorgonia expression graphs on ampc.
//
// NewMachine is a gorgonia.VM: a program that trains with a tape machine
// changes the line that makes the machine and gets ampc's compiler, and with
// WithPolicy mixed precision. Import gives the graph as ampc's IR. FromDense
// and ToDense pass tensors across without copying where their layout allows.
//
// It reads Gorgonia v0.9.18, whose op types are not exported: their names and
// fields are looked up by reflection.
package bridge
