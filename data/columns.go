package data

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
)

// Column holds a field of all records of a table.
type Column struct {
	Data  any   // []float32, []float64, []int32, []int64, []uint8, []bool or []string
	Shape []int // shape of one record's field; empty: a number
}

// width is the number of elements in a record.
func (c Column) width() int {
	n := 1
	for _, d := range c.Shape {
		n *= d
	}
	return n
}

// Columns is a table in memory, a Set whose records have a field for each column.
type Columns struct {
	fields map[string]Column
	rows   int
}

// NewColumns makes a table of columns with equally many records.
func NewColumns(fields map[string]Column) (*Columns, error) {
	c := &Columns{fields: map[string]Column{}, rows: -1}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := c.add(name, fields[name]); err != nil {
			return nil, err
		}
	}
	c.rows = max(c.rows, 0)
	return c, nil
}

func (c *Columns) add(name string, f Column) error {
	n := count(f.Data)
	switch width := f.width(); {
	case n < 0:
		return fmt.Errorf("column %q: is a %T, want a slice of float32, float64, int32, int64, uint8, bool or string", name, f.Data)
	case width <= 0:
		return fmt.Errorf("column %q: shape %v has no elements", name, f.Shape)
	case n%width != 0:
		return fmt.Errorf("column %q: %d elements are no records of shape %v", name, n, f.Shape)
	case c.rows >= 0 && n/width != c.rows:
		return fmt.Errorf("column %q: %d records, the columns before have %d", name, n/width, c.rows)
	default:
		c.rows, c.fields[name] = n/width, f
	}
	return nil
}

// count is the number of elements of a slice, or -1 if a column cannot hold it.
func count(v any) int {
	switch v.(type) {
	case []float32, []float64, []int32, []int64, []uint8, []bool, []string:
		return reflect.ValueOf(v).Len()
	}
	return -1
}

// Len is the number of records.
func (c *Columns) Len() int { return c.rows }

// Names lists the columns, sorted.
func (c *Columns) Names() []string { return slices.Sorted(maps.Keys(c.fields)) }

// Column returns the column of that name; its Data is nil where there is none.
func (c *Columns) Column(name string) Column { return c.fields[name] }

// Rename gives a column another name.
func (c *Columns) Rename(from, to string) error {
	f, there := c.fields[from]
	if _, taken := c.fields[to]; !there || taken && from != to {
		return fmt.Errorf("rename %q to %q: the columns are %q", from, to, c.Names())
	}
	delete(c.fields, from)
	c.fields[to] = f
	return nil
}

// At returns record i; slices are parts of the columns.
func (c *Columns) At(i int, _ *rand.Rand) (Example, error) {
	e := make(Example, len(c.fields))
	for name, f := range c.fields {
		e[name] = f.at(i)
	}
	return e, nil
}

// at returns the field of record i: an element if the shape is empty, otherwise a slice.
func (c Column) at(i int) any {
	v := reflect.ValueOf(c.Data)
	if len(c.Shape) == 0 {
		return v.Index(i).Interface()
	}
	w := c.width()
	return v.Slice3(i*w, (i+1)*w, (i+1)*w).Interface()
}

// Classes is one more than the largest number of an integer column, 0 for others.
func (c Column) Classes() int {
	switch v := c.Data.(type) {
	case []int32:
		return classes(v)
	case []int64:
		return classes(v)
	case []uint8:
		return classes(v)
	}
	return 0
}

func classes[T int32 | int64 | uint8](v []T) int {
	if len(v) == 0 {
		return 0
	}
	return int(slices.Max(v)) + 1
}

// Stats are the mean and the standard deviation of numbers.
type Stats struct{ Mean, Std float64 }

// Stats measures a column of floats or bytes as a whole: take those of the training
// set for all sets. A column without numbers has deviation 1, so has a constant one.
func (c Column) Stats() Stats {
	var sum, squares float64
	n := 0
	each := func(x float64) { sum, squares, n = sum+x, squares+x*x, n+1 }
	switch v := c.Data.(type) {
	case []float32:
		for _, x := range v {
			each(float64(x))
		}
	case []float64:
		for _, x := range v {
			each(x)
		}
	case []uint8:
		for _, x := range v {
			each(float64(x))
		}
	}
	if n == 0 {
		return Stats{0, 1}
	}
	mean := sum / float64(n)
	std := math.Sqrt(max(squares/float64(n)-float64(mean*mean), 0))
	if std == 0 {
		std = 1
	}
	return Stats{mean, std}
}

// Normalize is a Transform that replaces the numbers of a field, floats or bytes, by
// (x-Mean)/Std as float32. Several stats are for the leading dimension of the field,
// such as an image's channels, one each.
func Normalize(field string, stats ...Stats) Transform {
	return func(e Example, _ *rand.Rand) (Example, error) {
		x, ok := floats(e[field])
		if !ok || len(stats) == 0 || len(x)%len(stats) != 0 {
			return nil, fmt.Errorf("normalize %q: it is a %T with %d numbers, %d stats are given", field, e[field], len(x), len(stats))
		}
		each := len(x) / len(stats)
		for i := range x {
			s := stats[i/each]
			x[i] = float32((float64(x[i]) - s.Mean) / s.Std)
		}
		e[field] = x
		return e, nil
	}
}

// floats copies numbers to float32.
func floats(v any) ([]float32, bool) {
	switch v := v.(type) {
	case []float32:
		return slices.Clone(v), true
	case []float64:
		return converted[float32](v), true
	case []uint8:
		return converted[float32](v), true
	}
	return nil, false
}

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func converted[To, From number](v []From) []To {
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = To(x)
	}
	return out
}
