package weights

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ampc"
	"ampc/internal/file"
)

// File is an open file of tensors. Its methods may be called concurrently.
type File struct {
	path    string
	size    int64 // of all mapped files
	tensors map[string]*tensor
	names   []string // sorted
	skipped []string // entries that are no tensors, in words
	closes  []func() error
	meta    map[string]string
}

// Info describes one tensor of a File.
type Info struct {
	Name string
	Type ampc.Type
}

// Open reads the names and types in a file, which stays mapped until Close. The
// format is told by the content:
//
//   - a safetensors file, or the index of one in shards (model.safetensors.index.json),
//   - an npz archive of NumPy, or a single npy array, which is then named "",
//   - a zip file of torch.save, or the index of one in shards (pytorch_model.bin.index.json),
//   - a folder that holds one of model.safetensors, pytorch_model.bin or their indexes.
//
// key is the place of the tensors in a torch file that holds more than a state_dict,
// such as "model_state_dict", or "a.b" for an inner dict; the tensors of dicts in
// dicts are named "outer.inner" otherwise.
func Open(path string, key ...string) (*File, error) {
	if len(key) > 1 {
		return nil, fmt.Errorf("%s: %d keys: give one, such as \"model.state_dict\" for a dict in a dict", path, len(key))
	}
	f := &File{path: path, tensors: map[string]*tensor{}, meta: map[string]string{}}
	in := ""
	if len(key) > 0 {
		in = key[0]
	}
	path, err := inFolder(path)
	if err == nil {
		err = f.read(path, in)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	for name := range f.tensors {
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	return f, nil
}

// inFolder finds the weights in a folder as Hugging Face's libraries lay it out.
func inFolder(path string) (string, error) {
	is, err := os.Stat(path)
	if err != nil {
		return "", file.Error(path, err)
	}
	if !is.IsDir() {
		return path, nil
	}
	names := []string{"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(path, name)); !errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(path, name), nil
		}
	}
	return "", fmt.Errorf("%s: the folder holds none of %q", path, names)
}

// read adds the tensors of the file at path.
func (f *File) read(path, key string) error {
	b, err := f.mapped(path)
	if err != nil {
		return err
	}
	err = file.Guard(func() error {
		switch {
		case bytes.HasPrefix(b, []byte("PK\x03\x04")):
			return f.readZip(b, key)
		case bytes.HasPrefix(b, []byte("\x93NUMPY")):
			return f.readNpy("", b)
		case bytes.HasPrefix(b, []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9")):
			return errors.New("a torch file of the form before version 1.6: load it in PyTorch and torch.save it again")
		case bytes.HasPrefix(bytes.TrimLeft(b[:min(len(b), 64)], " \t\r\n"), []byte("{")):
			return f.readIndex(filepath.Dir(path), b, key)
		}
		return f.readSafetensors(path, b)
	})
	if err != nil {
		return file.Error(path, err)
	}
	return nil
}

func (f *File) mapped(path string) ([]byte, error) {
	o, size, err := file.Open(path)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b, unmap, err := file.Map(o, size)
	if err != nil {
		return nil, file.Error(path, err)
	}
	f.size += size
	f.closes = append(f.closes, unmap)
	return b, nil
}

// add takes a tensor in, once by name.
func (f *File) add(t *tensor) error {
	if _, twice := f.tensors[t.name]; twice {
		return fmt.Errorf("tensor %q is there twice", t.name)
	}
	f.tensors[t.name] = t
	return nil
}

// Close releases the file.
func (f *File) Close() error {
	var all error
	for _, c := range f.closes {
		all = errors.Join(all, c())
	}
	f.closes, f.tensors = nil, nil
	return all
}

// Tensors lists what the file holds, sorted by name.
func (f *File) Tensors() []Info {
	out := make([]Info, 0, len(f.names))
	for _, name := range f.names {
		if t := f.tensors[name]; t != nil {
			out = append(out, Info{name, t.Type()})
		}
	}
	return out
}

// Meta returns an entry of a safetensors file's metadata, "" where there is none.
func (f *File) Meta(key string) string { return f.meta[key] }

// Read copies a tensor out of the file, row-major.
func (f *File) Read(name string) (ampc.HostTensor, error) {
	t, ok := f.tensors[name]
	if !ok {
		return ampc.HostTensor{}, fmt.Errorf("%s: no tensor %q", f.path, name)
	}
	if t.bytes() > f.size {
		return ampc.HostTensor{}, fmt.Errorf("%s: tensor %q: %s has %d bytes, more than the file: it repeats a smaller storage", f.path, name, t.Type(), t.bytes())
	}
	h := ampc.HostTensor{Type: t.Type()}
	err := file.Guard(func() error {
		if err := t.verify(); err != nil {
			return err
		}
		h.Bytes = t.dense(nil)
		if len(h.Bytes) > 0 && len(t.data) > 0 && &h.Bytes[0] == &t.data[0] {
			h.Bytes = slices.Clone(h.Bytes)
		}
		return nil
	})
	if err != nil {
		return ampc.HostTensor{}, fmt.Errorf("%s: tensor %q: %w", f.path, name, err)
	}
	return h, nil
}
