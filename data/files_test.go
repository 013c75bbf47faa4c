package data_test

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ampc/data"
)

func put(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func packed(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func TestCSV(t *testing.T) {
	text := []byte("a, b,kind\n# note\n1,2,0\n3,4.5,2\n")
	for name, c := range map[string]struct {
		content string
		o       data.CSVOptions
		want    map[string]data.Column
	}{
		"header and label":  {string(text), data.CSVOptions{Label: "y"}, map[string]data.Column{"x": {[]float32{1, 2, 3, 4.5}, []int{2}}, "y": {[]int32{0, 2}, nil}}},
		"gzip":              {string(packed(text)), data.CSVOptions{Label: "y"}, map[string]data.Column{"x": {[]float32{1, 2, 3, 4.5}, []int{2}}, "y": {[]int32{0, 2}, nil}}},
		"columns by name":   {string(text), data.CSVOptions{Label: "y", LabelColumn: "b", Field: "v", Columns: []string{"kind"}}, map[string]data.Column{"v": {[]float32{0, 2}, []int{1}}, "y": {[]float32{2, 4.5}, nil}}},
		"columns by number": {"1;2;3\n4;5;6\n", data.CSVOptions{Comma: ';', Label: "y", LabelColumn: "0"}, map[string]data.Column{"x": {[]float32{2, 3, 5, 6}, []int{2}}, "y": {[]int32{1, 4}, nil}}},
		"words":             {"1,cat\n2,dog\n", data.CSVOptions{Label: "y", Classes: []string{"dog", "cat"}}, map[string]data.Column{"x": {[]float32{1, 2}, []int{1}}, "y": {[]int32{1, 0}, nil}}},
		"a shape":           {"1,2,3,4\n", data.CSVOptions{Shape: []int{1, 2, 2}}, map[string]data.Column{"x": {[]float32{1, 2, 3, 4}, []int{1, 2, 2}}}},
		"header of numbers": {"1,2\n3,4\n", data.CSVOptions{Header: data.HasHeader}, map[string]data.Column{"x": {[]float32{3, 4}, []int{2}}}},
	} {
		got, err := data.CSV(put(t, "a.csv", []byte(c.content)), c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for field, want := range c.want {
			if !reflect.DeepEqual(got.Column(field), want) {
				t.Errorf("%s: %s is %v, want %v", name, field, got.Column(field), want)
			}
		}
		if len(got.Names()) != len(c.want) {
			t.Errorf("%s: columns %q", name, got.Names())
		}
	}
}

func TestCSVErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":                    ": no records",
		"a,b\n":               ": no records",
		"1,2\n1,x\n":          ":2: cell 2 is \"x\", want a finite number",
		"1,2\n\n# c\n1,NaN\n": ":4: cell 2 is \"NaN\"",
		"1,2\n1,1e99\n":       ":2: cell 2 is \"1e99\"",
		"1,2\n3\n":            ":2: 1 cells, the first line has 2",
		"1,\"2\n":             ":1: extraneous or missing \" in quoted-field",
		"\x1f\x8bnot packed":  "gzip",
	} {
		path := put(t, "a.csv", []byte(content))
		_, err := data.CSV(path, data.CSVOptions{})
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", content, err, want)
		}
	}
	for want, o := range map[string]data.CSVOptions{
		`no column "z"`:      {Columns: []string{"z"}},
		"Shape is [3]":       {Shape: []int{3}},
		`is "2", which is n`: {Label: "y", Classes: []string{"1"}},
		`is "1.5", want a w`: {Label: "y", Whole: true, LabelColumn: "0"},
	} {
		if _, err := data.CSV(put(t, "a.csv", []byte("1,2\n1.5,4\n")), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	var told []string
	got, err := data.CSV(put(t, "a.csv", []byte("1,0\nx,1\n2,bad\n3,1\n4\n5,\"\n")), data.CSVOptions{Label: "y", Header: data.NoHeader,
		OnBad: func(err error) error { told = append(told, err.Error()); return nil }})
	if err != nil || len(told) != 4 || !reflect.DeepEqual(got.Column("x").Data, []float32{1, 3}) || !reflect.DeepEqual(got.Column("y").Data, []int32{0, 1}) {
		t.Errorf("skipped %q, left %v (%v)", told, got, err)
	}
	if _, err := data.CSV("none.csv", data.CSVOptions{}); err == nil || !strings.Contains(err.Error(), "none.csv: no such file") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestIDX(t *testing.T) {
	dir := t.TempDir()
	images := []byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40}
	labels := []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 3}
	path := filepath.Join(dir, "train-images-idx3-ubyte.gz")
	write := func(path string, b []byte) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(path, packed(images))
	if _, err := data.IDXImages(path); err == nil || !strings.Contains(err.Error(), "train-labels-idx1-ubyte.gz is missing") {
		t.Errorf("without labels: %v", err)
	}
	write(filepath.Join(dir, "train-labels-idx1-ubyte"), labels)
	c, err := data.IDXImages(path)
	if err != nil {
		t.Fatal(err)
	}
	if x, y := c.Column("x"), c.Column("y"); !reflect.DeepEqual(x, data.Column{Data: []uint8{10, 20, 30, 40}, Shape: []int{1, 1, 2}}) || !reflect.DeepEqual(y.Data, []int32{7, 3}) || y.Classes() != 8 {
		t.Errorf("x %v, y %v", x, y)
	}
	write(filepath.Join(dir, "train-labels-idx1-ubyte"), labels[:9])
	if _, err := data.IDXImages(path); err == nil {
		t.Error("a truncated label file is accepted")
	}
	for content, want := range map[string]any{
		"\x00\x00\x09\x01\x00\x00\x00\x02\xff\x01":                              []int32{-1, 1},
		"\x00\x00\x0b\x01\x00\x00\x00\x01\xff\xfe":                              []int32{-2},
		"\x00\x00\x0c\x01\x00\x00\x00\x01\x00\x01\x00\x00":                      []int32{65536},
		"\x00\x00\x0d\x01\x00\x00\x00\x01\x3f\xc0\x00\x00":                      []float32{1.5},
		"\x00\x00\x0e\x01\x00\x00\x00\x01\xc0\x00\x00\x00" + "\x00\x00\x00\x00": []float64{-2},
	} {
		got, n, err := data.IDX(put(t, "a", []byte(content)))
		if err != nil || n == 0 || !reflect.DeepEqual(got.Data, want) {
			t.Errorf("%x: %v (%v), want %v", content, got.Data, err, want)
		}
	}
	for content, want := range map[string]string{
		"":                                     "truncated IDX header",
		"\x00\x00\x08\x03\xff":                 "truncated IDX header",
		"\x00\x00\x07\x01":                     "IDX header",
		"\x00\x00\x08\x01\xff\xff\xff\xff\x01": "holds 1 bytes",
		"\x00\x00\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff": "impossibly large",
	} {
		path := put(t, "a", []byte(content))
		if _, _, err := data.IDX(path); err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: error %v, want %q", content, err, want)
		}
	}
}

