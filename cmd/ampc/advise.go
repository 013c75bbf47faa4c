package main

import (
	"fmt"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func adviseCommand() *cobra.Command {
	var f trainFlags
	c := command("advise [MODEL]", "train for a while under every policy and give a verdict", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		rows, err := adviseRows(c, append(args, "")[0], f)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "policy\theld-out loss\tagainst f32\tskipped\tstep\twork\tlow flops\t")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%.4f\t%+.2f%%\t%d\t%s\t%s\t%.1f%%\t\n", r.policy, r.loss, 100*(r.loss/rows[0].loss-1), r.skipped,
				r.step.Round(10*time.Microsecond), size(r.report.work), 100*r.report.lowShare())
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), verdict(rows))
		return nil
	})
	f.add(c)
	return c
}

// tried is how one policy did.
type tried struct {
	policy  string
	loss    float64
	skipped int
	step    time.Duration
	report  castReport
}

// advised are the policies that advise tries, f32 first: it is the measure.
var advised = [...]string{"f32", "tf32", "mixed-bf16", "mixed-f16", "o1-f16", "o2-f16", "o3-f16"}

func adviseRows(c *cobra.Command, spec string, f trainFlags) ([]tried, error) {
	if f.steps == 0 {
		f.steps = 60
	}
	var rows []tried
	for _, p := range advised {
		f.policy = p
		r, err := try(c, spec, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func try(c *cobra.Command, spec string, f trainFlags) (tried, error) {
	t, err := newTrainer(spec, &f)
	if err != nil {
		return tried{}, err
	}
	defer t.model.Close()
	r := tried{policy: f.policy, report: *t.report}
	// Being stuck is a finding here, not the end.
	if err := t.run(c.Context(), newProgress(nil, true, 0, f.steps)); err != nil && c.Context().Err() != nil {
		return r, err
	}
	r.skipped, r.step = t.skipped, t.took/time.Duration(max(t.done, 1))
	r.loss, _, err = t.evaluate(c.Context())
	return r, err
}

// verdict recommends the policy with the least memory whose loss stays within
// 2% of f32.
func verdict(rows []tried) string {
	best := rows[0]
	for _, r := range rows[1:] {
		if math.Abs(r.loss/rows[0].loss-1) <= 0.02 && r.report.work < best.report.work {
			best = r
		}
	}
	if best.policy == rows[0].policy {
		return "verdict: f32: no other policy kept the loss within 2% with less memory"
	}
	return fmt.Sprintf("verdict: %s: loss within 2%% of f32, work memory %.0f%% of it, step time %.2f of it", best.policy,
		100*float64(best.report.work)/float64(rows[0].report.work), float64(best.step)/float64(rows[0].step))
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
