package arch_test

import (
	"go/ast"
	"slices"
	"testing"
)

// compilers are the packages whose types no user has to write.
var compilers = []string{"ir", "passes", "ranges", "prove", "plan", "systems", "lower", "doctor"}

// What a user configures, and what a user is told, is of the root's own types: an
// alias shows no fields in go doc, and a field of another package's type wants its
// import. PassEvent.Graph and Step.Graph are for tools.
func TestTypesOfTheRoot(t *testing.T) {
	structs := 0
	for _, s := range sources(t) {
		if s.pkg != "." || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok || !ts.Name.IsExported() {
					continue
				}
				if ts.Assign.IsValid() {
					t.Errorf("%s: %s is an alias: go doc shows no fields of it", s.path, ts.Name)
				}
				if g.Doc.Text() == "" && ts.Doc.Text() == "" {
					t.Errorf("%s: type %s has no comment", s.path, ts.Name)
				}
				if st, ok := ts.Type.(*ast.StructType); ok {
					structs++
					checkFields(t, s.path+": "+ts.Name.Name, st)
				}
			}
		}
	}
	if structs < 20 {
		t.Errorf("%d exported structs, want 20 or more", structs)
	}
}

// checkFields refuses exported fields of the compiler's types.
func checkFields(t *testing.T, where string, st *ast.StructType) {
	t.Helper()
	for _, f := range st.Fields.List {
		if !slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			continue
		}
		ast.Inspect(f.Type, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok && slices.Contains(compilers, expr(sel.X)) {
				t.Errorf("%s.%s is of type %s: users would have to import it", where, f.Names[0], expr(sel))
			}
			return true
		})
	}
}

// A public method has no bool parameter: a call would not say what true means.
func TestNoBoolParameters(t *testing.T) {
	for _, f := range exported(t) {
		for _, p := range f.Type.Params.List {
			if expr(p.Type) == "bool" {
				t.Errorf("%s has a bool parameter %v", f.Name.Name, p.Names)
			}
		}
	}
}
