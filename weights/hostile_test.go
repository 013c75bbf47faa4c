package weights_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ampc/internal/trial"
	"ampc/weights"
)

// zipped makes a zip file whose members are stored.
func zipped(t testing.TB, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: members[i], Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(members[i+1]))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tensorOf is the pickle of {"x": tensor} over storage 0 of n f32.
func tensorOf(n, offset, size, stride byte) string {
	return "\x80\x02}X\x01\x00\x00\x00xctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK" +
		string(n) + "tQK" + string(offset) + "K" + string(size) + "\x85K" + string(stride) + "\x85\x89ccollections\nOrderedDict\n)RtRs."
}

func open(t *testing.T, content []byte) (*weights.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.pt")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

// A file is refused, in one line that begins with its path and says why.
func TestRefusedFiles(t *testing.T) {
	data := strings.Repeat("\x00\x00\x80\x3f", 4)
	good := zipped(t, "a/data.pkl", tensorOf(4, 1, 2, 1), "a/data/0", data, "a/byteorder", "little")
	f, err := open(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := f.Read("x"); err != nil || !slices.Equal(h.Floats(), []float32{1, 1}) {
		t.Errorf("%v, %v", h, err)
	}
	bad := bytes.Clone(good)
	bad[bytes.Index(bad, []byte(data))] = 1
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"a command":            {zipped(t, "a/data.pkl", "\x80\x02cposix\nsystem\nX\x02\x00\x00\x00ls\x85R."), `it names "posix.system", which is not read`},
		"a module":             {zipped(t, "a/data.pkl", "\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81}b."), `"torch.nn.modules.linear.Linear"`},
		"an unknown opcode":    {zipped(t, "a/data.pkl", "\x80\x02\x82\x01."), "opcode EXT1"},
		"past the storage":     {zipped(t, "a/data.pkl", tensorOf(4, 1, 4, 1), "a/data/0", data), "lead out of a storage of 4 elements"},
		"a stride too long":    {zipped(t, "a/data.pkl", tensorOf(4, 0, 3, 2), "a/data/0", data), "lead out"},
		"an offset too far":    {zipped(t, "a/data.pkl", tensorOf(4, 9, 0, 1), "a/data/0", data), "begins at element 9"},
		"a storage cut short":  {zipped(t, "a/data.pkl", tensorOf(4, 0, 2, 1), "a/data/0", data[:8]), "has 8 bytes, want 4 elements of f32"},
		"no storage":           {zipped(t, "a/data.pkl", tensorOf(4, 0, 2, 1)), "storage 0 is not in the archive"},
		"big-endian":           {zipped(t, "a/data.pkl", tensorOf(4, 0, 2, 1), "a/data/0", data, "a/byteorder", "big"), `byte order is "big"`},
		"no tensor":            {zipped(t, "a/data.pkl", "\x80\x02}."), "it holds no tensors"},
		"a zip of something":   {zipped(t, "a.txt", "hello"), `holds "a.txt"`},
		"the form before 1.6":  {[]byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), "before version 1.6"},
		"nothing":              {nil, "too short"},
		"text":                 {[]byte("hello, world"), "not a safetensors file"},
		"an index of nothing":  {[]byte(`{"weight_map":{}}`), "no weight_map"},
		"an index that climbs": {[]byte(`{"weight_map":{"x":"../a.safetensors"}}`), `"../a.safetensors", which is not a file beside it`},
		"a cut zip":            {good[:len(good)-30], "zip"},
	} {
		_, err := open(t, c.content)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), os.TempDir()) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if f, err = open(t, bad); err != nil {
		t.Fatal(err)
	}
	_, err = f.Read("x")
	trial.WantError(t, err, "damaged: the checksum of a/data/0")
}

