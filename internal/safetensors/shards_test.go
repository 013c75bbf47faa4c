package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stages are what two ranks do to save seven numbers, all equal to x, and a count, one after another.
func stages(path string, nonce uint64, x byte) []func() error {
	s := Shards{path, nonce, 2}
	part := func(rank, n int) func() error {
		data := bytes.Repeat([]byte{x}, n)
		return func() error { return s.WriteShard(rank, []Tensor{{"w", U8, []int64{int64(n)}, Bytes(data)}}) }
	}
	return []func() error{s.Begin, part(0, 4), part(1, 3), func() error {
		return s.Commit(map[string]string{"step": string(x)}, []Tensor{{"count", U8, nil, Bytes([]byte{x})}}, []Tensor{{Name: "w", DType: U8, Shape: []int64{1, 7}}})
	}}
}

func saveShards(t *testing.T, path string, nonce uint64, x byte) {
	t.Helper()
	for _, do := range stages(path, nonce, x) {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// holds requires that the checkpoint is the one of x, whole.
func holds(t *testing.T, path string, x byte) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, count := make([]byte, 7), make([]byte, 1)
	info, ok := f.Lookup("w")
	if !ok || !slices.Equal(info.Shape, []int64{1, 7}) || info.Bytes() != 7 || len(f.Tensors) != 2 || len(f.Meta) != 1 || f.Meta["step"] != string(x) {
		t.Errorf("%v, %v", f.Tensors, f.Meta)
	}
	if err := f.Read("w", w); err != nil || bytes.Count(w, []byte{x}) != 7 {
		t.Errorf("%v, %v", w, err)
	}
	if err := f.Read("count", count); err != nil || count[0] != x {
		t.Errorf("%v, %v", count, err)
	}
}

func folders(t *testing.T, path string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.shards"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Ranks that are killed between any two steps of a save, or within one, leave the checkpoint that was
// there, and the next save leaves nothing of theirs.
func TestKilledBetweenShards(t *testing.T) {
	for done := range 4 {
		path := filepath.Join(t.TempDir(), "last.safetensors")
		saveShards(t, path, 1, 'a')
		for _, do := range stages(path, 2, 'b')[:done] {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, path, 'a')
		if done == 2 { // killed while the second shard is written
			if err := os.WriteFile(filepath.Join(folders(t, path)[1], ".rank1of2.safetensors.tmp77"), []byte("half"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		saveShards(t, path, 3, 'c')
		holds(t, path, 'c')
		if left := folders(t, path); len(left) != 1 {
			t.Errorf("killed after %d steps: the next save leaves %v", done, left)
		}
	}
}

// A checkpoint that was renamed beside the new one keeps its shards; a link leads to both.
func TestShardsOfRenamedCheckpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "last.safetensors")
	saveShards(t, path, 1, 'a')
	before := filepath.Join(filepath.Dir(path), "before")
	if err := os.Rename(path, before); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	saveShards(t, link, 2, 'b')
	holds(t, before, 'a')
	holds(t, path, 'b')
	holds(t, link, 'b')
	b, err := os.ReadFile(link)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(b)
	if err != nil || !f.Shards() {
		t.Fatal("a parsed index is not one of shards: ", err)
	}
	defer f.Close()
	if err := f.OpenShards(link); err != nil {
		t.Fatal(err)
	}
	info, _ := f.Lookup("w")
	if w, err := f.Slice(info); err != nil || string(w) != "bbbbbbb" {
		t.Errorf("%q, %v", w, err)
	}
}

// Shards that are lost, of another checkpoint or damaged are one line that begins with the path.
func TestDamagedShards(t *testing.T) {
	for want, harm := range map[string]func(folder string) error{
		"keep the folder last-0000000000000001.shards beside it": os.RemoveAll,
		"rank1of2.safetensors: no such file":                     func(folder string) error { return os.Remove(filepath.Join(folder, "rank1of2.safetensors")) },
		"shard of another checkpoint": func(folder string) error {
			return WriteFile(filepath.Join(folder, "rank1of2.safetensors"), map[string]string{nonceKey: "2"}, nil)
		},
		"has no part of tensor w": func(folder string) error {
			return WriteFile(filepath.Join(folder, "rank0of2.safetensors"), map[string]string{nonceKey: Shards{Nonce: 1}.nonce()}, nil)
		},
		"needs 7 bytes": func(folder string) error {
			return WriteFile(filepath.Join(folder, "rank0of2.safetensors"), map[string]string{nonceKey: Shards{Nonce: 1}.nonce()}, []Tensor{{"w", U8, []int64{3}, Bytes(make([]byte, 3))}})
		},
	} {
		path := filepath.Join(t.TempDir(), "last.safetensors")
		saveShards(t, path, 1, 'a')
		if err := harm(folders(t, path)[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A rank that does not see the folder of rank 0, and a shard that rank 0 does not see, are one line
// each, and the checkpoint stays.
func TestShardsNeedOneFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "last.safetensors")
	saveShards(t, path, 1, 'a')
	other := Shards{path, 2, 2}
	if err := other.WriteShard(1, nil); err == nil || !strings.Contains(err.Error(), "the file system is not shared") {
		t.Error(err)
	}
	do := stages(path, 3, 'b')
	for _, i := range []int{0, 1, 3} {
		if err := do[i](); i < 3 && err != nil || i == 3 && (err == nil || !strings.Contains(err.Error(), "rank 1 has written its shard where rank 0 does not see it")) {
			t.Error(i, err)
		}
	}
	Shards{path, 3, 2}.Discard()
	holds(t, path, 'a')
	if left := folders(t, path); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
