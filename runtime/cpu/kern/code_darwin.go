//go:build amd64

package kern

// executables are the ways to get executable memory with the given content.
var executables = []func(content []byte) ([]byte, error){protected}
