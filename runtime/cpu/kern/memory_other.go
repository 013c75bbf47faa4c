//go:build !linux

package kern

// adviseHuge does nothing: the system offers no request for huge pages.
func adviseHuge([]byte) {}

// givesBack says that adviseUnused does something.
const givesBack = false

const systemPage = 4096

// adviseUnused does nothing: memory stays.
func adviseUnused([]byte) {}

// Map returns nil: memory comes from the Go heap.
func Map(int64) []byte { return nil }

// Touch does nothing: Map gives no memory.
func Touch([]byte) {}

// Unmap is for what Map gave.
func Unmap([]byte) {}
