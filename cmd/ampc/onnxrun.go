package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	_ "golang.org/x/image/bmp" // ImageDecoder decodes what is registered with package image
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"ampc"
	"ampc/internal/safetensors"
	"ampc/ir"
	"ampc/onnx"
	"ampc/runtime"
)

// dynamic reports whether an ONNX model cannot be read as one graph and may be run in pieces.
func dynamic(err error) bool {
	var u onnx.Unsupported
	return errors.As(err, &u)
}

// whole is an error for which dynamic holds, where a result depends on a node that is carried: a
// session runs it on the host, or says why it cannot.
func (o *openedModel) whole() error {
	if !strings.HasSuffix(o.spec, ".onnx") || len(o.losses) > 0 {
		return nil
	}
	n := carriedBy(o.model.Graph())
	if n == nil {
		return nil
	}
	return &onnx.NodeError{File: o.spec + ": ", Index: n.Pos.Line, Op: n.Str("op"), Err: onnx.Unsupported{Reason: "it is no part of one compiled step: ampc run runs the model in pieces"}}
}

// carriedBy is a foreign node that what g returns depends on, nil if there is none.
func carriedBy(g *ir.Graph) *ir.Node {
	seen := map[*ir.Node]bool{}
	rest := slices.Clone(g.Return)
	for len(rest) > 0 {
		v := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if v == nil || v.Def == nil || seen[v.Def] {
			continue
		}
		if v.Def.Op == ir.OpForeign {
			return v.Def
		}
		seen[v.Def] = true
		rest = append(rest, v.Def.In...)
	}
	return nil
}

// openSession prepares an ONNX model to run in pieces.
func openSession(path string, f *modelFlags, b runtime.Backend) (*ampc.ONNXSession, error) {
	if len(f.losses) > 0 {
		return nil, usagef("%s: has parts that only run on the host; --train wants one graph", path)
	}
	p, err := loadPolicy(f.policy, f.set...)
	if err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	return ampc.OpenONNX(path, ampc.ONNXRun{Policy: withAlgorithm(p, f.algorithm), Backend: b, Compile: ampc.CompileOptions{Pad: f.pad, WeightCopies: f.weightCopies, Disable: f.disable}})
}

// runSession runs an ONNX model in pieces and prints a summary of its outputs.
func runSession(c *cobra.Command, path string, f *modelFlags, inputs ampc.Feed, seed int64, b runtime.Backend) (*runResult, []ampc.ONNXStep, error) {
	s, err := openSession(path, f, b)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	feed, order, err := fillONNX(c, path, inputs, seed)
	if err != nil {
		return nil, nil, err
	}
	got, err := s.Run(c.Context(), feed)
	if err != nil {
		return nil, nil, err
	}
	for _, note := range s.Notes() {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", path, note)
	}
	out := &runResult{}
	for _, name := range order {
		list, sequence := got.Sequences[name]
		if h, ok := got.Tensors[name]; ok {
			list = []ampc.HostTensor{h}
		}
		for i, h := range list {
			label := name
			if sequence {
				label = fmt.Sprintf("%s[%d]", name, i)
			}
			out.Results = append(out.Results, describeHost(label, h))
			shape := []int64{}
			for _, d := range h.Type.Shape() {
				shape = append(shape, int64(d))
			}
			out.tensors = append(out.tensors, safetensors.Tensor{Name: label, DType: safetensors.Named(h.Type.DType().String()), Shape: shape, Write: safetensors.Bytes(h.Bytes)})
		}
	}
	return out, s.Steps(), nil
}

// fillONNX completes a feed with random inputs. Their sizes come from the flags. It also returns
// the names of the outputs.
func fillONNX(c *cobra.Command, path string, feed ampc.Feed, seed int64) (ampc.Feed, []string, error) {
	m, err := onnx.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	o, err := onnxOptions(c)
	if err != nil {
		return nil, nil, err
	}
	sizes, err := m.Bound(dimSizes(o), o.Shapes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	full := ampc.Feed{}
	maps.Copy(full, feed)
	for _, x := range m.Inputs() {
		if full[x.Name] != nil {
			continue
		}
		t, err := x.Type(sizes, o.Shapes[x.Name])
		if err != nil {
			return nil, nil, sizeHint(path, fmt.Errorf("%s: input %q: %w", path, x.Name, err))
		}
		full[x.Name] = hostOf(randomElements(r, t, m.IndexBound(x.Name)), t)
	}
	var names []string
	for _, y := range m.Graph.Outputs {
		names = append(names, y.Name)
	}
	return full, names, nil
}

func dimSizes(o ampc.ONNXOptions) map[string]int64 {
	out := map[string]int64{}
	for d, n := range o.Sizes {
		out[string(d)] = n
	}
	return out
}

// hostOf returns elements as a tensor for a feed.
func hostOf(v any, t ir.Type) ampc.HostTensor {
	h, err := ampc.NewHostTensor(ampc.TypeFromIR(t), v)
	if err != nil {
		panic(err) // cannot fail: elements were made for the type
	}
	return h
}

// printSteps prints the pieces in which an ONNX model runs.
func printSteps(w io.Writer, steps []ampc.ONNXStep) error {
	regions := slices.Collect(func(yield func(ampc.ONNXStep) bool) {
		for _, s := range steps {
			if s.Op == "" && !yield(s) {
				return
			}
		}
	})
	if _, err := fmt.Fprintf(w, "runs in pieces: compiled regions: %d, nodes on the host: %d\n", len(regions), len(steps)-len(regions)); err != nil {
		return err
	}
	for _, s := range steps {
		if _, err := fmt.Fprintf(w, "  %s\n", s); err != nil {
			return err
		}
	}
	return nil
}
