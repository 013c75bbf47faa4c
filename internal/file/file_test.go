package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func text(s string) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.WriteString(s)
		return err
	}
}

// alone wants path to hold s and nothing to lie beside it.
func alone(t *testing.T, path, s string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != s {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, s)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("%d files are there (%v), want one", len(list), err)
	}
}

func TestWriteReplacesAsAWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	alone(t, path, "old")
	torn := errors.New("torn")
	err := Write(path, func(f *os.File) error {
		f.WriteString("half")
		return torn
	})
	if !errors.Is(err, torn) || err.Error() != path+": torn" {
		t.Errorf("error %v", err)
	}
	alone(t, path, "old")
	if err := Write(path, text("new")); err != nil {
		t.Fatal(err)
	}
	if err := Writable(path); err != nil {
		t.Error(err)
	}
	alone(t, path, "new")
}

// What the system says of a temporary file is said of the file that was asked for.
// A panic of what writes leaves no file behind.
func TestPanicLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("the panic was lost")
		}
		alone(t, path, "old")
	}()
	Write(path, func(*os.File) error { panic("torn") })
}

func TestErrorsNameThePath(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                       ": is a directory",
		filepath.Join(dir, "b/c"): ": no such file or directory",
	} {
		early, late := Writable(path), Write(path, text("x"))
		for _, err := range []error{early, late} {
			if err == nil || err.Error() != path+want {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		}
	}
	path := filepath.Join(dir, "d")
	err := Write(path, func(f *os.File) error {
		f.Close()
		return text("x")(f)
	})
	if err == nil || !strings.HasPrefix(err.Error(), path+": ") || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("%v, want %q and no temporary file", err, path)
	}
}

// What a Write at work has beside the file is removed before the process ends.
func TestDiscard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	err := Write(path, func(f *os.File) error {
		f.WriteString("half")
		Discard()
		alone(t, path, "old")
		return nil
	})
	if err == nil {
		t.Error("the file was replaced after all")
	}
	alone(t, path, "old")
}
