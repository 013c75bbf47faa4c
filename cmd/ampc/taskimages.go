package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"

	"ampc"
	"ampc/data"
)

// images are labelled images, channels first, read by package data.
type images struct {
	pixels                  []float32
	labels                  []int32
	channels, height, width int
	classes                 int // one more than the highest label
}

func imageTask(name, query string, f *trainFlags) (task, error) {
	train, held, err := readImages(f)
	if err != nil {
		return task{}, err
	}
	sum := digest(train.pixels, train.labels)
	stats := data.Column{Data: train.pixels}.Stats()
	train.normalize(stats)
	held.normalize(stats)
	shape := []string{fmt.Sprintf("size=%d", train.height), fmt.Sprintf("channels=%d", train.channels)}
	if name == "mlp" {
		shape = []string{fmt.Sprintf("in=%d", train.channels*train.height*train.width)}
	}
	query = withDefaults(query, append(shape, fmt.Sprintf("classes=%d", max(train.classes, held.classes)))...)
	z, err := f.open(name, query)
	if err != nil {
		return task{}, err
	}
	batch := z.Options.Int("batch")
	all := batch * f.parts()
	drawn, err := train.batches(data.Options{Batch: all, Shuffle: true, Seed: uint64(f.seed), Last: data.Drop})
	if err != nil {
		return task{}, err
	}
	tested, err := held.batches(data.Options{Batch: batch, Last: data.Pad, Pad: map[string]float64{"y": ignored}})
	if err != nil {
		return task{}, err
	}
	if train.len() < all {
		return task{}, fmt.Errorf("%s: %d images to train on are fewer than a batch of %d: give more, or a smaller batch, as in zoo:%s?batch=%d", strings.Join(f.data, ", "), train.len(), all, name, max(train.len()/f.parts(), 1))
	}
	t := task{spec: "zoo:" + name + "?" + query, unit: "images", unitsPerBatch: all, epoch: int64(train.len() / all), steps: 1000, digest: sum,
		source: fmt.Sprintf("%s: %d images, %d held out", strings.Join(f.data, ", "), train.len(), held.len())}
	t.batch = drawn.feed
	t.heldOut = func(ctx context.Context, eval *ampc.Step) (float64, float64, error) {
		return mean(ctx, eval, z.Steps[0].Losses[0].Value, z.Metrics["correct"], (held.len()+batch-1)/batch, func(i int) (ampc.Feed, int, error) {
			b, err := tested.at(int64(i))
			return b.Feed, b.Count, err
		})
	}
	return t.of(z), nil
}

// ignored is the label that losses leave out by default.
const ignored = -100

func (m *images) len() int { return len(m.labels) }

// normalize brings the pixels to mean 0 and deviation 1, by stats of the training set.
func (m *images) normalize(s data.Stats) {
	mean, scale := float32(s.Mean), float32(1/s.Std)
	for i, p := range m.pixels {
		m.pixels[i] = (p - mean) * scale
	}
}

// batches are those of a loader over the images.
func (m *images) batches(o data.Options) (*batches, error) {
	set, err := data.NewColumns(map[string]data.Column{"x": {Data: m.pixels, Shape: []int{m.channels, m.height, m.width}}, "y": {Data: m.labels}})
	return &batches{set: set, options: o}, err
}

// every holds out each k-th image.
func (m *images) every(k int) (train, held *images) {
	parts := [2]*images{}
	for i := range parts {
		parts[i] = &images{channels: m.channels, height: m.height, width: m.width, classes: m.classes}
	}
	size := m.channels * m.height * m.width
	for i, label := range m.labels {
		p := parts[0]
		if i%k == k-1 {
			p = parts[1]
		}
		p.pixels = append(p.pixels, m.pixels[i*size:(i+1)*size]...)
		p.labels = append(p.labels, label)
	}
	return parts[0], parts[1]
}

func readImages(f *trainFlags) (train, held *images, err error) {
	if len(f.data) != 1 {
		return nil, nil, usagef("--data takes one file")
	}
	if train, err = readImageFile(f.data[0]); err != nil {
		return nil, nil, err
	}
	if f.heldOut == "" {
		const every = 10
		if n := train.len(); n < every {
			return nil, nil, fmt.Errorf("%s: %s: want %d or more, one in %[3]d of which is held out, or others to test on with --held-out", f.data[0], plural(n, "image"), every)
		}
		train, held = train.every(every)
		return train, held, nil
	}
	if held, err = readImageFile(f.heldOut); err != nil {
		return nil, nil, err
	}
	if held.channels != train.channels || held.height != train.height || held.width != train.width {
		return nil, nil, fmt.Errorf("%s: images of %dx%dx%d, those of %s are %dx%dx%d", f.heldOut,
			held.channels, held.height, held.width, f.data[0], train.channels, train.height, train.width)
	}
	return train, held, nil
}

// readImageFile reads a file of labelled images, gzipped or not: IDX, with its labels
// beside it under the usual name, or CSV, one image a line: the pixels row by row, s*s
// of them, or 3*s*s for three channels, then the class.
func readImageFile(path string) (*images, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: is a folder: want one file of images, CSV or IDX; package data/images reads folders of pictures", path)
	}
	idx, err := isIDX(path)
	if err != nil {
		return nil, err
	}
	var c *data.Columns
	if idx {
		c, err = data.IDXImages(path)
	} else {
		c, err = data.CSV(path, data.CSVOptions{Label: "y", Whole: true})
	}
	if err != nil {
		return nil, err
	}
	x, y := c.Column("x"), c.Column("y")
	labels, _ := y.Data.([]int32) // of both
	m := &images{labels: labels, classes: y.Classes()}
	const most = 1 << 20
	if m.classes > most {
		return nil, fmt.Errorf("%s: class %d, want at most %d", path, m.classes-1, most-1)
	}
	switch pixels := x.Data.(type) {
	case []float32:
		m.pixels = pixels
	case []uint8:
		for _, p := range pixels {
			m.pixels = append(m.pixels, float32(p))
		}
	}
	if idx {
		m.channels, m.height, m.width = x.Shape[0], x.Shape[1], x.Shape[2]
		return m, nil
	}
	n := 0
	if len(x.Shape) == 1 {
		n = x.Shape[0]
	}
	if m.channels, m.height = squareOf(n); m.channels == 0 {
		return nil, fmt.Errorf("%s: %d pixels before the class make no square image of 1 or 3 channels", path, n)
	}
	m.width = m.height
	return m, nil
}

// squareOf finds the square image that n pixels make; 0: none.
func squareOf(n int) (channels, side int) {
	for _, c := range []int{1, 3} {
		side := int(math.Round(math.Sqrt(float64(n / c))))
		if n > 0 && c*side*side == n {
			return c, side
		}
	}
	return 0, 0
}
