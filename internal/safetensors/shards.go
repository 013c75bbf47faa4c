package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ampc/internal/file"
)

// A checkpoint in shards is an index at its path and a folder beside it with a file for each rank.
// The index is a file like others, with the tensors that no rank shares, and names the folder and the
// tensors of which the ranks have parts: consecutive ranges of the elements, in the order of ranks.
// Open reads both forms alike.

const (
	shardsKey = "ampc.shards" // in the metadata of an index: a layout
	nonceKey  = "ampc.nonce"  // in that of a shard
	nonceFile = "nonce"       // in the folder
)

// layout is what an index says of its shards.
type layout struct {
	Folder  string  `json:"folder"`
	Nonce   string  `json:"nonce"`
	Ranks   int     `json:"ranks"`
	Tensors []whole `json:"tensors"`
}

// whole is a tensor of which the shards have parts.
type whole struct {
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// Shards is a checkpoint in shards that is being written. One rank calls Begin; all call WriteShard
// then, and the first one Commit when all have returned. Nothing that is there changes before Commit.
type Shards struct {
	Path  string
	Nonce uint64 // of this checkpoint alone
	Ranks int
}

// place is the file that the index replaces, and the folder of the shards.
func (s Shards) place() (index, folder string, err error) {
	if index, err = file.Resolve(s.Path); err != nil {
		return "", "", file.Error(s.Path, err)
	}
	return index, stem(index) + fmt.Sprintf("-%s.shards", s.nonce()), nil
}

func (s Shards) nonce() string { return fmt.Sprintf("%016x", s.Nonce) }

func stem(index string) string { return strings.TrimSuffix(index, ".safetensors") }

func shardName(rank, ranks int) string {
	return fmt.Sprintf("rank%dof%d.safetensors", rank, ranks)
}

// Begin makes the folder.
func (s Shards) Begin() error {
	_, folder, err := s.place()
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		return file.Error(s.Path, err)
	}
	return file.Write(filepath.Join(folder, nonceFile), func(f *os.File) error {
		_, err := io.WriteString(f, s.nonce())
		return err
	})
}

