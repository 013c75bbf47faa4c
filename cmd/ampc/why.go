package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ampc/ir"
)

func whyCommand() *cobra.Command {
	var f modelFlags
	c := command("why MODEL VALUE", "say why a value has its precision", cobra.ExactArgs(2), func(c *cobra.Command, args []string) error {
		o, err := open(c, args[0])
		if err != nil {
			return err
		}
		if err := o.apply(&f); err != nil {
			return err
		}
		g := o.model.Graph()
		if !o.compiled {
			if g, err = o.compile(nil); err != nil {
				return err
			}
		}
		return why(c.OutOrStdout(), g, strings.TrimPrefix(args[1], "%"))
	})
	f.add(c)
	return c
}

// why prints a value and, link by link, what decided its dtype.
func why(w io.Writer, g *ir.Graph, name string) error {
	v := findValue(g, name)
	if v == nil {
		return fmt.Errorf("graph @%s has no value %%%s%s", g.Name, name, suggest(g, name))
	}
	for seen := map[*ir.Value]bool{}; v != nil && !seen[v]; v = cause(v) {
		seen[v] = true
		fmt.Fprintf(w, "%s : %s  %s\n", v, g.TypeString(v.Type), because(v))
	}
	return nil
}

// findValue also finds next values, written with a prime.
func findValue(g *ir.Graph, name string) *ir.Value {
	if bare, primed := strings.CutSuffix(name, "'"); primed {
		if v := g.Var(bare); v != nil {
			return g.NextOf(v)
		}
	}
	return g.Value(name)
}

// suggest lists values whose names hold the one asked for.
func suggest(g *ir.Graph, name string) string {
	var near []string
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if strings.Contains(v.Name, name) && len(near) < 4 {
				near = append(near, v.String())
			}
		}
	}
	if near == nil {
		return ""
	}
	return "; there are " + strings.Join(near, ", ")
}

// cause is the value that decided v's dtype, nil where the chain ends.
func cause(v *ir.Value) *ir.Value {
	if v.Def == nil {
		return nil
	}
	if v.Def.Op == ir.OpCast {
		return v.Def.In[0]
	}
	return v.Def.Why.From
}

// because says in words what decided v's dtype.
func because(v *ir.Value) string {
	n := v.Def
	if n == nil {
		return "declared as " + v.Kind.String()
	}
	d, why := n.Def(), n.Why
	class := n.ResultClass(v.Idx)
	if why.Class != ir.NoClass {
		class = why.Class
	}
	s := fmt.Sprintf("%s is %s: %s", d.Name, class, d.Why)
	switch why.Cause {
	case ir.ByPin:
		s += "; pinned to " + n.Pin.String() + " in code"
	case ir.ByPattern:
		s += fmt.Sprintf("; the policy's pattern %q", why.Rule)
	case ir.ByOp:
		s += "; the policy's class for this op"
	case ir.ByNeighbour, ir.ByForward, ir.ByCut, ir.ByGuard, ir.ByContract, ir.ByClass:
		s += "; decided by " + why.Cause.String()
	}
	if why.From != nil {
		s += ", from " + why.From.String()
	}
	for _, m := range []struct {
		mark ir.Marks
		text string
	}{
		{ir.MarkReadsLow, "reads 16 bits itself"}, {ir.MarkStoresF32, "stores its f32 sum"}, {ir.MarkStoresLow, "stores 16 bits"},
		{ir.MarkCached, "cast once for all readers"}, {ir.MarkHoisted, "once per step, in prepare"},
	} {
		if why.Has(m.mark) {
			s += "; " + m.text
		}
	}
	if n.Pos.File != "" {
		s += " (" + n.Pos.String() + ")"
	}
	return s
}
