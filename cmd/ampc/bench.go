package main

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ampc"
	"ampc/internal/casts"
	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/runtime/gpu"
)

func benchCommand() *cobra.Command {
	var f modelFlags
	var steps int
	var printed, asJSON bool
	var device, trace string
	c := command("bench MODEL", "Measure step time and memory under several policies", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		policies := []string{"f32", "mixed-f16", "mixed-bf16"}
		if c.Flags().Changed("policy") {
			policies = []string{f.policy}
		}
		if steps < 1 {
			return usagef("--steps %d: want at least 1", steps)
		}
		if err := checkWritable(trace); err != nil {
			return err
		}
		profile := printed || trace != ""
		var rows []benchRow
		for _, p := range policies {
			f.policy = p
			var row benchRow
			err := onDevice(device, func(b runtime.Backend) (err error) {
				row, err = benchOne(c, args[0], f, steps, profile, b)
				return err
			})
			if err != nil {
				return err
			}
			row.policy, row.device = p, device
			rows = append(rows, row)
		}
		if trace != "" {
			if err := writeTrace(trace, rows); err != nil {
				return err
			}
		}
		if asJSON {
			return writeJSON(c.OutOrStdout(), describeBench(rows))
		}
		return printBench(c.OutOrStdout(), rows, printed)
	})
	addJSON(c, &asJSON)
	f.add(c)
	c.Flags().IntVar(&steps, "steps", 10, "number of steps to time, after two that warm up; each includes reading its result")
	c.Flags().StringVar(&device, "device", "cpu", deviceHelp)
	c.Flags().StringVar(&trace, "trace", "", "write what each worker, or each stream of a GPU, did when, in the profiled steps, to this `FILE` in the trace format of Chrome, which Perfetto opens")
	c.Flags().BoolVar(&printed, "profile", false, "also print the time of each kind of work; on a GPU that of each launch, as a share of a copy's rate; with several threads: how busy they were, how long one worked alone, and how often a step shared work")
	return c
}

type benchRow struct {
	policy, device  string
	compile, median time.Duration
	report          casts.Report
	profile         profile
	launches        *launches // on a GPU, under --profile
	trace           []traced  // under --trace and --profile
	pieces          bool      // the model has no single step: only times are known
}

func (r *benchRow) gflops() float64 { return float64(r.report.Flops) / r.median.Seconds() / 1e9 }

func printBench(out io.Writer, rows []benchRow, profiled bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tcompile\tmedian step\tagainst first\tGFLOP/s\twork\tstate\tlow flops\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\t", r.policy, r.compile.Round(time.Millisecond), r.median.Round(10*time.Microsecond), float64(rows[0].median)/float64(r.median))
		if r.pieces {
			fmt.Fprintln(w, "-\t-\t-\t-\t")
			continue
		}
		fmt.Fprintf(w, "%.1f\t%s\t%s\t%.1f%%\t\n", r.gflops(), ir.Bytes(r.report.Work), ir.Bytes(r.report.State), 100*r.report.LowShare())
	}
	if err := w.Flush(); err != nil || !profiled {
		return err
	}
	for _, r := range rows {
		if err := r.profile.print(out, r.policy); err != nil {
			return err
		}
		if r.launches == nil {
			continue
		}
		if err := r.launches.print(out, r.policy); err != nil {
			return err
		}
	}
	return nil
}

// benchJSON is a line of the table; times are in nanoseconds.
type benchJSON struct {
	Policy   string          `json:"policy"`
	Compile  int64           `json:"compile_ns"`
	Median   int64           `json:"median_step_ns"`
	GFLOPS   jsonFloat       `json:"gflops"`
	Work     int64           `json:"work_bytes"`
	State    int64           `json:"state_bytes"`
	LowShare float64         `json:"low_flop_share"`
	Profile  []timeShareJSON `json:"profile,omitempty"`
	Graph    int64           `json:"graph_ns,omitempty"` // a step on a GPU, as one graph
	Copy     jsonFloat       `json:"copy_bytes_per_second,omitempty"`
	Launches []launchJSON    `json:"launches,omitempty"`
	Pieces   bool            `json:"pieces,omitempty"` // only times are known
}

func describeBench(rows []benchRow) []benchJSON {
	var list []benchJSON
	for i := range rows {
		r := &rows[i]
		x := benchJSON{r.policy, int64(r.compile), int64(r.median), jsonFloat(r.gflops()), r.report.Work, r.report.State, r.report.LowShare(), r.profile.describe(), 0, 0, r.launches.describe(), r.pieces}
		if l := r.launches; l != nil {
			x.Graph, x.Copy = int64(l.graph), jsonFloat(l.copy)
		}
		list = append(list, x)
	}
	return list
}

