package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/ir"
	"ampc/models"
)

// compared lists the models of ampc compare, with sizes for which the whole table takes minutes.
var compared = []string{
	"zoo:mlp", "zoo:lenet?batch=16", "zoo:resnet?batch=8&size=16&width=8", "zoo:resnet8?batch=8&size=16",
	"zoo:gpt?batch=4&seq=32&layers=2&dim=64", "zoo:lstm?seq=16&dim=64&vocab=32", "zoo:bert?batch=8&seq=32&dim=64&vocab=16",
	"zoo:unet?batch=2&size=16&width=16", "zoo:unet3d?depth=8&size=8&width=8", "zoo:convlstm?seq=4&ahead=2&size=8&width=16", "zoo:vit?batch=8&size=16&dim=64", "zoo:gan",
}

// variant is one column of the comparison.
type variant struct {
	title, policy, algorithm string
	seed                     int64
}

var variants = []variant{
	{"f32", "f32", "", 1}, {"f32 seed 2", "f32", "", 2},
	{"mixed-f16", "mixed-f16", "mincut", 1}, {"local", "mixed-f16", "local", 1}, {"paint", "mixed-f16", "paint", 1},
	{"f16-trunk", "mixed-f16-trunk", "", 1}, {"mixed-bf16", "mixed-bf16", "mincut", 1}, {"bf16-trunk", "mixed-bf16-trunk", "", 1},
	{"o1-f16", "o1-f16", "", 1}, {"o2-f16", "o2-f16", "", 1}, {"o3-f16", "o3-f16", "", 1}, {"torch-f16", "torch-f16", "", 1},
}

func compareCommand() *cobra.Command {
	var steps int
	var asJSON bool
	c := command("compare [MODEL...]", "Compare bytes moved and loss after training, for zoo models under all policies", cobra.ArbitraryArgs, func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = compared
		}
		if steps < 0 {
			return usagef("--steps %d: want 0 or more", steps)
		}
		for _, spec := range args {
			if !strings.HasPrefix(spec, "zoo:") {
				return usagef("%s: compare takes models of the zoo, such as zoo:gpt", spec)
			}
		}
		var rows []comparison
		for _, spec := range args {
			for _, v := range variants {
				r, err := compareOne(c.Context(), spec, v, steps)
				if err != nil {
					return fmt.Errorf("%s under %s: %w", spec, v.title, err)
				}
				rows = append(rows, r)
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), rows)
		}
		return printComparison(c.OutOrStdout(), rows, steps)
	})
	c.Long = "Print, for every model under every policy, the bytes that one step moves and the mean loss over the last tenth\nof a training run on generated data.\n\nThe rows local and paint are mixed-f16 with another algorithm for choosing dtypes; f16-trunk and\nbf16-trunk are mixed-f16-trunk and mixed-bf16-trunk. The row f32 seed 2 has other initial weights: it shows how much they change the loss."
	c.Flags().IntVar(&steps, "steps", 200, "steps to train; 0: print bytes only")
	addJSON(c, &asJSON)
	return c
}

// comparison is one model under one policy.
type comparison struct {
	Model     string    `json:"model"`
	Policy    string    `json:"policy"`
	Algorithm string    `json:"algorithm,omitempty"`
	Title     string    `json:"title"`
	Bytes     int64     `json:"moved_bytes"` // per iteration: all steps of a model with several steps
	Loss      jsonFloat `json:"loss"`        // null: not finite
	Skipped   int       `json:"skipped"`
}

// compareOne compiles all steps of a model under one policy. It then trains them, one after the
// other on each batch.
func compareOne(ctx context.Context, spec string, v variant, steps int) (comparison, error) {
	z, err := models.Open(strings.TrimPrefix(spec, "zoo:"), ampc.Seed(v.seed))
	if err != nil {
		return comparison{}, err
	}
	defer z.Model.Close()
	p, err := v.load()
	if err != nil {
		return comparison{}, err
	}
	row := comparison{Model: spec, Policy: v.policy, Algorithm: v.algorithm, Title: v.title}
	compiled := make([]*ampc.Step, len(z.Steps))
	for i, s := range z.Steps {
		s.Config.Policy = p
		s.Config.LR = shortRun(s.Config, steps)
		if compiled[i], err = z.Model.Train(s.Config, s.Losses...); err != nil {
			return row, err
		}
		for _, part := range compiled[i].Program().Parts {
			for _, step := range part {
				row.Bytes += step.Bytes
			}
		}
	}
	return row, row.train(ctx, z, compiled, steps)
}

// shortRun is a learning-rate schedule for a short run that should learn without amplifying
// rounding differences. It warms up over a tenth of the run and then decays to 0.
func shortRun(c ampc.TrainConfig, steps int) ampc.Schedule {
	rate := 0.01
	if c.Optimizer.Algorithm != ampc.UseSGD {
		rate = 1e-3
	}
	return ampc.Cosine(rate, int64(steps/10), int64(max(steps, 1))+1)
}

// load returns the policy with the variant's algorithm.
func (v variant) load() (ampc.Policy, error) {
	p, err := loadPolicy(v.policy)
	return withAlgorithm(p, v.algorithm), err
}

// withAlgorithm returns the policy with another algorithm; "" keeps its own.
func withAlgorithm(p ampc.Policy, algorithm string) ampc.Policy {
	p.Algorithm = cmp.Or(algorithm, p.Algorithm)
	return p
}

// train sets the loss: the mean over the last tenth of the run, summed over the steps' losses.
func (row *comparison) train(ctx context.Context, z *models.Zoo, compiled []*ampc.Step, steps int) error {
	tail := max(steps/10, 1)
	for i := range steps {
		feed := z.Batch(int64(i))
		for _, s := range compiled {
			r, err := s.Run(ctx, feed)
			if err != nil {
				return err
			}
			got, err := r.Wait(ctx)
			if err != nil {
				return err
			}
			if got.Skipped {
				row.Skipped++
			}
			if i >= steps-tail {
				row.Loss += jsonFloat(got.Loss / float64(tail))
			}
		}
	}
	return nil
}

func printComparison(w io.Writer, rows []comparison, steps int) error {
	fmt.Fprintln(w, "bytes a step moves")
	err := printMatrix(w, rows, func(r comparison) string { return ir.Thousands(r.Bytes) })
	if err != nil || steps == 0 {
		return err
	}
	fmt.Fprintf(w, "\nloss after %d steps, mean of the last %d (+n: steps skipped)\n", steps, max(steps/10, 1))
	return printMatrix(w, rows, func(r comparison) string {
		s := fmt.Sprintf("%.4f", r.Loss)
		if loss := float64(r.Loss); math.IsNaN(loss) || math.IsInf(loss, 0) {
			s = "not finite"
		}
		if r.Skipped > 0 {
			s += fmt.Sprintf(" +%d", r.Skipped)
		}
		return s
	})
}

// printMatrix prints one line per model, one column per variant.
func printMatrix(w io.Writer, rows []comparison, cell func(comparison) string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "model\t")
	for _, v := range variants {
		fmt.Fprintf(t, "%s\t", v.title)
	}
	for i, r := range rows {
		if i%len(variants) == 0 {
			name, _, _ := strings.Cut(strings.TrimPrefix(r.Model, "zoo:"), "?")
			fmt.Fprintf(t, "\n%s\t", name)
		}
		fmt.Fprintf(t, "%s\t", cell(r))
	}
	fmt.Fprintln(t)
	return t.Flush()
}
