package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
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
		{npyFile("")[:9], "not an npy"},
		{append([]byte("\x93NUMPY\x02\x00"), 255, 255, 255, 255, 0), "truncated"},
	} {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30q: error %v, want one with %q", c.data, err, c.want)
		}
	}
}

func TestNPZ(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, _ := z.Create("x.npy")
	w.Write(npyFile("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", 1))
	z.Close()
	path := filepath.Join(t.TempDir(), "a.npz")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
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
	if _, err := ReadFile(path + ".none"); err == nil || !strings.HasSuffix(err.Error(), ": no such file or directory") {
		t.Errorf("missing file: %v", err)
	}
}

// Whatever a file holds: an array whose data fills its shape, or an error.
func FuzzParse(f *testing.F) {
	f.Add(npyFile("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n", 1, 2, 3, 4))
	f.Add(npyFile("{'descr': '>i4', 'fortran_order': True, 'shape': (0, 9999999999, 1), }\n"))
	f.Add([]byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, data []byte) {
		arrays, err := parse(data)
		if err != nil {
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
