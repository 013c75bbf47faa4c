package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// Store holds variables in device memory: those declared together lie one after
// the other in one arena. It implements runtime.Store.
type Store struct {
	b      *Backend
	vars   map[string]*variable
	arenas []cuda.Ptr
	bytes  int64
}

// variable counts its versions: each write, and each step of a program that
// writes it, makes one.
type variable struct {
	t       ir.Type
	at      cuda.Ptr
	version int64
	low     map[ir.DType]*lowCopy
	synced  int64 // of a copy that programs write: the version of its variable it holds
}

// lowCopy is current while version is that of its variable.
type lowCopy struct {
	at      cuda.Ptr
	version int64
}

func newVariable(t ir.Type, at cuda.Ptr) *variable {
	return &variable{t: t, at: at, version: 1, low: map[ir.DType]*lowCopy{}}
}

// NewStore implements runtime.Backend; the Store is a *Store.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := &Store{b: b, vars: map[string]*variable{}}
	return s, s.Declare(vars)
}

// Declare implements runtime.Store.
func (s *Store) Declare(vars []lower.Var) error {
	var fresh []*lower.Var
	total := int64(0)
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
		fresh = append(fresh, v)
		total += roundUp(v.Type.Bytes())
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.b.do(func() error { return s.declare(fresh, total) })
}

func (s *Store) declare(fresh []*lower.Var, total int64) error {
	at, err := s.reserve(total, fmt.Sprintf("%d variables", len(fresh)))
	if err != nil {
		return fmt.Errorf("%s: %w", s.b.name, err)
	}
	for _, v := range fresh {
		s.vars[v.Name] = newVariable(v.Type, at)
		at += cuda.Ptr(roundUp(v.Type.Bytes()))
	}
	return nil
}

// reserve adds an arena of zeros.
func (s *Store) reserve(n int64, what string) (cuda.Ptr, error) {
	at, err := s.b.alloc(n, what)
	if err != nil {
		return 0, err
	}
	s.arenas = append(s.arenas, at)
	s.bytes += n
	if n == 0 {
		return at, nil
	}
	return at, s.b.d.Fill8(at, 0, n, s.b.stream())
}

// copyOf finds or adds the low copy of a variable; a new one is stale.
func (s *Store) copyOf(name string, v *variable, d ir.DType) (*lowCopy, error) {
	if c := v.low[d]; c != nil {
		return c, nil
	}
	at, err := s.reserve(v.t.With(d).Bytes(), fmt.Sprintf("the %s copy of %q", d, name))
	if err != nil {
		return nil, err
	}
	v.low[d] = &lowCopy{at: at}
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

// Drop implements runtime.Store. What was declared together lies in one arena,
// which stays until the store is closed.
func (s *Store) Drop(names ...string) error {
	for _, name := range names {
		delete(s.vars, name)
	}
	return nil
}

// Close implements runtime.Store. Memory of adopted variables stays.
func (s *Store) Close() error {
	return s.b.release(func() error {
		err := s.b.d.Synchronize(s.b.stream())
		for _, p := range s.arenas {
			err = errors.Join(err, s.b.d.Free(p))
		}
		s.vars, s.arenas = map[string]*variable{}, nil
		return err
	})
}
