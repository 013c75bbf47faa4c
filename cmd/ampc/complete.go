package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/models"
	"ampc/passes"
)

// offered lists the values that shell completion offers for a flag.
var offered = map[string]func() []string{
	"policy":      passes.PolicyNames,
	"policies":    passes.PolicyNames,
	"diff":        passes.PolicyNames,
	"diff-policy": passes.PolicyNames,
	"scaler":      func() []string { return scalerNames },
	"optimizer":   func() []string { return []string{"sgd", "adam", "adamw"} },
	"device":      func() []string { return []string{"cpu", "cuda:0", "sim:sm_90"} },
	"target":      func() []string { return []string{"cpu", "sm_70", "sm_80", "sm_89", "sm_90"} },
	"stage":       func() []string { return dumpStages },
	"format":      func() []string { return dumpFormats },
	"show":        func() []string { return []string{"costs", "positions"} },
	"after":       func() []string { return append([]string{"source"}, passNames()...) },
	"passes":      passNames,
	"disable":     passNames,
}

func passNames() []string {
	var names []string
	for _, p := range passes.Pipeline() {
		names = append(names, p.Name)
	}
	return names
}

// addCompletion makes shell completion offer models, values, policies and flag values, for c and
// its subcommands.
func addCompletion(c *cobra.Command) {
	for name, values := range offered {
		if c.Flags().Lookup(name) != nil {
			c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return values(), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
	if c.Flags().Lookup("step") != nil {
		c.RegisterFlagCompletionFunc("step", completeSteps)
	}
	switch {
	case c.Name() == "policy":
		c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return passes.PolicyNames(), cobra.ShellCompDirectiveDefault // the shell also offers files
		}
	case c.Name() == "ops":
		c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, op := range ir.Ops() {
				names = append(names, op.Def().Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
	case strings.Contains(c.Use, "MODEL"):
		c.ValidArgsFunction = completeModel
	}
	for _, sub := range c.Commands() {
		addCompletion(sub)
	}
}

// completeModel offers models. For why and why-not it then offers the model's values and dtypes.
func completeModel(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0 || c.Name() == "compare":
		return completeSpec(word)
	case len(args) == 1 && c.Name() == "why" && c.Flags().Changed("diff-policy"):
		return passes.PolicyNames(), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && strings.HasPrefix(c.Name(), "why"):
		return valuesOf(c, args[0]), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 2 && c.Name() == "why-not":
		return []string{"f32", "f16", "bf16"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeSpec offers the zoo, a model's options after its name, and .ir files.
func completeSpec(word string) ([]string, cobra.ShellCompDirective) {
	if at := strings.LastIndexAny(word, "?&"); strings.HasPrefix(word, "zoo:") && at > 0 {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "zoo:"), "?")
		z, err := models.Open(name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer z.Model.Close()
		var list []string
		for _, option := range slices.Sorted(maps.Keys(z.Options)) {
			list = append(list, word[:at+1]+option+"=")
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	if word != "" && !strings.HasPrefix("zoo:", word) && !strings.HasPrefix(word, "zoo:") {
		return []string{"ir", "onnx"}, cobra.ShellCompDirectiveFilterFileExt
	}
	var list []string
	for _, m := range models.Names() {
		list = append(list, "zoo:"+m[0]+"\t"+m[1])
	}
	return list, cobra.ShellCompDirectiveDefault
}

// valuesOf lists the values of a compiled model. It is empty if the model does not compile.
func valuesOf(c *cobra.Command, spec string) []string {
	o, err := open(c, spec)
	if err != nil {
		return nil
	}
	defer o.model.Close()
	f := modelFlags{policy: "mixed-f16", micro: 1}
	if p := c.Flags().Lookup("policy"); p != nil {
		f.policy = p.Value.String()
	}
	if o.apply(&f) != nil {
		return nil
	}
	g, err := o.compiledWithReasons()
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// completeSteps offers the training steps of a model with several.
func completeSteps(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		if o, err := open(c, args[0]); err == nil && o.zoo != nil {
			defer o.model.Close()
			for _, s := range o.zoo.Steps {
				names = append(names, s.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