func benchOne(c *cobra.Command, spec string, f modelFlags, steps int, profiled bool, device runtime.Backend) (benchRow, error) {
	var row benchRow
	o, err := open(c, spec)
	if err == nil {
		err = cmp.Or(o.apply(&f), o.whole())
	}
	if dynamic(err) && !profiled {
		return benchPieces(c, spec, &f, steps, device)
	}
	if err != nil {
		return row, err
	}
	defer o.model.Close()
	if err := o.model.Set(ampc.On(device), ampc.Fed(benchBatches*max(f.micro, 1))); err != nil {
		return row, err
	}
	start := time.Now()
	step, results, err := o.runnable(o.model.Graph())
	if err != nil {
		return row, err
	}
	row.compile = time.Since(start)
	row.report.Program(step.Graph(), step.Program())
	feeds := benchFeeds(o.model.Graph(), step.Program().Vars, max(f.micro, 1))
	var times []time.Duration
	for i := range steps + 2 {
		start := time.Now()
		r, err := step.Run(c.Context(), feeds[i%len(feeds)]...)
		if err != nil {
			return row, err
		}
		if _, err := r.Value(results[len(results)-1]); err != nil { // waits for work that the device has not finished
			return row, err
		}
		if i == 0 {
			limitHeap() // kernels have their memory now
		}
		if i >= 2 {
			times = append(times, time.Since(start))
		}
	}
	row.median = median(times)
	if !profiled {
		return row, nil
	}
	row.profile = profile{program: step.Program(), steps: steps, byKind: map[string]*timeShare{}}
	onGPU, isGPU := device.(*gpu.Backend)
	if isGPU {
		row.launches = &launches{program: step.Program(), steps: steps, byName: map[string]*launchTime{}}
	}
	if !step.Profile(func(part lower.Part, i int, timing runtime.Timing) {
		row.profile.add(part, i, timing)
		if isGPU {
			row.launches.add(part, i, timing)
		}
		row.trace = append(row.trace, traced{&step.Program().Parts[part][i], part, timing})
	}) {
		return row, fmt.Errorf("%s: the backend cannot say where its time goes", spec)
	}
	run := func(i int) error {
		_, err := step.Run(c.Context(), feeds[i%len(feeds)]...)
		return err
	}
	for i := range steps {
		if err := run(i); err != nil {
			return row, err
		}
	}
	step.Profile(nil)
	if !isGPU {
		return row, nil
	}
	return row, row.launches.finish(onGPU, func() error { return run(0) })
}

// benchPieces measures an ONNX model that is not a single graph, on one random feed.
func benchPieces(c *cobra.Command, path string, f *modelFlags, steps int, device runtime.Backend) (row benchRow, err error) {
	row.pieces = true
	given, err := readInputs(f.arrays)
	if err != nil {
		return row, err
	}
	feed, _, err := fillONNX(c, path, given, 1)
	if err != nil {
		return row, err
	}
	s, err := openSession(path, f, device)
	if err != nil {
		return row, err
	}
	defer s.Close()
	var times []time.Duration
	for i := range steps + 2 {
		start := time.Now()
		if _, err := s.Run(c.Context(), feed); err != nil {
			return row, err
		}
		if i >= 2 {
			times = append(times, time.Since(start))
		}
	}
	row.compile, row.median = s.Compiling(), median(times)
	return row, nil
}

// benchBatches is the number of batches that a benchmark cycles through. With a single batch the
// model would fit it after some steps, and its gradients would no longer have the values that
// training produces.
const benchBatches = 4

// benchFeeds returns the micro-batches of the given number of steps: random, but the same in every
// call.
func benchFeeds(g *ir.Graph, vars []lower.Var, micro int) [][]ampc.Feed {
	r := rand.New(rand.NewPCG(1, 1))
	feeds := make([][]ampc.Feed, benchBatches)
	for i := range feeds {
		for range micro {
			feed := ampc.Feed{}
			for _, v := range vars {
				if v.Kind == ir.Input && v.Role() == "" {
					feed[v.Name] = randomInput(r, g, v.Name, v.Type)
				}
			}
			feeds[i] = append(feeds[i], feed)
		}
	}
	return feeds
}
