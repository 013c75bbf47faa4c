package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/passes/prove"
)

func proveCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	var source string
	c := command("prove MODEL", "Check that the compiled step computes what the source says", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		o, err := open(c, args[0])
		if err != nil {
			return err
		}
		if err := o.apply(&f); err != nil {
			return err
		}
		t, g, err := o.finished()
		if err != nil {
			return err
		}
		if source != "" {
			if !o.compiled {
				return usagef("--source: %s is compiled here, from its own source; the flag is for compiled graphs", args[0])
			}
			if t, err = readTraining(c, source); err != nil {
				return err
			}
		}
		_, p, err := o.source()
		if err != nil {
			return err
		}
		caps := lower.CPU.Caps()
		if o.compiled { // for a target that the file does not name
			caps = ir.Caps{}
		}
		found, judged := prove.Judge(t, g, p.Policy.ProofRules(t, caps, o.config.NoSkip))
		if t != nil {
			found = append(found, prove.Gradients(t)...)
		}
		verified := 0
		if !o.compiled {
			var fault *prove.Finding
			if verified, fault, err = verifyProgram(g); err != nil {
				return err
			}
			if fault != nil {
				found = append(found, *fault)
			}
		}
		if asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(found)
		}
		if t != nil && prove.InBlocks(t) {
			fmt.Fprintln(c.OutOrStdout(), "gradients are not compared with the model: a loss runs in blocks of rows (--chunks)")
		}
		return printProof(c.OutOrStdout(), g, found, judged, verified)
	})
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	c.Flags().StringVar(&source, "source", "", "for a MODEL that is a compiled graph: the `FILE` with its graph before the pass layout, printed by ampc dump --after optimizer")
	c.Long = "Check the compiled step with an independent checker. Its rules (* needs the graph before the pass layout):\n"
	for _, k := range prove.Checks() {
		star := " "
		if k.Source {
			star = "*"
		}
		c.Long += fmt.Sprintf("\n %s %-10s%s", star, k.Name, k.Doc)
	}
	c.Long += fmt.Sprintf("\n * %-10s%s", "program", programDoc)
	c.Long += "\n\nThe checker also differentiates the model itself and compares the gradients."
	return c
}

// readTraining reads the training graph from which a compiled graph was made.
func readTraining(c *cobra.Command, file string) (*ir.Graph, error) {
	o, err := open(c, file)
	if err != nil {
		return nil, err
	}
	g := o.model.Graph()
	return g, ir.Verify(g, ir.Training)
}

// programDoc is what lower.Verify checks.
const programDoc = "every step of the program computes what its nodes specify, from values that are in memory"

// verifyProgram lowers compiled graph g for the CPU and checks the Program. It returns the number of
// steps, and the fault that it found.
func verifyProgram(g *ir.Graph) (steps int, fault *prove.Finding, err error) {
	p, err := lower.Unverified(g, lower.CPU)
	if err != nil {
		return 0, nil, err
	}
	for part := range lower.NumParts {
		steps += len(p.Parts[part])
	}
	if err := lower.Verify(p); err != nil {
		return steps, &prove.Finding{Check: "program", Node: "@" + g.Name, Text: err.Error()}, nil
	}
	return steps, nil, nil
}

// printProof prints the findings, or how many items each rule has checked. verified is the number of
// steps of the Program, 0 if it was not checked.
func printProof(w io.Writer, g *ir.Graph, found []prove.Finding, judged []int, verified int) error {
	for _, x := range found {
		fmt.Fprintln(w, x)
	}
	var left []string
	rules := 0
	for i, k := range prove.Checks() {
		switch {
		case judged[i] < 0:
			left = append(left, k.Name)
		case len(found) == 0:
			fmt.Fprintf(w, "%-10s %5d  %s\n", k.Name, judged[i], k.Doc)
			fallthrough
		default:
			rules++
		}
	}
	if verified > 0 {
		rules++
		if len(found) == 0 {
			fmt.Fprintf(w, "%-10s %5d  %s\n", "program", verified, programDoc)
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(w, "not checked without the graph before layout (--source): %s\n", strings.Join(left, ", "))
	}
	for _, x := range prove.Notes(g) {
		fmt.Fprintln(w, x)
	}
	if len(found) > 0 {
		return fmt.Errorf("graph @%s: %s", g.Name, plural(len(found), "finding"))
	}
	fmt.Fprintf(w, "graph @%s: %s, %s, no findings\n", g.Name, plural(g.NumNodes(), "node"), plural(rules, "rule"))
	return nil
}

// finished returns the model's compiled graph (the file's own, or the result of all passes) and the
// graph before layout from which it was made.
func (o *openedModel) finished() (source, step *ir.Graph, err error) {
	if o.compiled {
		return nil, o.model.Graph(), nil
	}
	step, err = o.compile(func(p *passes.Config) {
		p.Prove = false // prove runs below to list all findings, not only the first
		p.Source = func(t *ir.Graph) { source = t }
	})
	return source, step, err
}
