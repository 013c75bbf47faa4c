package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"ampc/internal/file"
)

// Tokens is a file of token ids, one after the other, little-endian, mapped into
// memory: only what is read is loaded. Close ends its use.
type Tokens struct {
	path  string
	bytes []byte
	size  int // bytes of a token: 2 or 4
	unmap func() error
}

// OpenTokens opens a file of ids of 2 bytes (NumPy's uint16) or 4 (int32, uint32). Such
// files come from WriteTokens, or from NumPy's tofile.
func OpenTokens(path string, size int) (*Tokens, error) {
	if size != 2 && size != 4 {
		return nil, fmt.Errorf("%s: tokens of %d bytes, want 2 or 4", path, size)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, file.Error(path, err)
	}
	if info.Size() == 0 || info.Size()%int64(size) != 0 || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %d bytes are no file of tokens of %d bytes", path, info.Size(), size)
	}
	b, unmap, err := file.Map(f, info.Size())
	if err != nil {
		return nil, file.Error(path, err)
	}
	return &Tokens{path, b, size, unmap}, nil
}

// WriteTokens writes a file of ids, as a whole or not at all; size is that of a token,
// 2 or 4 bytes.
func WriteTokens(path string, size int, ids []int32) error {
	most := int64(math.MaxUint16)
	if size == 4 {
		most = math.MaxInt32
	} else if size != 2 {
		return fmt.Errorf("%s: tokens of %d bytes, want 2 or 4", path, size)
	}
	b := make([]byte, 0, len(ids)*size)
	for i, id := range ids {
		switch {
		case id < 0 || int64(id) > most:
			return fmt.Errorf("%s: token %d is %d, which %d bytes do not hold", path, i, id, size)
		case size == 2:
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		default:
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
	}
	return file.Write(path, func(f *os.File) error { _, err := f.Write(b); return err })
}

// Len is the number of tokens.
func (t *Tokens) Len() int { return len(t.bytes) / t.size }

// Close unmaps the file; nothing of it may be read afterwards.
func (t *Tokens) Close() error { return t.unmap() }

// read copies n tokens from index at on. It fails if the file has been truncated since it was
// opened.
func (t *Tokens) read(at, n int) (ids []int32, err error) {
	ids = make([]int32, n)
	err = file.Guard(func() error {
		for i := range ids {
			if t.size == 2 {
				ids[i] = int32(binary.LittleEndian.Uint16(t.bytes[2*(at+i):]))
			} else {
				ids[i] = int32(binary.LittleEndian.Uint32(t.bytes[4*(at+i):]))
			}
			if ids[i] < 0 {
				return &BadRecord{t.path, 0, fmt.Errorf("token %d is beyond int32", at+i)}
			}
		}
		return nil
	})
	if bad := (*BadRecord)(nil); err != nil && !errors.As(err, &bad) {
		err = fmt.Errorf("%s: %w", t.path, err)
	}
	return ids, err
}

// Windows is a set of windows of seq tokens, each begun stride tokens behind the one
// before: "ids", and "next", which is one token later. Windows with stride seq have
// each token once.
func (t *Tokens) Windows(seq, stride int) (Set, error) { return t.Part(0, t.Len(), seq, stride) }

// Part is Windows over the tokens from..to alone: the last tenth to test on, all before
// it to train.
func (t *Tokens) Part(from, to, seq, stride int) (Set, error) {
	if seq < 1 || stride < 1 {
		return nil, fmt.Errorf("%s: windows of %d tokens every %d: want 1 or more", t.path, seq, stride)
	}
	if from < 0 || to > t.Len() || to-from <= seq {
		return nil, fmt.Errorf("%s: tokens %d to %d of %d are too few for windows of %d and the token behind", t.path, from, to, t.Len(), seq)
	}
	return &windows{t, from, (to-from-seq-1)/stride + 1, seq, stride}, nil
}

type windows struct {
	of          *Tokens
	from        int
	n           int
	seq, stride int
}

// Len is the number of windows.
func (w *windows) Len() int { return w.n }

// At returns window i.
func (w *windows) At(i int, _ *rand.Rand) (Example, error) {
	ids, err := w.of.read(w.from+i*w.stride, w.seq+1)
	if err != nil {
		return nil, err
	}
	return Example{"ids": ids[:w.seq:w.seq], "next": ids[1:]}, nil
}
