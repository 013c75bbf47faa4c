package gpu

import (
	"errors"
	"fmt"

	"ampc/cuda"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// store holds variables in device memory, each by itself.
type store struct {
	b    *Backend
	vars map[string]*variable
}

type variable struct {
	t  ir.Type
	at cuda.Ptr
}

// NewStore implements runtime.Backend.
func (b *Backend) NewStore(vars []lower.Var) (runtime.Store, error) {
	s := &store{b: b, vars: map[string]*variable{}}
	return s, s.Declare(vars)
}

// Declare implements runtime.Store.
func (s *store) Declare(vars []lower.Var) error {
	return s.b.do(func() error {
		for i := range vars {
			if v := &vars[i]; v.Kind == ir.Param || v.Kind == ir.State {
				if err := s.declare(v); err != nil {
					return err
				}
			}
		}
		return s.b.d.Synchronize(s.b.stream)
	})
}

func (s *store) declare(v *lower.Var) error {
	if old := s.vars[v.Name]; old != nil {
		if old.t != v.Type {
			return fmt.Errorf("variable %q is %s in the store, declared again as %s", v.Name, old.t, v.Type)
		}
		return nil
	}
	n := v.Type.Bytes()
	p, err := s.b.alloc(n, fmt.Sprintf("variable %q", v.Name))
	if err != nil {
		return err
	}
	s.vars[v.Name] = &variable{v.Type, p}
	if n == 0 {
		return nil
	}
	return s.b.d.Fill8(p, 0, n, s.b.stream)
}

func (s *store) find(name string, bytes int) (*variable, error) {
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
func (s *store) Write(name string, src []byte) error {
	return s.b.do(func() error {
		v, err := s.find(name, len(src))
		if err != nil {
			return err
		}
		return s.b.upload(v.at, src)
	})
}

// Read implements runtime.Store.
func (s *store) Read(name string, dst []byte) error {
	return s.b.do(func() error {
		v, err := s.find(name, len(dst))
		if err != nil {
			return err
		}
		return s.b.download(dst, v.at)
	})
}

// Close implements runtime.Store.
func (s *store) Close() error {
	return s.b.do(func() error {
		err := s.b.d.Synchronize(s.b.stream)
		for _, v := range s.vars {
			err = errors.Join(err, s.b.d.Free(v.at))
		}
		s.vars = map[string]*variable{}
		return err
	})
}
