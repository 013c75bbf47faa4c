package gpu

import (
	"errors"
	"fmt"
	"slices"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// Store holds variables in device memory. Variables declared together are adjacent in one arena,
// their accumulators in another. It implements runtime.Store.
type Store struct {
	b      *Backend
	vars   map[string]*variable
	arenas []*arena
	bytes  int64
}

// arena is memory that is freed with the last of its variables or 16-bit copies.
type arena struct {
	at    cuda.Ptr
	bytes int64
	users int
}

// variable is a variable with a version number, which every write and every step
// that writes it increases.
type variable struct {
	t       ir.Type
	at      cuda.Ptr
	arena   *arena // nil: the caller owns the memory
	version int64
	low     map[ir.DType]*weightCopy
	synced  int64 // of a copy that programs write: the version of its variable when the copy was written
}

// weightCopy is a 16-bit copy of a weight. It is current if its version is that of
// the variable.
type weightCopy struct {
	at      cuda.Ptr
	arena   *arena
	version int64
}

func newVariable(t ir.Type, at cuda.Ptr, a *arena) *variable {
	return &variable{t: t, at: at, arena: a, version: 1, low: map[ir.DType]*weightCopy{}}
}

// NewStore implements runtime.Backend; the Store is a *Store.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := &Store{b: b, vars: map[string]*variable{}}
	if err := s.Declare(vars); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Declare implements runtime.Store.
func (s *Store) Declare(vars []lower.Var) error {
	var fresh [2][]*lower.Var // memory that lives as long as the model, and memory that a step owns
	for i := range vars {
		v := &vars[i]
		if v.Kind != ir.Param && v.Kind != ir.State {
			continue
		}
		if old := s.vars[v.Name]; old != nil {
			if old.t != v.Type {
				return fmt.Errorf("variable %q is %s in the store, declared again as %s", v.Name, old.t, v.Type)
			}
			continue
		}
		k := 0
		if v.Role() == "acc" {
			k = 1
		}
		fresh[k] = append(fresh[k], v)
	}
	for _, vars := range fresh {
		if len(vars) == 0 {
			continue
		}
		if err := s.b.do(func() error { return s.declare(vars) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) declare(fresh []*lower.Var) error {
	total := int64(0)
	for _, v := range fresh {
		total += roundUp(v.Type.Bytes())
	}
	a, err := s.reserve(total, fmt.Sprintf("%d variables", len(fresh)), len(fresh))
	if err != nil {
		return fmt.Errorf("%s: %w", s.b.name, err)
	}
	at := a.at
	for _, v := range fresh {
		s.vars[v.Name] = newVariable(v.Type, at, a)
		at += cuda.Ptr(roundUp(v.Type.Bytes()))
	}
	return nil
}

// reserve allocates an arena of zeros for the given number of users.
func (s *Store) reserve(n int64, what string, users int) (*arena, error) {
	at, err := s.b.alloc(n, what)
	if err != nil {
		return nil, err
	}
	a := &arena{at, n, users}
	s.arenas = append(s.arenas, a)
	s.bytes += n
	if n == 0 {
		return a, nil
	}
	return a, s.b.d.Fill8(at, 0, n, s.b.stream())
}

// leave removes one user of an arena, which is freed with the last one. No work on
// the stream may still use it.
func (s *Store) leave(a *arena) error {
	if a == nil {
		return nil
	}
	if a.users--; a.users > 0 {
		return nil
	}
	s.arenas = slices.DeleteFunc(s.arenas, func(x *arena) bool { return x == a })
	s.bytes -= a.bytes
	return s.b.d.Free(a.at)
}

// copyOf finds or makes the 16-bit copy of a variable; a new one is not current.
func (s *Store) copyOf(name string, v *variable, d ir.DType) (*weightCopy, error) {
	if c := v.low[d]; c != nil {
		return c, nil
	}
	a, err := s.reserve(v.t.With(d).Bytes(), fmt.Sprintf("the %s copy of %q", d, name), 1)
	if err != nil {
		return nil, err
	}
	v.low[d] = &weightCopy{at: a.at, arena: a}
	return v.low[d], nil
}

func (s *Store) find(name string, bytes int) (*variable, error) {
	v := s.vars[name]
	switch {
	case v == nil:
		return nil, fmt.Errorf("the store has no variable %q", name)
	case v.t.Bytes() != int64(bytes):
		return nil, fmt.Errorf("variable %q is %s, %d bytes, not %d", name, v.t, v.t.Bytes(), bytes)
	}
	return v, nil
}

// Write implements runtime.Store.
func (s *Store) Write(name string, src []byte) error {
	return s.b.do(func() error {
		v, err := s.find(name, len(src))
		if err != nil {
			return err
		}
		v.version++
		return s.b.upload(v.at, src)
	})
}

// Read implements runtime.Store.
func (s *Store) Read(name string, dst []byte) error {
	return s.b.do(func() error {
		v, err := s.find(name, len(dst))
		if err != nil {
			return err
		}
		return s.b.download(dst, v.at)
	})
}

// Drop implements runtime.Store. Variables declared together share an arena, which is freed with
// the last of them.
func (s *Store) Drop(names ...string) error {
	return s.b.release(func() error {
		err := s.b.d.Synchronize(s.b.stream())
		for _, name := range names {
			v := s.vars[name]
			if v == nil {
				continue
			}
			delete(s.vars, name)
			err = errors.Join(err, s.leave(v.arena))
			for _, c := range v.low {
				err = errors.Join(err, s.leave(c.arena))
			}
		}
		return err
	})
}

// Close implements runtime.Store. It does not free the memory of adopted variables.
func (s *Store) Close() error {
	return s.b.release(func() error {
		err := s.b.d.Synchronize(s.b.stream())
		for _, a := range s.arenas {
			err = errors.Join(err, s.b.d.Free(a.at))
		}
		s.vars, s.arenas = map[string]*variable{}, nil
		return err
	})
}
