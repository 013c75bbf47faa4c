package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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

// rankRow is the cost of messages for one number of ranks.
type rankRow struct {
	Ranks      int     `json:"ranks"`
	Messages   int     `json:"messages"`
	Sent       int64   `json:"sent_bytes"` // sent by each rank in a step
	Seconds    float64 `json:"message_seconds"`
	Share      float64 `json:"message_share,omitempty"` // share of the step's time
	Efficiency float64 `json:"efficiency,omitempty"`    // throughput relative to as many ranks without messages
}

// plan prints a model of the cost of messages per step for 2 ranks and more, up to the given
// number. A ring moves 2(k-1)/k of a message's bytes through each link and takes 2(k-1) latencies;
// a gather goes around once. The model assumes no overlap with computation, so the cost is an upper
// bound.
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
		held, err := messages(c, spec, f)
		if err != nil {
			return err
		}
		row := rankRow{Ranks: k, Messages: len(held)}
		for _, m := range held {
			sent := m.rounds * float64(k-1) / float64(k) * float64(m.bytes)
			row.Sent += int64(sent)
			row.Seconds += m.rounds*float64(k-1)*l.latency.Seconds() + sent/rate
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

// message is one message of a step: the bytes that every rank has in the end, and the number of
// times they go around the ring.
type message struct {
	bytes  int64
	rounds float64
}

// messages returns the messages of a step.
func messages(c *cobra.Command, spec string, f modelFlags) ([]message, error) {
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
	g, err := o.compile(nil)
	if err != nil {
		return nil, err
	}
	var held []message
	for _, n := range g.Nodes {
		if !n.Def().Is(ir.Collective) {
			continue
		}
		m := message{rounds: 2}
		if n.HasAttr("axis") { // a gather, or a reduction that is not gathered
			m.rounds = 1
		}
		if !n.HasAttr("op") {
			for _, v := range n.Out {
				m.bytes += v.Type.Bytes()
			}
			held = append(held, m)
			continue
		}
		for _, v := range n.In {
			size := v.Type.DType.Size()
			if v.Type.DType.Float() {
				size = n.DT("msg").Size()
			}
			m.bytes += v.Type.Shape.Elements() * size
		}
		held = append(held, m)
	}
	return held, nil
}

func (l *link) print(w io.Writer, rows []rankRow) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "ranks\tmessages\tsent by each\ttime\t")
	if l.step > 0 {
		fmt.Fprint(tw, "of the step\tefficiency\t")
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		took := time.Duration(r.Seconds * float64(time.Second))
		fmt.Fprintf(tw, "%d\t%d\t%s\t%v\t", r.Ranks, r.Messages, ir.Bytes(r.Sent), took.Round(time.Microsecond))
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
