package weights

import (
	"archive/zip"
	"errors"
	"fmt"
	"strings"
	"sync"

	"ampc"
	"ampc/internal/pickle"
	"ampc/ir"
)

// storages are the typed storages of torch.save by the classes that name them.
var storages = map[string]ampc.DType{
	"DoubleStorage": ampc.F64, "FloatStorage": ampc.F32, "HalfStorage": ampc.F16, "BFloat16Storage": ampc.BF16,
	"LongStorage": ampc.I64, "IntStorage": ampc.I32, "ShortStorage": ampc.I16, "CharStorage": ampc.I8, "ByteStorage": ampc.U8, "BoolStorage": ampc.Bool,
}

// storage is a member of the zip file that tensors show parts of.
type storage struct {
	dtype ampc.DType
	data  []byte
	check func() error
}

// archive is a torch file while its pickle is read.
type archive struct {
	b       []byte
	members map[string]*zip.File // by their names without the folder
	seen    map[string]*storage
}

// readTorch reads a zip file of torch.save, whose members lie under root.
func (f *File) readTorch(b []byte, z *zip.Reader, root, key string) error {
	a := &archive{b: b, members: map[string]*zip.File{}, seen: map[string]*storage{}}
	for _, m := range z.File {
		if name, ok := strings.CutPrefix(m.Name, root); ok {
			if a.members[name] != nil {
				return fmt.Errorf("damaged: %s is there twice", ir.Printable(m.Name))
			}
			a.members[name] = m
		}
	}
	if m := a.members["byteorder"]; m != nil {
		order, err := member(b, m)
		if err != nil {
			return err
		}
		if string(order) != "little" {
			return fmt.Errorf("its byte order is %q, want little", order)
		}
	}
	m := a.members["data.pkl"]
	program, err := member(b, m)
	if err != nil {
		return fmt.Errorf("%s: %w", ir.Printable(m.Name), err)
	}
	v, err := pickle.Load(program, pickle.Config{Globals: globals(), Persistent: a.persistent})
	var named *pickle.GlobalError
	if errors.As(err, &named) {
		return fmt.Errorf("%s: %w; save a state_dict alone, with torch.save(model.state_dict(), path)", ir.Printable(m.Name), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ir.Printable(m.Name), err)
	}
	if v, err = inside(v, key); err != nil {
		return err
	}
	w := &walk{f: f, left: 1024 + 16*len(program)}
	if err = w.collect("", v, 0); err == nil && len(f.tensors) == 0 {
		err = errors.New("it holds no tensors")
	}
	return err
}

// globals are what the pickle of a state_dict names; all else is refused.
func globals() map[string]any {
	g := map[string]any{
		"collections.OrderedDict":         pickle.OrderedDict,
		"torch._utils._rebuild_tensor_v2": pickle.Func{Name: "_rebuild_tensor_v2", Call: rebuildTensor},
		"torch._utils._rebuild_parameter": pickle.Func{Name: "_rebuild_parameter", Call: rebuildParameter},
	}
	for class, d := range storages {
		g["torch."+class] = d
	}
	return g
}

// persistent is the storage of ("storage", class, key, location, elements).
func (a *archive) persistent(id any) (any, error) {
	t, _ := id.(pickle.Tuple)
	if len(t) != 5 {
		return nil, errors.New("a persistent id is not that of a storage")
	}
	word, _ := t[0].(string)
	d, typed := t[1].(ampc.DType)
	key, keyed := t[2].(string)
	n, counted := t[4].(int64)
	if word != "storage" || !typed || !keyed || !counted || n < 0 {
		return nil, errors.New("a persistent id is not that of a storage")
	}
	if s := a.seen[key]; s != nil {
		if s.dtype != d {
			return nil, fmt.Errorf("storage %s is %s here and %s before", ir.Printable(key), d, s.dtype)
		}
		return s, nil
	}
	m := a.members["data/"+key]
	if m == nil {
		return nil, fmt.Errorf("storage %s is not in the archive", ir.Printable(key))
	}
	data, err := stored(a.b, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ir.Printable(m.Name), err)
	}
	if have := int64(len(data)); have%int64(d.Size()) != 0 || have/int64(d.Size()) != n {
		return nil, fmt.Errorf("storage %s has %d bytes, want %d elements of %s", ir.Printable(key), have, n, d)
	}
	s := &storage{d, data, sync.OnceValue(func() error { return checksum(data, m) })}
	a.seen[key] = s
	return s, nil
}

