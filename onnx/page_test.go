package onnx_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ampc/internal/golden"
	"ampc/onnx"
	"ampc/onnx/host"
)

// docs/onnx-ops.md says what the table of rows says.
func TestOpsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# ONNX operators\n\nWhich ONNX operators ampc reads and writes. A test writes this page from the importer's table\n(`go test ./onnx -run TestOpsPage -update`) and fails when it is stale.\n\n")
	rows := onnx.Rows()
	fmt.Fprintf(&b, "%d operators are compiled. *Opsets* are those that are read. *Not* says which uses are refused, by\nname and position. ", len(rows))
	b.WriteString("*Written for* lists the ops of ampc that `ampc export` writes with the\noperator, from the opset in brackets on. An operator that is not here, and is not a function of the\nmodel, is carried or refused (see [onnx.md](onnx.md)).\n\n")
	b.WriteString("| operator | opsets | becomes | not | written for |\n| --- | --- | --- | --- | --- |\n")
	onHost := map[string]string{}
	for _, d := range host.Docs() {
		onHost[d.Op] = "run on the host: " + d.Why
	}
	line := func(name string, since int64, ours, not, exports string) {
		opsets := fmt.Sprintf("%d to 24", since)
		if strings.Contains(name, ".") {
			opsets = "1" // of their own domain
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, opsets, ours, not, exports)
	}
	for _, r := range rows {
		name := r.Op
		if r.Domain != "" {
			name = r.Domain + "." + r.Op
		}
		not := r.Not
		if why, both := onHost[r.Op]; both && r.Domain == "" {
			not = strings.TrimPrefix(not+"; else "+why, "; else ")
			delete(onHost, r.Op)
		}
		var exports []string
		for _, e := range r.Exports {
			exports = append(exports, fmt.Sprintf("`%s` (%d)", e.Op, e.Since))
		}
		line(name, r.Since, r.Ours, not, strings.Join(exports, ", "))
	}
	for _, op := range slices.Sorted(maps.Keys(onHost)) {
		line(op, 1, onHost[op], "", "")
	}
	b.WriteString(`
## For all operators

- Elements of 4 bits, floats of 8 bits or fewer, strings and complex numbers are not computed with.
- Elements of double (f64) are computed in f32 where the CPU has no kernel for f64: products,
  windows, norms, losses, recurrences, attention, resizing.
- A shape, an axis or a bound must be known before the model runs. It may be an initializer, a
  constant, the shape of a value, whatever is computed from these, or an input whose elements are
  given while importing.
- Maps and sparse tensors are not read. What runs on the host is refused where a whole model is
  compiled at once, as for a dump.
- All sizes are bound while importing.

## Test cases of the ONNX project that do not pass

`)
	fmt.Fprintf(&b, "Of the 1615 of release 1.19, %d pass (`AMPC_ONNX_NODE=FOLDER go test ./onnx -run\nTestAllNodeCases`). Of the others, the host executor runs what has no static form (see\n[onnx.md](onnx.md)).\n\n| reason | cases |\n| --- | --- |\n", 1615-len(unsupportedCases(t)))
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
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(reason, "|", `\|`), strings.Join(names, ", "))
	}
	golden.File(t, "../docs/onnx-ops.md", b.String())
}
