package ampc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/onnx/host"
	"ampc/passes"
)

// ONNXOptions state what an ONNX file leaves open.
type ONNXOptions struct {
	Sizes  Sizes              // of named dimensions; all must be bound
	Shapes map[string][]int64 // of inputs by name, for dimensions without a name; they come before Sizes
	// Values are inputs whose elements a shape, an axis or a bound is made from: the
	// model is right for no others. Model.Graph lists them as inputs still.
	Values Feed
	// Train lists patterns of the weights that become parameters; all others are
	// frozen. nil: all floating-point weights are parameters. A pattern that matches
	// no weight is an error.
	Train []string
}

// LoadONNX makes a model of the ONNX file at path. Its weights stay in the
// file, which must be there until the first step is compiled. Outputs are what
// Model.Outputs returns, in the order of the file; inputs and outputs have their
// names. An operator that is not understood (docs/onnx-ops.md) is carried where
// the model says the types of its results: the model can be looked at and
// converted, and what must run the operator is an error that names the node. Nodes whose
// elements of f64 are computed in f32 are a note of every step.
func LoadONNX(path string, o ONNXOptions, more ...ModelOption) (*Model, error) {
	f, err := onnx.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, err := o.importing(path)
	if err != nil {
		return nil, err
	}
	var weights []string
	if matches := in.Train; matches != nil {
		in.Train = func(name string) bool {
			weights = append(weights, name)
			return matches(name)
		}
	}
	x, err := onnx.Import(f, in)
	if err != nil {
		return nil, sizesWanted(err)
	}
	if err := o.idle(weights); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := FromGraph(x.Graph, more...)
	if note := x.DoubleNote(); note != "" {
		m.notes = append(m.notes, note)
	}
	return m, nil
}

// Notes say what an imported model computes otherwise than its file says: elements of f64 in f32. They
// are notes of each step, too (Step.Notes).
func (m *Model) Notes() []string { return slices.Clone(m.notes) }

// importing are the options as the importer takes them.
func (o *ONNXOptions) importing(path string) (onnx.Options, error) {
	in := onnx.Options{Dims: map[string]int64{}, Shapes: o.Shapes, Values: map[string]*eval.Tensor{}, Foreign: true, Host: host.Why}
	for d, n := range o.Sizes {
		in.Dims[string(d)] = n
	}
	for name, v := range o.Values {
		h, ok := v.(HostTensor)
		if !ok {
			return in, fmt.Errorf("%s: the value of %q is a %T, want a HostTensor", path, name, v)
		}
		e, err := eval.FromBytes(h.Type.t, h.Bytes)
		if err != nil {
			return in, fmt.Errorf("%s: the value of %q: %w", path, name, err)
		}
		in.Values[name] = e
	}
	if o.Train != nil {
		in.Train = func(name string) bool {
			return slices.ContainsFunc(o.Train, func(pattern string) bool { return passes.Matches(pattern, name) })
		}
	}
	return in, nil
}

// idle is the error of a pattern in Train that matches none of the weights.
func (o *ONNXOptions) idle(weights []string) error {
	for _, pattern := range o.Train {
		if slices.ContainsFunc(weights, func(name string) bool { return passes.Matches(pattern, name) }) {
			continue
		}
		some := slices.Compact(slices.Sorted(slices.Values(weights)))
		list := strings.Join(some[:min(len(some), 5)], ", ")
		if len(some) > 5 {
			list += fmt.Sprintf(" and %d more", len(some)-5)
		}
		return fmt.Errorf("ONNXOptions.Train: the pattern %q matches no weight; there are %s", pattern, cmp.Or(list, "none"))
	}
	return nil
}

// sizesWanted says where to give the size that an import misses.
func sizesWanted(err error) error {
	var size *onnx.SizeError
	switch {
	case !errors.As(err, &size):
		return err
	case size.Name != "" && len(size.Unsized) > 1:
		return fmt.Errorf("%w: give sizes to %q in ONNXOptions.Sizes", err, size.Unsized)
	case size.Name != "":
		return fmt.Errorf("%w: give it in ONNXOptions.Sizes: ampc.Sizes{%q: 1}", err, size.Name)
	}
	return fmt.Errorf("%w: give the shape in ONNXOptions.Shapes: map[string][]int64{%q: {...}}", err, size.Input)
}

// Outputs returns the results of the graph, in order: the outputs of an imported
// model, or the return line of a graph read from text.
func (m *Model) Outputs() []Tensor { return m.tensors(m.Graph().Return) }
