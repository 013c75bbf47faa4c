//go:build !linux

package kern

// adviseHuge does nothing: the system offers no request for huge pages.
func adviseHuge([]byte) {}
