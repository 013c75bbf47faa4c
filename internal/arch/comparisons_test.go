package arch_test

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A fact about an op is a property of its row. Files that compare an op with one by name are listed
// here, with how many comparisons they have at most and why.
const (
	rewrite = "finds or replaces a pattern of ops"
	fusion  = "names ops that one kernel computes together"
	inserts = "finds nodes that the compiler itself inserts: the loss scale, checks, counters"
	checks  = "derives again what an op means, apart from what it checks"
	reports = "says something about one op to people"
)

var comparing = map[string]struct {
	count int
	why   string
}{
	"cmd/ampc/run.go":                 {1, rewrite},
	"ir/caps.go":                      {7, fusion},
	"ir/launch.go":                    {8, fusion},
	"ir/unit.go":                      {1, rewrite},
	"lower/verify_body.go":            {2, checks},
	"lower/verify_launch.go":          {1, checks},
	"lower/verify_moves.go":           {11, checks},
	"passes/algebra.go":               {21, rewrite},
	"passes/allranks.go":              {2, rewrite},
	"passes/chunks.go":                {8, rewrite},
	"passes/inner.go":                 {1, inserts},
	"passes/layout.go":                {4, rewrite},
	"passes/losses.go":                {1, rewrite},
	"passes/masks.go":                 {3, rewrite},
	"passes/override.go":              {4, rewrite},
	"passes/parallel.go":              {2, rewrite},
	"passes/prove/clamp.go":           {4, checks},
	"passes/prove/guard_rules.go":     {6, checks},
	"passes/prove/guard_scale.go":     {1, checks},
	"passes/prove/gradient.go":        {3, checks},
	"passes/prove/gradient_number.go": {3, checks},
	"passes/prove/guard_eval.go":      {3, checks},
	"passes/prove/key.go":             {3, checks},
	"passes/prove/ranks.go":           {3, checks},
	"passes/prove/scales.go":          {7, checks},
	"passes/prove/shards.go":          {5, checks},
	"passes/prove/update.go":          {2, checks},
	"passes/ranges/ranges.go":         {1, inserts},
	"passes/recognize.go":             {27, rewrite},
	"passes/scalecheck.go":            {4, inserts},
	"passes/scalers.go":               {7, inserts},
	"restore.go":                      {3, inserts},
	"runtime/doctor/doctor.go":        {2, inserts},
	"runtime/doctor/judge.go":         {1, reports},
	"runtime/doctor/mixed.go":         {1, inserts},
	"runtime/doctor/origin.go":        {1, inserts},
	"runtime/doctor/remedies.go":      {1, inserts},
	"weights/rules.go":                {1, rewrite},
}

// implementing are the files that define ops or implement them one by one: variants of an op that share
// code are told apart there.
func implementing(file string) bool {
	return slices.ContainsFunc([]string{"ir/rows_", "ir/eval/", "ir/ops", "ir/build", "ir/expand", "runtime/cpu/kernel_", "lower/sm/", "onnx/", "internal/genops/"}, func(p string) bool { return strings.HasPrefix(file, p) })
}

// structural ops stand for no computation of their own: every pass meets them.
var structural = []string{"OpCast", "OpCustom", "OpForeign", "OpInvalid"}

// Ops are compared by name only in the listed files, and no more often.
func TestOpsAreComparedInRewritesOnly(t *testing.T) {
	found := map[string]int{}
	for _, s := range sources(t) {
		if s.test || implementing(s.path) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.BinaryExpr:
				if (x.Op == token.EQL || x.Op == token.NEQ) && (namesOp(x.X) || namesOp(x.Y)) {
					found[s.path]++
				}
			case *ast.CaseClause:
				if slices.ContainsFunc(x.List, namesOp) {
					found[s.path]++
				}
			}
			return true
		})
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		switch want := comparing[file]; {
		case want.count == 0:
			t.Errorf("%s compares an op with one by name %d times: make what it asks a property of the row, or list the file with its reason", file, found[file])
		case found[file] > want.count:
			t.Errorf("%s compares an op with one by name %d times, not %d: make what it asks a property of the row", file, found[file], want.count)
		}
	}
	for file := range comparing {
		if found[file] == 0 {
			t.Errorf("%s compares no op with one by name: take it from the list", file)
		}
	}
}

// namesOp reports whether x is the name of an op that computes something.
func namesOp(x ast.Expr) bool {
	if s, ok := x.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); !ok || p.Name != "ir" {
			return false
		}
		x = s.Sel
	}
	id, ok := x.(*ast.Ident)
	return ok && len(id.Name) > 2 && strings.HasPrefix(id.Name, "Op") && id.Name[2] >= 'A' && id.Name[2] <= 'Z' && !slices.Contains(structural, id.Name)
}