// WriteShard writes the parts of one rank. It is an error where this process does not see the folder
// that Begin has made.
func (s Shards) WriteShard(rank int, parts []Tensor) error {
	_, folder, err := s.place()
	if err != nil {
		return err
	}
	seen, err := os.ReadFile(filepath.Join(folder, nonceFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return file.Error(s.Path, err)
	}
	if string(seen) != s.nonce() {
		return fmt.Errorf("%s: the folder that rank 0 has made for the checkpoint is not there: the file system is not shared; save where all ranks see the same files", s.Path)
	}
	return WriteFile(filepath.Join(folder, shardName(rank, s.Ranks)), map[string]string{nonceKey: s.nonce()}, parts)
}

// Commit replaces the checkpoint at the path by that of the shards, and removes the shards of earlier
// ones. tensors are those that the index holds itself, wholes those of which the shards have parts;
// these are not written.
func (s Shards) Commit(meta map[string]string, tensors, wholes []Tensor) error {
	index, folder, err := s.place()
	if err != nil {
		return err
	}
	l := layout{Folder: filepath.Base(folder), Nonce: s.nonce(), Ranks: s.Ranks}
	for _, t := range wholes {
		l.Tensors = append(l.Tensors, whole{t.Name, t.DType, t.Shape})
	}
	for r := range s.Ranks {
		if _, err := l.shard(filepath.Dir(index), r, headerOf); err != nil {
			return fmt.Errorf("%s: rank %d has written its shard where rank 0 does not see it (%w): save where all ranks see the same files", s.Path, r, err)
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	all := map[string]string{shardsKey: string(text)}
	for k, v := range meta {
		all[k] = v
	}
	if err := WriteFile(s.Path, all, tensors); err != nil {
		return err
	}
	Sweep(index)
	return nil
}

// Discard removes the shards of a checkpoint that is not committed.
func (s Shards) Discard() {
	if _, folder, err := s.place(); err == nil {
		os.RemoveAll(folder)
	}
}

// Sweep removes the folders of checkpoints that were saved at the path of an index and that no index
// beside it names any more, such as those of a process that was killed.
func Sweep(index string) {
	dir, prefix := filepath.Dir(index), filepath.Base(stem(index))+"-"
	entries, _ := os.ReadDir(dir)
	named := map[string]bool{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if f, err := headerOf(filepath.Join(dir, e.Name())); err == nil && f.shards != nil {
			named[f.shards.Folder] = true
		}
	}
	for _, e := range entries {
		nonce, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".shards"), prefix)
		if !ok || !e.IsDir() || named[e.Name()] || len(nonce) != 16 || strings.Trim(nonce, "0123456789abcdef") != "" || !strings.HasSuffix(e.Name(), ".shards") {
			continue
		}
		os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}

// headerOf reads the header of a file alone; the file is closed.
func headerOf(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	defer r.Close()
	size, err := length(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File{f: r, path: path, close: func() error { return nil }}
	if _, err := f.header(size); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// shard opens the shard of a rank beside an index in dir.
func (l *layout) shard(dir string, rank int, open func(string) (*File, error)) (*File, error) {
	f, err := open(filepath.Join(dir, l.Folder, shardName(rank, l.Ranks)))
	if err != nil {
		return nil, err
	}
	if f.nonce != l.Nonce {
		f.Close()
		return nil, fmt.Errorf("%s: is a shard of another checkpoint", f.path)
	}
	return f, nil
}

// Shards reports whether the file is the index of a checkpoint in shards that are not open: of a
// parsed one, until OpenShards.
func (f *File) Shards() bool { return f.shards != nil && f.parts == nil }

// OpenShards opens the shards of an index at path.
func (f *File) OpenShards(path string) error {
	l := f.shards
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return file.Error(path, err)
	}
	const most = 1 << 16
	if l.Ranks < 1 || l.Ranks > most || l.Folder != filepath.Base(l.Folder) || !filepath.IsLocal(l.Folder) {
		return fmt.Errorf("the index names the folder %q with %d shards, which is none beside it", l.Folder, l.Ranks)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(at), l.Folder)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its shards are not there: keep the folder %s beside it", l.Folder)
	}
	for r := range l.Ranks {
		part, err := l.shard(filepath.Dir(at), r, Open)
		if err != nil {
			return err
		}
		f.parts = append(f.parts, part)
	}
	for _, t := range l.Tensors {
		info, err := f.join(t)
		if err != nil {
			return err
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, info)
	}
	return nil
}

// join checks that the shards together have all of a tensor.
func (f *File) join(t whole) (Info, error) {
	size, ok := byteSize(t.DType, t.Shape)
	info := Info{Name: t.Name, DType: t.DType, Shape: t.Shape, end: size, parts: true}
	if _, twice := f.byName[t.Name]; twice || !ok || t.DType.Size() == 0 {
		return info, fmt.Errorf("tensor %s: unknown dtype, impossible shape or a name that is there twice", info)
	}
	sum := int64(0)
	for _, p := range f.parts {
		part, ok := p.Lookup(t.Name)
		if !ok || part.DType != t.DType {
			return info, fmt.Errorf("%s: has no part of tensor %s", p.path, info)
		}
		sum += part.Bytes()
	}
	if sum != size {
		return info, fmt.Errorf("tensor %s needs %d bytes, its parts in the shards have %d", info, size, sum)
	}
	return info, nil
}

// readParts fills dst with the parts of a tensor.
func (f *File) readParts(name string, dst []byte) error {
	for _, p := range f.parts {
		part, _ := p.Lookup(name)
		if err := p.Read(name, dst[:part.Bytes()]); err != nil {
			return err
		}
		dst = dst[part.Bytes():]
	}
	return nil
}
