package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/passes"
)

// dumpFlags select what dump shows, and in which form.
type dumpFlags struct {
	modelFlags
	after, format, stage, target string
	on                           lower.Target // of the target
	only, show                   []string
	diff, check                  bool
}

func dumpCommand() *cobra.Command {
	var f dumpFlags
	c := command("dump MODEL", "Print the annotated IR of a model after any pass", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		return dump(c, args[0], &f)
	})
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.after, "after", "", "stop after this `PASS`; source stops before the first")
	fl.StringSliceVar(&f.only, "passes", nil, "run only these `PASSES`, separated by commas; ampc passes lists them")
	fl.BoolVar(&f.diff, "diff", false, "print the lines that each pass changed")
	fl.StringSliceVar(&f.show, "show", nil, "`LIST` of what else comments show: costs, positions")
	fl.StringVar(&f.format, "format", "text", "output `FORMAT`: text, json or dot (Graphviz)")
	fl.StringVar(&f.stage, "stage", "graph", "`STAGE` to print: graph, program (what the target runs) or ptx (its GPU kernels)")
	fl.StringVar(&f.target, "target", "cpu", "compile for this `TARGET`: cpu, or a GPU from sm_70 on, such as sm_80 or sm_90")
	fl.BoolVar(&f.check, "check", false, "test the compiler: shuffle nodes before every pass, and parse the printed text after it")
	return c
}

func dump(c *cobra.Command, spec string, f *dumpFlags) error {
	mode, err := f.checkFlags()
	if err != nil {
		return err
	}
	o, err := open(c, spec)
	if err != nil {
		return err
	}
	if err := o.apply(&f.modelFlags); err != nil {
		return err
	}
	if f.after == "" && len(f.only) == 0 {
		if err := o.checkHasOutput(); err != nil {
			return err
		}
	}
	out := c.OutOrStdout()
	g := o.model.Graph()
	if f.after != "source" && (!o.compiled || len(f.only) > 0) {
		if g, err = o.passed(c, f); err != nil || f.diff {
			return err
		}
	}
	switch f.stage {
	case "graph":
		return printGraph(out, g, f.format, mode)
	default:
		p, err := lower.Lower(g, f.on)
		switch {
		case err != nil:
			return namingFlags(err)
		case f.stage == "ptx":
			return printPTX(out, p)
		}
		return p.Print(out)
	}
}

// printPTX writes the text of a program's modules.
func printPTX(w io.Writer, p *lower.Program) error {
	if len(p.Modules) == 0 {
		return usagef("a program for %s has no PTX; give --target sm_90", p.Target)
	}
	for _, m := range p.Modules {
		if _, err := io.WriteString(w, m.Text()); err != nil {
			return err
		}
	}
	return nil
}

// passed runs the passes that f selects. With --diff it prints what each pass changed. Rewrites are
// reported on standard error.
func (o *openedModel) passed(c *cobra.Command, f *dumpFlags) (*ir.Graph, error) {
	before := o.model.Graph().String()
	return o.pass(func(p *passes.Config) {
		p.Until, p.Only, p.Check, p.Caps = f.after, f.only, f.check, f.on.Caps()
		p.After = func(e passes.Event) {
			if f.diff {
				now := e.Graph.String()
				io.WriteString(c.OutOrStdout(), udiff.Unified("before "+e.Pass, "after "+e.Pass, before, now))
				before = now
			}
			for _, note := range e.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note:", note)
			}
		}
	})
}

// check validates the flags that do not depend on a model.
func (f *dumpFlags) checkFlags() (ir.PrintMode, error) {
	t, err := sm.Named(f.target)
	if err != nil {
		return 0, usagef("--target: %v", err)
	}
	f.on = t
	if !slices.Contains(dumpStages, f.stage) {
		return 0, usagef("--stage %s: want %s", f.stage, alternatives(dumpStages))
	}
	if !slices.Contains(dumpFormats, f.format) {
		return 0, usagef("--format %s: want %s", f.format, alternatives(dumpFormats))
	}
	if err := checkPasses("--passes", f.only...); err != nil {
		return 0, err
	}
	if f.after != "" && f.after != "source" {
		if err := checkPasses("--after", f.after); err != nil {
			return 0, err
		}
	}
	return printMode(f.show)
}

// the values of dump's --stage
var (
	dumpStages  = []string{"graph", "program", "ptx"}
	dumpFormats = []string{"text", "json", "dot"}
)

// alternatives joins words for a message: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func printMode(show []string) (ir.PrintMode, error) {
	mode := ir.Reasons
	for _, s := range show {
		switch s {
		case "costs":
			mode |= ir.Costs
		case "positions":
			mode |= ir.Positions
		default:
			return 0, usagef("--show %s: there are costs and positions", s)
		}
	}
	return mode, nil
}

func printGraph(w io.Writer, g *ir.Graph, format string, mode ir.PrintMode) error {
	switch format {
	case "json":
		return writeJSON(w, describe(g))
	case "dot":
		return writeDot(w, g)
	}
	return g.Print(w, mode)
}

// writeDot writes the graph for Graphviz, with a box for each section. Values in 16 bits are
// filled.
func writeDot(w io.Writer, g *ir.Graph) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=TB; node [shape=box fontname=\"monospace\" style=filled fillcolor=white]\n", g.Name)
	node := func(name, label string, low bool) {
		fill := ""
		if low {
			fill = " fillcolor=lightblue"
		}
		fmt.Fprintf(&b, "    %q [label=%q%s]\n", name, label, fill)
	}
	for _, v := range g.Vars {
		node(v.String(), v.Kind.String()+" "+v.String()+"\n"+g.TypeString(v.Type), v.Type.DType.Low())
	}
	for s := range ir.NumSections {
		if len(g.Body[s]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  subgraph \"cluster_%s\" {\n    label=%q\n", s, s.String())
		for _, n := range g.Body[s] {
			if len(n.Out) > 0 {
				node(n.Name(), n.Def().Name+" "+n.Name()+"\n"+g.TypeString(n.Out[0].Type), n.Out[0].Type.DType.Low())
			}
		}
		b.WriteString("  }\n")
	}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil && len(n.Out) > 0 {
				fmt.Fprintf(&b, "  %q -> %q\n", source(v), n.Name())
			}
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// source returns the box that produces a value.
func source(v *ir.Value) string {
	if v.Def != nil {
		return v.Def.Name()
	}
	return v.String()
}
