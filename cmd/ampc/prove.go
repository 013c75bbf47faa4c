package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

func proveCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	c := command("prove MODEL", "check the finished step by rules that know nothing of how it was made", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
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
		found := prove.Prove(t, g, o.config.Policy.ProofRules(t, ir.Caps{}, o.config.NoSkip))
		if t != nil {
			found = append(found, prove.Gradients(t)...)
		}
		if asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(found)
		}
		for _, x := range found {
			fmt.Fprintln(c.OutOrStdout(), x)
		}
		if len(found) > 0 {
			return fmt.Errorf("graph @%s: %s", g.Name, plural(len(found), "finding"))
		}
		fmt.Fprintf(c.OutOrStdout(), "graph @%s: %s, %s, no findings\n", g.Name, plural(g.NumNodes(), "node"), plural(len(prove.Checks()), "rule"))
		return nil
	})
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "findings as JSON")
	c.Long = "Checks the compiled step by an independent checker. Rules:\n"
	for _, k := range prove.Checks() {
		c.Long += fmt.Sprintf("\n  %-9s%s", k.Name, k.Doc)
	}
	c.Long += "\n\nThe gradients of a model are compared with a sweep of the checker's own over the rows."
	return c
}

// finished is the model's compiled graph: the file's own, or the result of all
// passes, with the graph before layout that it was made of.
func (o *opened) finished() (source, step *ir.Graph, err error) {
	if o.compiled {
		return nil, o.model.Graph(), nil
	}
	step, err = o.compile(func(p *passes.Config) {
		p.Prove = false // it is asked for findings, not for the first error
		p.Source = func(t *ir.Graph) { source = t }
	})
	return source, step, err
}
