package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ampc/internal/casts"
	"ampc/ir"
)

// advised lists the policies that advise tries by default. f32 comes first: the others are compared
// with it.
var advised = []string{"f32", "tf32", "mixed-bf16", "mixed-f16", "o1-f16", "o2-f16", "o3-f16"}

func adviseCommand() *cobra.Command {
	var f trainFlags
	var seeds int
	var policies []string
	var asJSON bool
	c := command("advise [MODEL]", "Train for a short time under several policies and recommend one", cobra.MaximumNArgs(1), func(c *cobra.Command, args []string) error {
		if seeds < 1 || len(policies) == 0 {
			return usagef("want at least one seed and one policy")
		}
		if f.steps == 0 {
			f.steps = 60
		}
		for _, p := range policies {
			if _, err := loadPolicy(p); err != nil {
				return err
			}
		}
		all := make([][]trial, len(policies))
		for i, p := range policies {
			for s := range seeds {
				f.policy, f.seed = p, int64(s+1)
				r, err := try(c, append(args, "")[0], f)
				if err != nil {
					return fmt.Errorf("%s, seed %d: %w", p, s+1, err)
				}
				all[i] = append(all[i], r)
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), describeAdvice(all))
		}
		return printAdvice(c.OutOrStdout(), all)
	})
	addJSON(c, &asJSON)
	f.add(c)
	c.Flags().IntVar(&seeds, "seeds", 1, "train each policy `N` times, with seeds 1, 2, ...")
	c.Flags().StringSliceVar(&policies, "policies", advised, "`POLICIES` to try, separated by commas; the first is what the others are compared with")
	return c
}

// trial is the result of one policy with one seed.
type trial struct {
	policy           string
	start            float64 // loss of the first step
	loss, heldOut    float64 // mean of the last steps; held-out loss
	accuracy         float64 // NaN if the task has no accuracy
	skipped, atStart int     // number of steps, and of steps before the first that was not skipped
	step             time.Duration
	report           casts.Report
}

func try(c *cobra.Command, spec string, f trainFlags) (trial, error) {
	t, err := newTrainer(c, spec, &f, nil)
	if err != nil {
		return trial{}, err
	}
	defer t.model.Close()
	// Here a run that makes no progress is a result, not an error.
	if err := t.run(c.Context()); err != nil && c.Context().Err() != nil {
		return trial{}, err
	}
	loss, ok := t.recent.mean()
	if !ok {
		loss = math.NaN()
	}
	r := trial{policy: f.policy, loss: loss, skipped: t.skipped, atStart: t.skippedAtStart, step: t.took / time.Duration(max(t.done, 1)), report: *t.report}
	if len(t.curves.points) > 0 {
		r.start = t.curves.points[0].loss
	}
	if r.heldOut, r.accuracy, err = t.evaluate(c.Context()); t.correct.Absent() {
		r.accuracy = math.NaN()
	}
	return r, err
}

// over is the mean of a number over trials.
func over(trials []trial, f func(trial) float64) float64 {
	sum := 0.0
	for _, t := range trials {
		sum += f(t)
	}
	return sum / float64(len(trials))
}

// maxDifference is the largest relative difference between trials with the same seed.
func maxDifference(a, b []trial, f func(trial) float64) float64 {
	worst := 0.0
	for i := range a {
		if d := f(a[i])/f(b[i]) - 1; math.Abs(d) > math.Abs(worst) || math.IsNaN(d) {
			worst = d
		}
	}
	return worst
}

// spread is the range over trials with different seeds, relative to their mean.
func spread(trials []trial, f func(trial) float64) float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, t := range trials {
		lo, hi = min(lo, f(t)), max(hi, f(t))
	}
	return (hi - lo) / over(trials, f)
}

func trainingLoss(t trial) float64    { return t.loss }
func meanHeldOutLoss(t trial) float64 { return t.heldOut }

