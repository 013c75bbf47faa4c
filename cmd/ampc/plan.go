package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc/internal/casts"
	"ampc/ir"
	"ampc/lower"
	"ampc/models"
	"ampc/passes"
	"ampc/runtime/cpu"
)

// plannedPolicies are the policies that plan, bench and advise compare.
var plannedPolicies = [...]string{"f32", "mixed-f16", "mixed-bf16", "o1-f16", "o2-f16", "o3-f16", "torch-f16"}

// plans lists the policies that plan compares: the usual ones, or the one that --policy names. With
// --compare it adds every algorithm and the presets that copy other systems.
func plans(f modelFlags, chosen, compare bool) []modelFlags {
	var out []modelFlags
	add := func(policy string, algorithms ...string) {
		for _, a := range algorithms {
			f.policy, f.algorithm = policy, a
			out = append(out, f)
		}
	}
	every := []string{"local", "paint", "mincut"}
	switch {
	case chosen && compare:
		add(f.policy, every...)
	case chosen:
		add(f.policy, "")
	case compare:
		add("f32", "")
		add("mixed-f16", every...)
		add("mixed-bf16", every...)
		add("mixed-f16-trunk", "")
		add("mixed-bf16-trunk", "")
		for _, p := range []string{"o1", "o2", "o3", "torch", "torch-cpu", "apex-o1", "tensorflow", "oneflow", "paddle", "tvm"} {
			add(p+"-f16", "")
		}
	default:
		for _, p := range plannedPolicies {
			add(p, "")
		}
	}
	return out
}

func planCommand() *cobra.Command {
	var f modelFlags
	var fit, device string
	var l link
	var asJSON, compare, curve bool
	c := command("plan MODEL", "Compare memory, casts and bytes moved under several policies", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		limit, err := parseSize("--fit", fit)
		if err != nil {
			return err
		}
		if limit > 0 && args[0] == "-" {
			return usagef("--fit reads the model several times: give a file instead of -")
		}
		if device != "" {
			rows, err := algorithms(c, args[0], device, f)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), rows)
			}
			return printAlgorithms(c.OutOrStdout(), rows)
		}
		if curve {
			return planCurve(c, args[0], f, asJSON)
		}
		if f.ranks > 1 {
			return l.plan(c, args[0], f, asJSON)
		}
		var rows []planRow
		for _, f := range plans(f, c.Flags().Changed("policy"), compare) {
			row, err := planOne(c, args[0], f, limit)
			if dynamic(err) {
				return planPieces(c, args[0], &f, asJSON)
			}
			if err != nil {
				return err
			}
			rows = append(rows, row)
			if row.compiled && (compare || c.Flags().Changed("policy")) {
				return usagef("%s is compiled already, and no policy changes it: leave out --policy and --compare", args[0])
			}
			if row.compiled {
				break
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), rows)
		}
		return printPlan(c, rows, limit)
	})
	f.add(c)
	c.Flags().StringVar(&fit, "fit", "", "also print the largest batch with which a step holds at most `MEMORY`, such as 24GB; of a file it varies the first size of all inputs")
	c.Flags().BoolVar(&curve, "curve", false, "print instead what less memory costs: how much of the forward pass backward computes again under --policy")
	c.Flags().StringVar(&device, "device", "", "print instead the library algorithm of each product on this GPU `DEVICE`, such as cuda:0; algorithms not known yet are searched for and cached")
	l.add(c)
	addJSON(c, &asJSON)
	c.Flags().BoolVar(&compare, "compare", false, "also compare the algorithms local, paint and mincut, and all presets")
	return c
}

// planPieces handles an ONNX model that is not a single graph. It runs the model once, inputs that
// are not given are random, and prints the pieces.
func planPieces(c *cobra.Command, path string, f *modelFlags, asJSON bool) error {
	feed, err := readInputs(f.arrays)
	if err != nil {
		return err
	}
	_, steps, err := runSession(c, path, f, feed, 1, nil)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), steps)
	}
	return printSteps(c.OutOrStdout(), steps)
}

