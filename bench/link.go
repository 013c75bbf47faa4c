package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/world"
)

// linkBench fits the model of a ring, which ampc plan --ranks prints, to sums over ranks under MPI.
type linkBench struct {
	launcher     string
	ranks, times int
	worker       bool // this process is one of the ranks
}

func (b *linkBench) flags(f *flag.FlagSet) {
	f.StringVar(&b.launcher, "mpirun", openMPI, "launcher of the ranks, to which -n RANKS is added")
	f.IntVar(&b.ranks, "ranks", 2, "ranks")
	f.IntVar(&b.times, "times", 20, "how often each size is measured; the median counts")
	f.BoolVar(&b.worker, "worker", false, "be one of the ranks, for this command itself")
}

// sizes of the f32 tensors that are summed, in bytes.
var linkSizes = []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

// run measures a sum of each size and prints it beside the model with the least relative errors.
func (b *linkBench) run(out io.Writer) error {
	if b.worker {
		return b.work(out)
	}
	if b.ranks < 2 || b.times < 1 {
		return fmt.Errorf("link: want 2 ranks or more, and each size once or more")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var seconds []float64
	if err := lastLine(append(strings.Fields(b.launcher), "-n", strconv.Itoa(b.ranks), self, "link", "-worker", "-times", strconv.Itoa(b.times)), &seconds); err != nil {
		return err
	}
	r := fitRing(b.ranks, linkSizes, seconds)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "f32 summed\tmeasured\tmodel\t")
	for i, n := range linkSizes {
		model, _ := r.Message(int64(n), 2)
		fmt.Fprintf(tw, "%s\t%v\t%v\t\n", ir.Bytes(int64(n)), inMicroseconds(seconds[i]), inMicroseconds(model))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d ranks: ampc plan --link %.1fGb --latency %v\n", b.ranks, r.Bandwidth*8/1e9, inMicroseconds(r.Latency))
	return err
}

func inMicroseconds(seconds float64) time.Duration {
	return time.Duration(seconds * 1e9).Round(100 * time.Nanosecond)
}

// fitRing finds latency and bandwidth of a ring whose sums take so many seconds, by least squares of
// the relative errors. Both are at least zero.
func fitRing(ranks int, sizes []int, seconds []float64) lower.Ring {
	hops := float64(2 * (ranks - 1))
	var aa, ab, bb, at, bt float64 // t = hops·latency + hops/ranks·bytes/bandwidth, both sides divided by t
	for i, n := range sizes {
		a, b := hops/seconds[i], hops/float64(ranks)*float64(n)/seconds[i]
		aa, ab, bb, at, bt = aa+a*a, ab+a*b, bb+b*b, at+a, bt+b
	}
	det := aa*bb - ab*ab
	latency, each := (at*bb-bt*ab)/det, (bt*aa-at*ab)/det
	if latency < 0 {
		latency, each = 0, bt/bb
	}
	return lower.Ring{Ranks: ranks, Latency: latency, Bandwidth: 1 / each}
}

// work measures each size and prints the medians in seconds, on rank 0.
func (b *linkBench) work(out io.Writer) error {
	w, err := openRank()
	if err != nil {
		return err
	}
	var medians []float64
	for _, n := range linkSizes {
		data := [][]byte{make([]byte, n)}
		m := []*world.Message{{Name: "sum", DType: ir.F32, Wire: ir.F32, In: data, Out: data}}
		var took []float64
		for range b.times + 1 {
			began := time.Now()
			if err := exchange(w, m); err != nil {
				return err
			}
			took = append(took, time.Since(began).Seconds())
		}
		medians = append(medians, middle(took[1:]))
	}
	if w.Rank() == 0 {
		if err := json.NewEncoder(out).Encode(medians); err != nil {
			return err
		}
	}
	return w.Close()
}
