package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"ampc/internal/file"
)

// CSVOptions say what the columns of a CSV file are.
type CSVOptions struct {
	// Label is the name of the field for LabelColumn: int32 where each cell is a whole
	// number from 0 on, else float32. "": no cell is a label.
	Label string
	// Whole says that labels are classes: a cell that is no whole number from 0 on is a
	// bad record.
	Whole bool
	// LabelColumn is the name or the number, from 0, of the label's column; "": the last.
	LabelColumn string
	// Classes are the names of labels that are words: Classes[2] becomes 2. A cell with
	// another word is a bad record. nil: labels are numbers.
	Classes []string
	Field   string   // of the other cells, numbers as float32 in the order of the file; "": "x"
	Columns []string // names or numbers of the columns that Field takes; nil: all but the label's
	Shape   []int    // of Field; nil: as many as there are
	Comma   rune     // between cells; 0: a comma
	Header  Header
	OnBad   func(error) error // as Options.OnBad; nil: a bad record is the error of CSV
}

// Header says whether the first line names the columns.
type Header uint8

// The values of CSVOptions.Header.
const (
	FindHeader Header = iota // where a cell that should be a number is none
	NoHeader
	HasHeader
)

// CSV reads a table of numbers, gzipped or not. Lines that begin with # are comments. A
// record is bad where a cell is not a finite number, or where it has another number of
// cells than the first line.
func CSV(path string, o CSVOptions) (*Columns, error) {
	r, closer, err := file.Unpacked(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return readCSV(path, r, o)
}

func readCSV(path string, r io.Reader, o CSVOptions) (*Columns, error) {
	in := csv.NewReader(r)
	in.Comment, in.TrimLeadingSpace, in.FieldsPerRecord = '#', true, -1
	if o.Comma != 0 {
		in.Comma = o.Comma
	}
	t := &csvTable{CSVOptions: o, whole: true}
	for first := true; ; first = false {
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		line := 0
		if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
			line, err = parse.Line, parse.Err
		} else if err != nil {
			return nil, file.Error(path, err)
		} else {
			line, _ = in.FieldPos(0)
			if first {
				header, err := t.begin(record)
				if err != nil {
					return nil, fmt.Errorf("%s:%d: %w", path, line, err)
				}
				if t.named = header; header {
					continue
				}
			}
			err = t.add(record)
		}
		if err == nil {
			continue
		}
		if err = judge(o.OnBad, &BadRecord{path, line, err}); err != nil {
			return nil, err
		}
		if first {
			return nil, fmt.Errorf("%s:%d: the first line is damaged, which says what columns there are", path, line)
		}
	}
	if t.rows == 0 && t.named {
		return nil, fmt.Errorf("%s: no records: the first line was read as names of columns", path)
	} else if t.rows == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	return t.columns()
}

// csvTable is the part of a file that has been read.
type csvTable struct {
	CSVOptions
	cells  int   // number of cells in a record
	named  bool  // the first line names the columns
	label  int   // column of the label, -1: none
	taken  []int // columns that belong to Field
	rows   int
	values []float32
	labels []float64
	whole  bool // all labels so far are integers from 0 on
}

// begin finds the columns in the first line and decides whether it is a header.
func (t *csvTable) begin(record []string) (header bool, err error) {
	t.cells, t.label = len(record), -1
	if t.Label != "" {
		if t.label = len(record) - 1; t.LabelColumn != "" {
			if t.label, err = t.find(record, t.LabelColumn); err != nil {
				return false, err
			}
		}
	}
	for _, name := range t.Columns {
		at, err := t.find(record, name)
		if err != nil {
			return false, err
		}
		t.taken = append(t.taken, at)
	}
	if t.Columns == nil {
		for i := range record {
			if i != t.label {
				t.taken = append(t.taken, i)
			}
		}
	}
	switch t.Header {
	case HasHeader:
		return true, nil
	case NoHeader:
		return false, nil
	}
	if t.label >= 0 && t.Classes == nil {
		if _, err := strconv.ParseFloat(strings.TrimSpace(record[t.label]), 64); err != nil {
			return true, nil
		}
	}
	return slices.ContainsFunc(t.taken, func(i int) bool { _, err := number32(record[i]); return err != nil }), nil
}

// find returns the index of the column with that name in the first line, or with that number.
func (t *csvTable) find(first []string, column string) (int, error) {
	if t.Header != NoHeader {
		for i, name := range first {
			if strings.TrimSpace(name) == column {
				return i, nil
			}
		}
	}
	if i, err := strconv.Atoi(column); err == nil && i >= 0 && i < len(first) {
		return i, nil
	}
	return 0, fmt.Errorf("no column %q: the first line is %q", column, first)
}

func (t *csvTable) add(record []string) error {
	if len(record) != t.cells {
		return fmt.Errorf("%d cells, the first line has %d", len(record), t.cells)
	}
	before := len(t.values)
	for _, i := range t.taken {
		x, err := number32(record[i])
		if err != nil {
			t.values = t.values[:before]
			return fmt.Errorf("cell %d is %q, want a finite number", i+1, record[i])
		}
		t.values = append(t.values, x)
	}
	if t.label >= 0 {
		y, err := t.labelOf(strings.TrimSpace(record[t.label]))
		if err != nil {
			t.values = t.values[:before]
			return fmt.Errorf("the label, cell %d, %w", t.label+1, err)
		}
		t.labels = append(t.labels, y)
		t.whole = t.whole && isClass(y)
	}
	t.rows++
	return nil
}

func (t *csvTable) labelOf(cell string) (float64, error) {
	if t.Classes != nil {
		i := slices.Index(t.Classes, cell)
		if i < 0 {
			return 0, fmt.Errorf("is %q, which is none of CSVOptions.Classes", cell)
		}
		return float64(i), nil
	}
	y, err := strconv.ParseFloat(cell, 64)
	if err != nil || math.IsInf(y, 0) || math.IsNaN(y) {
		return 0, fmt.Errorf("is %q, want a finite number", cell)
	}
	if t.Whole && !isClass(y) {
		return 0, fmt.Errorf("is %q, want a whole number from 0 to %d", cell, math.MaxInt32)
	}
	return y, nil
}

func isClass(y float64) bool { return y >= 0 && y <= math.MaxInt32 && y == math.Trunc(y) }

func number32(cell string) (float32, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(cell), 32)
	if err == nil && (math.IsInf(x, 0) || math.IsNaN(x)) {
		err = strconv.ErrRange
	}
	return float32(x), err
}

func (t *csvTable) columns() (*Columns, error) {
	fields := map[string]Column{}
	if len(t.taken) > 0 {
		shape := t.Shape
		if shape == nil {
			shape = []int{len(t.taken)}
		}
		name := t.Field
		if name == "" {
			name = "x"
		}
		fields[name] = Column{t.values, shape}
		if n, ok := elements(shape); !ok || n != len(t.taken) {
			return nil, fmt.Errorf("CSVOptions.Shape is %v, a record has %d numbers", shape, len(t.taken))
		}
	}
	switch {
	case t.label < 0:
	case t.whole:
		fields[t.Label] = Column{converted[int32](t.labels), nil}
	default:
		fields[t.Label] = Column{converted[float32](t.labels), nil}
	}
	return NewColumns(fields)
}

// elements is the number of elements of a shape. It is false if the number exceeds an int or a
// dimension is negative.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		n = int(lo)
	}
	return n, true
}