// A tensor that repeats its storage is not unfolded beyond the size of the file.
func TestExpandedTensor(t *testing.T) {
	p := strings.Replace(tensorOf(4, 0, 2, 0), "K\x02\x85", "J\x00\x00\x00\x40\x85", 1)
	f, err := open(t, zipped(t, "a/data.pkl", p, "a/data/0", strings.Repeat("\x00", 16)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Read("x")
	trial.WantError(t, err, "f32[1073741824] has 4294967296 bytes, more than the file")
}

// zip64 writes members with the sizes and offsets of ZIP64 (APPNOTE 4.5.3), as
// torch.save does beyond 4 GB.
func zip64(members ...string) []byte {
	var b, dir bytes.Buffer
	le := func(w *bytes.Buffer, v ...any) {
		for _, x := range v {
			binary.Write(w, binary.LittleEndian, x)
		}
	}
	const all = ^uint32(0)
	for i := 0; i < len(members); i += 2 {
		name, data := members[i], members[i+1]
		at, sum, n := uint64(b.Len()), crc32.ChecksumIEEE([]byte(data)), uint64(len(data))
		le(&b, uint32(0x04034b50), uint16(45), uint16(0), uint16(0), uint32(0), sum, all, all, uint16(len(name)), uint16(20))
		b.WriteString(name)
		le(&b, uint16(1), uint16(16), n, n)
		b.WriteString(data)
		le(&dir, uint32(0x02014b50), uint16(45), uint16(45), uint16(0), uint16(0), uint32(0), sum, all, all, uint16(len(name)), uint16(28), uint16(0), uint16(0), uint16(0), uint32(0), all)
		dir.WriteString(name)
		le(&dir, uint16(1), uint16(24), n, n, at)
	}
	start, size, count := uint64(b.Len()), uint64(dir.Len()), uint64(len(members)/2)
	b.Write(dir.Bytes())
	end := uint64(b.Len())
	le(&b, uint32(0x06064b50), uint64(44), uint16(45), uint16(45), uint32(0), uint32(0), count, count, size, start)
	le(&b, uint32(0x07064b50), uint32(0), end, uint32(1))
	le(&b, uint32(0x06054b50), ^uint16(0), ^uint16(0), ^uint16(0), ^uint16(0), all, all, uint16(0))
	return b.Bytes()
}

// Members that share their bytes, to be unpacked again and again, are refused.
func TestOverlappingMembers(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("a.npy")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(bytes.Repeat([]byte{0}, 1<<20))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	content := b.Bytes()
	dir := bytes.Index(content, []byte("PK\x01\x02"))
	end := bytes.Index(content, []byte("PK\x05\x06"))
	entry, tail := content[dir:end], bytes.Clone(content[end:])
	const copies = 40
	binary.LittleEndian.PutUint16(tail[8:], copies)
	binary.LittleEndian.PutUint16(tail[10:], copies)
	binary.LittleEndian.PutUint32(tail[12:], uint32(copies*len(entry)))
	_, err = open(t, slices.Concat(content[:dir], bytes.Repeat(entry, copies), tail))
	trial.WantError(t, err, "damaged: its members have more bytes than the archive")
}

func TestZIP64(t *testing.T) {
	f, err := open(t, zip64("a/data.pkl", tensorOf(4, 1, 2, 2), "a/data/0", "\x00\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x00\x00\x00\x00\x40"))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := f.Read("x"); err != nil || !slices.Equal(h.Floats(), []float32{1, 2}) {
		t.Errorf("%v, %v", h.Floats(), err)
	}
}

// A model in shards, by its index and by its folder; what an index promises is there.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	tensors := `{"%s":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`
	shard := func(name, tensor, data string) {
		header := fmt.Sprintf(tensors, tensor)
		trial.WriteFile(t, filepath.Join(dir, name), string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+data)
	}
	shard("model-1.safetensors", "x", "\x80\x3f\x00\x40")
	shard("model-2.safetensors", "y", "\x40\x40\x80\x40")
	index := filepath.Join(dir, "model.safetensors.index.json")
	trial.WriteFile(t, index, `{"metadata":{"total_size":8},"weight_map":{"x":"model-1.safetensors","y":"model-2.safetensors"}}`)
	for _, path := range []string{index, dir} {
		f, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]float32{"x": {1, 2}, "y": {3, 4}} {
			if h, err := f.Read(name); err != nil || !slices.Equal(h.Floats(), want) {
				t.Errorf("%s: %v, %v", name, h.Floats(), err)
			}
		}
		f.Close()
	}
	trial.WriteFile(t, index, `{"weight_map":{"x":"model-2.safetensors"}}`)
	_, err := weights.Open(dir)
	trial.WantError(t, err, `shard model-2.safetensors lacks the tensor "x"`)
	trial.WriteFile(t, index, `{"weight_map":{"x":"model-3.safetensors"}}`)
	_, err = weights.Open(dir)
	trial.WantError(t, err, "model-3.safetensors: no such file")
	_, err = weights.Open(t.TempDir())
	trial.WantError(t, err, "the folder holds none of")
}

// A file that becomes shorter while it is open is an error, not the end of the process.
func TestShortened(t *testing.T) {
	header := `{"x":{"dtype":"F32","shape":[65536],"data_offsets":[0,262144]}}`
	path := filepath.Join(t.TempDir(), "a.safetensors")
	trial.WriteFile(t, path, string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+strings.Repeat("\x00", 262144))
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read("x"); err != nil { // where files are mapped
		trial.WantError(t, err, "was made shorter while it was read")
	}
}

// oneLine fails where an error is more than a line.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than a line", err)
	}
}

// Whatever a file holds: tensors that can be read, or one line of error, in memory bounded by
// the length of the file.
func FuzzOpen(f *testing.F) {
	f.Add(zipped(f, "a/data.pkl", tensorOf(4, 1, 2, 1), "a/data/0", strings.Repeat("\x00\x00\x80\x3f", 4), "a/byteorder", "little"))
	f.Add(zipped(f, "a\nb/data.pkl", "no pickle"))
	f.Add(zipped(f, "a\nb.npy", "no array"))
	f.Add(zip64("a/data.pkl", tensorOf(4, 0, 4, 1), "a/data/0", strings.Repeat("x", 16)))
	for _, name := range []string{"kinds.pt", "kinds.npz", "packed.npz", "net.safetensors"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	path := filepath.Join(f.TempDir(), "a")
	f.Fuzz(func(t *testing.T, b []byte) {
		trial.WriteFile(t, path, string(b))
		defer os.Remove(path) // to write over a file takes the disk's time on some file systems
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w, err := weights.Open(path)
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20+3000*uint64(len(b)) {
			t.Errorf("%d bytes allocate %d", len(b), grew)
		}
		oneLine(t, err)
		if err != nil {
			return
		}
		defer w.Close()
		for _, info := range w.Tensors() {
			h, err := w.Read(info.Name)
			if oneLine(t, err); err == nil && h.Type != info.Type {
				t.Errorf("%s is read as %s", info.Name, h.Type)
			}
		}
	})
}
