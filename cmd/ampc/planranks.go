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
	"ampc/lower"
)

// link describes the connection of ranks, as the flags of plan give it.
type link struct {
	rate, inside  string
	latency, step time.Duration
	perNode       int
}

func (l *link) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&l.rate, "link", "100Gb", "with --ranks: `RATE` of the link of a rank in gigabits a second, such as 400Gb")
	fl.DurationVar(&l.latency, "latency", 5*time.Microsecond, "with --ranks: `TIME` that a message takes to the next rank")
	fl.DurationVar(&l.step, "step-time", 0, "with --ranks: `TIME` that a rank takes for a step without messages, to see which of them it hides")
	fl.IntVar(&l.perNode, "per-node", 1, "with --ranks: `NUMBER` of ranks on one machine")
	fl.StringVar(&l.inside, "inside", "1000Gb", "with --per-node: `RATE` of the link between ranks of one machine")
}

// parseRate reads a bandwidth, in bytes per second.
func parseRate(flag, text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "Gb")
	x, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(x > 0 && x < 1e6) {
		return 0, usagef("--%s %s: want a rate such as 400Gb", flag, text)
	}
	return x * 1e9 / 8, nil
}

// ring returns the ring of so many ranks. Its pace is that of its slowest link: between machines
// if there are several.
func (l *link) ring() (func(ranks int) lower.Ring, error) {
	between, err := parseRate("link", l.rate)
	if err != nil {
		return nil, err
	}
	inside, err := parseRate("inside", l.inside)
	if err != nil {
		return nil, err
	}
	if l.latency < 0 || l.step < 0 || l.perNode < 1 {
		return nil, usagef("--latency %v, --step-time %v and --per-node %d: want no negative times, and 1 rank or more", l.latency, l.step, l.perNode)
	}
	return func(ranks int) lower.Ring {
		r := lower.Ring{Ranks: ranks, Latency: l.latency.Seconds(), Bandwidth: between}
		switch {
		case ranks <= l.perNode:
			r.Bandwidth = inside
		case l.perNode > 1:
			r.Bandwidth = min(between, inside)
		}
		return r
	}, nil
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
	Waited     float64 `json:"waited_seconds,omitempty"` // in which the step waits for messages
	Hidden     float64 `json:"hidden_share,omitempty"`   // of the messages' time
	Efficiency float64 `json:"efficiency,omitempty"`     // throughput relative to as many ranks without messages
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
// more, up to the given number. Without the time of a step nothing is known of what it hides.
func (l *link) plan(c *cobra.Command, spec string, f modelFlags, asJSON bool) error {
	ring, err := l.ring()
	if err != nil {
		return err
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
		p, err := lower.Lower(g, lower.CPU)
		if err != nil {
			return err
		}
		row.messages(p, ring(k), l.step.Seconds())
		rows = append(rows, row)
	}
	if asJSON {
		return writeJSON(c.OutOrStdout(), rows)
	}
	return l.print(c.OutOrStdout(), rows)
}

// messages fills in what the messages of a step cost whose steps together take the given number of
// seconds.
func (r *rankRow) messages(p *lower.Program, ring lower.Ring, step float64) {
	unit := step / p.Work()
	x := p.Delays(ring, func(s *lower.Step) float64 { return unit * s.Work() })
	r.Messages, r.Sent, r.Seconds = x.Messages, int64(x.Sent), x.Link
	if step > 0 {
		r.Waited, r.Hidden, r.Efficiency = x.Waited, x.Hidden(), step/(step+x.Waited)
	}
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
		fmt.Fprint(tw, "waited\thidden\tefficiency\t")
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		took := time.Duration(r.Seconds * float64(time.Second))
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t", r.Ranks, ir.Bytes(r.Weights), ir.Bytes(r.Moments), ir.Bytes(r.Averages))
		fmt.Fprintf(tw, "%d\t%s\t%v\t", r.Messages, ir.Bytes(r.Sent), took.Round(time.Microsecond))
		if l.step > 0 {
			waited := time.Duration(r.Waited * float64(time.Second))
			fmt.Fprintf(tw, "%v\t%.1f%%\t%.1f%%\t", waited.Round(time.Microsecond), 100*r.Hidden, 100*r.Efficiency)
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	links := l.rate + "/s"
	if l.perNode > 1 {
		links = fmt.Sprintf("%s, within %d ranks of a machine %s/s,", links, l.perNode, l.inside)
	}
	beside := "without the time of a step, so of what messages cost at most"
	if l.step > 0 {
		beside = "messages travel beside the steps, as the step's order lets them"
	}
	_, err := fmt.Fprintf(w, "a model: a ring over links of %s and %v; %s\n", links, l.latency, beside)
	return err
}
