//go:build !linux || !(amd64 || arm64) || nocuda

package cuda

import "fmt"

// Open explains that this build has no CUDA.
func Open(int) (Driver, error) { return nil, unavailable() }

// Adopt explains that this build has no CUDA.
func Adopt(uintptr) (Driver, error) { return nil, unavailable() }

// OpenBlas explains that this build has no CUDA.
func OpenBlas() (Blas, error) { return nil, unavailable() }

// Discover reports that this build has no CUDA.
func Discover() *Report {
	return &Report{Problem: "this build has no CUDA support", Advice: "use a linux/amd64 or linux/arm64 build without the nocuda tag"}
}

func unavailable() error {
	return fmt.Errorf("%w: this build has no CUDA support; use a linux/amd64 or linux/arm64 build without the nocuda tag", ErrUnavailable)
}

// OpenDnn explains that this build has no CUDA.
func OpenDnn() (Dnn, error) { return nil, unavailable() }

// OpenNccl explains that this build has no CUDA.
func OpenNccl() (Nccl, error) { return nil, unavailable() }
