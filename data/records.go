package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"unicode/utf8"

	"ampc/internal/file"
)

// Records is a set in memory.
type Records []Example

// Len is the number of records.
func (r Records) Len() int { return len(r) }

// At returns a copy of record i, so that a Transform may change its fields.
func (r Records) At(i int, _ *rand.Rand) (Example, error) {
	e := make(Example, len(r[i]))
	for name, v := range r[i] {
		e[name] = v
	}
	return e, nil
}

// LineOptions say how files of lines are read.
type LineOptions struct {
	Fields  []string          // of JSON objects; each record must have them; nil: those of the first record
	Ints    []string          // fields whose numbers are int32 and not float32, such as labels
	OnBad   func(error) error // as Options.OnBad; nil: a bad record is the error of the call
	MaxLine int               // bytes; 0: 16 MiB. A longer line is a bad record.
}

// Lines reads the lines of a text, gzipped or not, as records with the field "text". A
// line is bad where it is not UTF-8 or too long. Empty lines are left out.
func Lines(path string, o LineOptions) (Records, error) {
	return readLines(path, o, func(line []byte) (Example, error) {
		if !utf8.Valid(line) {
			return nil, errors.New("not UTF-8")
		}
		return Example{"text": string(line)}, nil
	})
}

// JSONLines reads a JSON object per line, gzipped or not. Numbers become float32, or
// int32 where Ints names the field, arrays of numbers slices of them, row by row where
// they are nested; strings and bools stay. A record is bad where it is no object, lacks
// a field, holds another kind than the first record or a number that its dtype does not
// hold.
func JSONLines(path string, o LineOptions) (Records, error) {
	fields, kinds := slices.Clone(o.Fields), map[string]string{}
	return readLines(path, o, func(line []byte) (Example, error) {
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			return nil, fmt.Errorf("no JSON object: %w", err)
		}
		names := fields
		if names == nil {
			for name := range object {
				names = append(names, name)
			}
			slices.Sort(names)
		}
		e := Example{}
		for _, name := range names {
			v, there := object[name]
			if !there {
				return nil, fmt.Errorf("no field %q", name)
			}
			x, err := jsonValue(v, slices.Contains(o.Ints, name))
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", name, err)
			}
			if kind := fmt.Sprintf("%T", x); kinds[name] != "" && kinds[name] != kind {
				return nil, fmt.Errorf("field %q is of type %s, in the first record of type %s", name, kind, kinds[name])
			}
			e[name] = x
		}
		fields = names
		for name, x := range e {
			kinds[name] = fmt.Sprintf("%T", x)
		}
		return e, nil
	})
}

// jsonValue converts a field to the form that a batch takes.
func jsonValue(v any, ints bool) (any, error) {
	switch v := v.(type) {
	case string, bool:
		return v, nil
	case float64:
		if ints {
			return int32Of(v)
		}
		return float32Of(v)
	case []any:
		if ints {
			return flatten(nil, v, int32Of)
		}
		return flatten(nil, v, float32Of)
	}
	return nil, fmt.Errorf("is a %T, want numbers, a string or a bool", v)
}

func int32Of(x float64) (int32, error) {
	if x != math.Trunc(x) || math.Abs(x) > math.MaxInt32 {
		return 0, fmt.Errorf("%v is no int32", x)
	}
	return int32(x), nil
}

func float32Of(x float64) (float32, error) {
	if math.Abs(x) > math.MaxFloat32 {
		return 0, fmt.Errorf("%v is beyond float32", x)
	}
	return float32(x), nil
}

// flatten appends the numbers of nested arrays.
func flatten[T any](to []T, v []any, one func(float64) (T, error)) ([]T, error) {
	for _, x := range v {
		switch x := x.(type) {
		case float64:
			y, err := one(x)
			if err != nil {
				return nil, err
			}
			to = append(to, y)
		case []any:
			var err error
			if to, err = flatten(to, x, one); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("holds a %T, want numbers", x)
		}
	}
	return to, nil
}

// readLines makes a record of each line that is not empty.
func readLines(path string, o LineOptions, record func(line []byte) (Example, error)) (Records, error) {
	r, closer, err := file.Unpacked(path)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	limit := o.MaxLine
	if limit == 0 {
		limit = 16 << 20
	}
	var all Records
	for n := 1; ; n++ {
		line, whole, err := nextLine(r, limit)
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, file.Error(path, err)
		}
		if line = bytes.TrimSpace(line); whole && len(line) == 0 {
			continue
		}
		e, bad := Example(nil), fmt.Errorf("longer than %d bytes", limit)
		if whole {
			e, bad = record(line)
		}
		if bad == nil {
			all = append(all, e)
		} else if err := judge(o.OnBad, &BadRecord{path, n, bad}); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no records", path)
	}
	return all, nil
}

// nextLine reads a line. whole is false if it has more than limit bytes; the rest of the line is
// then skipped.
func nextLine(r *bufio.Reader, limit int) (line []byte, whole bool, err error) {
	n := 0
	for {
		part, more, err := r.ReadLine()
		if err != nil {
			return nil, false, err
		}
		if n += len(part); n <= limit {
			line = append(line, part...)
		}
		if !more {
			return line, n <= limit, nil
		}
	}
}
