package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"

	"ampc/internal/file"
)

// File is an open, verified file. Its methods may be called concurrently.
type File struct {
	Meta    map[string]string // without the checksum entry
	Tensors []Info            // in the order of their data
	Summed  bool              // a checksum was there, and right

	f      io.ReaderAt
	path   string
	close  func() error
	view   []byte // of a file in memory
	data   int64  // offset of the data section
	byName map[string]int
	shards *layout // of an index
	parts  []*File // the open shards
	nonce  string  // of a shard
}

// Open reads the header of a file, checks it against the file's length and,
// where the file carries a checksum, the checksum of everything. Each error is
// one line that begins with the path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	s := &File{f: f, path: path, close: f.Close}
	size, err := length(f)
	if err == nil {
		err = s.load(size)
	}
	if err == nil && s.Shards() {
		err = s.OpenShards(path)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func length(f *os.File) (int64, error) {
	is, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if is.IsDir() {
		return 0, errors.New("is a directory, not a safetensors file")
	}
	return is.Size(), nil
}

// Parse is Open of a file that lies in memory, whose tensors Slice shows in place.
// Errors do not name the file.
func Parse(b []byte) (*File, error) {
	f := &File{f: bytes.NewReader(b), view: b, close: func() error { return nil }}
	return f, f.load(int64(len(b)))
}

// Slice is where a tensor of a parsed file lies, or a copy of it where shards have parts.
func (f *File) Slice(info Info) ([]byte, error) {
	if info.parts {
		data := make([]byte, info.Bytes())
		return data, f.readParts(info.Name, data)
	}
	return f.view[f.data+info.begin : f.data+info.end : f.data+info.end], nil
}

// Close releases the file.
func (f *File) Close() error {
	errs := []error{f.close()}
	for _, p := range f.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Lookup finds a tensor by name.
func (f *File) Lookup(name string) (Info, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, false
	}
	return f.Tensors[i], true
}

// Read fills dst, whose length must be the tensor's, with the named tensor.
func (f *File) Read(name string, dst []byte) error {
	info, ok := f.Lookup(name)
	if !ok {
		return fmt.Errorf("%s: no tensor named %q", f.path, name)
	}
	if int64(len(dst)) != info.Bytes() {
		return fmt.Errorf("%s: tensor %s holds %d bytes, the reader wants %d", f.path, info, info.Bytes(), len(dst))
	}
	if info.parts {
		return f.readParts(name, dst)
	}
	if _, err := f.f.ReadAt(dst, f.data+info.begin); err != nil {
		return fmt.Errorf("%s: tensor %s: %w", f.path, info, err)
	}
	return nil
}

// header reads the header of a file of size bytes.
func (f *File) header(size int64) ([]byte, error) {
	header, err := readHeader(f.f, size)
	if err != nil {
		return nil, err
	}
	f.data = 8 + int64(len(header))
	f.Meta, f.Tensors, err = parseHeader(header, size-f.data)
	if err != nil {
		return nil, err
	}
	f.byName = make(map[string]int, len(f.Tensors))
	for i, t := range f.Tensors {
		f.byName[t.Name] = i
	}
	if text, ok := f.Meta[shardsKey]; ok {
		f.shards = new(layout)
		if err := json.Unmarshal([]byte(text), f.shards); err != nil {
			return nil, fmt.Errorf("header: %s: %w", shardsKey, plain(err))
		}
	}
	f.nonce = f.Meta[nonceKey]
	delete(f.Meta, shardsKey)
	delete(f.Meta, nonceKey)
	return header, nil
}

// load reads the header of a file of size bytes and checks what it can.
func (f *File) load(size int64) error {
	header, err := f.header(size)
	if err != nil {
		return err
	}
	want, ok := f.Meta[crcKey]
	if !ok {
		return nil
	}
	delete(f.Meta, crcKey)
	got, err := checksum(header, want, io.NewSectionReader(f.f, f.data, size-f.data))
	if err == nil && got != want {
		err = fmt.Errorf("damaged: checksum is %s, the file says %s", got, want)
	}
	f.Summed = true
	return err
}

func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("truncated or not a safetensors file: %d bytes, too short for a header length", size)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("not a safetensors file: header length %d is above the limit of %d", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("truncated: the header is %d bytes long, the file ends after %d of them", n, size-8)
	}
	header := make([]byte, n)
	_, err := r.ReadAt(header, 8)
	return header, err
}

