package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// method is an op or a layer as users see it: a method of ampc.Model.
type method struct {
	name  string
	doc   string
	lines map[string]string // by label: Shapes, DTypes, Errors, PyTorch
}

// notOps are methods of Model that return tensors and are neither ops nor layers.
var notOps = []string{"Input", "Param", "State", "Lookup", "FromIR", "Apply", "ApplyAll", "Grad", "Outputs", "ScaledGrad"}

var labelled = regexp.MustCompile(`(?m)^ +- (\w+): (.*(?:\n {4,}.*)*)`)

// facade lists the ops and layers of the root package.
func facade(t *testing.T) []method {
	t.Helper()
	var out []method
	for _, f := range exported(t) {
		r := f.Type.Results
		if f.Recv == nil || r == nil || !slices.Contains([]string{"ops", "*Model"}, expr(f.Recv.List[0].Type)) || slices.Contains(notOps, f.Name.Name) {
			continue
		}
		if first := expr(r.List[0].Type); first != "Tensor" && first != "[]Tensor" {
			continue
		}
		m := method{f.Name.Name, f.Doc.Text(), map[string]string{}}
		for _, part := range labelled.FindAllStringSubmatch(m.doc, -1) {
			m.lines[part[1]] = strings.Join(strings.Fields(part[2]), " ")
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b method) int { return strings.Compare(a.name, b.name) })
	return out
}

// exported lists the exported functions and methods of the root package's own files.
func exported(t *testing.T) (out []*ast.FuncDecl) {
	t.Helper()
	for _, s := range sources(t) {
		if s.pkg != "." || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() {
				out = append(out, f)
			}
		}
	}
	return out
}

// expr writes a type as its source does.
func expr(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + expr(e.X)
	case *ast.ArrayType:
		return "[]" + expr(e.Elt)
	case *ast.Ellipsis:
		return "..." + expr(e.Elt)
	case *ast.SelectorExpr:
		return expr(e.X) + "." + e.Sel.Name
	case *ast.MapType:
		return "map[" + expr(e.Key) + "]" + expr(e.Value)
	}
	return fmt.Sprintf("%T", e)
}

// Every op and layer says what it computes, its shapes and dtypes, what is an
// error, and what PyTorch calls it.
func TestOpsAreDocumented(t *testing.T) {
	methods := facade(t)
	if len(methods) < 100 {
		t.Errorf("%d ops and layers were found, want 100 or more", len(methods))
	}
	for _, m := range methods {
		if !strings.HasPrefix(m.doc, m.name+" ") {
			t.Errorf("Model.%s: the comment begins %.20q, want the name and what it computes", m.name, m.doc)
		}
		for _, label := range []string{"Shapes", "DTypes", "Errors", "PyTorch"} {
			if text := m.lines[label]; !strings.HasSuffix(text, ".") {
				t.Errorf("Model.%s: the comment has no line %q: add it to the comment of ir.Builder.%s and run go generate, or here where it is written by hand", m.name, "- "+label+": ... .", m.name)
			}
		}
	}
}

// doors are what the root exports in terms of internal packages, for code that
// works on the compiler's own graph.
var doors = []string{"CustomOp.IR", "FromGraph", "Model.Graph", "Model.Source", "PassEvent.Graph", "Step.Graph", "Step.Profile", "Step.Program", "Tensor.IR", "Type.IR", "TypeFromIR", "ops.FromIR", "ops.IR"}

// What a user calls has no bool parameters, whose meaning a call does not show,
// and speaks no type of an internal package but at the doors.
func TestFacadeIsItsOwn(t *testing.T) {
	speaks := map[string]bool{}
	for _, f := range exported(t) {
		name := f.Name.Name
		if f.Recv != nil {
			recv := strings.TrimPrefix(expr(f.Recv.List[0].Type), "*")
			if !ast.IsExported(recv) && recv != "ops" {
				continue
			}
			name = recv + "." + name
		}
		fields := f.Type.Params.List
		for _, p := range fields {
			if expr(p.Type) == "bool" {
				t.Errorf("%s: a parameter is a bool: make it an option", name)
			}
		}
		if f.Type.Results != nil {
			fields = append(slices.Clone(fields), f.Type.Results.List...)
		}
		for _, p := range fields {
			ast.Inspect(p.Type, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"ir", "passes", "lower", "doctor", "ranges", "eval"}, expr(s.X)) {
					speaks[name] = true
				}
				return true
			})
		}
	}
	for _, s := range sources(t) {
		if s.pkg != "." || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			for i := 0; ok && g.Tok == token.TYPE && i < len(g.Specs); i++ {
				if spec := g.Specs[i].(*ast.TypeSpec); spec.Assign.IsValid() && spec.Name.IsExported() {
					t.Errorf("%s: type %s is an alias: go doc shows none of its fields", s.path, spec.Name.Name)
				}
			}
		}
	}
	for name := range speaks {
		if !slices.Contains(doors, name) {
			t.Errorf("%s speaks a type of an internal package, and is not a door", name)
		}
	}
	for _, name := range doors {
		if !speaks[name] {
			t.Errorf("%s is said to be a door and is none", name)
		}
	}
}

// torchEntries are the names of PyTorch in the comments of methods.
func torchEntries(methods []method) (entries []torchEntry) {
	for _, m := range methods {
		names, differs, _ := strings.Cut(strings.TrimSuffix(m.lines["PyTorch"], "."), "; ")
		for _, name := range strings.Split(names, ", ") {
			if !regexp.MustCompile(`^(torch|nn|F|Tensor|x|torchtune)[.\[]`).MatchString(name) {
				if len(entries) > 0 && entries[len(entries)-1].ours == "m."+m.name { // continues about the name before
					last := &entries[len(entries)-1]
					last.differs = joined(last.differs, name)
				}
				continue
			}
			name, note, _ := strings.Cut(name, " ")
			entries = append(entries, torchEntry{strings.TrimSuffix(name, "."), "m." + m.name, joined(note, differs)})
		}
	}
	return entries
}

// torchPage is the index of docs/ops.md by PyTorch's names.
func torchPage(methods []method) string {
	entries := append(torchEntries(methods), otherTorch...)
	slices.SortStableFunc(entries, func(a, b torchEntry) int {
		return strings.Compare(strings.ToLower(a.torch), strings.ToLower(b.torch))
	})
	var b strings.Builder
	b.WriteString("\n## By PyTorch's names\n\nWhat to write for a name of PyTorch, and what differs; – where nothing is offered. A name that is\nmissing as `nn.X` or `Tensor.x` may be there as `F.x` or `torch.x`. A layer takes its name first and\nowns its weights: `m.Linear(\"fc1\", x, 256)`; `LinearWith` takes weights as operands. TestOps writes\nthis table from the comments of the methods and a list in `internal/arch/torch_names_test.go`.\n\n| PyTorch | ampc | what differs |\n| --- | --- | --- |\n")
	for _, e := range entries {
		ours := "–"
		if e.ours != "" {
			ours = "`" + e.ours + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.torch, ours, cell(e.differs))
	}
	return b.String()
}

// joined puts two remarks behind each other.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
