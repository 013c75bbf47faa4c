package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/file"
	"ampc/ir"
	"ampc/onnx"
)

func convertCommand() *cobra.Command {
	var policy, save string
	var set, keep, data []string
	var o ampc.ConvertOptions
	var all, asJSON bool
	c := command("convert IN.onnx OUT.onnx", "Convert an ONNX model to a 16-bit ONNX model", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		if !(o.MaxError >= 0) {
			return usagef("--max-error %g: want a number, 0 or more", o.MaxError)
		}
		if strings.HasPrefix(args[0], "zoo:") {
			return usagef("%s is no ONNX file: ampc export %[1]s %s --policy %s writes it as one", args[0], args[1], policy)
		}
		p, err := loadPolicy(policy, set...)
		if err != nil {
			return err
		}
		for _, pattern := range keep {
			p = p.Keep(pattern)
		}
		if o.ONNXOptions, err = onnxOptions(c); err != nil {
			return err
		}
		if len(o.Values) > 0 {
			o.Data = []ampc.Feed{o.Values}
		}
		if len(data) > 0 {
			if err := calibrationData(args[0], data, &o); err != nil {
				return err
			}
		}
		o.Policy = p
		if save != "" {
			if err := file.Writable(save); err != nil {
				return err
			}
		}
		r, err := ampc.ConvertONNX(c.Context(), args[0], args[1], o)
		if err != nil {
			return sizeHint(args[0], err)
		}
		if save != "" {
			if err := os.WriteFile(save, []byte(r.Policy), 0o666); err != nil {
				return file.Error(save, err)
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), r)
		}
		return printConversion(c.OutOrStdout(), r, all)
	})
	addJSON(c, &asJSON)
	fl := c.Flags()
	fl.StringVar(&policy, "policy", "mixed-f16", policyHelp+"; f32 copies the file")
	fl.StringArrayVar(&set, "set", nil, setHelp)
	fl.StringArrayVar(&keep, "keep", nil, "keep nodes in f32 whose results match `PATTERN`; may be repeated")
	fl.StringArrayVar(&o.LowIO, "low-io", nil, "give inputs and outputs that match `PATTERN` the 16-bit dtype; may be repeated")
	fl.StringArrayVar(&o.KeepIO, "keep-io", nil, "leave inputs and outputs that match `PATTERN` in f32, although --low-io names them; may be repeated")
	fl.BoolVar(&o.External, "external", false, "write weights to a file beside the model, OUT.onnx.data")
	fl.StringArrayVar(&data, "calibrate", nil, "`INPUTS` to find what must stay in f32: .npz or .safetensors files, or a folder of them, or folders of input_0.pb, input_1.pb, ...; or random for random inputs; may be repeated")
	fl.StringVar(&save, "save-policy", "", "write the decisions to this policy `FILE`, which --policy reads")
	fl.Float64Var(&o.MaxError, "max-error", 0, "refuse a result of which an output is off by more than this `SHARE` of its largest magnitude; with --calibrate, keep nodes in f32 until none is; 0: no limit")
	fl.Int64Var(&o.Seed, "seed", 1, "seed of random inputs")
	fl.StringArray("input", nil, "run both models on these inputs and compare; "+tensorsHelp)
	fl.StringArray("dim", nil, dimHelp)
	fl.StringArray("shape", nil, shapeHelp)
	fl.BoolVar(&all, "all", false, "list all nodes that stay in f32")
	return c
}

// printConversion lists the nodes that stay in f32, at most ten unless all is set.
func printConversion(w io.Writer, r *ampc.ConvertReport, all bool) error {
	fmt.Fprintf(w, "%d of %d nodes in 16 bits, %d weights stored in them, %d casts; %s bytes, were %s\n", r.Low, r.Nodes, r.Weights, r.Casts, ir.Thousands(r.Out), ir.Thousands(r.In))
	if r.Opset > 0 {
		fmt.Fprintf(w, "opset %d, was %d\n", r.Opset, r.From)
	}
	for i, k := range r.Kept {
		if i == 10 && !all {
			fmt.Fprintf(w, "  and %d more in f32: --all lists them\n", len(r.Kept)-i)
			break
		}
		name := ir.Printable(k.Name)
		if k.Name == "" {
			name = fmt.Sprintf("node %d", k.Index)
		}
		fmt.Fprintf(w, "  f32: %s%s (%s): %s\n", k.Graph, name, ir.Printable(k.Op), k.Why)
	}
	if r.Runs > 0 {
		fmt.Fprintf(w, "%d assignments tried\n", r.Runs)
	}
	fmt.Fprintf(w, "took %v\n", r.Took.Round(time.Millisecond))
	if r.Unjudged {
		fmt.Fprintln(w, "not run beside the source, as its weights are large: --input, --calibrate or --max-error does that")
	}
	for _, n := range r.Foreign {
		fmt.Fprintf(w, "not compared with the source: node %d %s (%s): %s\n", n.Index, ir.Printable(n.Name), ir.Printable(n.Op), n.Why)
	}
	for _, e := range r.Errors {
		if _, err := fmt.Fprintf(w, "output %s: off by %.2g of its largest magnitude\n", ir.Printable(e.Name), e.Error); err != nil {
			return err
		}
	}
	return nil
}

// calibrationData reads the arguments of --calibrate. Each file, and each folder with input_0.pb,
// is one feed.
func calibrationData(model string, paths []string, o *ampc.ConvertOptions) error {
	o.Calibrate = true
	m, err := onnx.Open(model)
	if err != nil {
		return err
	}
	defer m.Close()
	var names []string
	for _, x := range m.Inputs() {
		names = append(names, x.Name)
	}
	for _, path := range paths {
		if path == "random" {
			continue
		}
		feeds, err := calibrationFeeds(path, names)
		if err != nil {
			return err
		}
		if len(feeds) == 0 {
			return fmt.Errorf("%s: no inputs: want .npz or .safetensors files, or folders with input_0.pb", path)
		}
		o.Data = append(o.Data, feeds...)
	}
	for _, f := range o.Data {
		for name, v := range f {
			h := v.(ampc.HostTensor)
			shape := ir.Sizes(h.Type.IR().Shape)
			if have := o.Shapes[name]; have == nil {
				o.Shapes[name], o.Values[name] = shape, h
			} else if !slices.Equal(have, shape) {
				return fmt.Errorf("input %s is %v and %v in the data: want one shape", name, have, shape)
			}
		}
	}
	return nil
}

// calibrationFeeds returns the feeds of a file or a folder.
func calibrationFeeds(path string, names []string) ([]ampc.Feed, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	if !info.IsDir() {
		f, err := readInputs([]string{path})
		return []ampc.Feed{f}, err
	}
	f := ampc.Feed{}
	for i, name := range names {
		arrays, err := readTensorIfThere(filepath.Join(path, fmt.Sprintf("input_%d.pb", i)))
		if err != nil {
			return nil, err
		}
		for h := range maps.Values(arrays) {
			f[name] = h
		}
	}
	if len(f) > 0 {
		return []ampc.Feed{f}, nil
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, file.Error(path, err)
	}
	var out []ampc.Feed
	for _, e := range list {
		p := filepath.Join(path, e.Name())
		if ext := filepath.Ext(p); !e.IsDir() && ext != ".npz" && ext != ".safetensors" {
			continue
		}
		feeds, err := calibrationFeeds(p, names)
		if err != nil {
			return nil, err
		}
		out = append(out, feeds...)
	}
	return out, nil
}

func readTensorIfThere(path string) (map[string]ampc.HostTensor, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil
	}
	return readTensor(path)
}
