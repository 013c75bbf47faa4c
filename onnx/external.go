package onnx

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"ampc/internal/file"
	"ampc/ir"
)

// extent is where the elements of an external tensor lie, as the model says it.
func (t *Tensor) extent(typ ir.Type) (name string, offset, size int64, err error) {
	size = typ.Bytes()
	for _, e := range t.External {
		switch e.Key {
		case "location":
			name = e.Value
		case "offset":
			offset, err = strconv.ParseInt(e.Value, 10, 64)
		case "length":
			size, err = strconv.ParseInt(e.Value, 10, 64)
		}
		if err != nil {
			return "", 0, 0, fmt.Errorf("tensor %q: its external data has %s %q, want a number", t.Name, e.Key, e.Value)
		}
	}
	return name, offset, size, nil
}

// external finds a tensor in a file beside the model's. The folder is the
// limit: no path leads out of it, neither by .. nor by a link.
func (m *Model) external(t *Tensor, typ ir.Type) (*ir.Init, error) {
	where := &ir.Init{Func: "file", Size: typ.Bytes()}
	name, offset, size, err := t.extent(typ)
	if err != nil {
		return nil, err
	}
	where.Offset = offset
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

// disjoint is the error of external tensors that share a part of their bytes: writers place tensors
// one behind the other, or give equal ones one place. dir is the folder of the model.
func (m *Model) disjoint(dir string) error {
	type place struct {
		t        *Tensor
		file     string
		from, to int64
	}
	all := m.externals()
	if len(all) == 0 {
		return nil
	}
	var list []place
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	files := identities(root)
	for _, t := range all {
		typ, err := t.Type()
		if err != nil || typ.Bytes() == 0 {
			continue // who reads it says so
		}
		if name, from, _, err := t.extent(typ); err == nil {
			list = append(list, place{t, files(name), from, from + typ.Bytes()})
		}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	for i, b := range list[min(1, len(list)):] {
		if a := list[i]; a.file == b.file && b.from < a.to && (a.from != b.from || a.to != b.to) {
			return fmt.Errorf("tensors %q and %q: their external data overlaps: bytes %d to %d and %d to %d of %q", a.t.Name, b.t.Name, a.from, a.to, b.from, b.to, a.file)
		}
	}
	return nil
}

// identities returns a function that gives all names of one file, those of links to it included,
// the name that it saw first.
func identities(root *os.Root) func(name string) string {
	type file struct {
		name string
		info os.FileInfo
	}
	var have []file
	first := map[string]string{}
	return func(name string) string {
		name = filepath.Clean(name)
		if first[name] != "" {
			return first[name]
		}
		first[name] = name
		info, err := root.Stat(name)
		if err != nil {
			return name // who reads it says so
		}
		if i := slices.IndexFunc(have, func(f file) bool { return os.SameFile(f.info, info) }); i >= 0 {
			first[name] = have[i].name
		} else {
			have = append(have, file{name, info})
		}
		return first[name]
	}
}

// External reports whether any initializer lies in another file.
func (m *Model) External() bool {
	for _, t := range m.Graph.Initializers {
		if t.isExternal {
			return true
		}
	}
	return false
}

// externals lists the tensors in other files: initializers of all graphs, and attributes.
func (m *Model) externals() (out []*Tensor) {
	add := func(t *Tensor) {
		if t != nil && t.isExternal {
			out = append(out, t)
		}
	}
	var in func(nodes []*Node)
	in = func(nodes []*Node) {
		for _, n := range nodes {
			for _, a := range n.Attrs {
				if add(a.T); a.G != nil {
					in(a.G.Nodes)
					for _, t := range a.G.Initializers {
						add(t)
					}
				}
			}
		}
	}
	in(m.Graph.Nodes)
	for _, f := range m.Functions {
		in(f.Nodes)
	}
	for _, t := range m.Graph.Initializers {
		add(t)
	}
	return out
}

// ExternalInside reports whether any tensor of a node, or of a graph in one, lies in another file.
func (m *Model) ExternalInside() bool {
	n := len(m.externals())
	for _, t := range m.Graph.Initializers {
		if t.isExternal {
			n--
		}
	}
	return n > 0
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
