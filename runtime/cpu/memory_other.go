//go:build !linux

package cpu

import "ampc/runtime/cpu/kern"

// ceilings returns no bounds: this system reports none.
func ceilings(heapUse) []ceiling { return nil }

// thisHost has no limits: this system states no quota and no nodes.
func thisHost() (h kern.Host) { return h }
