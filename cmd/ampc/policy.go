package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/file"
	"ampc/passes"
	"ampc/passes/systems"
)

func policyCommand() *cobra.Command {
	var set []string
	var diff string
	var unmapped, asJSON bool
	c := command("policy [NAME or FILE]", "Print a policy as a policy file, or list the presets", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		out := c.OutOrStdout()
		if len(args) == 0 && (diff != "" || unmapped || len(set) > 0) {
			return usagef("--diff, --set and --unmapped want a NAME or FILE")
		}
		if len(args) == 0 {
			return printPresets(out, asJSON)
		}
		if unmapped {
			return printUnmapped(out, args[0], asJSON)
		}
		if asJSON {
			return usagef("--json is for the list of presets and for --unmapped: a policy is a file of text")
		}
		p, err := loadPolicy(args[0], set...)
		if err != nil {
			return err
		}
		if diff == "" {
			_, err = fmt.Fprint(out, p)
			return err
		}
		other, err := loadPolicy(diff)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(out, p.Diff(other))
		return err
	})
	addJSON(c, &asJSON)
	c.Flags().StringArrayVar(&set, "set", nil, setHelp)
	c.Flags().StringVar(&diff, "diff", "", "print the lines in which the policy differs from policy `NAME`")
	c.Flags().BoolVar(&unmapped, "unmapped", false, "print the ops that a preset's system lists and that ampc does not have, one per line with the list")
	return c
}

func printPresets(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, ampc.PolicyNames())
	}
	for _, name := range ampc.PolicyNames() {
		fmt.Fprintln(w, name)
	}
	return nil
}

// unmappedRow is an op in another system's list that has no counterpart here, and its class in that
// list.
type unmappedRow struct {
	Op   string `json:"op"`
	List string `json:"list"`
}

// printUnmapped prints the ops in a system's lists that have no counterpart here.
func printUnmapped(w io.Writer, preset string, asJSON bool) error {
	name, low := passes.PolicyParts(preset)
	s, err := systems.Load(name, low)
	if err != nil {
		return usagef("policy %s --unmapped: %w", preset, err)
	}
	rows := []unmappedRow{}
	for _, op := range s.Unmapped() {
		rows = append(rows, unmappedRow{op, fmt.Sprint(s.Of(op))})
	}
	if asJSON {
		return writeJSON(w, rows)
	}
	for _, r := range rows {
		fmt.Fprintln(w, r.Op, r.List)
	}
	return nil
}

// loadPolicy finds a preset or reads a policy file.
func loadPolicy(name string, set ...string) (ampc.Policy, error) {
	p, err := ampc.PolicyNamed(name)
	if err != nil {
		src, readErr := file.Read(name)
		switch {
		case errors.Is(readErr, fs.ErrNotExist) && !strings.ContainsAny(name, `./\`): // names of presets contain none of these
			return p, usageError{err} // neither a preset nor a file; the list of presets helps more than "no such file"
		case readErr != nil:
			return p, file.Error(name, readErr)
		}
		if p, err = ampc.ParsePolicy(name, src); err != nil {
			return p, err
		}
	}
	for _, s := range set {
		property, value, ok := strings.Cut(s, "=")
		if !ok {
			return p, usagef("--set %s: want PROPERTY=VALUE", s)
		}
		if p, err = p.Set(property, value); err != nil {
			return p, usagef("--set %s: %w", s, err)
		}
	}
	return p, nil
}

// scalerNames lists the presets of --scaler.
var scalerNames = []string{"none", "dynamic", "torch", "apex", "deepspeed", "oneflow", "keras", "paddle"}

// parseScaler reads the name of a preset, or the power of two of a static scaler.
func parseScaler(s string) (ampc.Scaler, error) {
	if scaler, ok := ampc.ScalerNamed(s); ok {
		return scaler, nil
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return ampc.Scaler{}, usagef("--scaler %s: want %s, or a power of two", s, strings.Join(scalerNames, ", "))
	}
	scaler := ampc.Static(x)
	if err := scaler.Check(); err != nil {
		return ampc.Scaler{}, usagef("--scaler %s: %s", s, strings.TrimPrefix(err.Error(), "scaler: "))
	}
	return scaler, nil
}
