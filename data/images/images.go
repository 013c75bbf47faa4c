// Package images reads folders of images as a data.Set: PNG and JPEG of any colour
// model, turned upright, scaled, cropped and normalized.
//
//	set, err := images.Folder("pets", images.Options{Height: 224, Width: 224, Shorter: 256, Flip: true, Mean: images.ImageNetMean, Std: images.ImageNetStd})
//
// has records with "x", float32 [channels,Height,Width], and "y", the number of the
// folder. The steps and their rounding are those of torchvision's transforms.
package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // formats that Decode reads
	_ "image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ampc/data"
	"ampc/internal/file"
)

// Means and deviations of ImageNet's channels, for models that were trained with them.
var (
	ImageNetMean = []float64{0.485, 0.456, 0.406}
	ImageNetStd  = []float64{0.229, 0.224, 0.225}
)

// MaxPixels is the default of Options.MaxPixels, that of Pillow.
const MaxPixels = 89_478_485

// Options say what becomes of an image.
type Options struct {
	Height, Width int // of the result

	// Shorter scales the image so that its shorter side has so many pixels, before
	// Height×Width is cut out of it; 0: the whole image is scaled to Height×Width.
	Shorter int
	// RandomArea scales a part of the image to Height×Width that has a random share of its
	// area, at least this much, and a ratio of its sides from 3/4 to 4/3; 0: none. Without
	// random draws it is as if it were 0.
	RandomArea float64
	RandomCrop bool // what Shorter leaves is cut at a random place, else in the middle
	Flip       bool // every second image, drawn at random, is mirrored
	Bicubic    bool // scaling is bicubic, else bilinear; both average over what they shrink
	Gray       bool // the result has one channel, else red, green and blue

	// Mean and Std normalize each channel, whose pixels run from 0 to 1 before: to
	// (x-Mean)/Std. nil: 0 and 1.
	Mean, Std []float64
	MaxPixels int // of the file, height times width; 0: the constant MaxPixels. A larger one is a bad record, before it is decoded.
}

// Channels is 1 or 3.
func (o Options) Channels() int {
	if o.Gray {
		return 1
	}
	return 3
}

// Shape is that of a result.
func (o Options) Shape() []int { return []int{o.Channels(), o.Height, o.Width} }

// Check says what is wrong with the options.
func (o Options) Check() error {
	switch n := o.Channels(); {
	case o.Height < 1 || o.Width < 1:
		return fmt.Errorf("images: Height is %d and Width %d, want 1 or more", o.Height, o.Width)
	case o.Shorter < 0 || o.MaxPixels < 0 || o.RandomArea < 0 || o.RandomArea > 1:
		return fmt.Errorf("images: Shorter is %d, MaxPixels %d, RandomArea %g: want 0 or more, RandomArea up to 1", o.Shorter, o.MaxPixels, o.RandomArea)
	case o.Shorter > 0 && o.Shorter < max(o.Height, o.Width):
		return fmt.Errorf("images: Shorter is %d, of which no %dx%d can be cut", o.Shorter, o.Height, o.Width)
	case o.Shorter > 0 && o.RandomArea > 0:
		return errors.New("images: Shorter and RandomArea exclude each other")
	case o.Mean != nil && len(o.Mean) != n || o.Std != nil && (len(o.Std) != n || slices.Contains(o.Std, 0)):
		return fmt.Errorf("images: Mean is %v and Std %v, want %d numbers, no deviation of 0", o.Mean, o.Std, n)
	}
	return nil
}

// Set is a folder of images, a data.Set.
type Set struct {
	options Options
	classes []string
	files   []string
	labels  []int32
}

// Folder finds the images below dir, whose folders are their classes, in the order of
// their names: dir/cat/1.jpg, dir/dog/old/2.png. Files and folders whose name begins with
// a dot are left out, and so are files that do not end in .png, .jpg or .jpeg. Images are
// read when a loader asks for them; one that cannot be read is a data.BadRecord.
func Folder(dir string, o Options) (*Set, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, file.Error(dir, err)
	}
	s := &Set{options: o}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() || e.Name()[0] == '.' {
			continue
		}
		before := len(s.files)
		if err := s.walk(path, int32(len(s.classes))); err != nil {
			return nil, err
		}
		if len(s.files) > before {
			s.classes = append(s.classes, e.Name())
		}
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("%s: no images found: want a folder for each class, with .png or .jpg files", dir)
	}
	return s, nil
}

// walk adds the images below a folder.
func (s *Set) walk(dir string, label int32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return file.Error(dir, err)
	}
	for _, e := range entries {
		path, ext := filepath.Join(dir, e.Name()), strings.ToLower(filepath.Ext(e.Name()))
		switch {
		case e.Name()[0] == '.':
		case e.IsDir():
			if err := s.walk(path, label); err != nil {
				return err
			}
		case ext == ".png" || ext == ".jpg" || ext == ".jpeg":
			s.files, s.labels = append(s.files, path), append(s.labels, label)
		}
	}
	return nil
}

// Len is the number of images.
func (s *Set) Len() int { return len(s.files) }

// Classes are the names of the folders; a label is a place in them.
func (s *Set) Classes() []string { return slices.Clone(s.classes) }

// File is the path of image i.
func (s *Set) File(i int) string { return s.files[i] }

// With is the same images under other options: without random changes, to test on.
func (s *Set) With(o Options) (*Set, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Set{o, s.classes, s.files, s.labels}, nil
}

// At reads image i.
func (s *Set) At(i int, r *rand.Rand) (data.Example, error) {
	b, err := os.ReadFile(s.files[i])
	if err != nil {
		return nil, file.Error(s.files[i], err)
	}
	x, err := s.options.Decode(b, r)
	if err != nil {
		return nil, &data.BadRecord{Path: s.files[i], Err: err}
	}
	return data.Example{"x": x, "y": s.labels[i]}, nil
}

// Decode reads a PNG or JPEG file, turns it upright as its EXIF data says, and converts
// it. For r see data.Set.
func (o Options) Decode(b []byte, r *rand.Rand) ([]float32, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	c, kind, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("no PNG or JPEG: %w", err)
	}
	most := o.MaxPixels
	if most == 0 {
		most = MaxPixels
	}
	if c.Width < 1 || c.Height < 1 || c.Width > most/c.Height {
		return nil, fmt.Errorf("has %d by %d pixels, the limit is %d in all", c.Width, c.Height, most)
	}
	m, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if kind == "jpeg" {
		m = upright(m, orientation(b))
	}
	return o.Convert(m, r), nil
}
