//go:build !linux

package kern

// adviseHuge does nothing: the system offers no request for huge pages.
func adviseHuge([]byte) {}

// adviseSmall does nothing: no memory is mapped.
func adviseSmall([]byte) {}

// givesBack reports whether adviseUnused has an effect.
const givesBack = false

const systemPage = 4096

// adviseUnused does nothing: memory stays.
func adviseUnused([]byte) {}

// mapMemory returns nil: memory comes from the Go heap.
func mapMemory(int64) ([]byte, error) { return nil, nil }

// touch does nothing: no memory is mapped.
func touch([]byte) bool { return false }

// unmapMemory is for what mapMemory gave.
func unmapMemory([]byte) {}
