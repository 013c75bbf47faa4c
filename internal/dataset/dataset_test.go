package dataset

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func put(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadTextWalksInOrderAndSkipsWhatIsNoText(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "b.txt"), []byte("two"))
	put(t, filepath.Join(dir, "a", "z.txt"), []byte("one"))
	put(t, filepath.Join(dir, "c.bin"), []byte{1, 0, 2})
	put(t, filepath.Join(dir, ".git", "x"), []byte("hidden"))
	got, err := ReadText(0, dir, filepath.Join(dir, "b.txt"))
	if err != nil || got.Content != "onetwotwo" {
		t.Errorf("read %q (%v), want onetwotwo", got.Content, err)
	}
	if !strings.Contains(got.Source, "3 files") {
		t.Errorf("source %q does not say 3 files", got.Source)
	}
	if got, err := ReadText(3, dir); err != nil || got.Content != "one" {
		t.Errorf("with a limit of 3: %q (%v)", got.Content, err)
	}
}

func TestReadTextErrors(t *testing.T) {
	dir := t.TempDir()
	bin := put(t, filepath.Join(dir, "c.bin"), []byte{0xff, 0xfe})
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		bin:                        "not UTF-8 text",
		dir:                        "no text found",
	} {
		if _, err := ReadText(0, path); err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
}

func TestGoSourceOfThisToolchain(t *testing.T) {
	got, err := GoSource(100_000)
	if err != nil {
		t.Fatal(err) // the test itself was built by a toolchain
	}
	if len(got.Content) < 100_000 || !strings.Contains(got.Content, "package ") {
		t.Errorf("%d bytes of something that is not Go", len(got.Content))
	}
}

func TestVocab(t *testing.T) {
	v := NewVocab("aaabbc é\n", 5) // keeps a, b and the two lowest of the rest
	if v.Len() != 5 {
		t.Fatalf("%d characters, want 5", v.Len())
	}
	if got := v.Decode(v.Encode("abc\n é")); got != "ab\ufffd\n \ufffd" {
		t.Errorf("there and back: %q", got)
	}
	w, err := UnmarshalVocab(v.Marshal())
	if err != nil || !reflect.DeepEqual(v, w) {
		t.Errorf("read back %v (%v), want %v", w, err, v)
	}
	if got := v.Decode([]int32{-1, 99}); got != "\ufffd\ufffd" {
		t.Errorf("out of range decodes as %q", got)
	}
	for _, bad := range []string{"", "{", `""`, `"abc"`, "\"\ufffdaa\""} {
		if _, err := UnmarshalVocab(bad); err == nil {
			t.Errorf("vocabulary %q is accepted", bad)
		}
	}
}

func TestWindowsDependOnSeedAndPositionAlone(t *testing.T) {
	tokens := make([]int32, 1000)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	w := Windows{Tokens: tokens, Batch: 3, Seq: 7, Seed: 5}
	ids, next := w.Random(42)
	again, _ := w.Random(42)
	other, _ := w.Random(43)
	if !slices.Equal(ids, again) || slices.Equal(ids, other) {
		t.Error("batch 42 is not a function of its number")
	}
	for i := range ids {
		if next[i] != ids[i]+1 {
			t.Fatalf("target of token %d is %d", ids[i], next[i])
		}
	}
	first, _ := w.Even(0, 4)
	_, last := w.Even(3, 4)
	if first[0] != 0 || last[len(last)-1] != 999 {
		t.Errorf("even batches run from %d to %d, want 0 to 999", first[0], last[len(last)-1])
	}
}

func TestSplit(t *testing.T) {
	tokens := make([]int32, 100)
	train, held, err := Split(tokens, 0.1, 8)
	if err != nil || len(train) != 90 || len(held) != 10 {
		t.Errorf("split into %d and %d (%v)", len(train), len(held), err)
	}
	if _, _, err := Split(tokens, 0.1, 10); err == nil {
		t.Error("a held-out part shorter than a window is accepted")
	}
}