func printAdvice(out io.Writer, all [][]trial) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := all[0]
	fmt.Fprintf(w, "policy\tfirst loss\ttraining\tagainst %s\theld out\tagainst %[1]s\tspread\taccuracy\tskipped\tat start\tstep\twork\tlow flops\t\n", first[0].policy)
	for _, trials := range all {
		r := trials[0]
		accuracy := "-"
		if a := over(trials, func(t trial) float64 { return t.accuracy }); !math.IsNaN(a) {
			accuracy = fmt.Sprintf("%.2f%%", 100*a)
		}
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%+.2f%%\t%.4f\t%+.2f%%\t%.2f%%\t%s\t%d\t%d\t%s\t%s\t%.1f%%\t\n", r.policy,
			over(trials, func(t trial) float64 { return t.start }),
			over(trials, trainingLoss), 100*maxDifference(trials, first, trainingLoss), over(trials, meanHeldOutLoss), 100*maxDifference(trials, first, meanHeldOutLoss), 100*spread(trials, meanHeldOutLoss), accuracy,
			int(over(trials, func(t trial) float64 { return float64(t.skipped * len(trials)) })),
			slices.MaxFunc(trials, func(a, b trial) int { return a.atStart - b.atStart }).atStart,
			r.step.Round(10*time.Microsecond), ir.Bytes(r.report.Work), 100*r.report.LowShare())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, verdict(all))
	return nil
}

// adviceJSON is a line of the table. Its numbers are means over the seeds; a loss that is not
// finite is null.
type adviceJSON struct {
	Policy    string    `json:"policy"`
	FirstLoss jsonFloat `json:"first_loss"`
	Training  jsonFloat `json:"training_loss"`
	HeldOut   jsonFloat `json:"held_out_loss"`
	Spread    jsonFloat `json:"held_out_spread"` // over seeds, relative
	Accuracy  jsonFloat `json:"accuracy"`        // null: the task has no accuracy
	Skipped   int       `json:"skipped"`         // summed over all runs
	StepTime  int64     `json:"step_ns"`
	Work      int64     `json:"work_bytes"`
	LowShare  jsonFloat `json:"low_flop_share"`
}

// describeAdvice returns the table and the verdict as JSON.
func describeAdvice(all [][]trial) any {
	var rows []adviceJSON
	for _, trials := range all {
		r := trials[0]
		skipped := 0
		for _, t := range trials {
			skipped += t.skipped
		}
		mean := func(f func(trial) float64) jsonFloat { return jsonFloat(over(trials, f)) }
		rows = append(rows, adviceJSON{r.policy, mean(func(t trial) float64 { return t.start }), mean(trainingLoss), mean(meanHeldOutLoss), jsonFloat(spread(trials, meanHeldOutLoss)),
			mean(func(t trial) float64 { return t.accuracy }), skipped, int64(r.step), r.report.Work, jsonFloat(r.report.LowShare())})
	}
	return struct {
		Policies []adviceJSON `json:"policies"`
		Verdict  string       `json:"verdict"`
	}{rows, verdict(all)}
}

// verdict recommends the policy with the least work memory among those whose losses stay within 2%
// of the first policy's losses for every seed.
func verdict(all [][]trial) string {
	first := all[0]
	best := first
	for _, trials := range all[1:] {
		d := max(math.Abs(maxDifference(trials, first, meanHeldOutLoss)), math.Abs(maxDifference(trials, first, trainingLoss)))
		if d <= 0.02 && trials[0].report.Work < best[0].report.Work {
			best = trials
		}
	}
	b, f := best[0], first[0]
	if b.policy == f.policy {
		return fmt.Sprintf("verdict: %s: no other policy kept the loss within 2%% with less memory", f.policy)
	}
	return fmt.Sprintf("verdict: %s: losses within 2%% of %s, work memory %.0f%% of it, step time %.2f of it", b.policy, f.policy,
		100*float64(b.report.Work)/float64(f.report.Work), float64(b.step)/float64(f.step))
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
