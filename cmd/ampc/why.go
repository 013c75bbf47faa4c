package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/passes"
)

func whyCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	var other string
	c := command("why MODEL [VALUE]", "Explain why a value has its dtype, or list all values with reasons", cobra.RangeArgs(1, 2), func(c *cobra.Command, args []string) error {
		if other != "" {
			return diffPolicies(c, args, &f, other, asJSON)
		}
		o, err := prepare(c, args[0], &f)
		if err != nil {
			return err
		}
		g, err := o.compiledWithReasons()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return whyAll(c.OutOrStdout(), g, asJSON)
		}
		chain, err := passes.Why(g, strings.TrimPrefix(args[1], "%"))
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), chain)
		}
		passes.PrintChain(c.OutOrStdout(), chain)
		return nil
	})
	f.add(c)
	addJSON(c, &asJSON)
	c.Flags().StringVar(&other, "diff-policy", "", "policy `A`: list the values that policies A and B store in different dtypes, with both reasons (ampc why MODEL --diff-policy A B)")
	return c
}

// compiledWithReasons returns the compiled graph with the reasons that its passes recorded.
func (o *openedModel) compiledWithReasons() (*ir.Graph, error) {
	if o.compiled {
		return o.model.Graph(), nil
	}
	return o.compile(nil)
}

// whyAll prints one line per computed value, or the chain of reasons of each as JSON.
func whyAll(w io.Writer, g *ir.Graph, asJSON bool) error {
	var chains [][]passes.Link
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next != nil {
				continue
			}
			chain, err := passes.Why(g, v.Name)
			if err != nil {
				return err
			}
			chains = append(chains, chain)
		}
	}
	if asJSON {
		return writeJSON(w, chains)
	}
	for _, chain := range chains {
		passes.PrintChain(w, chain[:1])
	}
	return nil
}

// diffPolicies compares policy a with the second argument or with --policy.
func diffPolicies(c *cobra.Command, args []string, f *modelFlags, a string, asJSON bool) error {
	b := f.policy
	switch {
	case len(args) == 2:
		b = args[1]
	case !c.Flags().Changed("policy"):
		return usagef("--diff-policy %s: want the policy to compare it with: why MODEL --diff-policy %[1]s B", a)
	}
	var graphs [2]*ir.Graph
	for i, policy := range []string{a, b} {
		f.policy = policy
		o, err := prepare(c, args[0], f)
		if err != nil {
			return err
		}
		if o.compiled {
			return fmt.Errorf("%s: is compiled already; --diff-policy takes a source graph", args[0])
		}
		if graphs[i], err = o.compile(nil); err != nil {
			return fmt.Errorf("%s: %w", policy, err)
		}
	}
	list := passes.Differences(graphs[0], graphs[1])
	if asJSON {
		return writeJSON(c.OutOrStdout(), list)
	}
	passes.PrintDifferences(c.OutOrStdout(), list, a, b)
	return nil
}

func whyNotCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	c := command("why-not MODEL [VALUE DTYPE]", "Print what another dtype of a value would cost, or what forbids it", cobra.RangeArgs(1, 3), func(c *cobra.Command, args []string) error {
		if len(args) == 2 {
			return usagef("want a model, a value and a dtype, or a model alone")
		}
		o, err := prepare(c, args[0], &f)
		if err != nil {
			return err
		}
		if o.compiled {
			return fmt.Errorf("%s: is compiled already; why-not takes a source graph", args[0])
		}
		flips, err := o.dtypeChanges(args[1:])
		if err != nil {
			return err
		}
		switch {
		case asJSON && len(args) == 3:
			return writeJSON(c.OutOrStdout(), flips[0])
		case asJSON:
			return writeJSON(c.OutOrStdout(), flips)
		}
		for _, flip := range flips {
			fmt.Fprintln(c.OutOrStdout(), flip)
		}
		return nil
	})
	f.add(c)
	addJSON(c, &asJSON)
	return c
}

// dtypeChanges computes the cost of the requested value and dtype, or of every value in its other
// dtype.
func (o *openedModel) dtypeChanges(asked []string) ([]*passes.Flip, error) {
	if err := o.checkHasOutput(); err != nil {
		return nil, err
	}
	source, p, err := o.source()
	if err != nil {
		return nil, err
	}
	if len(asked) == 0 {
		return passes.WhyNotAll(source, p)
	}
	d, err := parseFloat(asked[1])
	if err != nil {
		return nil, err
	}
	flip, err := passes.WhyNot(source, p, strings.TrimPrefix(asked[0], "%"), d)
	return []*passes.Flip{flip}, err
}

// prepare opens a model and applies the flags to it.
func prepare(c *cobra.Command, spec string, f *modelFlags) (*openedModel, error) {
	o, err := open(c, spec)
	if err != nil {
		return nil, err
	}
	return o, o.apply(f)
}
