package data

import (
	"fmt"
	"maps"
	"slices"
)

// Batch is what a Loader hands out.
type Batch struct {
	// Feed holds the fields of all records, one record after the other, in the form that
	// ampc.Step.Run takes.
	Feed  map[string]any
	Count int // number of records without padding
	Size  int // number of records with padding
	Epoch int // index, from 0
}

// collate joins the fields of records into slices and pads them to n records.
func collate(records []Example, n int, pad map[string]float64) (map[string]any, error) {
	feed := make(map[string]any, len(records[0])+1)
	for name, first := range records[0] {
		for _, e := range records {
			if len(e) != len(records[0]) {
				return nil, fmt.Errorf("records have different fields: %q and %q", slices.Sorted(maps.Keys(records[0])), slices.Sorted(maps.Keys(e)))
			}
		}
		joined := gather(records, name, first, n, pad[name])
		if joined == nil {
			return nil, fmt.Errorf("field %q: %s", name, misfit(records, name))
		}
		feed[name] = joined
	}
	return feed, nil
}

// gather joins one field of all records into a slice. It is nil if the records do not fit together.
func gather(records []Example, name string, first any, n int, pad float64) any {
	switch first.(type) {
	case float32, []float32:
		return join(records, name, n, float32(pad))
	case float64, []float64:
		return join(records, name, n, pad)
	case int32, []int32:
		return join(records, name, n, int32(pad))
	case int64, []int64:
		return join(records, name, n, int64(pad))
	case int, []int:
		return join(records, name, n, int(pad))
	case uint8, []uint8:
		return join(records, name, n, uint8(pad))
	case bool, []bool:
		return join(records, name, n, pad != 0)
	case string, []string:
		return join(records, name, n, "")
	}
	return nil
}

// join is gather for one element type.
func join[T any](records []Example, name string, n int, pad T) any {
	var out []T
	width := -1
	for _, e := range records {
		v, isSlice := e[name].([]T)
		if !isSlice {
			x, isNumber := e[name].(T)
			if !isNumber {
				return nil
			}
			v = []T{x}
		}
		if width < 0 {
			width = len(v)
			out = make([]T, 0, n*width)
		}
		if len(v) != width {
			return nil
		}
		out = append(out, v...)
	}
	for len(out) < n*width {
		out = append(out, pad)
	}
	return out
}

// misfit explains why records cannot be joined.
func misfit(records []Example, name string) string {
	describe := func(v any) string {
		if n := count(v); n >= 0 {
			return fmt.Sprintf("a %T of %d", v, n)
		}
		return fmt.Sprintf("a %T", v)
	}
	first := describe(records[0][name])
	for _, e := range records {
		if other := describe(e[name]); other != first {
			return fmt.Sprintf("is %s in one record and %s in another: bring them to one length with Map, or set Options.Collate", first, other)
		}
	}
	return fmt.Sprintf("is %s, which makes no batch: want numbers, bools or strings, or slices of them", first)
}
