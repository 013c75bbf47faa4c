//go:build !(linux || darwin || freebsd)

package file

// Free is how many bytes a user may still write to the file system of a folder;
// ok is false where that is not known.
func Free(dir string) (n int64, ok bool) { return 0, false }
