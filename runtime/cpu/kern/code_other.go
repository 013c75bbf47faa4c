//go:build !linux && (arm64 || (amd64 && !darwin && !windows))

package kern

// executables are the ways to get executable memory; none is known for this system.
var executables []func(content []byte) ([]byte, error)

func unmapCode([]byte) {}
