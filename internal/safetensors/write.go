package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"unicode/utf8"

	"ampc/internal/file"
)

// Tensor is one tensor to write. Write is called once, in order, and must
// produce exactly the bytes that DType and Shape call for.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64
	Write func(w io.Writer) error
}

// Bytes makes a Write function from data at hand.
func Bytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// WriteFile writes a file so that path holds, at every moment, either what it
// held before or the whole new file: the bytes go to a temporary file beside
// it, reach the disk, and are renamed. A process killed meanwhile leaves at
// most that temporary file.
func WriteFile(path string, meta map[string]string, tensors []Tensor) error {
	header, infos, err := buildHeader(meta, tensors)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return file.Write(path, func(f *os.File) error { return writeAll(f, header, infos) })
}

// inOrder returns tensors in the order in which WriteFile writes them: the widest elements
// first, so that each starts aligned.
func inOrder(tensors []Tensor) []Tensor {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int { return int(b.DType.Size() - a.DType.Size()) })
	return tensors
}

// buildHeader lays the tensors out and returns the JSON with a blank checksum.
func buildHeader(meta map[string]string, tensors []Tensor) ([]byte, []Tensor, error) {
	tensors = inOrder(tensors)
	all := maps.Clone(meta)
	if all == nil {
		all = map[string]string{}
	}
	all[crcKey] = crcBlank
	for k, v := range all {
		if !utf8.ValidString(k + v) {
			return nil, nil, fmt.Errorf("metadata %q: the key or the value is not UTF-8", k)
		}
	}
	m, err := json.Marshal(all)
	if err != nil {
		return nil, nil, err
	}
	header := fmt.Appendf(nil, "{%q:%s", metaKey, m)
	at := int64(0)
	seen := map[string]bool{metaKey: true}
	for _, t := range tensors {
		if !utf8.ValidString(t.Name) {
			return nil, nil, fmt.Errorf("tensor %q: the name is not UTF-8", t.Name)
		}
		size, ok := byteSize(t.DType, t.Shape)
		if !ok || t.DType.Size() == 0 || seen[t.Name] {
			return nil, nil, fmt.Errorf("tensor %q: duplicate name, unknown dtype %q or impossible shape %v", t.Name, t.DType, t.Shape)
		}
		seen[t.Name] = true
		name, _ := json.Marshal(t.Name) // a string always marshals
		shape, _ := json.Marshal(append([]int64{}, t.Shape...))
		header = fmt.Appendf(header, ",%s:{\"dtype\":%q,\"shape\":%s,\"data_offsets\":[%d,%d]}", name, t.DType, shape, at, at+size)
		at += size
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	return header, tensors, nil
}

// writeAll writes header and data, then goes back to put the checksum in.
func writeAll(f *os.File, header []byte, tensors []Tensor) error {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buf := bufio.NewWriterSize(f, 1<<20)
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	buf.Write(length[:]) // bufio keeps the first error until Flush
	w := io.MultiWriter(buf, sum)
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		size, _ := byteSize(t.DType, t.Shape)
		c := &counter{w: w}
		if err := t.Write(c); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if c.n != size {
			return fmt.Errorf("tensor %q: %d bytes written, its type has %d", t.Name, c.n, size)
		}
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	at := bytes.Index(header, []byte(`"`+crcKey+`":"`)) + len(crcKey) + 4
	_, err := f.WriteAt(fmt.Appendf(nil, "%08x", sum.Sum32()), 8+int64(at))
	return err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
