package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
	"ampc/onnx"
)

// openONNX reads an ONNX model and binds its sizes.
func openONNX(c *cobra.Command, path string) (*openedModel, error) {
	o, err := onnxOptions(c)
	if err != nil {
		return nil, err
	}
	m, err := ampc.LoadONNX(path, o)
	if err != nil {
		return nil, sizeHint(path, err)
	}
	return &openedModel{ctx: c.Context(), spec: path, model: m, sized: true, config: ampc.TrainConfig{Optimizer: ampc.AdamW(0.01), LR: ampc.Constant(1e-3)}}, nil
}

// onnxOptions returns sizes from --shape, from the arrays of --input or --feed, and from --dim, if
// the command has these flags.
func onnxOptions(c *cobra.Command) (o ampc.ONNXOptions, err error) {
	flag := func(name string) []string {
		list, err := c.Flags().GetStringArray(name)
		if err != nil {
			return nil
		}
		return list
	}
	if o.Sizes, err = parseDims(flag("dim")); err != nil {
		return o, err
	}
	if o.Shapes, err = parseShapes(flag("shape")); err != nil {
		return o, err
	}
	if o.Values, err = readInputs(append(flag("input"), flag("feed")...)); err != nil {
		return o, err
	}
	for name, v := range o.Values {
		if h, ok := v.(ampc.HostTensor); ok && o.Shapes[name] == nil {
			o.Shapes[name] = ir.Sizes(h.Type.IR().Shape)
		}
	}
	return o, nil
}

// sizeHint names the flag that gives a missing size.
func sizeHint(path string, err error) error {
	var size *onnx.SizeError
	switch {
	case !errors.As(err, &size):
		return err
	case size.Name != "" && len(size.Unsized) > 1:
		return usagef("%s: dimensions %q have no sizes: give them with --dim %s=SIZE", path, size.Unsized, strings.Join(size.Unsized, "=SIZE --dim "))
	case size.Name != "":
		return usagef("%s: input %q: dimension %q has no size: give it with --dim %s=SIZE", path, size.Input, size.Name, size.Name)
	}
	return usagef("%s: input %q: dimension %d has no size: give its shape with --shape %s=SIZE,SIZE,...", path, size.Input, size.Dim, size.Input)
}

// parseShapes reads NAME=SIZE,SIZE,... of inputs; a scalar has no sizes.
func parseShapes(pairs []string) (map[string][]int64, error) {
	out := map[string][]int64{}
	for _, p := range pairs {
		name, list, ok := strings.Cut(p, "=")
		shape := []int64{}
		for s := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseInt(s, 10, 64)
			if list != "" && (err != nil || n < 1) {
				ok = false
			}
			if list != "" {
				shape = append(shape, n)
			}
		}
		if !ok || name == "" {
			return nil, usagef("--shape %s: want NAME=SIZE,SIZE,...", p)
		}
		out[name] = shape
	}
	return out, nil
}

// readTensor reads a serialized ONNX tensor and its name.
func readTensor(path string) (map[string]ampc.HostTensor, error) {
	b, err := file.Read(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	x, name, err := onnx.ParseTensor(b)
	if err != nil {
		return nil, file.Error(path, err)
	}
	return map[string]ampc.HostTensor{name: {Type: ampc.TypeFromIR(x.Type), Bytes: x.Bytes()}}, nil
}
