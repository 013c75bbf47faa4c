package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/passes"
)

func whyCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	c := command("why MODEL VALUE", "say why a value has its precision", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		o, err := prepare(c, args[0], &f)
		if err != nil {
			return err
		}
		g := o.model.Graph()
		if !o.compiled {
			if g, err = o.compile(nil); err != nil {
				return err
			}
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
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func whyNotCommand() *cobra.Command {
	var f modelFlags
	var asJSON bool
	c := command("why-not MODEL VALUE DTYPE", "say what storing a value in another dtype would cost, or what forbids it", cobra.ExactArgs(3), func(c *cobra.Command, args []string) error {
		o, err := prepare(c, args[0], &f)
		if err != nil {
			return err
		}
		if o.compiled {
			return fmt.Errorf("%s: is compiled already; why-not takes a source graph", args[0])
		}
		d, ok := ir.DTypeOf(args[2])
		if !ok {
			return fmt.Errorf("no dtype %q", args[2])
		}
		source, p, err := o.source()
		if err != nil {
			return err
		}
		flip, err := passes.WhyNot(source, p, strings.TrimPrefix(args[1], "%"), d)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), flip)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), flip)
		return err
	})
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// prepare opens a model and applies the flags to it.
func prepare(c *cobra.Command, spec string, f *modelFlags) (*opened, error) {
	o, err := open(c, spec)
	if err != nil {
		return nil, err
	}
	return o, o.apply(f)
}
