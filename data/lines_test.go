package data_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ampc/data"
)

func TestJSONLines(t *testing.T) {
	text := `{"x":[[1,2],[3,4.5]],"y":2,"s":"a","ok":true,"other":null}` + "\n\n" + `{"y":0,"s":"b","ok":false,"x":[5,6,7,8]}` + "\n"
	o := data.LineOptions{Fields: []string{"x", "y", "s", "ok"}, Ints: []string{"y"}}
	got, err := data.JSONLines(put(t, "a.jsonl", packed([]byte(text))), o)
	want := data.Records{
		{"x": []float32{1, 2, 3, 4.5}, "y": int32(2), "s": "a", "ok": true},
		{"x": []float32{5, 6, 7, 8}, "y": int32(0), "s": "b", "ok": false},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v (%v)", got, err)
	}
	var told []string
	o = data.LineOptions{Ints: []string{"y"}, MaxLine: 40, OnBad: func(err error) error { told = append(told, err.Error()); return nil }}
	lines := []string{`{"y":1}`, `{"y":1.5}`, `{"z":1}`, `{"y":"1"}`, `{"y":null}`, `[1]`, `{"y":[1,"a"]}`, `{"y":7` + strings.Repeat(" ", 100) + `}`, `{"y":9e99}`, `{"y":4}`}
	path := put(t, "b.jsonl", []byte(strings.Join(lines, "\n")))
	got, err = data.JSONLines(path, o)
	if err != nil || !reflect.DeepEqual(got, data.Records{{"y": int32(1)}, {"y": int32(4)}}) {
		t.Errorf("read %v (%v)", got, err)
	}
	for i, want := range []string{":2: field \"y\": 1.5 is no int32", ":3: no field \"y\"", ":4: field \"y\" is of type string, in the first record of type int32", ":5: field \"y\": is a <nil>",
		":6: no JSON object", ":7: field \"y\": holds a string", ":8: longer than 40 bytes", ":9: field \"y\": 9e+99 is no int32"} {
		if i >= len(told) || !strings.HasPrefix(told[i], path+want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
	o.OnBad = nil
	if _, err := data.JSONLines(path, o); err == nil || !strings.Contains(err.Error(), ":2: ") {
		t.Errorf("a bad record is accepted: %v", err)
	}
}

func TestLines(t *testing.T) {
	got, err := data.Lines(put(t, "a.txt", []byte("one\r\n\ntwo é")), data.LineOptions{})
	if err != nil || !reflect.DeepEqual(got, data.Records{{"text": "one"}, {"text": "two é"}}) {
		t.Errorf("read %q (%v)", got, err)
	}
	path := put(t, "b.txt", []byte("ok\n\xff\n"))
	if _, err := data.Lines(path, data.LineOptions{}); err == nil || err.Error() != path+":2: not UTF-8" {
		t.Errorf("error %v", err)
	}
	if _, err := data.Lines(put(t, "c.txt", nil), data.LineOptions{}); err == nil || !strings.Contains(err.Error(), "no records") {
		t.Errorf("an empty file: %v", err)
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.bin")
	ids := make([]int32, 103)
	for i := range ids {
		ids[i] = int32(i * 600)
	}
	for _, size := range []int{2, 4} {
		if err := data.WriteTokens(path, size, ids); err != nil {
			t.Fatal(err)
		}
		tokens, err := data.OpenTokens(path, size)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tokens.Windows(10, 10)
		if err != nil || tokens.Len() != 103 || s.Len() != 10 {
			t.Fatalf("%d tokens, %v (%v)", tokens.Len(), s, err)
		}
		e, err := s.At(9, nil)
		if err != nil || !slices.Equal(e["ids"].([]int32), ids[90:100]) || !slices.Equal(e["next"].([]int32), ids[91:101]) {
			t.Errorf("window 9 is %v (%v)", e, err)
		}
		held, err := tokens.Part(90, 103, 3, 2)
		if err != nil || held.Len() != 5 {
			t.Fatalf("%v (%v)", held, err)
		}
		if e, err = held.At(4, nil); err != nil || !slices.Equal(e["next"].([]int32), ids[99:102]) {
			t.Errorf("window 4 of the end is %v (%v)", e, err)
		}
		for _, bad := range [][4]int{{0, 103, 103, 1}, {0, 104, 5, 1}, {-1, 9, 2, 1}, {0, 9, 0, 1}, {0, 9, 2, 0}} {
			if _, err := tokens.Part(bad[0], bad[1], bad[2], bad[3]); err == nil {
				t.Errorf("part %v is accepted", bad)
			}
		}
		if size == 4 {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.At(0, nil); err == nil || !strings.Contains(err.Error(), "shorter") {
				t.Errorf("a file that was cut off: %v", err)
			}
		}
		if err := tokens.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []struct {
		size int
		ids  []int32
	}{{2, []int32{65536}}, {4, []int32{-1}}, {3, nil}} {
		if data.WriteTokens(path, bad.size, bad.ids) == nil {
			t.Errorf("%v in %d bytes are written", bad.ids, bad.size)
		}
	}
	if err := os.WriteFile(path, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := data.OpenTokens(path, 2); err == nil || !strings.Contains(err.Error(), "3 bytes are no file of tokens") {
		t.Errorf("error %v", err)
	}
	huge := filepath.Join(t.TempDir(), "b.bin")
	if err := os.WriteFile(huge, []byte("\xff\xff\xff\xff\x00\x00\x00\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	tokens, err := data.OpenTokens(huge, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	s, err := tokens.Windows(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.At(0, nil); err == nil || !strings.Contains(err.Error(), "beyond int32") {
		t.Errorf("a token beyond int32: %v", err)
	}
}

func npy(descr, shape, body string) []byte {
	head := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n"
	return []byte("\x93NUMPY\x01\x00" + string([]byte{byte(len(head)), byte(len(head) >> 8)}) + head + body)
}

func TestNumPy(t *testing.T) {
	for descr, c := range map[string]struct {
		body string
		want any
	}{
		"<f4": {"\x00\x00\xc0\x3f\x00\x00\x00\x40", []float32{1.5, 2}},
		"<f2": {"\x00\x3e\x00\x40", []float32{1.5, 2}},
		">i2": {"\xff\xff\x00\x02", []int32{-1, 2}},
		"<i8": {"\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", []int64{1, -1}},
		"|u1": {"\x07\xff", []uint8{7, 255}},
		"|b1": {"\x00\x01", []bool{false, true}},
		"<u4": {"\xff\xff\xff\xff\x01\x00\x00\x00", []int64{math32, 1}},
	} {
		got, err := data.NumPy(put(t, "a.npy", npy(descr, "(2,)", c.body)))
		if err != nil || !reflect.DeepEqual(got.Column("x").Data, c.want) || got.Len() != 2 {
			t.Errorf("%s: %v (%v)", descr, got, err)
		}
	}
	got, err := data.NumPy(put(t, "a.npy", npy("|u1", "(2, 1, 3)", "abcdef")))
	if err != nil || !slices.Equal(got.Column("x").Shape, []int{1, 3}) {
		t.Errorf("shape %v (%v)", got, err)
	}
	for want, b := range map[string][]byte{
		"is a single number": npy("|u1", "()", "a"),
		"no records":         npy("|u1", "(0, 2)", ""),
		"not an npy":         []byte("x"),
	} {
		path := put(t, "a.npy", b)
		if _, err := data.NumPy(path); err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

const math32 = 1<<32 - 1
