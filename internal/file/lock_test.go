package file

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lock")
	f, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("the second lock: %v, want one that names process %d", err, os.Getpid())
	}
	f.Close()
	if f, err = Lock(path); err != nil {
		t.Errorf("after the first was given up: %v", err)
	} else {
		f.Close()
	}
	if _, err := Lock(filepath.Join(t.TempDir(), "none", ".lock")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("in no folder: %v", err)
	}
}

// What a killed Write leaves is removed, and nothing else.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]*")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.x")
	to, err := resolve(path)
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := to.beside() // and then the process is killed
	if err != nil {
		t.Fatal(err)
	}
	tmp.Close()
	for _, name := range []string{"a.x", ".b.x.tmp1", "a.x.tmp1", ".a.x.tmpdir"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(dir, "a.x", "c")
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("%v are left (%v), want the four that are not temporary files of a.x", left, err)
	}
	if _, err := os.Stat(tmp.Name()); err == nil {
		t.Error("the temporary file is still there")
	}
}

func TestFree(t *testing.T) {
	if n, ok := Free(t.TempDir()); ok && n <= 0 {
		t.Errorf("%d bytes free in a folder for temporary files", n)
	}
	if _, ok := Free(filepath.Join(t.TempDir(), "none")); ok {
		t.Error("free space of no folder")
	}
}
