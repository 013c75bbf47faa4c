package arch_test

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"ampc/internal/golden"
	"ampc/ir"
	"ampc/ir/eval"
	"ampc/lower"
	"ampc/runtime/cpu"
)

// opsMissing are the places an op has no entry in, and why.
var opsMissing = map[string]string{
	"foreign eval":  "its meaning is not known here",
	"foreign case":  "its meaning is not known here",
	"foreign lower": "its meaning is not known here",
	"foreign cpu":   "its meaning is not known here",
}

// opRow joins what the packages' tables say about one op.
type opRow struct {
	op      ir.Op
	cases   []*ir.Graph // nodes in testdata/ops: their derivatives are checked there
	goldens int         // files of testdata that use it, cases and errors aside
	eval    bool
	lower   error
	cpu     error
}

// TestOps walks the op table and names every place that lacks an op; -v prints
// a line for each. The same walk writes docs/ops.md (-update) and fails when it is stale.
func TestOps(t *testing.T) {
	cases, goldens := opCases(t), opGoldens(t)
	var rows []*opRow
	for _, op := range ir.Ops() {
		r := &opRow{op: op, cases: cases[op], goldens: goldens[op.String()], eval: eval.Has(op)}
		r.reach()
		r.check(t)
		rows = append(rows, r)
		t.Logf("%-22s infer ok  grad %-10s eval %t  lower %t  cpu %t  cases %d  goldens %d", op, strings.SplitN(gradCell(op.Def()), ":", 2)[0], r.eval, r.lower == nil, r.cpu == nil, len(r.cases), r.goldens)
	}
	golden.File(t, "docs/ops.md", opsPage(rows)+gpuPage(refusals(t, rows))+torchPage(facade(t)))
}

// reach lowers every case for the CPU.
func (r *opRow) reach() {
	for _, g := range r.cases {
		if err := lower.Check(g, lower.CPU); err != nil {
			r.lower, r.cpu = err, err
			return
		}
		p, err := lower.Lower(g, lower.CPU)
		if err == nil {
			err = cpu.Supports(p)
		}
		if err != nil {
			r.cpu = err
			return
		}
	}
}

func (r *opRow) check(t *testing.T) {
	d := r.op.Def()
	for _, f := range []struct {
		place, todo string
		ok          bool
	}{
		{"doc", "one sentence in the row", strings.HasSuffix(d.Doc, ".")},
		{"why", "the class's reason in the row", d.Why != ""},
		{"grad", "a gradient, an expansion or NoGrad in the row", d.Grad != nil || d.Expand != nil || d.NoGrad != ""},
		{"bound", "the error of a row without exact code, in the row", d.Bound != nil || d.Elem != nil || d.Is(ir.Moves)},
		{"case", "a case in the tests of ir/eval", len(r.cases) > 0},
		{"eval", "an evaluator in ir/eval", r.eval},
		{"lower", fmt.Sprintf("a rule in lower (%v)", r.lower), len(r.cases) > 0 && r.lower == nil},
		{"cpu", fmt.Sprintf("a kernel in runtime/cpu (%v)", r.cpu), len(r.cases) > 0 && r.cpu == nil},
	} {
		why, excused := opsMissing[d.Name+" "+f.place]
		switch {
		case !f.ok && !excused:
			t.Errorf("%s: %s MISSING: add %s", d.Name, f.place, f.todo)
		case f.ok && excused:
			t.Errorf("%s: %s is there, although the list of exceptions says: %s", d.Name, f.place, why)
		}
	}
	for _, a := range d.Attrs {
		if a.Doc == "" {
			t.Errorf("%s: attribute %s has no doc", d.Name, a.Name)
		}
	}
}

// opCases reads testdata/ops: graphs of one node.
func opCases(t *testing.T) map[ir.Op][]*ir.Graph {
	t.Helper()
	paths, err := filepath.Glob("testdata/ops/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in testdata/ops: %v", err)
	}
	cases := map[ir.Op][]*ir.Graph{}
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			g, err := ir.Parse(p+"/"+f.Name, f.Data)
			if err != nil {
				t.Fatal(err)
			}
			n := g.Body[ir.Forward][0]
			cases[n.Op] = append(cases[n.Op], g)
		}
	}
	return cases
}

var opUse = regexp.MustCompile(`(?m)^\s*%[^=]* = ([a-z_0-9]+)`)

