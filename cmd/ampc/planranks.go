package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/ir"
)

// link describes the connection of ranks, as the flags of plan give it.
type link struct {
	rate    string
	latency time.Duration
	step    time.Duration
}

func (l *link) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&l.rate, "link", "100Gb", "with --ranks: what the link of a rank carries in a second, such as `400Gb`")
	fl.DurationVar(&l.latency, "latency", 5*time.Microsecond, "with --ranks: `TIME` that a message takes to the next rank")
	fl.DurationVar(&l.step, "step-time", 0, "with --ranks: `TIME` of a step in one process, to compare messages with")
}

// bytes returns the bandwidth of the link in bytes per second.
func (l *link) bytes() (float64, error) {
	number, ok := strings.CutSuffix(l.rate, "Gb")
	x, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(x > 0 && x < 1e6) {
		return 0, usagef("--link %s: want a rate such as 400Gb", l.rate)
	}
	return x * 1e9 / 8, nil
}

const messageHelp = "send gradients in this `DTYPE`, f32, f16 or bf16; their sums are f32 (default: f32)"

// parseMessage reads the dtype of gradients in messages.
func parseMessage(text string) (ampc.DType, error) {
	if text == "" {
		return 0, nil
	}
	d, err := parseFloat(text)
	return ampc.DType(d), err
}

// parseFloat reads one of the dtypes that a policy chooses from.
func parseFloat(text string) (ir.DType, error) {
	d, ok := ir.DTypeOf(text)
	if !ok || d != ir.F32 && !d.Low() {
		return d, usagef("no dtype %q; there are f32, f16 and bf16", text)
	}
	return d, nil
}

// rankRow is the cost of messages for one number of ranks.
type rankRow struct {
	Ranks      int     `json:"ranks"`
	Messages   int     `json:"messages"`
	Sent       int64   `json:"sent_bytes"` // sent by each rank in a step
	Seconds    float64 `json:"message_seconds"`
	Share      float64 `json:"message_share,omitempty"` // share of the step's time
	Efficiency float64 `json:"efficiency,omitempty"`    // throughput relative to as many ranks without messages
	kept
}

// kept are the bytes that each rank keeps between steps.
type kept struct {
	Weights  int64 `json:"weight_bytes"`
	Moments  int64 `json:"moment_bytes"`
	Averages int64 `json:"average_bytes"`
}

// keeps counts the variables of a step, in which a sharded one stands for this rank's part.
func keeps(g *ir.Graph) (k kept) {
	g.DropUnused()
	for _, v := range g.Vars {
		role, _ := v.Attr.Get("role").(string)
		switch {
		case role == "ema":
			k.Averages += v.Type.Bytes()
		case role == "optimizer":
			k.Moments += v.Type.Bytes()
		case v.Kind == ir.Param || v.PartOf() != "":
			k.Weights += v.Type.Bytes()
		}
	}
	return k
}

// plan prints what each rank keeps and a model of the cost of messages per step, for 2 ranks and
// more, up to the given number. A message that goes around a ring moves (k-1)/k of its bytes through
// each link and takes k-1 latencies. The model assumes no overlap with computation, so the cost is
// an upper bound.
func (l *link) plan(c *cobra.Command, spec string, f modelFlags, asJSON bool) error {
	rate, err := l.bytes()
	if err != nil {
		return err
	}
	if l.latency < 0 || l.step < 0 {
		return usagef("--latency %v and --step-time %v: want 0 or more", l.latency, l.step)
	}
	var counts []int
	for k := 2; k < f.ranks; k *= 2 {
		counts = append(counts, k)
	}
	var rows []rankRow
	for _, k := range append(counts, f.ranks) {
		f.ranks = k
		g, err := stepOf(c, spec, f)
		if err != nil {
			return err
		}
		row := rankRow{Ranks: k, kept: keeps(g)}
		for _, n := range g.Nodes {
			if !n.Def().Is(ir.Collective) {
				continue
			}
			bytes, rounds := n.Wire()
			sent := float64(rounds*(int64(k)-1)) / float64(k) * float64(bytes)
			row.Messages++
			row.Sent += int64(sent)
			row.Seconds += float64(rounds*(int64(k)-1))*l.latency.Seconds() + sent/rate
		}
		if l.step > 0 {
			row.Efficiency = l.step.Seconds() / (l.step.Seconds() + row.Seconds)
			row.Share = 1 - row.Efficiency
		}
		rows = append(rows, row)
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), rows)
	}
	return l.print(c.OutOrStdout(), rows)
}

// stepOf compiles the training step of one rank.
func stepOf(c *cobra.Command, spec string, f modelFlags) (*ir.Graph, error) {
	o, err := open(c, spec)
	if err == nil {
		err = o.apply(&f)
	}
	if err == nil {
		err = o.bound()
	}
	if err != nil {
		return nil, err
	}
	if o.compiled || f.infer {
		return nil, usagef("--ranks: %s does not train", spec)
	}
	return o.compile(nil)
}

func (l *link) print(w io.Writer, rows []rankRow) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "ranks\tweights\tmoments\taverages\tmessages\tsent by each\ttime\t")
	if l.step > 0 {
		fmt.Fprint(tw, "of the step\tefficiency\t")
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		took := time.Duration(r.Seconds * float64(time.Second))
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t", r.Ranks, ir.Bytes(r.Weights), ir.Bytes(r.Moments), ir.Bytes(r.Averages))
		fmt.Fprintf(tw, "%d\t%s\t%v\t", r.Messages, ir.Bytes(r.Sent), took.Round(time.Microsecond))
		if l.step > 0 {
			fmt.Fprintf(tw, "%.1f%%\t%.1f%%\t", 100*r.Share, 100*r.Efficiency)
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "a model: a ring over links of %s/s and %v, nothing overlaps: what messages cost at most\n", l.rate, l.latency)
	return err
}