func TestColumns(t *testing.T) {
	c, err := data.NewColumns(map[string]data.Column{"x": {[]uint8{0, 100, 200, 100}, []int{2}}, "s": {[]string{"a", "b"}, nil}})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Column("x").Stats()
	if s.Mean != 100 || math.Abs(s.Std-math.Sqrt(5000)) > 1e-9 {
		t.Errorf("stats %v", s)
	}
	e, err := data.Map(c, data.Normalize("x", data.Stats{Mean: 0, Std: 100}, data.Stats{Mean: 100, Std: 50})).At(1, nil)
	if err != nil || !reflect.DeepEqual(e, data.Example{"x": []float32{2, 0}, "s": "b"}) {
		t.Errorf("record 1 is %v (%v)", e, err)
	}
	if _, err := data.Map(c, data.Normalize("s", s)).At(0, nil); err == nil || !strings.Contains(err.Error(), `normalize "s"`) {
		t.Errorf("words are normalized: %v", err)
	}
	if err := c.Rename("x", "image"); err != nil || c.Column("image").Data == nil || c.Column("x").Data != nil {
		t.Errorf("renamed: %q (%v)", c.Names(), err)
	}
	if c.Rename("x", "y") == nil || c.Rename("s", "image") == nil {
		t.Error("a column that is not there, or a name that is taken, is accepted")
	}
	for want, bad := range map[string]map[string]data.Column{
		"is a []int16":             {"x": {[]int16{1}, nil}},
		"no records of shape [2]":  {"x": {[]int32{1}, []int{2}}},
		"2 records, the columns":   {"a": {[]bool{true}, nil}, "b": {[]float64{1, 2}, nil}},
		"shape [0] has no element": {"x": {[]int64{}, []int{0}}},
	} {
		if _, err := data.NewColumns(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Whatever a file holds: as many elements as its dimensions say, or an error.
// Whatever a table holds: columns that fill their shape, or an error.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b,c,d,class\n1,2,3,4,0\n5,6,7,8,1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := data.CSV(put(t, "f.csv", text), data.CSVOptions{Label: "y"})
		if err != nil {
			return
		}
		x := c.Column("x")
		if n, _ := x.Data.([]float32); len(x.Shape) > 0 && len(n) != c.Len()*x.Shape[0] {
			t.Errorf("%d numbers in %d records of %v", len(n), c.Len(), x.Shape)
		}
	})
}

func FuzzIDX(f *testing.F) {
	f.Add([]byte{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7})
	f.Add([]byte{0, 0, 0x0b, 1, 0, 0, 0, 1, 1, 2})
	path := filepath.Join(f.TempDir(), "f.idx")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		c, n, err := data.IDX(path)
		if err != nil {
			return
		}
		for _, d := range c.Shape {
			n *= d
		}
		if got := reflect.ValueOf(c.Data).Len(); got != n {
			t.Errorf("%d elements, the dimensions say %d", got, n)
		}
	})
}
