package fit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ampc/internal/file"
)

// Row holds the numbers of one step of a run: of the step itself, of an evaluation, or of both.
// Its JSON form is the line that JSONLines writes.
type Row struct {
	Step, Epoch int
	Time        time.Time          // set in rows of TensorBoard's events only
	Values      map[string]float64 // by column
	Words       map[string]string  // by column; rows of TensorBoard's events have none
}

// Log takes the rows of a run. CSV, JSONLines and TensorBoard are logs; all of them
// show the same numbers.
type Log interface {
	// Begin is called first. step is 0 in a new run. For a continued run the log keeps the rows up
	// to that step and drops later ones.
	Begin(columns []string, step int) error
	Write(Row) error
	Flush() error // called before each checkpoint
	Close() error
}

// CSV logs to a table: a header, then a row for each step. A value that is absent or not finite is
// an empty cell.
func CSV(path string) Log {
	return &lines{path: path, format: csvRow, header: csvHeader, stepOf: csvStep}
}

// JSONLines logs an object per line. An absent value is omitted; a value that is not finite is null.
func JSONLines(path string) Log { return &lines{path: path, format: jsonRow, stepOf: jsonStep} }

// lines is a text file with one line per row.
type lines struct {
	path    string
	columns []string
	format  func(columns []string, r Row) []byte
	header  func(columns []string) []byte // nil: the file has no header
	stepOf  func(line []byte) (int, bool)
	f       *os.File
	w       *bufio.Writer
}

// Begin opens the file.
func (l *lines) Begin(columns []string, step int) error {
	l.columns, l.f = columns, nil
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

// keep returns the part of the file that stays: the header, and the rows up to a step.
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

// Flush passes the rows to the operating system.
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
		} else if word := r.Words[c]; strings.ContainsAny(word, ",\"\r\n") {
			out = append(append(append(out, '"'), strings.ReplaceAll(word, `"`, `""`)...), '"')
		} else {
			out = append(out, word...)
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
		x, number := r.Values[c]
		word, there := r.Words[c]
		if !number && !there {
			continue
		}
		out = append(append(append(out, ','), quoted(c)...), ':')
		switch {
		case !number:
			out = append(out, quoted(word)...)
		case finite(x):
			out = strconv.AppendFloat(out, x, 'g', -1, 64)
		default:
			out = append(out, "null"...)
		}
	}
	return append(out, "}\n"...)
}

func quoted(s string) []byte {
	text, _ := json.Marshal(s) // encoding a string cannot fail
	return text
}

// MarshalJSON writes the row with its columns in the order of their names.
func (r Row) MarshalJSON() ([]byte, error) {
	columns := append(slices.Collect(maps.Keys(r.Values)), slices.Collect(maps.Keys(r.Words))...)
	slices.Sort(columns)
	return jsonRow(columns, r), nil
}

// UnmarshalJSON reads a line of JSONLines: null is NaN, true and false are 1 and 0.
func (r *Row) UnmarshalJSON(text []byte) error {
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*r = Row{Values: map[string]float64{}}
	step, there := fields["step"].(float64)
	if !there {
		return errors.New("a row of a log has no step")
	}
	r.Step = int(step)
	for name, x := range fields {
		switch x := x.(type) {
		case float64:
			r.Values[name] = x
		case nil:
			r.Values[name] = math.NaN()
		case bool:
			r.Values[name] = 0
			if x {
				r.Values[name] = 1
			}
		case string:
			if r.Words == nil {
				r.Words = map[string]string{}
			}
			r.Words[name] = x
		default:
			return fmt.Errorf("column %q of a log is no number and no text", name)
		}
	}
	r.Epoch = int(r.Values["epoch"])
	delete(r.Values, "step")
	delete(r.Values, "epoch")
	return nil
}

func jsonStep(line []byte) (int, bool) {
	var r Row
	err := json.Unmarshal(line, &r)
	return r.Step, err == nil
}

// ReadJSONLines reads what JSONLines wrote, as far as the first damaged line, which a
// run that was killed may leave at the end; damaged is its number, 0 where all are whole.
func ReadJSONLines(path string) (rows []Row, damaged int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, file.Error(path, err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var r Row
		if json.Unmarshal(in.Bytes(), &r) != nil || len(rows) > 0 && r.Step <= rows[len(rows)-1].Step {
			return rows, len(rows) + 1, nil
		}
		rows = append(rows, r)
	}
	if err := in.Err(); err != nil {
		return nil, 0, file.Error(path, err)
	}
	return rows, 0, nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
