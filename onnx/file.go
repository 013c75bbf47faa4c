package onnx

import (
	"fmt"
	"os"
	"path/filepath"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/ir/eval"
)

// Open reads the model in a file. The file stays mapped until Close.
func Open(path string) (*Model, error) {
	f, size, err := file.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, unmap, err := file.Map(f, size)
	if err != nil {
		return nil, file.Error(path, err)
	}
	var m *Model
	err = file.Guard(func() (err error) {
		if m, err = Parse(b); err == nil {
			err = m.disjoint(filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		unmap()
		return nil, file.Error(path, err)
	}
	m.path, m.unmap = path, unmap
	return m, nil
}

// Close gives the mapping back. Tensors of the model must not be read after it.
func (m *Model) Close() error {
	if m.unmap == nil {
		return nil
	}
	unmap := m.unmap
	m.unmap, m.closed = nil, true
	err := unmap()
	for _, o := range m.others {
		if e := o.unmap(); err == nil {
			err = e
		}
	}
	clear(m.others)
	return err
}

// mapping is a file beside the model's.
type mapping struct {
	b     []byte
	unmap func() error
}

// beside are the elements that lie in another file, which stays mapped until Close.
func (m *Model) beside(where *ir.Init) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.others[where.File]
	if !ok {
		root, err := os.OpenRoot(filepath.Dir(m.path))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		name, err := filepath.Rel(root.Name(), where.File)
		if err != nil {
			return nil, err
		}
		f, err := root.Open(name)
		if err != nil {
			return nil, file.Error(where.File, err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return nil, file.Error(where.File, err)
		}
		if o.b, o.unmap, err = file.Map(f, st.Size()); err != nil {
			return nil, file.Error(where.File, err)
		}
		m.others[where.File] = o
	}
	if int64(len(o.b)) < where.Offset+where.Size {
		return nil, fmt.Errorf("%s became shorter while it was read: read it again", where.File)
	}
	return o.b[where.Offset : where.Offset+where.Size : where.Offset+where.Size], nil
}

// Guard runs f, which reads elements of the model: where a file has become shorter
// meanwhile, the fault is an error.
func (m *Model) Guard(f func() error) error { return m.guard(f) }

// guard runs f, which reads mapped memory: where the file has become shorter
// meanwhile, the fault is an error.
func (m *Model) guard(f func() error) error {
	if m.closed {
		return fmt.Errorf("the model was closed before this read")
	}
	return file.Guard(f)
}

// locate is where the elements of t lie in a file, as an initializer; nil where
// they do not lie there as they are stored in memory.
func (m *Model) locate(t *Tensor, typ ir.Type) (*ir.Init, error) {
	if t.isExternal {
		return m.external(t, typ)
	}
	at, ok, err := t.place(typ)
	if err != nil || !ok || m.path == "" || t.moved {
		return nil, err
	}
	return &ir.Init{Func: "file", File: m.path, Offset: at.at, Size: typ.Bytes()}, nil
}

// read decodes a tensor, wherever it lies.
func (m *Model) read(t *Tensor) (*eval.Tensor, error) {
	if !t.isExternal {
		return t.value()
	}
	typ, err := t.Type()
	if err != nil {
		return nil, err
	}
	where, err := m.external(t, typ)
	if err != nil {
		return nil, err
	}
	return eval.InitVar(&ir.Value{Name: t.Name, Type: typ, Init: where}, 0)
}

// Elements are those of a tensor of the model, decoded.
func (m *Model) Elements(t *Tensor) (x *eval.Tensor, err error) {
	err = m.guard(func() error {
		x, err = m.read(t)
		return err
	})
	return x, err
}

// Bytes are the elements of a tensor of the model as they are stored in memory,
// little-endian: a slice of the mapped file where they lie there so.
func (m *Model) Bytes(t *Tensor) (b []byte, err error) {
	typ, err := t.Type()
	if err != nil {
		return nil, err
	}
	err = m.guard(func() error {
		if t.made != nil {
			b, err = t.made()
			return err
		}
		if at, ok, err := t.place(typ); !t.isExternal && (ok || err != nil) {
			b = at.b
			return err
		}
		if t.isExternal {
			where, err := m.external(t, typ)
			if err == nil {
				b, err = m.beside(where)
			}
			return err
		}
		x, err := t.value()
		if err == nil {
			b = x.Bytes()
		}
		return err
	})
	return b, err
}

// Copy writes the elements of a tensor into dst as they are stored in memory. Their pages
// of the file do not stay in this process's memory.
func (m *Model) Copy(dst []byte, t *Tensor) error {
	b, err := m.Bytes(t)
	if err != nil {
		return err
	}
	if len(b) != len(dst) {
		return fmt.Errorf("tensor %q has %d bytes, want %d", t.Name, len(b), len(dst))
	}
	err = m.guard(func() error { copy(dst, b); return nil })
	if m.unmap != nil && !t.Made() && (t.isExternal || t.hasRaw) && !t.moved {
		forget(b)
	}
	return err
}

// Path is the file that the model was read from, "" where it was not read from one.
func (m *Model) Path() string { return m.path }

// WeightBytes is how many bytes the initializers take.
func (m *Model) WeightBytes() (n int64) {
	for _, t := range m.Graph.Initializers {
		if typ, err := t.Type(); err == nil {
			n += typ.Bytes()
		}
	}
	return n
}
