package arch_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/lower"
	"ampc/lower/sm"
	"ampc/runtime/cpu"
)

// gpuTargets are the GPUs that rows are lowered for: with and without libraries,
// the oldest and the latest.
var gpuTargets = []lower.Target{sm.Must("sm_70"), sm.Must("sm_80"), sm.Must("sm_90"), sm.Must("sm_90/nodnn")}

// gpuMissing are the dtypes in which a GPU may lack rows that the CPU has, and why.
var gpuMissing = map[ir.DType]string{
	ir.F64: "libraries and generated kernels compute in f32; arithmetic, comparisons and moves of f64 are there, for counters and constants",
	ir.I32: wholeSums, ir.I64: wholeSums, ir.U8: wholeSums,
}

const wholeSums = "running sums and products are computed in floats: cast to f32"

// refusals lowers every case, as it stands and with one dtype in the place of
// another, for each GPU: the rows that a GPU refuses although the CPU runs
// them, by dtype.
func refusals(t *testing.T, rows []*opRow) map[ir.DType][]string {
	t.Helper()
	refused := map[ir.DType][]string{}
	for _, r := range rows {
		if r.op.Def().Is(ir.Collective) || r.op.Def().Is(ir.Caches) { // GPUs have none yet
			continue
		}
		for _, text := range retyped(r.cases) {
			for _, target := range gpuTargets {
				d, err := refusedBy(target, text)
				if err == nil {
					continue
				}
				if gpuMissing[d] == "" {
					t.Errorf("%s: %s refuses what the CPU runs: %v\n%s", r.op, target, err, text)
				}
				if name := r.op.String(); !slices.Contains(refused[d], name) {
					refused[d] = append(refused[d], name)
				}
			}
		}
	}
	return refused
}

// retyped are the texts of cases that the CPU runs, dtypes exchanged.
func retyped(cases []*ir.Graph) (texts []string) {
	all := []ir.DType{ir.F32, ir.F64, ir.F16, ir.BF16, ir.I32, ir.I64, ir.U8, ir.Bool}
	for _, g := range cases {
		text := g.String()
		list := []string{text}
		for _, from := range all {
			for _, to := range all {
				if s := strings.ReplaceAll(text, fmt.Sprintf(" %s[", from), fmt.Sprintf(" %s[", to)); s != text && !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
		}
		texts = append(texts, slices.DeleteFunc(list, func(s string) bool { return !runsOnCPU(s) })...)
	}
	return texts
}

func runsOnCPU(text string) bool {
	g, err := ir.Parse("case.ir", []byte(text))
	if err != nil {
		return false // the row does not take it
	}
	p, err := lower.Lower(g, lower.CPU)
	return err == nil && cpu.Supports(p) == nil
}

// refusedBy lowers a case that the CPU runs. The dtype that an error comes with is f64 where the node has
// any, else that
// of its first operand. What Check does not refuse must lower and verify.
func refusedBy(target lower.Target, text string) (ir.DType, error) {
	g, err := ir.Parse("case.ir", []byte(text))
	if err != nil {
		return ir.Invalid, err
	}
	n := g.Body[ir.Forward][0]
	d := ir.Invalid
	for _, v := range append(slices.Clone(n.In), n.Out...) {
		if v != nil && (d == ir.Invalid || v.Type.DType == ir.F64) {
			d = v.Type.DType
		}
	}
	if err := lower.Check(g, target); err != nil {
		return d, err
	}
	if _, err := lower.Lower(g, target); err != nil {
		return ir.Invalid, fmt.Errorf("Check has no objection, but: %w", err)
	}
	return d, nil
}

// gpuPage is the part of docs/ops.md on what a GPU lacks.
func gpuPage(refused map[ir.DType][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## What a GPU refuses\n\nA GPU refuses the ops below in these dtypes, with the line of the node, before anything runs. All\nother cases of testdata/ops, also with every dtype that the op and the CPU take, lower for\n%s and are verified.\n\n| dtype | rows | why |\n| --- | --- | --- |\n", targetList())
	for _, d := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", d, strings.Join(refused[d], "` `"), gpuMissing[d])
	}
	return b.String()
}

func targetList() string {
	var s []string
	for _, t := range gpuTargets {
		s = append(s, t.String())
	}
	return strings.Join(s, ", ")
}