// opGoldens counts the golden files that hold a node of each op.
func opGoldens(t *testing.T) map[string]int {
	t.Helper()
	uses := map[string]int{}
	err := filepath.WalkDir("testdata", func(path string, e fs.DirEntry, err error) error {
		if e.IsDir() && (e.Name() == "ops" || e.Name() == "errors") {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".txtar") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, m := range opUse.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !seen[name] {
				seen[name] = true
				uses[name]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return uses
}

func opsPage(rows []*opRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, opsIntro, len(rows))
	family := ""
	for _, r := range rows {
		d := r.op.Def()
		if d.Family != family {
			family = d.Family
			fmt.Fprintf(&b, "\n## %s\n\n| op | operands → results | attributes | class | error | gradient | where | what it does |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n", family)
		}
		fmt.Fprintf(&b, "| `%s` | %s → %s | %s | %s | %s | %s | %s | %s |\n", d.Name, operandsCell(d), resultsCell(d), attrsCell(d),
			classCell(d), r.errorCell(), gradCell(d), r.whereCell(), cell(d.Doc))
	}
	return b.String()
}

const opsIntro = `# Ops

The %d ops of ampc. To find the op for a PyTorch function, see [By PyTorch's
names](#by-pytorchs-names). ` + "`go doc ampc Model.Relu`" + ` shows shapes, dtypes and errors of an op;
` + "`ampc ops NAME`" + ` its class with the reason. The test TestOps writes this page from the op table
(` + "`go test ./internal/arch -run TestOps -update`" + `) and fails when it is stale.

In the text form an operand in brackets may be absent (` + "`_`" + `), one with ` + "`=`" + ` is written among the
attributes, and ... stands for any number of operands.

- **class**: how a precision policy treats the op ([amp.md](amp.md#what-a-policy-decides)), and why.
  Operands and results that differ from it say so: *fixed* keeps its dtype, *reads low* widens 16
  bits on load, *stores low* and *stores f32* leave the dtype of the result to the policy.
- **error**: *exact* ops give the same bits on every backend. Others state how far a result may be
  off, compared with the evaluator, before it is rounded to its dtype: ulp of f32, and K·2⁻²³ times
  the sum of the magnitudes of K terms.
- **gradient**: a rule; or the expansion of the op into simpler ops is differentiated; or the reason
  why there is none. First and second derivatives are compared with differences for every case of
  testdata/ops.
- **where**: the tables that have an entry for the op, and how many cases of testdata/ops it has.

A conversion from a float to an integer truncates, saturates at the limits and takes NaN to 0; one
from an integer to a narrower one wraps. i32 and i64 arithmetic wraps, and an integer divided by
zero is zero.
`

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func operandsCell(d *ir.Def) string {
	var s []string
	for i := range d.In {
		o := &d.In[i]
		text := o.Name
		if o.Variadic {
			text += "..."
		}
		if o.Named {
			text += "="
		}
		if o.Optional {
			text = "[" + text + "]"
		}
		var notes []string
		if k := kindsWord(o.Kinds); k != "" {
			notes = append(notes, k)
		}
		if o.Class != ir.NoClass && o.Class != d.Class && kindsWord(o.Kinds) == "" {
			notes = append(notes, o.Class.String())
		}
		if o.ReadsLow {
			notes = append(notes, "reads low")
		}
		if len(notes) > 0 {
			text += " *" + strings.Join(notes, ", ") + "*"
		}
		s = append(s, text)
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

func kindsWord(k ir.Kinds) string {
	switch k {
	case ir.KInt:
		return "integer"
	case ir.KBool:
		return "bool"
	case ir.KNum:
		return "number"
	case ir.KMask:
		return "bool or integer"
	case ir.KAny:
		return "any"
	}
	return ""
}

func resultsCell(d *ir.Def) string {
	var s []string
	for _, r := range d.Out {
		text := r.Name
		if r.Optional {
			text = "[" + text + "]"
		}
		switch {
		case r.StoresLow:
			text += " *stores low*"
		case r.StoresF32:
			text += " *stores f32*"
		case r.Class == ir.Fixed && d.Class != ir.Fixed:
			text += " *fixed*"
		}
		s = append(s, text)
	}
	return strings.Join(s, ", ")
}

func attrsCell(d *ir.Def) string {
	var s []string
	for _, a := range d.Attrs {
		text := "`" + a.Name
		switch {
		case a.Required:
			text += "=`"
		case a.Default != nil:
			text += fmt.Sprintf("=%v`", a.Default)
		default:
			text += "`"
		}
		s = append(s, text+" "+cell(a.Doc))
	}
	return strings.Join(s, "<br>")
}

func classCell(d *ir.Def) string {
	var words []string
	for _, f := range []struct {
		flag ir.Flags
		word string
	}{{ir.Moves, "moves"}, {ir.View, "view"}, {ir.InPlace, "in place"}, {ir.Random, "random"}} {
		if d.Is(f.flag) {
			words = append(words, f.word)
		}
	}
	text := fmt.Sprintf("%s: %s", d.Class, d.Why)
	if len(words) > 0 {
		text += " (" + strings.Join(words, ", ") + ")"
	}
	return text
}

func gradCell(d *ir.Def) string {
	switch {
	case d.Grad != nil:
		return "rule"
	case d.Expand != nil:
		return "expansion"
	}
	return "none: " + d.NoGrad
}

// errorCell takes the bound of the largest case.
func (r *opRow) errorCell() string {
	d := r.op.Def()
	if len(r.cases) == 0 || d.Is(ir.Moves) {
		return "exact"
	}
	ulp, sums := 0.0, false
	for _, g := range r.cases {
		n := g.Body[ir.Forward][0]
		if d.Bound != nil {
			b := d.Bound(n)
			ulp, sums = math.Max(ulp, b.ULP), sums || b.K > 0
		} else if d.Elem != nil {
			code, _ := ir.NodeCode(n)
			_, u := code.Exact()
			ulp = math.Max(ulp, u)
		}
	}
	switch {
	case ulp == 0 && !sums:
		return "exact"
	case !sums:
		return fmt.Sprintf("%g ulp", ulp)
	case ulp == 0:
		return "K"
	}
	return fmt.Sprintf("%g ulp + K", ulp)
}

func (r *opRow) whereCell() string {
	var s []string
	if r.eval {
		s = append(s, "eval")
	}
	if len(r.cases) > 0 && r.cpu == nil {
		s = append(s, "cpu")
	}
	if n := len(r.cases); n == 1 {
		s = append(s, "1 case")
	} else {
		s = append(s, fmt.Sprintf("%d cases", n))
	}
	return strings.Join(s, ", ")
}
