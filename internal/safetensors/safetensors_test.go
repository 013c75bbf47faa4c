package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() []Tensor {
	return []Tensor{
		{"flag", Bool, nil, Bytes([]byte{1})},
		{"half \"quoted\" <h>", F16, []int64{3}, Bytes([]byte{1, 2, 3, 4, 5, 6})},
		{"w", F32, []int64{2, 2}, Bytes(bytes.Repeat([]byte{9, 8, 7, 6}, 4))},
		{"none", F64, []int64{0, 7}, Bytes(nil)},
	}
}

func save(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := WriteFile(path, map[string]string{"step": "12", "note": "a\nb"}, sample()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	path := save(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := map[string]string{"step": "12", "note": "a\nb"}; !reflect.DeepEqual(f.Meta, want) {
		t.Errorf("metadata %v, want %v", f.Meta, want)
	}
	if f.data%8 != 0 {
		t.Errorf("data starts at %d, want a multiple of 8", f.data)
	}
	for _, want := range sample() {
		info, ok := f.Lookup(want.Name)
		if !ok || info.DType != want.DType || len(info.Shape) != len(want.Shape) {
			t.Fatalf("%s: read back as %v", want.Name, info)
		}
		var b bytes.Buffer
		want.Write(&b)
		got := make([]byte, info.Bytes())
		if err := f.Read(want.Name, got); err != nil || !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%s: read %v (%v), want %v", want.Name, got, err, b.Bytes())
		}
	}
	if err := f.Read("w", make([]byte, 3)); err == nil {
		t.Error("reading into a buffer of the wrong size succeeds")
	}
	if err := f.Read("nope", nil); err == nil {
		t.Error("reading a tensor that is not there succeeds")
	}
}

// Every damaged byte is noticed, in one clear line with the path, except for those
// of the checksum's own name: a file without one is legal and nothing else is hurt.
func TestAnyDamagedByteIsAnError(t *testing.T) {
	path := save(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := bytes.Index(good, []byte(crcKey))
	for i := range good {
		if i >= name && i < name+len(crcKey) {
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x04
		mustFail(t, path, bad, fmt.Sprintf("byte %d flipped", i))
	}
	for n := range good {
		mustFail(t, path, good[:n], fmt.Sprintf("cut to %d bytes", n))
	}
	mustFail(t, path, append(bytes.Clone(good), 0), "one byte too many")
}

func mustFail(t *testing.T, path string, content []byte, what string) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err == nil {
		f.Close()
		t.Errorf("%s: opens", what)
	} else if !strings.HasPrefix(err.Error(), path+": ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: error is not one line with the path: %q", what, err)
	}
}

func TestHeaderErrors(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{`[]`, "not a JSON object"},
		{`{"a":1}`, `tensor "a"`},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "appears twice"},
		{`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, "unknown dtype"},
		{`{"a":{"dtype":"F32","shape":[2]}}`, "missing"},
		{`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "needs 8 bytes"},
		{`{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}`, "impossible shape"},
		{`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}`, "impossible shape"},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, "overlaps"},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "belong to no tensor"},
		{`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, "truncated"},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "after the last tensor"},
		{`{"__metadata__":{"a":1}}`, "__metadata__"},
		{`{} x`, "after the JSON object"},
		{`{`, "header"},
	} {
		_, _, err := parseHeader([]byte(c.header), 8)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.header, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "h.safetensors")
	huge := binary.LittleEndian.AppendUint64(nil, 1<<60)
	mustFail(t, path, huge, "huge header length")
}

// A writer that fails half way leaves the old file as it was and nothing beside it.
func TestFailedWriteChangesNothing(t *testing.T) {
	path := save(t)
	old, _ := os.ReadFile(path)
	bad := []Tensor{{"w", F32, []int64{2}, func(w io.Writer) error {
		w.Write([]byte{1, 2, 3, 4})
		return errors.New("device lost")
	}}}
	err := WriteFile(path, nil, bad)
	if err == nil || !strings.Contains(err.Error(), "device lost") || !strings.HasPrefix(err.Error(), path) {
		t.Errorf("error %v, want the path and the cause", err)
	}
	short := []Tensor{{"w", F32, []int64{2}, Bytes([]byte{1, 2, 3, 4})}}
	if err := WriteFile(path, nil, short); err == nil {
		t.Error("a tensor with too few bytes is accepted")
	}
	if err := WriteFile(path, nil, append(sample(), sample()[0])); err == nil {
		t.Error("a duplicate name is accepted")
	}
	now, _ := os.ReadFile(path)
	if !bytes.Equal(old, now) {
		t.Error("the file changed")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}

func TestUnwritableDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such", "a.safetensors")
	err := WriteFile(path, nil, sample())
	if err == nil || err.Error() != path+": no such file or directory" {
		t.Errorf("error %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("opening a directory: %v", err)
	}
}

// A process killed at any moment of a save leaves the old file or the new one.
func TestKilledWhileSaving(t *testing.T) {
	if path := os.Getenv("SAFETENSORS_SAVE_FOREVER"); path != "" {
		for i := byte(0); ; i++ {
			if err := WriteFile(path, nil, []Tensor{{"w", U8, []int64{4 << 20}, Bytes(bytes.Repeat([]byte{i}, 4<<20))}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if testing.Short() {
		t.Skip("starts and kills processes: skipped by -short")
	}
	path := filepath.Join(t.TempDir(), "w.safetensors")
	for i := range 5 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledWhileSaving$")
		child.Env = append(os.Environ(), "SAFETENSORS_SAVE_FOREVER="+path)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for range 20_000 { // until the first save is there
			if _, err := os.Stat(path); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(3+7*i) * time.Millisecond)
		child.Process.Kill()
		child.Wait()
		f, err := Open(path)
		if err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
		data := make([]byte, 4<<20)
		if err := f.Read("w", data); err != nil || bytes.Count(data, data[:1]) != len(data) {
			t.Errorf("after kill %d: the file mixes two saves (%v)", i, err)
		}
		f.Close()
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`), int64(8))
	f.Add([]byte(`{"w":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}  `), int64(2))
	f.Add([]byte(`{}`), int64(0))
	f.Add([]byte(`{"a\nb":{"dtype":"F\n","shape":[2],"data_offsets":[0,2]}}`), int64(8))
	f.Add([]byte(`{"a\nb":{"dtype":"F16","shape":[2],"data_offsets":[0,2]}}`), int64(8))
	f.Fuzz(func(t *testing.T, header []byte, dataLen int64) {
		_, tensors, err := parseHeader(header, dataLen)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		at := int64(0)
		for _, info := range tensors {
			if info.begin != at || info.end < info.begin {
				t.Fatalf("accepted %v at %d", info, at)
			}
			at = info.end
		}
		if at != dataLen {
			t.Fatalf("accepted %d bytes of tensors for %d of data", at, dataLen)
		}
	})
}
