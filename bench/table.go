package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// printTable writes one Markdown table over the lines of all files: a row per
// model, precision, system and number of threads. Of runs repeated, the fastest counts.
func printTable(out io.Writer, files []string) error {
	var rows []result
	var left []string
	for _, path := range files {
		more, bad, err := readResults(path)
		if err != nil {
			return err
		}
		rows, left = append(rows, more...), append(left, bad...)
	}
	rows = fastestOfEach(rows)
	if len(rows) == 0 {
		return fmt.Errorf("%s: no results; %s", strings.Join(files, ", "), cmp.Or(strings.Join(left, "; "), "no lines"))
	}
	var b strings.Builder
	for _, d := range devices(rows) {
		fmt.Fprintf(&b, "On %s.\n\n", d)
	}
	head, rule := "", ""
	if len(threads(rows)) > 1 {
		head, rule = " threads | to one |", " ---: | ---: |"
	}
	b.WriteString("| model | precision | by |" + head + " step ms | per second | to eager | to compile | to own f32 | GiB of tensors | GiB in use | host waits | skipped | first loss | last loss | losses differ |\n")
	b.WriteString("| --- | --- | --- |" + rule + " ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		b.WriteString(r.row(rows))
	}
	b.WriteString("\nto eager, to compile: throughput against `torch eager`, `torch compile` in the same precision. to own f32: against the same system in f32. losses differ: the largest relative difference to\n`torch eager` in the same precision over the first steps, from the same weights and batches.\n")
	if head != "" {
		b.WriteString("to one: throughput against the same system with one thread. The others compare systems that have the same number.\n")
	}
	noted := map[string]bool{"": true}
	for _, r := range rows {
		if !noted[r.Notes] {
			fmt.Fprintf(&b, "\n%s (%s %s): %s\n", r.By, r.Model, r.Precision, r.Notes)
		}
		noted[r.Notes] = true
	}
	for _, line := range left {
		fmt.Fprintf(&b, "\nleft out: %s\n", line)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// readResults gives a file's rows, and what is wrong with its other lines: the
// last may have been cut short.
func readResults(path string) (rows []result, left []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			left = append(left, fmt.Sprintf("%s:%d: %v", path, n, err))
		} else if r.Model == "" || r.By == "" || len(r.Losses) == 0 {
			left = append(left, fmt.Sprintf("%s:%d: no model, system or losses", path, n))
		} else {
			rows = append(rows, r)
		}
	}
	return rows, left, lines.Err()
}

// work is what the table calls what was run.
func (r *result) work() string {
	if r.Infer {
		return r.Spec + ", inference"
	}
	return r.Spec
}

func (r *result) same(o *result) bool {
	return r.Spec == o.Spec && r.Precision == o.Precision && r.Infer == o.Infer && r.Threads == o.Threads
}

// threads are the numbers of threads that rows have.
func threads(rows []result) (n []int) {
	for _, r := range rows {
		if !slices.Contains(n, r.Threads) {
			n = append(n, r.Threads)
		}
	}
	return n
}

// fastestOfEach leaves out all but the fastest of the runs that did the same, and sorts.
func fastestOfEach(rows []result) []result {
	precisions := []string{"f32", "tf32", "f16", "bf16"}
	work := func(a, b result) int {
		return cmp.Or(strings.Compare(a.work(), b.work()), slices.Index(precisions, a.Precision)-slices.Index(precisions, b.Precision), strings.Compare(a.By, b.By), a.Threads-b.Threads)
	}
	slices.SortFunc(rows, func(a, b result) int { return cmp.Or(work(a, b), cmp.Compare(a.StepMS, b.StepMS)) })
	return slices.CompactFunc(rows, func(a, b result) bool { return work(a, b) == 0 })
}

func devices(rows []result) (names []string) {
	for _, r := range rows {
		if !slices.Contains(names, r.Device) {
			names = append(names, r.Device)
		}
	}
	return names
}

// by finds the run of another system for the same work.
func (r *result) by(system string, rows []result) *result {
	for i := range rows {
		if rows[i].By == system && rows[i].same(r) {
			return &rows[i]
		}
	}
	return nil
}

func (r *result) row(rows []result) string {
	f32, one, eager, compiled, own, differ, scaled := *r, *r, "", "", "", "", ""
	f32.Precision, one.Threads = "f32", 1
	if len(threads(rows)) > 1 {
		if scaled = fmt.Sprintf(" %d | |", r.Threads); r.Threads > 1 {
			if o := one.by(r.By, rows); o != nil {
				scaled = fmt.Sprintf(" %d | %.2f |", r.Threads, r.PerSecond/o.PerSecond)
			}
		}
	}
	if o := r.by("torch compile", rows); o != nil {
		compiled = fmt.Sprintf("%.2f", r.PerSecond/o.PerSecond)
	}
	if o := f32.by(r.By, rows); o != nil {
		own = fmt.Sprintf("%.2f", r.PerSecond/o.PerSecond)
	}
	if o := r.by("torch eager", rows); o != nil {
		eager = fmt.Sprintf("%.2f", r.PerSecond/o.PerSecond)
		differ = fmt.Sprintf("%.1e", apart(r.Losses, o.Losses))
	}
	gib := func(n int64) string { return fmt.Sprintf("%.2f", float64(n)/(1<<30)) }
	return fmt.Sprintf("| %s | %s | %s |%s %.2f | %.0f %s | %s | %s | %s | %s | %s | %.3g | %d of %d | %.4f | %.4f | %s |\n", r.work(), r.Precision, r.By, scaled, r.StepMS,
		r.PerSecond, r.Unit, eager, compiled, own, gib(r.Held), gib(r.InUse), r.Syncs, r.Skipped, len(r.Losses), r.Losses[0], r.Losses[len(r.Losses)-1], differ)
}

// apart is the largest relative difference of two runs' losses, as far as both go; NaN if a difference is.
func apart(a, b []float64) (worst float64) {
	for i := range min(len(a), len(b)) {
		d := math.Abs(a[i]-b[i]) / math.Max(math.Abs(b[i]), 1e-6)
		worst = max(worst, d) // NaN if either is
	}
	return worst
}
