package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/ir"
)

func exportCommand() *cobra.Command {
	var o ampc.ExportOptions
	var policy string
	var set, dims []string
	var asJSON bool
	c := command("export MODEL|CHECKPOINT OUT.onnx", "Write a model or a checkpoint as an ONNX file", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		p, err := loadPolicy(policy, set...)
		if err != nil {
			return err
		}
		o.Policy = p
		if o.Opset != 0 && (o.Opset < 13 || o.Opset > 24) {
			return usagef("--opset %d: want 13 to 24, or 0 for the least", o.Opset)
		}
		if o.Sizes, err = parseDims(dims); err != nil {
			return err
		}
		m, outputs, err := exported(c, args[0])
		if err != nil {
			return err
		}
		defer m.model.Close()
		if m.sized {
			o.Sizes = nil
		}
		r, err := m.model.WriteONNX(c.Context(), args[1], o, outputs...)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), r)
		}
		return printExport(c.OutOrStdout(), r)
	})
	addJSON(c, &asJSON)
	fl := c.Flags()
	fl.StringVar(&policy, "policy", "f32", policyHelp+"; a 16-bit policy converts the model as ampc convert does")
	fl.StringArrayVar(&set, "set", nil, setHelp)
	fl.Int64Var(&o.Opset, "opset", 0, "opset `VERSION` of the file, 13 to 24; 0: the lowest that has all operators")
	fl.BoolVar(&o.External, "external", false, "write the weights to a separate file, OUT.onnx.data")
	fl.StringArrayVar(&dims, "dim", nil, dimHelp)
	fl.StringArray("shape", nil, shapeHelp)
	return c
}

// exported opens the model to export: a checkpoint, with the model that it was trained as, or a
// model.
func exported(c *cobra.Command, spec string) (*openedModel, []ampc.Tensor, error) {
	info, err := os.Stat(spec)
	if err == nil && (info.IsDir() || filepath.Ext(spec) == ".safetensors") {
		return trained(c, spec)
	}
	o, err := open(c, spec)
	if err != nil {
		return nil, nil, err
	}
	if o.compiled {
		return nil, nil, fmt.Errorf("%s: is compiled already; export takes a source graph", spec)
	}
	if o.zoo != nil {
		return o, []ampc.Tensor{o.zoo.Output}, nil
	}
	return o, o.model.Outputs(), nil
}

// trained opens the model of a checkpoint with its weights.
func trained(c *cobra.Command, path string) (*openedModel, []ampc.Tensor, error) {
	from, err := original(path)
	if err != nil {
		return nil, nil, err
	}
	o, err := open(c, from.spec)
	if err != nil {
		return nil, nil, err
	}
	if o.zoo == nil {
		return nil, nil, fmt.Errorf("%s: was written by %s, which is not a model of the zoo", from.path, from.spec)
	}
	if _, err := o.model.Train(o.config, o.losses...); err != nil {
		return nil, nil, err
	}
	if err := o.model.LoadFile(from.path, ampc.LeaveState()); err != nil {
		return nil, nil, err
	}
	return o, []ampc.Tensor{o.zoo.Output}, nil
}

func printExport(w io.Writer, r *ampc.ExportReport) error {
	line := fmt.Sprintf("opset %d, %d nodes, %s bytes", r.Opset, r.Nodes, ir.Thousands(r.Bytes))
	if r.External != "" {
		line += fmt.Sprintf("; weights in %s", r.External)
	}
	if _, err := fmt.Fprintln(w, line); err != nil || r.Conversion == nil {
		return err
	}
	var b strings.Builder
	if err := printConversion(&b, r.Conversion, false); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