// rebuildTensor is torch._utils._rebuild_tensor_v2: storage, offset, size, stride,
// requires_grad, hooks and, in newer files, metadata.
func rebuildTensor(args pickle.Tuple) (any, error) {
	if len(args) != 6 && len(args) != 7 {
		return nil, fmt.Errorf("%d arguments, want 6 or 7", len(args))
	}
	s, ok := args[0].(*storage)
	offset, at := args[1].(int64)
	shape, sized := integers(args[2])
	strides, strided := integers(args[3])
	if !ok || !at || !sized || !strided {
		return nil, errors.New("its arguments are not a storage, an offset, sizes and strides")
	}
	if len(args) == 7 {
		if d, ok := args[6].(*pickle.Dict); args[6] != nil && (!ok || len(d.Keys) > 0) {
			return nil, errors.New("a tensor with metadata (a conjugated or negated view): save a clone of it")
		}
	}
	if _, err := count(shape, s.dtype.Size()); err != nil {
		return nil, err
	}
	size := int64(s.dtype.Size())
	if err := within(shape, strides, offset, int64(len(s.data))/size); err != nil {
		return nil, err
	}
	return &tensor{dtype: s.dtype, shape: shape, strides: strides, data: s.data[offset*size:], check: s.check}, nil
}

func integers(v any) ([]int64, bool) {
	t, ok := v.(pickle.Tuple)
	out := make([]int64, len(t))
	for i, x := range t {
		n, is := x.(int64)
		out[i], ok = n, ok && is
	}
	return out, ok
}

// rebuildParameter is torch._utils._rebuild_parameter: a tensor, requires_grad, hooks.
func rebuildParameter(args pickle.Tuple) (any, error) {
	if len(args) != 3 {
		return nil, fmt.Errorf("%d arguments, want 3", len(args))
	}
	t, ok := args[0].(*tensor)
	if !ok {
		return nil, errors.New("a parameter of something else than a tensor")
	}
	return t, nil
}

// inside is the part of a value at key: that of a dict, or with dots of dicts in dicts.
func inside(v any, key string) (any, error) {
	if key == "" {
		return v, nil
	}
	d, ok := v.(*pickle.Dict)
	if !ok || len(d.Keys) == 0 {
		return nil, fmt.Errorf("there is no dict with the key %q", key)
	}
	var keys []string
	for i, k := range d.Keys {
		name := fmt.Sprint(k)
		if name == key {
			return d.Values[i], nil
		}
		keys = append(keys, name)
	}
	for i, name := range keys {
		if rest, ok := strings.CutPrefix(key, name+"."); ok {
			return inside(d.Values[i], rest)
		}
	}
	return nil, fmt.Errorf("there is no key %q, the dict has %s", key, list(keys))
}

// walk names the tensors in what a pickle holds.
type walk struct {
	f    *File
	left int // bytes of names; a dict that stands in many places has many
}

func (w *walk) collect(name string, v any, depth int) error {
	w.left -= 1 + len(name)
	if depth > 64 || w.left < 0 {
		return errors.New("its dicts stand in one another without end")
	}
	under := func(key any) string { return strings.TrimPrefix(fmt.Sprintf("%s.%v", name, key), ".") }
	var items []any
	switch v := v.(type) {
	case *tensor:
		t := *v // two names may have one tensor
		t.name = name
		return w.f.add(&t)
	case *pickle.Dict:
		for i, k := range v.Keys {
			if err := w.collect(under(k), v.Values[i], depth+1); err != nil {
				return err
			}
		}
	case *pickle.List:
		items = v.Items
	case pickle.Tuple:
		items = v
	}
	for i, x := range items {
		if err := w.collect(under(i), x, depth+1); err != nil {
			return err
		}
	}
	return nil
}
