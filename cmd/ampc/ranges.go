package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/passes/ranges"
)

type rangesFlags struct {
	modelFlags
	all  bool
	json bool
}

func rangesCommand() *cobra.Command {
	var f rangesFlags
	c := command("ranges MODEL", "Bound every value of the step and report overflow and underflow", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		o, err := open(c, args[0])
		if err != nil {
			return err
		}
		if err := o.apply(&f.modelFlags); err != nil {
			return err
		}
		return f.report(c.OutOrStdout(), o)
	})
	f.add(c)
	c.Flags().BoolVar(&f.all, "all", false, "print the interval of every value, not only of those with findings")
	c.Flags().BoolVar(&f.json, "json", false, "print the findings as JSON")
	return c
}

func (f *rangesFlags) report(w io.Writer, model *openedModel) error {
	_, g, err := model.finished()
	if err != nil {
		return err
	}
	o := model.ranges
	r := ranges.Static(g, o)
	found := r.Findings()
	switch {
	case f.json && f.all:
		return writeJSON(w, rangesJSON{found, intervals(g, r)})
	case f.json:
		return json.NewEncoder(w).Encode(found)
	}
	if f.all {
		if err := printIntervals(w, g, r); err != nil {
			return err
		}
	}
	for _, x := range found {
		fmt.Fprintln(w, x)
	}
	bounded := printSummary(w, g, r, len(found))
	if o.Recorded != nil {
		return printScale(w, g, o.Recorded)
	}
	if bounded == 0 {
		fmt.Fprintln(w, "no interval is bounded: give the inputs' ranges with --range, or record some with --record 3")
	}
	return nil
}

func parseRanges(g *ir.Graph, list []string) (map[string]ir.Interval, error) {
	m := map[string]ir.Interval{}
	for _, s := range list {
		name, span, _ := strings.Cut(s, "=")
		lo, hi, ok := strings.Cut(span, "..")
		a, err1 := strconv.ParseFloat(lo, 64)
		b, err2 := strconv.ParseFloat(hi, 64)
		if !ok || name == "" || err1 != nil || err2 != nil || !(a <= b) {
			return nil, usagef("--range %s: want INPUT=LO..HI, LO not above HI", s)
		}
		if v := g.Var(name); v == nil || v.Kind != ir.Input || !v.Type.DType.Float() {
			return nil, fmt.Errorf("--range %s: the graph has no float input %%%s", s, name)
		}
		m[name] = ir.Interval{Lo: a, Hi: b}
	}
	return m, nil
}

// recordRanges evaluates the step on inputs that are uniform in their ranges. An input without a
// range uses [-1, 1]; integers are 0.
func recordRanges(ctx context.Context, g *ir.Graph, inputs map[string]ir.Interval, steps int) (*ranges.Recorder, error) {
	rec := ranges.NewRecorder(g)
	for k := range steps {
		env := map[string]*eval.Tensor{}
		for _, v := range g.Vars {
			w, seed := *v, int64(1)
			if v.Kind == ir.Input {
				seed = int64(k)
				if v.Type.DType.Float() {
					iv, ok := inputs[v.Name]
					if !ok {
						iv = ir.Interval{Lo: -1, Hi: 1}
					}
					w.Init = &ir.Init{Func: "uniform", Args: []float64{iv.Lo, iv.Hi}}
				}
			}
			x, err := eval.InitVar(&w, seed)
			if err != nil {
				return nil, err
			}
			env[v.Name] = x
		}
		if err := rec.Run(ctx, env); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

// rangesJSON is the JSON form of ranges --all.
type rangesJSON struct {
	Findings  []ranges.Finding `json:"findings"`
	Intervals []intervalRow    `json:"intervals"`
}

// intervalRow bounds a value; an unknown end is null.
type intervalRow struct {
	Value  string    `json:"value"`
	Type   string    `json:"type"`
	Lo     jsonFloat `json:"lo"`
	Hi     jsonFloat `json:"hi"`
	MayNaN bool      `json:"may_be_nan"`
}

func intervals(g *ir.Graph, r *ranges.Result) []intervalRow {
	rows := []intervalRow{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Type.DType.Float() && v.Next == nil {
				iv := r.Of(v)
				rows = append(rows, intervalRow{v.String(), g.TypeString(v.Type), jsonFloat(iv.Lo), jsonFloat(iv.Hi), iv.NaN})
			}
		}
	}
	return rows
}

func printIntervals(w io.Writer, g *ir.Graph, r *ranges.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range intervals(g, r) {
		fmt.Fprintf(t, "%s\t%s\t[%.4g, %.4g]\n", x.Value, x.Type, float64(x.Lo), float64(x.Hi))
	}
	return t.Flush()
}

func printSummary(w io.Writer, g *ir.Graph, r *ranges.Result, found int) (bounded int) {
	low, all := 0, 0
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if !v.Type.DType.Float() {
				continue
			}
			all++
			if v.Type.DType.Low() {
				low++
			}
			if iv := r.Of(v); !math.IsInf(iv.Lo, 0) && !math.IsInf(iv.Hi, 0) {
				bounded++
			}
		}
	}
	fmt.Fprintf(w, "%d float values, %d in 16 bits, %d with a bounded interval, %s\n", all, low, bounded, plural(found, "finding"))
	return bounded
}

func printScale(w io.Writer, g *ir.Graph, seen map[string]ranges.Recorded) error {
	for _, v := range g.Vars {
		if v.Attr.Get("role") != ir.RoleScale || v.Init == nil {
			continue
		}
		s, err := ranges.LossScale(g, v.Name, v.Init.Args[0], seen)
		if err != nil {
			return err
		}
		if s.Smallest > s.Largest {
			fmt.Fprintf(w, "%s: none fits all: above %g %s overflows, below %g the smallest gradients vanish; start at %g, or use bf16\n", v, s.Largest, cmp.Or(s.Limit, "a gradient"), s.Smallest, s.Start)
			continue
		}
		fmt.Fprintf(w, "%s: safe from %g to %g, start at %g", v, s.Smallest, s.Largest, s.Start)
		if s.Limit != "" {
			fmt.Fprintf(w, " (%s sets the upper end)", s.Limit)
		}
		fmt.Fprintln(w)
	}
	return nil
}
