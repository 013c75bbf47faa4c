//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package file

import "os"

func openLocked(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
}
