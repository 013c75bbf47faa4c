// Package file writes files that appear as a whole or not at all, and words the system's errors.
package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Error is the operating system's error as "path: reason", without the call that failed and the name of a temporary file.
func Error(path string, err error) error {
	var call *os.PathError
	var link *os.LinkError
	switch {
	case path == "":
		return errNoPath
	case errors.As(err, &call):
		err = call.Err
	case errors.As(err, &link):
		err = link.Err
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errEarly
	}
	return fmt.Errorf("%s: %w", path, err)
}

var (
	errEarly  = errors.New("ends early")
	errNoPath = errors.New("the path of a file is empty")
)

// Write makes path hold what write writes.
//
// A regular file is replaced: the bytes go to a temporary file beside it, reach the disk and are renamed, so that a reader
// finds the old file or the new one. Where anything fails, the old file is as it was and nothing lies beside it. A new file
// has the mode that the umask leaves of 0666, a replaced one keeps its own. Where path is a symbolic link, what it points
// to is replaced and the link stays.
//
// What is not a regular file, such as a device or a FIFO, gets the bytes written to it once write has written all of them.
func Write(path string, write func(*os.File) error) error {
	to, err := resolve(path)
	if err == nil && to.inPlace {
		err = pour(to.path, write)
	} else if err == nil {
		err = to.replace(write)
	}
	if err != nil {
		return Error(path, err)
	}
	return nil
}

// Writable is the error that Write would begin with: a directory, no folder around it, no right to write there. It opens
// no FIFO: its reader would see an end.
func Writable(path string) error {
	to, err := resolve(path)
	if err == nil && !to.inPlace {
		var tmp *os.File
		if tmp, err = to.beside(); err == nil {
			tmp.Close()
			err = os.Remove(tmp.Name())
		}
	}
	if err != nil {
		return Error(path, err)
	}
	return nil
}

// Resolve is the file that Write replaces: path, or what it points to.
func Resolve(path string) (string, error) {
	to, err := resolve(path)
	if err == nil && to.inPlace {
		err = syscall.ENOTSUP
	}
	return to.path, err
}

// target is what a path leads to.
type target struct {
	path    string
	inPlace bool        // no regular file
	old     fs.FileInfo // the file that stands there; nil: none
}

// resolve follows links to the file that is to be written. The error is that of a file that cannot be.
func resolve(path string) (target, error) {
	old, err := os.Stat(path)
	switch {
	case path == "":
		return target{}, errNoPath
	case err == nil && old.IsDir():
		return target{}, syscall.EISDIR
	case err == nil && !old.Mode().IsRegular():
		return target{path: path, inPlace: true}, nil
	case err == nil:
		// What may not be written to is not replaced either.
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return target{}, err
		}
		f.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return target{}, err
	}
	const most = 40 // links, as on Linux
	for range most {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return target{}, err
		}
		// The links of open files, as in /dev/stdout, have no name that could be replaced.
		if strings.HasPrefix(dir, "/proc/") {
			return target{path: path, inPlace: true}, nil
		}
		path = filepath.Join(dir, filepath.Base(path))
		next, err := os.Readlink(path)
		if err != nil { // no link
			return target{path: path, old: old}, nil
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(dir, next)
		}
		path = next
	}
	return target{}, syscall.ELOOP
}

// replace writes a file beside the target and renames it.
func (t target) replace(write func(*os.File) error) error {
	tmp, err := t.beside()
	if err != nil {
		return err
	}
	unfinished.Store(tmp.Name(), nil)
	defer unfinished.Delete(tmp.Name())
	done := false
	defer func() {
		if !done { // an error, or a panic of write
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	err = write(tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), t.path)
	}
	if err != nil {
		return err
	}
	done = true
	syncDir(filepath.Dir(t.path))
	return nil
}

// beside makes the temporary file for the target, with the mode that it is to have.
func (t target) beside() (*os.File, error) {
	mode := fs.FileMode(0o666)
	if t.old != nil {
		mode = 0o600 // until it has that of the old file
	}
	tmp, err := temporary(t.path, mode)
	if err != nil || t.old == nil {
		return tmp, err
	}
	if err := tmp.Chmod(t.old.Mode().Perm()); err != nil {
		tmp.Close()
		os.Remove(tmp.Name())
		return nil, err
	}
	return tmp, nil
}

// temporary makes a file beside path that was not there. os.CreateTemp would leave the umask out.
func temporary(path string, mode fs.FileMode) (*os.File, error) {
	const tries = 100
	dir, base := filepath.Split(path)
	var err error
	for range tries {
		var tmp *os.File
		name := fmt.Sprintf("%s.%s.tmp%d", dir, base, rand.Uint32())
		if tmp, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode); !errors.Is(err, fs.ErrExist) {
			return tmp, err
		}
	}
	return nil, err
}

// pour collects what write writes, which may seek, and copies it to what is not a regular file.
func pour(path string, write func(*os.File) error) error {
	spool, err := os.CreateTemp("", "ampc")
	if err != nil {
		return err
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	if err := write(spool); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, spool)
	if closed := to.Close(); err == nil {
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

var (
	errDevice    = errors.New("is a device: want a file")
	errIrregular = errors.New("it is not a regular file")
)

// Open opens a regular file to read it, and gives its size in bytes. Anything else is an error and not
// opened: a FIFO would be waited for. The error has the path.
func Open(path string) (*os.File, int64, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = errIrregular
	}
	if err != nil {
		return nil, 0, Error(path, err)
	}
	f, err := os.Open(path)
	if err == nil {
		if st, err = f.Stat(); err == nil {
			return f, st.Size(), nil
		}
		f.Close()
	}
	return nil, 0, Error(path, err)
}

// Read is os.ReadFile, except that it refuses devices: one such as /dev/zero has no end.
func Read(path string) ([]byte, error) {
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeDevice != 0 {
		return nil, errDevice
	}
	return os.ReadFile(path)
}
