package file

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrLocked is the error of Lock where another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock takes the lock that the file path stands for, and makes the file. It is a
// lock of the operating system: it ends with the process that holds it, however
// that ends, or when the returned file is closed. The file holds the number of
// the process, for people. Where the system has no such locks, or the file
// system refuses them, it is taken by all who ask.
func Lock(path string) (*os.File, error) {
	for {
		f, err := openLocked(path)
		if errors.Is(err, ErrLocked) {
			owner, _ := os.ReadFile(path)
			if pid := strings.TrimSpace(string(owner)); pid != "" {
				err = fmt.Errorf("%w, %s", ErrLocked, pid)
			}
			return nil, err
		} else if err != nil {
			return nil, Error(path, err)
		}
		if same(f, path) {
			if err := f.Truncate(0); err == nil {
				fmt.Fprintln(f, os.Getpid())
			}
			return f, nil
		}
		f.Close() // its owner removed it between our opening and locking it
	}
}

// same reports whether path still leads to f.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	b, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(a, b)
}
