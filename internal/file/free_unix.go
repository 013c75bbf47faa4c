//go:build linux || darwin || freebsd

package file

import "syscall"

// Free is how many bytes a user may still write to the file system of a folder;
// ok is false where that is not known.
func Free(dir string) (n int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