// planRow is what one policy costs on a model.
type planRow struct {
	Policy    string  `json:"policy"`
	Algorithm string  `json:"algorithm,omitempty"`
	Low       int     `json:"values_low"`
	F32       int     `json:"values_f32"`
	Work      int64   `json:"work_bytes"`
	Peak      int64   `json:"peak_bytes"` // all arenas of the program
	State     int64   `json:"state_bytes"`
	Saved     int64   `json:"saved_bytes"`
	Moved     int64   `json:"moved_bytes"`
	Casts     int     `json:"casts_inserted"`
	Merged    int     `json:"casts_merged"`
	Hoisted   int     `json:"casts_hoisted"`
	Folded    int     `json:"casts_folded"`
	Left      int     `json:"casts_left"`
	CastBytes int64   `json:"cast_bytes"`
	LowShare  float64 `json:"low_flop_share"`
	Fit       int64   `json:"fit_batch,omitempty"`
	FitAgain  int64   `json:"fit_batch_recomputed,omitempty"` // where backward computes again what it can
	FitMemory int64   `json:"fit_memory,omitempty"`           // what --memory then is
	Held      *held   `json:"held,omitempty"`                 // absent: not known, see Notes
	// Notes name the rewrites, clamps and omissions of the compilation.
	Notes []string `json:"notes,omitempty"`
	// Misaligned lists products whose sizes prevent the full speed of tensor cores.
	Misaligned []lower.Misaligned `json:"misaligned,omitempty"`
	compiled   bool               // the file holds a compiled step and has a single row
	trains     bool               // else there is nothing to compute again
}

func planOne(c *cobra.Command, spec string, f modelFlags, limit int64) (planRow, error) {
	r, p, compiled, err := planModel(c, spec, f)
	if err != nil {
		return planRow{}, err
	}
	if compiled {
		f.policy, f.algorithm = "as compiled", ""
	}
	row := planRow{compiled: compiled, trains: len(p.Parts[lower.Update]) > 0, Policy: f.policy, Algorithm: f.algorithm, Low: r.Low, F32: r.F32, Merged: r.Counts["casts_reused"] + r.Counts["casts_merged"], Work: r.Work, Peak: p.Total(), State: r.State, Saved: r.Saved, Moved: r.Bytes, Casts: r.Counts["casts_inserted"],
		Hoisted: r.Counts["casts_hoisted"], Folded: r.Counts["casts_folded_load"] + r.Counts["casts_folded_store"],
		Left: r.Left, CastBytes: r.CastBytes, LowShare: r.LowShare(), Notes: r.Notes, Misaligned: r.Misaligned}
	row.hold(p)
	if limit > 0 && compiled {
		return row, usagef("--fit varies the batch of a source; %s is compiled already", spec)
	}
	if limit > 0 {
		row.Fit, err = fitBatch(0, limit, func(batch int64) (int64, error) {
			held, _, err := planTotal(c, spec, f, batch)
			return held, err
		})
		if err == nil && row.trains {
			row.FitAgain, row.FitMemory, err = fitAgain(c, spec, f, limit, row.Fit)
		}
	}
	return row, err
}

// planTotal is the bytes that a step of a model with a batch holds, and those of its arenas.
func planTotal(c *cobra.Command, spec string, f modelFlags, batch int64) (held, arenas int64, err error) {
	if strings.HasPrefix(spec, "zoo:") {
		spec = models.With(spec, "batch", batch)
	} else {
		f.batch = batch
	}
	_, p, _, err := planModel(c, spec, f)
	if err != nil {
		return 0, 0, err
	}
	plan, err := cpu.PlanMemory(p, 0)
	return plan.Total(), p.Total(), err
}

// planModel compiles and lowers a model. It returns the report, the Program, and whether the model
// was compiled before.
func planModel(c *cobra.Command, spec string, f modelFlags) (r *casts.Report, p *lower.Program, compiled bool, err error) {
	o, err := open(c, spec)
	if err == nil {
		err = o.apply(&f)
	}
	if err == nil {
		err = cmp.Or(o.bound(), o.whole())
	}
	if err != nil {
		return nil, nil, false, err
	}
	r = &casts.Report{}
	g := o.model.Graph()
	if !o.compiled {
		if g, err = o.compile(func(p *passes.Config) { p.After = func(e passes.Event) { r.After(e.Counters, e.Notes) } }); err != nil {
			return nil, nil, false, err
		}
	}
	p, err = lower.Lower(g, lower.CPU)
	if err != nil {
		return nil, nil, false, err
	}
	r.Program(g, p)
	return r, p, o.compiled, nil
}

