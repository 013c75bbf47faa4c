//go:build !linux

package cpu

// ceilings returns no bounds: this system reports none.
func ceilings(heapUse) []ceiling { return nil }

// allowedProcessors is 0: this system states no quota.
func allowedProcessors() float64 { return 0 }
