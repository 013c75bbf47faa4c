// Package file writes files that appear as a whole or not at all, and words the system's errors.
package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Error is the operating system's error as "path: reason", without the call that failed and the name of a temporary file.
func Error(path string, err error) error {
	var call *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &call):
		err = call.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Write makes path hold what write writes: beside it, synced and renamed, so that a reader finds the old file or the new one.
// Where anything fails, the old file is as it was and nothing lies beside it.
func Write(path string, write func(*os.File) error) error {
	tmp, err := beside(path)
	if err != nil {
		return err
	}
	if err = finish(tmp, write); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return Error(path, err)
	}
	syncDir(filepath.Dir(path))
	return nil
}

// Writable is the error that Write would begin with: a directory, no folder around it, no right to write there.
func Writable(path string) error {
	tmp, err := beside(path)
	if err != nil {
		return err
	}
	tmp.Close()
	return os.Remove(tmp.Name())
}

// beside makes the temporary file for path.
func beside(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, Error(path, syscall.EISDIR)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return nil, Error(path, err)
	}
	return tmp, nil
}

// finish writes, syncs and closes tmp.
func finish(tmp *os.File, write func(*os.File) error) error {
	err := write(tmp)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	return err
}

// syncDir makes a rename durable. The file is in place either way, and not every system syncs directories.
func syncDir(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	d.Sync()
}
