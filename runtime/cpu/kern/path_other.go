//go:build !amd64

package kern

func archPaths() []*Path { return nil }
