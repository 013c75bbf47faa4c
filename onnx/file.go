package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/ir/eval"
)

// Open reads the model in a file. The file stays mapped until Close.
func Open(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, file.Error(path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a regular file", path)
	}
	b, unmap, err := file.Map(f, st.Size())
	if err != nil {
		return nil, file.Error(path, err)
	}
	var m *Model
	err = file.Guard(func() (err error) {
		m, err = Parse(b)
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
		f, err := os.Open(where.File)
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

// external finds a tensor in a file beside the model's. The folder is the
// limit: no path leads out of it, neither by .. nor by a link.
func (m *Model) external(t *Tensor, typ ir.Type) (*ir.Init, error) {
	where := &ir.Init{Func: "file", Size: typ.Bytes()}
	size := where.Size
	name := ""
	for _, e := range t.External {
		var err error
		switch e.Key {
		case "location":
			name = e.Value
		case "offset":
			where.Offset, err = strconv.ParseInt(e.Value, 10, 64)
		case "length":
			size, err = strconv.ParseInt(e.Value, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: its external data has %s %q, want a number", t.Name, e.Key, e.Value)
		}
	}
	if size != where.Size {
		return nil, fmt.Errorf("tensor %q: %s needs %d bytes, its external data has %d", t.Name, typ, where.Size, size)
	}
	if m.path == "" {
		return nil, fmt.Errorf("tensor %q: its elements are in another file: open the model with Open, which knows its folder", t.Name)
	}
	dir := filepath.Dir(m.path)
	have, err := sizeWithin(dir, name)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: external data: %w", t.Name, err)
	}
	if where.Offset < 0 || where.Offset > have-where.Size {
		return nil, fmt.Errorf("tensor %q: its external data is bytes %d to %d of %q, which has %d: the file is not complete", t.Name, where.Offset, where.Offset+where.Size, name, have)
	}
	where.File = filepath.Join(dir, name)
	return where, nil
}

// sizeWithin is the size of a regular file that lies within dir.
func sizeWithin(dir, name string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	st, err := root.Stat(name)
	if err != nil {
		return 0, file.Error(ir.Printable(name), err)
	}
	if !st.Mode().IsRegular() {
		return 0, fmt.Errorf("%q is not a regular file, as external data must be", name)
	}
	return st.Size(), nil
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

// External reports whether any initializer lies in another file.
func (m *Model) External() bool {
	for _, t := range m.Graph.Initializers {
		if t.isExternal {
			return true
		}
	}
	return false
}

// ExternalInside reports whether any tensor of a node, or of a graph in one, lies in another file.
func (m *Model) ExternalInside() bool {
	var in func(nodes []*Node) bool
	in = func(nodes []*Node) bool {
		for _, n := range nodes {
			for _, a := range n.Attrs {
				if a.T != nil && a.T.isExternal || a.G != nil && (in(a.G.Nodes) || slices.ContainsFunc(a.G.Initializers, func(t *Tensor) bool { return t.isExternal })) {
					return true
				}
			}
		}
		return false
	}
	return in(m.Graph.Nodes) || slices.ContainsFunc(m.Functions, func(f *Function) bool { return in(f.Nodes) })
}

// WeightBytes is how many bytes the initializers take.
func (m *Model) WeightBytes() (n int64) {
	for _, t := range m.Graph.Initializers {
		if typ, err := t.Type(); err == nil {
			n += typ.Bytes()
		}
	}
	return n
}

// ExternalBytes is the number of bytes of the initializers whose elements are in other files.
func (m *Model) ExternalBytes() (n int64, err error) {
	for _, t := range m.Graph.Initializers {
		if !t.isExternal {
			continue
		}
		typ, err := t.Type()
		if err != nil {
			return n, err
		}
		n += typ.Bytes()
	}
	return n, nil
}
