// Package gorgoniacu runs steps on a GPU that a program drives through
// gorgonia.org/cu: in its context, in order with its stream, on variables that
// lie in memory that it allocated.
//
// Importing gorgonia.org/cu ends a process that finds no GPU, and building it
// takes cgo and CUDA's headers. So Open is there only in builds with the tag
// cuda, the one that Gorgonia itself uses. Nothing else of ampc imports it.
package gorgoniacu

import (
	"fmt"
	"maps"
	"slices"

	"ampc/cuda"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

// Backend is a gpu.Backend that puts the variables it was given addresses for
// there. Give it to ampc as Config.Backend. Closing it leaves context, stream
// and memory to their owner.
type Backend struct {
	*gpu.Backend
	memory map[string]cuda.Ptr
	stores []*store
}

var _ runtime.Backend = (*Backend)(nil)

// store puts variables where the backend's memory says.
type store struct {
	*gpu.Store
	memory map[string]cuda.Ptr
}

// NewStore implements runtime.Backend.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s, err := b.Backend.NewStore(nil)
	if err != nil {
		return nil, err
	}
	here := &store{s.(*gpu.Store), b.memory}
	b.stores = append(b.stores, here)
	return here, here.Declare(vars)
}

// Declare implements runtime.Store. Variables in the caller's memory are zeroed
// like others.
func (s *store) Declare(vars []lower.Var) error {
	for _, v := range vars {
		at, given := s.memory[v.Name]
		if _, _, err := s.Address(v.Name); !given || err == nil {
			continue
		}
		if err := s.Adopt(v, at); err != nil {
			return err
		}
		if err := s.Write(v.Name, make([]byte, v.Type.Bytes())); err != nil {
			return err
		}
	}
	return s.Store.Declare(vars)
}

// Load implements runtime.Backend. The Exec is a *gpu.Exec, whose StepOn takes
// inputs in device memory.
func (b *Backend) Load(p *lower.Program, s runtime.Store) (runtime.Exec, error) {
	here, ok := s.(*store)
	if !ok {
		return nil, fmt.Errorf("%s: the store is a %T, made by another backend", b.Name(), s)
	}
	return b.Backend.Load(p, here.Store)
}

// Touch says that the caller wrote variables of these names in device memory,
// all that it placed if there are none: what was derived from the old values is
// computed again. Names that no step has declared yet are passed over.
func (b *Backend) Touch(names ...string) error {
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(b.memory))
	}
	for _, s := range b.stores {
		for _, name := range names {
			if _, _, err := s.Address(name); err != nil {
				continue
			}
			if err := s.Touch(name); err != nil {
				return err
			}
		}
	}
	return nil
}
