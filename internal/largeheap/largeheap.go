// Package largeheap lets a test binary's heap grow to five times what lives before it is collected. Tests that
// compile thousands of small graphs spend a third of their time on collections otherwise. Import it for that.
// Above 3 GB it is collected as often as it takes.
package largeheap

import "runtime/debug"

var _, _ = debug.SetGCPercent(400), debug.SetMemoryLimit(3 << 30)
