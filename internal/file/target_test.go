//go:build unix

package file

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What is not a regular file gets the bytes and stays what it is, also for a user who may replace it.
func TestDevicesAndFIFOsStay(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no FIFO here: %v", err)
	}
	if err := Writable(fifo); err != nil { // with no reader yet
		t.Fatal(err)
	}
	got := make(chan string)
	go func() {
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
		}
		data, _ := io.ReadAll(f)
		got <- string(data)
	}()
	seeking := func(f *os.File) error { // as a checkpoint's checksum does
		if _, err := f.WriteString("?bc"); err != nil {
			return err
		}
		_, err := f.WriteAt([]byte("a"), 0)
		return err
	}
	if err := Write(fifo, seeking); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "abc" {
		t.Errorf("the FIFO's reader got %q", s)
	}
	if info, err := os.Lstat(fifo); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the FIFO became %v (%v)", info.Mode(), err)
	}
	const full = "/dev/full"
	before, err := os.Lstat(full)
	if err != nil {
		t.Skipf("no %s here: %v", full, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(full, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{full, link} {
		if err := Writable(path); err != nil {
			t.Error(err)
		}
		if err := Write(path, text("x")); !errors.Is(err, syscall.ENOSPC) || err.Error() != path+": no space left on device" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if after, err := os.Lstat(full); err != nil || after.Mode() != before.Mode() {
		t.Errorf("%s became %v (%v)", full, after.Mode(), err)
	}
}

// A file that ends in the middle is told as that.
func TestEarlyEnd(t *testing.T) {
	if err := Error("a.gz", io.ErrUnexpectedEOF); err.Error() != "a.gz: ends early" {
		t.Error(err)
	}
}

// A link stays a link, wherever it points; what it points to is replaced, or made.
func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"here", "there", "there/deep"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for link, to := range map[string]string{
		"here/absolute": at("there/a"), "here/relative": "../there/b", "here/again": "relative", "folder": "there/deep",
		"there/deep/up": "../c", "here/loop": "loop",
	} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"here/absolute": "there/a", "here/relative": "there/b", "here/again": "there/b", "folder/up": "there/c"} {
		for _, s := range []string{link, link + " again"} {
			if err := Write(at(link), text(s)); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(at(to)); err != nil || string(got) != s {
				t.Errorf("%s holds %q (%v), want %q", to, got, err, s)
			}
			if info, err := os.Lstat(at(link)); err != nil || info.Mode().Type() != fs.ModeSymlink {
				t.Errorf("%s became %v (%v)", link, info.Mode(), err)
			}
		}
	}
	if err := Write(at("here/loop"), text("x")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop of links: %v", err)
	}
	if list, err := os.ReadDir(at("there")); err != nil || len(list) != 4 {
		t.Errorf("%v lie there (%v), want a, b, c and deep", list, err)
	}
}

// A new file has the mode that the umask leaves, a replaced one its own.
func TestModes(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "a")
	want := func(mode fs.FileMode) {
		t.Helper()
		if err := Write(path, text("x")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("mode %v (%v), want %v", info.Mode(), err, mode)
		}
	}
	want(0o640)
	for _, mode := range []fs.FileMode{0o600, 0o666, 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		want(mode)
	}
	if os.Getuid() == 0 {
		return // may write everything
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, text("y")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that may not be written to: %v", err)
	}
}