// fitted prints the result of fitBatch.
func fitted(batch int64) string {
	switch batch {
	case 0:
		return "none"
	case models.MaxOption:
		return fmt.Sprintf("%d or more", batch)
	}
	return strconv.FormatInt(batch, 10)
}

func printPlan(c *cobra.Command, rows []planRow, limit int64) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "policy\tlow\tf32\tpeak\twork\tstate\tsaved\tmoved\tcasts\tmerged\thoisted\tfolded\tleft\tcast bytes\tlow flops\toutputs\tscratch\theld\t")
	if limit > 0 {
		fmt.Fprintf(w, "batch in %s\t", ir.Bytes(limit))
	}
	trains := limit > 0 && slices.ContainsFunc(rows, func(r planRow) bool { return r.trains })
	if trains {
		fmt.Fprint(w, "recomputed\t")
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.1f%%\t", strings.TrimSpace(r.Policy+" "+r.Algorithm), r.Low, r.F32, ir.Bytes(r.Peak), ir.Bytes(r.Work), ir.Bytes(r.State), ir.Bytes(r.Saved), ir.Bytes(r.Moved),
			r.Casts, r.Merged, r.Hoisted, r.Folded, r.Left, ir.Bytes(r.CastBytes), 100*r.LowShare)
		fmt.Fprint(w, r.Held)
		if limit > 0 {
			fmt.Fprintf(w, "%s\t", fitted(r.Fit))
		}
		if trains {
			fmt.Fprintf(w, "%s\t", fitted(r.FitAgain))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printNotes(c.OutOrStdout(), rows); err != nil {
		return err
	}
	return printMisaligned(c.OutOrStdout(), rows)
}

// printMisaligned prints the products whose sizes prevent the full speed of tensor cores. It groups
// policies with the same list.
func printMisaligned(w io.Writer, rows []planRow) error {
	for i, r := range rows {
		same := func(o planRow) bool { return fmt.Sprint(o.Misaligned) == fmt.Sprint(r.Misaligned) }
		if len(r.Misaligned) == 0 || slices.ContainsFunc(rows[:i], same) {
			continue
		}
		var names []string
		for _, o := range rows[i:] {
			if same(o) {
				names = append(names, strings.TrimSpace(o.Policy+" "+o.Algorithm))
			}
		}
		fmt.Fprintf(w, "alignment (%s): %d products have sizes that tensor cores do not read at full speed; --pad fills them with zeros\n", strings.Join(names, ", "), len(r.Misaligned))
		for _, m := range r.Misaligned {
			if _, err := fmt.Fprintln(w, " ", m); err != nil {
				return err
			}
		}
	}
	return nil
}

// printNotes prints each note once. It names the policies if not all have the note.
func printNotes(w io.Writer, rows []planRow) error {
	var notes []string
	by := map[string][]string{}
	for _, r := range rows {
		for _, n := range r.Notes {
			if by[n] == nil {
				notes = append(notes, n)
			}
			by[n] = append(by[n], strings.TrimSpace(r.Policy+" "+r.Algorithm))
		}
	}
	for _, n := range notes {
		head := "note"
		if len(by[n]) < len(rows) {
			head += " (" + strings.Join(by[n], ", ") + ")"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", head, n); err != nil {
			return err
		}
	}
	return nil
}

// parseSize reads 24GB, 512MB, 100kB or a number of bytes; "" is 0.
func parseSize(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := s, int64(1)
	for suffix, u := range map[string]int64{"GB": 1 << 30, "MB": 1 << 20, "kB": 1 << 10} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, u
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x > 0 && x*float64(unit) <= 1<<60) {
		return 0, usagef("%s %s: want a size such as 24GB", flag, s)
	}
	return int64(x * float64(unit)), nil
}
