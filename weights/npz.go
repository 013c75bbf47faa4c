package weights

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"ampc/internal/npy"
	"ampc/ir"
)

// readZip reads what torch.save or numpy.savez wrote.
func (f *File) readZip(b []byte, key string) error {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	if err := npy.CheckMembers(z, len(b)); err != nil {
		return err
	}
	for _, m := range z.File {
		if m.Name == "data.pkl" || strings.HasSuffix(m.Name, "/data.pkl") {
			return f.readTorch(b, z, strings.TrimSuffix(m.Name, "data.pkl"), key)
		}
	}
	for _, m := range z.File {
		name, ok := strings.CutSuffix(m.Name, ".npy")
		if !ok {
			return fmt.Errorf("the zip file holds %q: want arrays of numpy.savez or a file of torch.save", m.Name)
		}
		data, err := member(b, m)
		if err == nil {
			err = f.readNpy(name, data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ir.Printable(m.Name), err)
		}
	}
	return nil
}

// member is the content of an archive's file: where it lies if it is stored, else
// unpacked. Its checksum is verified.
func member(b []byte, m *zip.File) ([]byte, error) {
	if m.Method == zip.Store {
		data, err := stored(b, m)
		if err != nil {
			return nil, err
		}
		return data, checksum(data, m)
	}
	const most = 1032 // bytes that one byte of deflate may become
	if m.UncompressedSize64/most > m.CompressedSize64 {
		return nil, fmt.Errorf("damaged: %d bytes cannot become %d", m.CompressedSize64, m.UncompressedSize64)
	}
	r, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, int64(m.UncompressedSize64))) // and checks the sum
}

// stored is where a file that is not compressed lies in the archive b.
func stored(b []byte, m *zip.File) ([]byte, error) {
	if m.Method != zip.Store {
		return nil, errors.New("is compressed, want it stored")
	}
	at, err := m.DataOffset()
	if err != nil {
		return nil, err
	}
	n := m.UncompressedSize64
	if m.CompressedSize64 != n || at < 0 || at > int64(len(b)) || n > uint64(int64(len(b))-at) {
		return nil, fmt.Errorf("damaged: %d bytes at %d of an archive of %d", n, at, len(b))
	}
	return b[at : at+int64(n) : at+int64(n)], nil
}

func checksum(data []byte, m *zip.File) error {
	if got := crc32.ChecksumIEEE(data); got != m.CRC32 {
		return fmt.Errorf("damaged: the checksum of %s is %08x, the archive says %08x", ir.Printable(m.Name), got, m.CRC32)
	}
	return nil
}

func (f *File) readNpy(name string, b []byte) error {
	a, err := npy.Parse(b)
	if err != nil {
		return err
	}
	t := &tensor{name: name, dtype: named[a.DType], shape: a.Shape, data: a.Data}
	if a.Fortran {
		t.strides = make([]int64, len(a.Shape))
		n := int64(1)
		for i, d := range a.Shape {
			t.strides[i] = n
			n *= d
		}
	}
	return f.add(t)
}
