package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ampc/internal/file"
	"ampc/ir"
	"ampc/lower"
	"ampc/passes"
	"ampc/passes/ranges"
	"ampc/runtime/doctor"
	"ampc/view"
)

const viewHelp = `Show a compilation in a browser: the graph with the dtype of every value and its reason,
after any pass or under two policies side by side; the program with its memory and, under
--profile, the time of every step. Of a FILE.ampc, which Step.SaveReplay or ampc train
--save-bad wrote, also the doctor's report. Of the FOLDER of a training run, its curves.

With --out FILE.html the page is one file that needs no network and opens from disk.
Otherwise it is served on the loopback address until Ctrl-C; the address that is printed
holds a token, without which the server answers nothing.`

// viewFlags are the flags of view other than those of the model.
type viewFlags struct {
	modelFlags
	out, listen string
	other       string
	passes      []string
	profile     int
	layouts     view.Layouts // of all graphs of the page
}

func viewCommand() *cobra.Command {
	var f viewFlags
	c := command("view MODEL|FILE.ampc|FOLDER", "Show the compiled graph and its reasons in a browser", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if err := f.checkFlags(); err != nil {
			return err
		}
		p, err := f.page(c, args[0])
		if err != nil {
			return err
		}
		if f.out != "" {
			return writePage(f.out, p)
		}
		return servePage(c, f.listen, p)
	})
	c.Long = viewHelp
	f.add(c)
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "write one HTML `FILE` instead of serving the page")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "`ADDRESS` to serve on; port 0 is a free one, and without a host it is on the loopback interface")
	fl.StringVar(&f.other, "diff-policy", "", "also show the graph under this `POLICY`, beside that of --policy")
	fl.StringSliceVar(&f.passes, "passes", nil, "`PASSES`, separated by commas, after which a file also has the graph; source: before the first; all: every pass that changed it (default: all of small graphs)")
	fl.IntVar(&f.profile, "profile", 0, "run `N` steps on random inputs and show what each step of the program took")
	return c
}

func (f *viewFlags) checkFlags() error {
	if f.profile < 0 {
		return usagef("--profile %d: want 0 or more steps", f.profile)
	}
	for _, name := range f.passes {
		if name == "all" || name == "source" {
			continue
		}
		if err := checkPasses("--passes", name); err != nil {
			return err
		}
	}
	return checkWritable(f.out)
}

// page collects what a page shows of a model or of a saved step.
func (f *viewFlags) page(c *cobra.Command, spec string) (*view.Page, error) {
	if strings.HasSuffix(spec, ".ampc") {
		return savedPage(c.Context(), spec)
	}
	if isRun(spec) {
		return runPage(spec)
	}
	o, err := prepare(c, spec, &f.modelFlags)
	if err != nil {
		return nil, err
	}
	p := &view.Page{Title: spec}
	if o.compiled {
		p.Blocks = append(p.Blocks, f.layouts.Block("graph", "as compiled", o.model.Graph()))
		return p, f.addProgram(o, p, o.model.Graph())
	}
	p.Title += ", " + f.policy
	stages, g, err := o.changes()
	if err != nil {
		return nil, err
	}
	p.Blocks = append(p.Blocks, f.layouts.Block("graph", "compiled under "+f.policy, g))
	if f.other != "" {
		if err := f.addPolicy(o, p); err != nil {
			return nil, err
		}
	}
	f.addPasses(o, p, stages, g)
	p.Blocks = append(p.Blocks, whyNotBlock(o), rangesBlock(o, g))
	return p, f.addProgram(o, p, g)
}

// changes compiles a model and lists the passes that changed its graph.
func (o *openedModel) changes() (list []string, g *ir.Graph, err error) {
	before := ""
	g, err = o.compile(func(p *passes.Config) {
		p.After = func(e passes.Event) {
			if now := e.Graph.String(); now != before {
				before = now
				list = append(list, e.Pass)
			}
		}
	})
	return list, g, err
}

// smallGraphNodes is the largest number of nodes for which a file holds the graphs of all passes.
const smallGraphNodes = 1000

// addPasses adds the graphs before and between the passes. A page that is served gets all of them,
// a file those that were requested.
func (f *viewFlags) addPasses(o *openedModel, p *view.Page, stages []string, g *ir.Graph) {
	all := f.out == "" || slices.Contains(f.passes, "all") || f.passes == nil && g.NumNodes() <= smallGraphNodes
	if all || slices.Contains(f.passes, "source") {
		p.Blocks = append(p.Blocks, view.Block{Name: "pass:source", Label: "source", Make: func() (any, error) {
			g, _, err := o.source()
			if err != nil {
				return nil, err
			}
			return f.layouts.Describe(g)
		}})
	}
	for _, name := range stages {
		if !all && !slices.Contains(f.passes, name) {
			continue
		}
		p.Blocks = append(p.Blocks, view.Block{Name: "pass:" + name, Label: "after " + name, Make: func() (any, error) {
			g, err := o.compile(func(c *passes.Config) { c.Until = name })
			if err != nil {
				return nil, err
			}
			return f.layouts.Describe(g)
		}})
	}
}

