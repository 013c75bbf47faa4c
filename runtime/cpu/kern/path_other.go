//go:build !amd64 && !arm64

package kern

func archPaths() []*Path { return nil }
