package onnx

import (
	"fmt"
	"maps"
	"slices"

	"ampc/ir"
)

// SizeError is a dimension of an input that has no size.
type SizeError struct {
	Input string
	Dim   int    // counted from 0
	Name  string // of the dimension, "" for none
	// Unsized are all named dimensions of inputs that have no size, in order.
	Unsized []string
}

func (e *SizeError) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("dimension %q has no size", e.Name)
	}
	return fmt.Sprintf("dimension %d has no size", e.Dim)
}

// unsized lists the named dimensions of inputs that have no size.
func (im *importer) unsized(inputs []*Info) (names []string) {
	for _, x := range inputs {
		for _, d := range x.Dims {
			_, sized := im.o.Dims[d.Name]
			if !d.Known && d.Name != "" && !sized && im.o.Shapes[x.Name] == nil && !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	return names
}

// Bound are sizes of named dimensions with those that the shapes of inputs give, by the inputs' names. Two
// sizes of one dimension are an error.
func (m *Model) Bound(sizes map[string]int64, shapes map[string][]int64) (map[string]int64, error) {
	out := maps.Clone(sizes)
	if out == nil {
		out = map[string]int64{}
	}
	by := map[string]string{} // the input that gave a dimension its size
	for _, x := range m.Inputs() {
		given := shapes[x.Name]
		if len(given) != len(x.Dims) {
			continue // none is given, or Info.Type refuses it
		}
		for i, d := range x.Dims {
			if d.Known || d.Name == "" {
				continue
			}
			size, twice := out[d.Name]
			switch first := by[d.Name]; {
			case twice && size != given[i] && first != "":
				return nil, fmt.Errorf("dimension %q is %d in input %q and %d in input %q", d.Name, size, first, given[i], x.Name)
			case twice && size != given[i]:
				return nil, fmt.Errorf("dimension %q was given size %d, and is %d in input %q", d.Name, size, given[i], x.Name)
			case first == "":
				by[d.Name] = x.Name
			}
			out[d.Name] = given[i]
		}
	}
	return out, nil
}

// Type is the type of an input where named dimensions have sizes; a shape, where it is
// not nil, comes before them.
func (x *Info) Type(sizes map[string]int64, given []int64) (ir.Type, error) {
	if x.Kind != "" {
		return ir.Type{}, Unsupported{Reason: fmt.Sprintf("it is a %s, want a tensor", x.Kind)}
	}
	d, err := x.DType.ours()
	if err != nil {
		return ir.Type{}, Unsupported{Reason: err.Error()}
	}
	fed := given != nil
	if fed && x.Rank && len(given) != len(x.Dims) {
		return ir.Type{}, fmt.Errorf("it has rank %d, but shape %v was given", len(x.Dims), given)
	}
	if !fed && !x.Rank {
		return ir.Type{}, fmt.Errorf("its shape is not in the model: give one")
	}
	dims := make([]ir.Dim, max(len(given), len(x.Dims)))
	for i := range dims {
		size, err := x.size(i, given, sizes)
		if err != nil {
			return ir.Type{}, err
		}
		dims[i] = ir.Dim(size)
	}
	if err := ir.CheckDims(dims); err != nil {
		return ir.Type{}, err
	}
	return ir.Type{DType: d, Shape: ir.MakeShape(dims...)}, nil
}

func (x *Info) size(i int, given []int64, sizes map[string]int64) (int64, error) {
	var d Dim
	if x.Rank {
		d = x.Dims[i]
	}
	size, ok := d.Size, d.Known
	if given != nil {
		if ok && given[i] != size {
			return 0, fmt.Errorf("dimension %d is %d in the model, but %d was given", i, size, given[i])
		}
		size, ok = given[i], true
	} else if !ok && d.Name != "" {
		size, ok = sizes[d.Name]
	}
	switch {
	case !ok:
		return 0, &SizeError{Input: x.Name, Dim: i, Name: d.Name}
	case size < 0:
		return 0, fmt.Errorf("dimension %d is %d, want 0 or more", i, size)
	}
	return size, nil
}