// addPolicy adds the graph under another policy.
func (f *viewFlags) addPolicy(o *openedModel, p *view.Page) error {
	policy, err := loadPolicy(f.other, f.set...)
	if err != nil {
		return err
	}
	other := *o
	other.config.Policy = withAlgorithm(policy, f.algorithm)
	g, err := other.compile(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", f.other, err)
	}
	p.Blocks = append(p.Blocks, f.layouts.Block("policy", "compiled under "+f.other, g))
	return nil
}

// whyNotBlock returns the cost of the other dtype of every value: the sentences of ampc why-not, by
// value.
func whyNotBlock(o *openedModel) view.Block {
	return view.Block{Name: "whynot", Label: "", Make: func() (any, error) {
		flips, err := o.dtypeChanges(nil)
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, flip := range flips {
			out[flip.Value] = flip.String()
		}
		return out, nil
	}}
}

// rangesBlock returns the known ranges of the values, by value.
func rangesBlock(o *openedModel, g *ir.Graph) view.Block {
	return view.Block{Name: "ranges", Label: "", Make: func() (any, error) {
		out := map[string]string{}
		static := o.ranges
		static.Recorded = nil // they have their own text
		for _, x := range intervals(g, ranges.Static(g, static)) {
			if lo, hi := float64(x.Lo), float64(x.Hi); !math.IsInf(lo, 0) || !math.IsInf(hi, 0) {
				out[x.Value] = fmt.Sprintf("static: [%.4g, %.4g]", lo, hi)
			}
		}
		for name, r := range o.ranges.Recorded {
			if v := g.Value(name); v != nil {
				recorded := fmt.Sprintf("recorded: [%.4g, %.4g]", r.Lo, r.Hi)
				if bound := out[v.String()]; bound != "" {
					recorded = bound + "; " + recorded
				}
				out[v.String()] = recorded
			}
		}
		return out, nil
	}}
}

// addProgram adds the program of a graph whose sizes are known. With --profile it includes the
// times of its steps.
func (f *viewFlags) addProgram(o *openedModel, p *view.Page, g *ir.Graph) error {
	if f.profile == 0 {
		p.Blocks = append(p.Blocks, view.Block{Name: "program", Label: "", Make: func() (any, error) {
			program, err := lower.Lower(g, lower.CPU)
			if err != nil {
				return nil, namingFlags(err)
			}
			return view.DescribeProgram(g, program, view.Times{}), nil
		}})
		return nil
	}
	if o.compiled {
		return usagef("--profile: %s is compiled already; the flag takes a source graph", o.spec)
	}
	made, err := f.timed(o)
	if err != nil {
		return err
	}
	p.Blocks = append(p.Blocks, view.Block{Name: "program", Label: "", Make: func() (any, error) { return made, nil }})
	return nil
}

// timed runs some steps and measures them.
func (f *viewFlags) timed(o *openedModel) (*view.Program, error) {
	defer o.model.Close()
	step, _, err := o.runnable(o.model.Graph())
	if err != nil {
		return nil, err
	}
	t := view.Times{Steps: f.profile}
	feeds := benchFeeds(o.model.Graph(), step.Program().Vars, max(f.micro, 1))
	for i := range f.profile + 1 {
		if i == 1 { // the first step warms up caches
			step.Profile(t.Add)
			defer step.Profile(nil)
		}
		if _, err := step.Run(o.ctx, feeds[i%len(feeds)]...); err != nil {
			return nil, err
		}
	}
	return view.DescribeProgram(step.Graph(), step.Program(), t), nil
}

// savedPage collects what a page shows of a saved step.
func savedPage(ctx context.Context, path string) (*view.Page, error) {
	saved, err := doctor.Load(path)
	if err != nil {
		return nil, err
	}
	return &view.Page{Title: path, Blocks: []view.Block{
		new(view.Layouts).Block("graph", "as it ran", saved.Graph),
		{Name: "doctor", Label: "", Make: func() (any, error) {
			saved.Exponents = true
			d, err := doctor.Diagnose(ctx, saved)
			if err != nil {
				return nil, err
			}
			return view.DescribeDiagnosis(d), nil
		}},
		{Name: "program", Label: "", Make: func() (any, error) {
			program, err := lower.Lower(saved.Graph, lower.CPU)
			if err != nil {
				return nil, err
			}
			return view.DescribeProgram(saved.Graph, program, view.Times{}), nil
		}},
	}}, nil
}

func writePage(path string, p *view.Page) error {
	return file.Write(path, func(f *os.File) error {
		_, err := p.WriteTo(f)
		return err
	})
}

// servePage serves a page until the command is interrupted.
func servePage(c *cobra.Command, address string, p *view.Page) error {
	s, err := view.Listen(address, p)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), s.Address()); err != nil {
		return err
	}
	return s.Run(c.Context())
}
