package main

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ampc/data"
)

func TestImagesOfTables(t *testing.T) {
	path := putFile(t, t.TempDir(), "a.csv", "p1,p2,p3,p4,class\n# note\n0,1,2,3,2\n4,5,6,7,0\n")
	m, err := readImageFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &images{pixels: []float32{0, 1, 2, 3, 4, 5, 6, 7}, labels: []int32{2, 0}, channels: 1, height: 2, width: 2, classes: 3}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("read %v, want %v", m, want)
	}
	m.normalize(data.Column{Data: m.pixels}.Stats())
	if s := (data.Column{Data: m.pixels}).Stats(); s.Mean > 1e-6 || s.Mean < -1e-6 || s.Std < 1-1e-6 || s.Std > 1+1e-6 {
		t.Errorf("normalized: %v", s)
	}
}

func TestMistakesInImages(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"":                          ": no records",
		"1,2,0\n":                   ": 2 pixels before the class make no square image",
		"1,2,3,4,0\n1,2,x,4,0\n":    ":2: cell 3 is \"x\", want a finite number",
		"1,2,3,4,0\n1,2,NaN,4,0\n":  ":2: cell 3 is \"NaN\"",
		"1,2,3,4,0\n1,2,3,4,-1\n":   ":2: the label, cell 5, is \"-1\", want a whole number from 0 to 2147483647",
		"1,2,3,4,9999999\n":         ": class 9999999, want at most 1048575",
		"1,2,3,4,0\n1,2,3\n":        ":2: 3 cells, the first line has 5",
		"\x00\x00\x0d\x03":          "IDX header",
		"\x00\x00\x08\x03\xff":      "truncated IDX header",
		"\x1f\x8bnot really packed": "gzip",
	} {
		path := putFile(t, dir, "images.bin", content)
		_, err := readImageFile(path)
		if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", content, err, want)
		}
	}
	few := putFile(t, dir, "few.csv", strings.Repeat("1,2,3,4,0\n", 40))
	if code, _, errs := ampcRun("", "train", "zoo:mlp?hidden=8&batch=64", "--data", few, "--steps", "1", "--quiet", "--out", filepath.Join(dir, "o")); code == 0 || !strings.Contains(errs, "36 images to train on are fewer than a batch of 64") {
		t.Errorf("few images: %q", errs)
	}
}

func TestImagesOfIDX(t *testing.T) {
	dir := t.TempDir()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40})
	z.Close()
	path := putFile(t, dir, "train-images-idx3-ubyte.gz", packed.String())
	putFile(t, dir, "train-labels-idx1-ubyte", "\x00\x00\x08\x01\x00\x00\x00\x02\x07\x03")
	m, err := readImageFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &images{pixels: []float32{10, 20, 30, 40}, labels: []int32{7, 3}, channels: 1, height: 1, width: 2, classes: 8}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("read %v, want %v", m, want)
	}
}

// Batch i is what it was when the command read and shuffled images by itself, so that runs
// of then resume on the same images: the epoch's permutation from the seed and the epoch.
func TestImageBatches(t *testing.T) {
	m := &images{channels: 1, height: 1, width: 1}
	for i := range 14 {
		m.pixels, m.labels = append(m.pixels, float32(i)), append(m.labels, int32(i))
	}
	b, err := m.batches(data.Options{Batch: 4, Shuffle: true, Seed: 9, Last: data.Drop})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int64{0, 1, 2, 3, 7, 4, 5} {
		got, err := b.feed(i)
		if err != nil {
			t.Fatal(err)
		}
		order := rand.New(rand.NewPCG(9, uint64(i/3))).Perm(14)[i%3*4:][:4]
		for k, record := range order {
			if got["y"].([]int32)[k] != int32(record) || got["x"].([]float32)[k] != float32(record) {
				t.Errorf("batch %d is %v, want %v", i, got["y"], order)
			}
		}
	}
	train, held := m.every(4)
	if train.len() != 11 || !slices.Equal(held.labels, []int32{3, 7, 11}) || !slices.Equal(held.pixels, []float32{3, 7, 11}) {
		t.Errorf("split: %d and %v", train.len(), held.labels)
	}
	b, err = held.batches(data.Options{Batch: 2, Last: data.Pad, Pad: map[string]float64{"y": ignored}})
	if err != nil {
		t.Fatal(err)
	}
	if last, err := b.at(1); err != nil || last.Count != 1 || !slices.Equal(last.Feed["y"].([]int32), []int32{11, ignored}) || !slices.Equal(last.Feed["x"].([]float32), []float32{11, 0}) {
		t.Errorf("short tail: %v (%v)", last, err)
	}
}

func TestOptdigits(t *testing.T) {
	const path = "../../../shared/data/optdigits.tes"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the digits are not beside the repository: %v", err)
	}
	m, err := readImageFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if m.len() != 1797 || m.height != 8 || m.classes != 10 {
		t.Errorf("%d images of %dx%d in %d classes", m.len(), m.height, m.width, m.classes)
	}
}
