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
// model, precision and system. Of runs repeated, the fastest counts.
func printTable(out io.Writer, files []string) error {
	var rows []result
	for _, path := range files {
		more, err := readResults(path)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	rows = fastestOfEach(rows)
	if len(rows) == 0 {
		return fmt.Errorf("%s: no results", strings.Join(files, ", "))
	}
	var b strings.Builder
	for _, d := range devices(rows) {
		fmt.Fprintf(&b, "On %s.\n\n", d)
	}
	b.WriteString("| model | precision | by | step ms | per second | to eager | to compile | to own f32 | GiB of tensors | GiB in use | host waits | skipped | first loss | last loss | losses differ |\n")
	b.WriteString("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		b.WriteString(r.row(rows))
	}
	b.WriteString("\nto eager, to compile: throughput against `torch eager`, `torch compile` in the same precision. to own f32: against the same system in f32. losses differ: the largest relative difference to\n`torch eager` in the same precision over the first steps, from the same weights and batches.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func readResults(path string) ([]result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []result
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if r.Model == "" || r.By == "" || len(r.Losses) == 0 {
			return nil, fmt.Errorf("%s:%d: no model, system or losses", path, n)
		}
		rows = append(rows, r)
	}
	return rows, lines.Err()
}

func (r *result) same(o *result) bool { return r.Spec == o.Spec && r.Precision == o.Precision }

// fastestOfEach leaves out all but the fastest of the runs that did the same, and sorts.
func fastestOfEach(rows []result) []result {
	precisions := []string{"f32", "tf32", "f16", "bf16"}
	work := func(a, b result) int {
		return cmp.Or(strings.Compare(a.Spec, b.Spec), slices.Index(precisions, a.Precision)-slices.Index(precisions, b.Precision), strings.Compare(a.By, b.By))
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
	f32, eager, compiled, own, differ := *r, "", "", "", ""
	f32.Precision = "f32"
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
	return fmt.Sprintf("| %s | %s | %s | %.2f | %.0f %s | %s | %s | %s | %s | %s | %.3g | %d of %d | %.4f | %.4f | %s |\n", r.Spec, r.Precision, r.By, r.StepMS,
		r.PerSecond, r.Unit, eager, compiled, own, gib(r.Held), gib(r.InUse), r.Syncs, r.Skipped, len(r.Losses), r.Losses[0], r.Losses[len(r.Losses)-1], differ)
}

// apart is the largest relative difference of two runs' losses, as far as both go.
func apart(a, b []float64) (worst float64) {
	for i := range min(len(a), len(b)) {
		d := math.Abs(a[i]-b[i]) / math.Max(math.Abs(b[i]), 1e-6)
		if !(d <= worst) { // NaN shows
			worst = d
		}
	}
	return worst
}
