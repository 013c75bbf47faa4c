//go:build !linux || !(amd64 || arm64) || nompi

package mpi

import (
	"fmt"

	"ampc/world"
)

// Open explains that this build has no MPI.
func Open(Options) (world.World, error) {
	return nil, fmt.Errorf("%w: this build has no MPI support; use a linux/amd64 or linux/arm64 build without the nompi tag", ErrUnavailable)
}
