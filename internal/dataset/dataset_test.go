package dataset

import (
	"bytes"
	"compress/gzip"
	"math"
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

func TestCSV(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "a.csv"), []byte("p1,p2,p3,p4,class\n# note\n0,1,2,3,2\n4,5,6,7,0\n"))
	m, err := ReadImages(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Images{1, 2, 2, 3, []float32{0, 1, 2, 3, 4, 5, 6, 7}, []int32{2, 0}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("read %v, want %v", m, want)
	}
	m.Normalize(m.Normalizer())
	n := m.Normalizer()
	if math.Abs(float64(n.Mean)) > 1e-6 || math.Abs(float64(n.Scale)-1) > 1e-6 {
		t.Errorf("after normalizing: mean %g, scale %g", n.Mean, n.Scale)
	}
}

func TestImageErrors(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"":                          ": no images found",
		"1,2,0\n":                   ":1: 2 pixels before the class make no square image",
		"1,2,3,4,0\n1,2,x,4,0\n":    ":2: pixel 3 is \"x\", want a number",
		"1,2,3,4,0\n1,2,NaN,4,0\n":  ":2: pixel 3 is \"NaN\"",
		"1,2,3,4,0\n1,2,3,4,-1\n":   ":2: class is \"-1\"",
		"1,2,3,4,0\n1,2,3\n":        ":2: wrong number of fields",
		"\x00\x00\x08":              ":1: ",
		"\x00\x00\x0d\x03":          "IDX header",
		"\x00\x00\x08\x03\xff":      "truncated IDX header",
		"\x1f\x8bnot really packed": "gzip",
	} {
		path := put(t, filepath.Join(dir, "images.bin"), []byte(content))
		_, err := ReadImages(path)
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", content, err, want)
		}
	}
}

func TestIDXPair(t *testing.T) {
	dir := t.TempDir()
	images := []byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40}
	labels := []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 3}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(images)
	z.Close()
	path := put(t, filepath.Join(dir, "train-images-idx3-ubyte.gz"), packed.Bytes())
	if _, err := ReadImages(path); err == nil || !strings.Contains(err.Error(), "train-labels-idx1-ubyte.gz is missing") {
		t.Errorf("without labels: %v", err)
	}
	put(t, filepath.Join(dir, "train-labels-idx1-ubyte"), labels)
	m, err := ReadImages(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Images{1, 1, 2, 8, []float32{10, 20, 30, 40}, []int32{7, 3}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("read %v, want %v", m, want)
	}
	put(t, filepath.Join(dir, "train-labels-idx1-ubyte"), labels[:9])
	if _, err := ReadImages(path); err == nil {
		t.Error("a truncated label file is accepted")
	}
}

func TestShuffledVisitsEachImageOncePerEpoch(t *testing.T) {
	m := &Images{Channels: 1, Height: 1, Width: 1}
	for i := range 12 {
		m.Pixels = append(m.Pixels, float32(i))
		m.Labels = append(m.Labels, int32(i))
	}
	for epoch := range int64(2) {
		seen := map[int32]bool{}
		for i := range int64(3) {
			_, labels := m.Shuffled(1, 3*epoch+i, 4)
			for _, l := range labels {
				seen[l] = true
			}
		}
		if len(seen) != 12 {
			t.Errorf("epoch %d saw %d images of 12", epoch, len(seen))
		}
	}
	_, a := m.Shuffled(1, 0, 12)
	_, b := m.Shuffled(1, 1, 12)
	if slices.Equal(a, b) {
		t.Error("two epochs have the same order")
	}
	pixels, labels := m.Batch(10, 4)
	if !slices.Equal(pixels, []float32{10, 11, 0, 0}) || !slices.Equal(labels, []int32{10, 11, Ignored, Ignored}) {
		t.Errorf("short tail: %v %v", pixels, labels)
	}
	train, held := m.Split(4)
	if train.Len() != 9 || !slices.Equal(held.Labels, []int32{3, 7, 11}) {
		t.Errorf("split: %d and %v", train.Len(), held.Labels)
	}
}

func TestOptdigits(t *testing.T) {
	const path = "../../../shared/data/optdigits.tes"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the digits are not beside the repository: %v", err)
	}
	m, err := ReadImages(path)
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 1797 || m.Height != 8 || m.Classes != 10 {
		t.Errorf("%d images of %dx%d in %d classes", m.Len(), m.Height, m.Width, m.Classes)
	}
}

// Whatever a file holds: images that fill their shape, or an error.
func FuzzReadImages(f *testing.F) {
	f.Add([]byte("a,b,c,d,class\n1,2,3,4,0\n5,6,7,8,1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := readCSV("f", bytes.NewReader(data)); err == nil && (len(m.Pixels) != m.Len()*m.Channels*m.Height*m.Width || len(m.Labels) != m.Len()) {
			t.Errorf("%d images of %d×%d×%d in %d pixels, %d labels", m.Len(), m.Channels, m.Height, m.Width, len(m.Pixels), len(m.Labels))
		}
	})
}