// entry is a tensor's value in the header.
type entry struct {
	DType   DType     `json:"dtype"`
	Shape   []int64   `json:"shape"`
	Offsets *[2]int64 `json:"data_offsets"`
}

// parseHeader decodes a header for a data section of dataLen bytes and checks
// that the tensors fill that section exactly, in some order, without overlap.
func parseHeader(header []byte, dataLen int64) (map[string]string, []Info, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, errors.New("not a safetensors file: the header is not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.Token() // the brace just seen
	meta := map[string]string{}
	var tensors []Info
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("header: %w", plain(err))
		}
		name := key.(string) // an object's keys are strings, or Token fails
		if seen[name] {
			return nil, nil, fmt.Errorf("header: %q appears twice", name)
		}
		seen[name] = true
		if name == metaKey {
			if err := dec.Decode(&meta); err != nil {
				return nil, nil, fmt.Errorf("header: %s: %w", metaKey, plain(err))
			}
			continue
		}
		info, err := parseEntry(dec, name)
		if err != nil {
			return nil, nil, err
		}
		tensors = append(tensors, info)
	}
	if _, err := dec.Token(); err != nil {
		return nil, nil, fmt.Errorf("header: %w", plain(err))
	}
	if rest := strings.TrimRight(string(header[dec.InputOffset():]), " "); rest != "" {
		return nil, nil, fmt.Errorf("header: %d bytes after the JSON object", len(rest))
	}
	if meta == nil { // "__metadata__": null
		meta = map[string]string{}
	}
	return meta, tensors, checkLayout(tensors, dataLen)
}

// plain says what is wrong with JSON without the names of Go's types.
func plain(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s is a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("a JSON %s in place of an object", kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return errors.New("the JSON ends early")
	}
	return err
}

func parseEntry(dec *json.Decoder, name string) (Info, error) {
	var e entry
	if err := dec.Decode(&e); err != nil {
		return Info{}, fmt.Errorf("header: tensor %q: %w", name, plain(err))
	}
	if e.DType.Size() == 0 {
		return Info{}, fmt.Errorf("header: tensor %q: unknown dtype %q", name, e.DType)
	}
	if e.Offsets == nil || e.Shape == nil {
		return Info{}, fmt.Errorf("header: tensor %q: shape or data_offsets missing", name)
	}
	info := Info{Name: name, DType: e.DType, Shape: e.Shape, begin: e.Offsets[0], end: e.Offsets[1]}
	want, ok := byteSize(e.DType, e.Shape)
	if !ok {
		return Info{}, fmt.Errorf("header: tensor %s: impossible shape", info)
	}
	if info.begin < 0 || info.end < info.begin || info.end-info.begin != want {
		return Info{}, fmt.Errorf("header: tensor %s needs %d bytes, its offsets are %d to %d", info, want, info.begin, info.end)
	}
	return info, nil
}

// checkLayout sorts the tensors by offset and checks that they tile the data.
func checkLayout(tensors []Info, dataLen int64) error {
	slices.SortStableFunc(tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := int64(0)
	for _, t := range tensors {
		switch {
		case t.begin < at:
			return fmt.Errorf("header: tensor %s overlaps the one before it", t)
		case t.begin > at:
			return fmt.Errorf("header: %d bytes before tensor %s belong to no tensor", t.begin-at, t)
		}
		at = t.end
	}
	if at > dataLen {
		return fmt.Errorf("truncated: the tensors take %d bytes, the file holds %d", at, max(dataLen, 0))
	}
	if at < dataLen {
		return fmt.Errorf("%d bytes after the last tensor", dataLen-at)
	}
	return nil
}

// checksum is the CRC-32C of the header, with the sum in it blanked, and the data.
func checksum(header []byte, sum string, data io.Reader) (string, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	entry := func(s string) []byte { return fmt.Appendf(nil, "%q:%q", crcKey, s) }
	h.Write(bytes.Replace(header, entry(sum), entry(crcBlank), 1))
	if _, err := io.CopyBuffer(h, data, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", h.Sum32()), nil
}
