package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"ampc/internal/file"
)

// Images is a set of labelled images, channels first.
type Images struct {
	Channels, Height, Width int
	Classes                 int // one more than the highest label
	Pixels                  []float32
	Labels                  []int32
}

// Ignored is the label that losses leave out by default.
const Ignored = -100

// Len is the number of images.
func (m *Images) Len() int { return len(m.Labels) }

func (m *Images) size() int { return m.Channels * m.Height * m.Width }

// ReadImages reads a file of labelled images, gzipped or not. An IDX image
// file ("...images-idx3-ubyte") needs its labels beside it under the usual
// name; everything else is read as CSV, one image a line: the pixels row by
// row, then the class. A CSV line has s*s pixels, or 3*s*s for three channels.
func ReadImages(path string) (*Images, error) {
	r, closer, err := file.Unpacked(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	if head, _ := r.Peek(4); len(head) == 4 && head[0] == 0 && head[1] == 0 {
		return readIDX(path)
	}
	return readCSV(path, r)
}

func readCSV(path string, r io.Reader) (*Images, error) {
	in := csv.NewReader(r)
	in.Comment, in.ReuseRecord, in.TrimLeadingSpace = '#', true, true
	m := &Images{}
	for first := true; ; first = false {
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvError(path, err)
		}
		line, _ := in.FieldPos(0)
		if first {
			if err := m.shapeFrom(len(record) - 1); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, line, err)
			}
			if _, err := strconv.ParseFloat(record[0], 32); err != nil {
				continue // a header line
			}
		}
		if err := m.addRecord(record); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
	if m.Len() == 0 {
		return nil, fmt.Errorf("%s: no images found", path)
	}
	return m, nil
}

func csvError(path string, err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s:%d: %w", path, p.Line, p.Err)
	}
	return file.Error(path, err)
}

// shapeFrom finds the square image that n pixels make.
func (m *Images) shapeFrom(n int) error {
	for _, c := range []int{1, 3} {
		side := int(math.Round(math.Sqrt(float64(n / c))))
		if n > 0 && c*side*side == n {
			m.Channels, m.Height, m.Width = c, side, side
			return nil
		}
	}
	return fmt.Errorf("%d pixels before the class make no square image of 1 or 3 channels", n)
}

func (m *Images) addRecord(record []string) error {
	last := len(record) - 1
	for i, field := range record[:last] {
		v, err := strconv.ParseFloat(field, 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("pixel %d is %q, want a number", i+1, field)
		}
		m.Pixels = append(m.Pixels, float32(v))
	}
	class, err := strconv.Atoi(strings.TrimSpace(record[last]))
	if err != nil || class < 0 || class > 1<<20 {
		return fmt.Errorf("class is %q, want a small whole number", record[last])
	}
	m.Labels = append(m.Labels, int32(class))
	m.Classes = max(m.Classes, class+1)
	return nil
}

// Normalizer maps raw pixels to mean 0 and deviation 1.
type Normalizer struct{ Mean, Scale float32 }

// Normalizer measures the images; apply the one of the training set to both sets.
func (m *Images) Normalizer() Normalizer {
	var sum, squares float64
	for _, p := range m.Pixels {
		sum += float64(p)
		squares += float64(p) * float64(p)
	}
	n := float64(len(m.Pixels))
	mean := sum / n
	deviation := math.Sqrt(max(squares/n-float64(mean*mean), 0))
	if deviation == 0 {
		deviation = 1 // all pixels equal: nothing to scale
	}
	return Normalizer{float32(mean), float32(1 / deviation)}
}

// Normalize changes the pixels in place.
func (m *Images) Normalize(n Normalizer) {
	for i, p := range m.Pixels {
		m.Pixels[i] = (p - n.Mean) * n.Scale
	}
}

// Split takes every k-th image out into a held-out set.
func (m *Images) Split(k int) (train, held *Images) {
	parts := [2]*Images{}
	for i := range parts {
		parts[i] = &Images{Channels: m.Channels, Height: m.Height, Width: m.Width, Classes: m.Classes}
	}
	for i, label := range m.Labels {
		p := parts[0]
		if i%k == k-1 {
			p = parts[1]
		}
		p.Pixels = append(p.Pixels, m.Pixels[i*m.size():(i+1)*m.size()]...)
		p.Labels = append(p.Labels, label)
	}
	return parts[0], parts[1]
}

// Shuffled returns batch number i of size n in an order that visits every
// image once per epoch; each epoch's order comes from the seed and its number.
// The last images of an epoch that fill no batch wait for another one.
func (m *Images) Shuffled(seed uint64, i int64, n int) (pixels []float32, labels []int32) {
	perEpoch := int64(max(m.Len()/n, 1))
	epoch, at := i/perEpoch, int(i%perEpoch)*n
	order := rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(m.Len())
	pick := make([]int, n)
	for k := range pick {
		pick[k] = order[(at+k)%m.Len()]
	}
	return m.gather(pick)
}

// Batch returns n images from at on; past the end images of class Ignored,
// which a loss leaves out, fill the batch up.
func (m *Images) Batch(at, n int) (pixels []float32, labels []int32) {
	have := min(n, m.Len()-at)
	pick := make([]int, have)
	for k := range pick {
		pick[k] = at + k
	}
	pixels, labels = m.gather(pick)
	for range n - have {
		pixels = append(pixels, make([]float32, m.size())...)
		labels = append(labels, Ignored)
	}
	return pixels, labels
}

func (m *Images) gather(pick []int) (pixels []float32, labels []int32) {
	pixels = make([]float32, 0, len(pick)*m.size())
	for _, i := range pick {
		pixels = append(pixels, m.Pixels[i*m.size():(i+1)*m.size()]...)
		labels = append(labels, m.Labels[i])
	}
	return pixels, labels
}
