package file

import (
	"errors"
	"os"
	"syscall"
)

// openLocked opens the file so that others may read it and nothing else write,
// which is a lock for as long as it stays open.
func openLocked(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	const sharingViolation = syscall.Errno(32)
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, syscall.FILE_SHARE_READ, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, ErrLocked
	} else if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), path), nil
}
