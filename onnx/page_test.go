package onnx_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/onnx"
)

// docs/onnx-ops.md says what the table of rows says.
func TestOpsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# ONNX operators\n\nWritten by a test from the importer's table (`go test ./onnx -run TestOpsPage -update`); the test fails when this page is stale.\n")
	rows := onnx.Rows()
	fmt.Fprintf(&b, "%d operators. All versions from the opset in the second column up to 24 are read; *not* says which uses are refused, by name and position.\n", len(rows))
	b.WriteString("An operator that is not here, and is no function of the model's own, is refused likewise.\n\n")
	b.WriteString("| operator | from opset | becomes | not |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		name := r.Op
		if r.Domain != "" {
			name = r.Domain + "." + r.Op
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", name, r.Since, r.Ours, r.Not)
	}
	b.WriteString("\n## Ops that are written\n\nThe operator that an op is written with, from the opset on that is beside it; where there are two, the earlier one is written out in simple ones.\n\n| op | operator | from opset |\n| --- | --- | --- |\n")
	for _, e := range onnx.Exports() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %d |\n", e.Op, e.To, max(e.Since, 13))
	}
	b.WriteString(`
## For all operators

- Elements of 4 bits, floats of 8 bits or fewer, strings and complex numbers are not computed with.
- Elements of double (f64) are computed in f32, where the CPU has no kernel for f64: products, windows, norms, losses, recurrences, attention, resizing.
- A shape, an axis or a bound must be known before the model runs. It may be an initializer, a constant, the shape of a value,
  whatever is computed from these, or an input whose elements are given while importing.
- Sequences, optionals, maps and sparse tensors are not read; neither are Loop and Scan.
- All sizes are bound while importing.

## Test cases of the ONNX project that do not pass

`)
	fmt.Fprintf(&b, "Of the 1615 of release 1.19, %d pass (`AMPC_ONNX_NODE=FOLDER go test ./onnx -run TestAllNodeCases`). Of the others, what has no static form\nis run by the host executor (see [onnx.md](onnx.md)).\n\n", 1615-len(unsupportedCases(t)))
	by := map[string][]string{}
	for name, reason := range unsupportedCases(t) {
		by[reason] = append(by[reason], "`"+name+"`")
	}
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[reason])
		names := by[reason]
		if len(names) > 3 {
			names = append(slices.Clone(names[:3]), fmt.Sprintf("and %d more", len(names)-3))
		}
		fmt.Fprintf(&b, "- %s: %s.\n", reason, strings.Join(names, ", "))
	}
	golden.File(t, "../docs/onnx-ops.md", b.String())
}
