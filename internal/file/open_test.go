//go:build unix

package file

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What has no end or would be waited for is not read: one line says so, with the path.
func TestOnlyFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	fifo, text := filepath.Join(dir, "fifo"), filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("five\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, size, err := Open(text)
	if err != nil || size != 5 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	f.Close()
	if b, err := Read(text); err != nil || string(b) != "five\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no FIFO here: %v", err)
	}
	for path, want := range map[string]string{fifo: "fifo: it is not a regular file", dir: "it is not a regular file", os.DevNull: "it is not a regular file", text + "s": "texts: no such file or directory", "": "the path of a file is empty"} {
		if _, _, err := Open(path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	if _, err := Read(os.DevNull); err != errDevice {
		t.Error(err)
	}
}
