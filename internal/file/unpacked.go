package file

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
)

// Unpacked opens a file and reads through gzip where it is compressed.
func Unpacked(path string) (*bufio.Reader, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, Error(path, err)
	}
	r := bufio.NewReaderSize(f, 1<<16)
	if head, err := r.Peek(2); err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, nil, Error(path, err)
	} else if len(head) < 2 || head[0] != 0x1f || head[1] != 0x8b {
		return r, f, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		f.Close()
		return nil, nil, Error(path, err)
	}
	return bufio.NewReaderSize(z, 1<<16), f, nil
}
