package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/ir"
)

func convertCommand() *cobra.Command {
	var policy string
	var set, keep []string
	var o ampc.ConvertOptions
	var all, asJSON bool
	c := command("convert IN.onnx OUT.onnx", "make an ONNX model a 16-bit one", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		if !(o.MaxError >= 0) {
			return usagef("--max-error %g: want a number, 0 or more", o.MaxError)
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
		o.Policy = p
		r, err := ampc.ConvertONNX(c.Context(), args[0], args[1], o)
		if err != nil {
			return sizeHint(args[0], err)
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), r)
		}
		return tellConversion(c.OutOrStdout(), r, all)
	})
	addJSON(c, &asJSON)
	fl := c.Flags()
	fl.StringVar(&policy, "policy", "mixed-f16", "a policy by name, or a policy file; f32 copies the file")
	fl.StringArrayVar(&set, "set", nil, setHelp)
	fl.StringArrayVar(&keep, "keep", nil, "PATTERN of results whose nodes stay in f32")
	fl.Float64Var(&o.MaxError, "max-error", 0, "largest error of an output, as a share of its largest magnitude; 0: any")
	fl.Int64Var(&o.Seed, "seed", 1, "of random inputs, where none are given")
	fl.StringArray("input", nil, "NAME=FILE.npy or NAME=FILE.pb (an ONNX tensor), or FILE.npz or FILE.safetensors with arrays by name: what both models are run on")
	fl.StringArray("dim", nil, "NAME=SIZE of a named dimension, for the run")
	fl.StringArray("shape", nil, "NAME=SIZE,SIZE,... of an input, for the run")
	fl.BoolVar(&all, "all", false, "list every node that stays in f32")
	return c
}

// tellConversion lists the nodes that stay in f32, ten of them unless all are asked for.
func tellConversion(w io.Writer, r *ampc.ConvertReport, all bool) error {
	fmt.Fprintf(w, "%d of %d nodes in 16 bits, %d weights stored in them, %d casts; %s bytes, were %s\n", r.Low, r.Nodes, r.Weights, r.Casts, ir.Thousands(r.Out), ir.Thousands(r.In))
	for i, k := range r.Kept {
		if i == 10 && !all {
			fmt.Fprintf(w, "  and %d more in f32: --all lists them\n", len(r.Kept)-i)
			break
		}
		name := k.Name
		if name == "" {
			name = fmt.Sprintf("node %d", k.Index)
		}
		fmt.Fprintf(w, "  f32: %s (%s): %s\n", name, k.Op, k.Why)
	}
	for _, e := range r.Errors {
		if _, err := fmt.Fprintf(w, "output %s: off by %.2g of its largest magnitude\n", e.Name, e.Error); err != nil {
			return err
		}
	}
	return nil
}
