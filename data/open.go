package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"

	"ampc/internal/file"
)

// openFile opens a file and looks through gzip.
func openFile(path string) (*bufio.Reader, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, file.Error(path, err)
	}
	r := bufio.NewReaderSize(f, 1<<16)
	if head, err := r.Peek(2); err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, nil, file.Error(path, err)
	} else if len(head) < 2 || head[0] != 0x1f || head[1] != 0x8b {
		return r, f, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		f.Close()
		return nil, nil, file.Error(path, err)
	}
	return bufio.NewReaderSize(z, 1<<16), f, nil
}
