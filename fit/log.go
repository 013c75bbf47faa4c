package fit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"ampc/internal/file"
)

// Row is what a run came to at one step: of the step itself, of an evaluation, or both.
type Row struct {
	Step, Epoch int
	Time        time.Time
	Values      map[string]float64 // by column
}

// Log takes the rows of a run. CSV, JSONLines and TensorBoard are logs; all of them
// show the same numbers.
type Log interface {
	// Begin is called first. step is 0 in a new run; else the log keeps the rows up to
	// that step and drops what a run that was stopped wrote behind it.
	Begin(columns []string, step int) error
	Write(Row) error
	Flush() error // before each checkpoint
	Close() error
}

// CSV logs to a table: a header, then a row for each step, with an empty cell for what
// is not there or not finite.
func CSV(path string) Log {
	return &lines{path: path, format: csvRow, header: csvHeader, stepOf: csvStep}
}

// JSONLines logs an object per line; what is not there is left out, what is not finite
// is null.
func JSONLines(path string) Log { return &lines{path: path, format: jsonRow, stepOf: jsonStep} }

// lines is a text file with a line for each row.
type lines struct {
	path    string
	columns []string
	format  func(columns []string, r Row) []byte
	header  func(columns []string) []byte // nil: none
	stepOf  func(line []byte) (int, bool)
	f       *os.File
	w       *bufio.Writer
}

// Begin opens the file.
func (l *lines) Begin(columns []string, step int) error {
	l.columns = columns
	kept, err := l.keep(step)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o777); err != nil {
		return file.Error(filepath.Dir(l.path), err)
	}
	if err := file.Write(l.path, func(f *os.File) error { _, err := f.Write(kept); return err }); err != nil {
		return err
	}
	if l.f, err = os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return file.Error(l.path, err)
	}
	l.w = bufio.NewWriter(l.f)
	return nil
}

// keep is what stays of the file: the header, and the rows up to a step.
func (l *lines) keep(step int) ([]byte, error) {
	var head []byte
	if l.header != nil {
		head = l.header(l.columns)
	}
	if step == 0 {
		return head, nil
	}
	old, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return head, nil
	} else if err != nil {
		return nil, file.Error(l.path, err)
	}
	rest, same := bytes.CutPrefix(old, head)
	if !same {
		return nil, fmt.Errorf("%s: has other columns than this run: move it away", l.path)
	}
	kept := slices.Clone(head)
	for line := range bytes.Lines(rest) {
		n, ok := l.stepOf(line)
		if !ok || n > step || line[len(line)-1] != '\n' {
			break
		}
		kept = append(kept, line...)
	}
	return kept, nil
}

// Write adds a row.
func (l *lines) Write(r Row) error {
	_, err := l.w.Write(l.format(l.columns, r))
	return l.worded(err)
}

// Flush hands the rows to the operating system.
func (l *lines) Flush() error { return l.worded(l.w.Flush()) }

// Close flushes and closes the file.
func (l *lines) Close() error {
	if l.f == nil {
		return nil
	}
	return errors.Join(l.Flush(), l.worded(l.f.Close()))
}

func (l *lines) worded(err error) error {
	if err == nil {
		return nil
	}
	return file.Error(l.path, err)
}

func csvHeader(columns []string) []byte {
	out := []byte("step,epoch")
	for _, c := range columns {
		out = append(append(out, ','), c...)
	}
	return append(out, '\n')
}

func csvRow(columns []string, r Row) []byte {
	out := strconv.AppendInt(nil, int64(r.Step), 10)
	out = strconv.AppendInt(append(out, ','), int64(r.Epoch), 10)
	for _, c := range columns {
		out = append(out, ',')
		if x, there := r.Values[c]; there && finite(x) {
			out = strconv.AppendFloat(out, x, 'g', -1, 64)
		}
	}
	return append(out, '\n')
}

func csvStep(line []byte) (int, bool) {
	cell, _, ok := bytes.Cut(line, []byte(","))
	n, err := strconv.Atoi(string(cell))
	return n, ok && err == nil
}

func jsonRow(columns []string, r Row) []byte {
	out := fmt.Appendf(nil, `{"step":%d,"epoch":%d`, r.Step, r.Epoch)
	for _, c := range columns {
		x, there := r.Values[c]
		if !there {
			continue
		}
		name, _ := json.Marshal(c) // a string: it cannot fail
		out = append(append(append(out, ','), name...), ':')
		if finite(x) {
			out = strconv.AppendFloat(out, x, 'g', -1, 64)
		} else {
			out = append(out, "null"...)
		}
	}
	return append(out, "}\n"...)
}

func jsonStep(line []byte) (int, bool) {
	var r struct{ Step *int }
	err := json.Unmarshal(line, &r)
	if err != nil || r.Step == nil {
		return 0, false
	}
	return *r.Step, true
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
