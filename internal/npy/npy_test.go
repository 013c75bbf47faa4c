package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func npyFile(header string, data ...byte) []byte {
	out := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(out[8:], uint16(len(header)))
	return append(append(out, header...), data...)
}

func TestParse(t *testing.T) {
	for header, want := range map[string]Array{
		"{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n":   {DType: "f16", Shape: []int64{2}, Data: []byte{1, 2, 3, 4}},
		"{'descr': '>i4', 'fortran_order': False, 'shape': (1, 1), }\n": {DType: "i32", Shape: []int64{1, 1}, Data: []byte{4, 3, 2, 1}},
		"{'descr': '|u1', 'fortran_order': True, 'shape': (4,), }":      {DType: "u8", Shape: []int64{4}, Data: []byte{1, 2, 3, 4}},
		"{'descr': '<f4', 'fortran_order': False, 'shape': (), }":       {DType: "f32", Shape: nil, Data: []byte{1, 2, 3, 4}},
	} {
		got, err := Parse(npyFile(header, 1, 2, 3, 4))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v (%v), want %v", header, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte("nonsense, really"), "not an npy"},
		{npyFile("{}"), "no plain dtype"},
		{npyFile("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }"), "dtype <c8"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 1), "needs 8 bytes, 1 follow"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999, 999999999), }"), "impossibly large"},
		{npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999,\n999999999), }"), "(999999999, 999999999) is impossibly large"},
		{npyFile("")[:9], "not an npy"},
		{append([]byte("\x93NUMPY\x02\x00"), 255, 255, 255, 255, 0), "truncated"},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30q: error %v, want one with %q", c.data, err, c.want)
		}
	}
}

func TestNPZ(t *testing.T) {
	archive := zipped(t, "x.npy", string(npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", 1)))
	path := filepath.Join(t.TempDir(), "a.npz")
	if err := os.WriteFile(path, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil || !reflect.DeepEqual(got, map[string]Array{"x": {DType: "bool", Shape: []int64{1}, Data: []byte{1}}}) {
		t.Errorf("%v (%v)", got, err)
	}
	if err := os.WriteFile(path, npyFile("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", 1, 2, 3, 4), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "Fortran") {
		t.Errorf("an array in Fortran order: %v", err)
	}
	if _, err := parse(overlapping(t)); err == nil || !strings.HasPrefix(err.Error(), "damaged: its members have more bytes than the archive") {
		t.Errorf("one member many times: %v", err)
	}
	if _, err := ReadFile(path + ".none"); err == nil || !strings.HasSuffix(err.Error(), ": no such file or directory") {
		t.Errorf("missing file: %v", err)
	}
}

// zipped is an archive with one member.
func zipped(tb testing.TB, name, content string) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// overlapping is an archive that names one member many times.
func overlapping(tb testing.TB) []byte {
	b := zipped(tb, "a.npy", strings.Repeat("\x00", 1<<16))
	dir, end := bytes.Index(b, []byte("PK\x01\x02")), bytes.Index(b, []byte("PK\x05\x06"))
	entry, tail := b[dir:end], bytes.Clone(b[end:])
	const copies = 40
	binary.LittleEndian.PutUint16(tail[8:], copies)
	binary.LittleEndian.PutUint16(tail[10:], copies)
	binary.LittleEndian.PutUint32(tail[12:], uint32(copies*len(entry)))
	return slices.Concat(b[:dir], bytes.Repeat(entry, copies), tail)
}

// Whatever a file holds: arrays whose data fills their shape, or one line of error, in memory bounded by the length of the
// file: deflate packs a thousand bytes into one.
func FuzzParse(f *testing.F) {
	f.Add(npyFile("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n", 1, 2, 3, 4))
	f.Add(npyFile("{'descr': '>i4', 'fortran_order': True, 'shape': (0, 9999999999, 1), }\n"))
	f.Add([]byte("PK\x03\x04"))
	f.Add(zipped(f, "a\nb.npy", "no array"))
	f.Add(overlapping(f))
	f.Add(zipped(f, "a.npy", string(npyFile("{'descr': '|u1', 'fortran_order': False, 'shape': (1000,), }\n", make([]byte, 1000)...))))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		arrays, err := parse(data)
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20+5000*uint64(len(data)) {
			t.Errorf("%d bytes allocate %d", len(data), grew)
		}
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		for name, a := range arrays {
			n := int64(1)
			for _, d := range a.Shape {
				n *= d
			}
			for _, d := range dtypes {
				if d.name == a.DType && int64(len(a.Data)) != n*d.size {
					t.Errorf("%q is %s%v in %d bytes", name, a.DType, a.Shape, len(a.Data))
				}
			}
		}
	})
}
