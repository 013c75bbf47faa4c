package dataset

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
)

// The IDX layout: two zero bytes, an element type (8: unsigned byte), the
// number of dimensions, each dimension as a big-endian uint32, the elements.
// http://yann.lecun.com/exdb/mnist describes it.

const maxIDX = 1 << 31 // bytes of one file, far above any data set in this format

func readIDXPair(path string, r *bufio.Reader) (*Images, error) {
	dims, pixels, err := readIDX(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(dims) != 3 || dims[0] == 0 || dims[1] == 0 || dims[2] == 0 {
		return nil, fmt.Errorf("%s: dimensions %v, want images, rows, columns", path, dims)
	}
	labelPath, err := labelsBeside(path)
	if err != nil {
		return nil, err
	}
	lr, closer, err := openData(labelPath)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	labelDims, labels, err := readIDX(lr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", labelPath, err)
	}
	if len(labelDims) != 1 || labelDims[0] != dims[0] {
		return nil, fmt.Errorf("%s: dimensions %v, want one label for each of the %d images", labelPath, labelDims, dims[0])
	}
	m := &Images{Channels: 1, Height: dims[1], Width: dims[2]}
	m.Pixels = make([]float32, len(pixels))
	for i, p := range pixels {
		m.Pixels[i] = float32(p)
	}
	for _, l := range labels {
		m.Labels = append(m.Labels, int32(l))
		m.Classes = max(m.Classes, int(l)+1)
	}
	return m, nil
}

// labelsBeside finds the label file that belongs to an image file.
func labelsBeside(path string) (string, error) {
	name := strings.Replace(path, "images", "labels", 1)
	name = strings.Replace(name, "idx3", "idx1", 1)
	if name == path {
		return "", fmt.Errorf("%s: cannot tell its label file: the name has no \"images\"", path)
	}
	other, packed := strings.CutSuffix(name, ".gz")
	if !packed {
		other = name + ".gz"
	}
	for _, n := range []string{name, other} {
		if _, err := os.Stat(n); err == nil {
			return n, nil
		}
	}
	return "", fmt.Errorf("%s: its label file %s is missing", path, name)
}

// readIDX reads a file of unsigned bytes.
func readIDX(r *bufio.Reader) (dims []int, data []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, fmt.Errorf("truncated IDX header")
	}
	if head[0] != 0 || head[1] != 0 || head[2] != 8 || head[3] > 4 {
		return nil, nil, fmt.Errorf("IDX header % x, want 00 00 08 and at most 4 dimensions", head)
	}
	size := 1
	for range head[3] {
		var d [4]byte
		if _, err := io.ReadFull(r, d[:]); err != nil {
			return nil, nil, fmt.Errorf("truncated IDX header")
		}
		n := int(binary.BigEndian.Uint32(d[:]))
		if n > 0 && size > maxIDX/n {
			return nil, nil, fmt.Errorf("IDX dimensions are impossibly large")
		}
		dims, size = append(dims, n), size*n
	}
	// Grow with what is there, so that a damaged header cannot ask for memory the file does not fill.
	data, err = io.ReadAll(io.LimitReader(r, int64(size)+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) != size {
		return nil, nil, fmt.Errorf("holds %d bytes or more of data, its header says %d", len(data), size)
	}
	return dims, data, nil
}
