package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// libraries are the packages that only this module imports: what they export,
// another of its packages needs.
var libraries = []string{
	"ir", "ir/eval", "passes", "passes/plan", "passes/prove", "passes/ranges", "passes/systems", "lower", "lower/sm",
	"runtime", "runtime/cpu", "runtime/doctor", "runtime/gpu", "runtime/runtimetest", "ptx", "ptx/interp", "ptx/ptxtest", "cuda", "cuda/sim",
	"onnx", "onnx/convert", "onnx/host", "world", "mpi", "nccl", "internal/x86", "internal/casts", "view",
}

// vocabulary are exported names without a reader that complete a whole.
var vocabulary = map[string]string{
	"ir.UnitAny":          "the unit of a custom op's results",
	"ir.UnitOne":          "the unit of a custom op's results",
	"ir.UnitProduct":      "the unit of a custom op's results",
	"ir.UnitQuotient":     "the unit of a custom op's results",
	"gpu.ErrClosed":       "callers tell it apart with errors.Is",
	"mpi.ErrUnavailable":  "callers tell it apart with errors.Is",
	"nccl.ErrEnvironment": "callers tell it apart with errors.Is",
	"ptx.Builder":         "kernels are written with it, by users of the package alone too",
	"ptx.NewBuilder":      "starts a kernel",
	"ptx.I":               "an operand of an instruction",
	"ptx.Fl":              "an operand of an instruction",
	"ptx.Db":              "an operand of an instruction",
	"ptx.Addr":            "an operand of an instruction",
	"ptx.Vec":             "an operand of an instruction",
}

// Every exported name of a library is used by another package, tests and examples
// included, or is part of what such a name says: a type in a signature or a field,
// a constant of such a type. A method counts as used where another package selects
// one of its name or an interface asks for it; so do the builder's, one for every op.
func TestExportsAreUsed(t *testing.T) {
	all := sources(t)
	for _, pkg := range libraries {
		e := exportsOf(all, pkg)
		used, selected := usesOf(all, pkg)
		for name, at := range e.names {
			base := name[strings.IndexByte(name, '.')+1:]
			method := base != name
			switch {
			case vocabulary[path.Base(pkg)+"."+name] != "":
			case used[name] || e.mentioned[name] || e.mentioned[e.typeOf[name]] || used[e.typeOf[name]]:
			case method && (selected[base] || e.methods[base] || strings.HasPrefix(name, "Builder.") || slices.Contains([]string{"Error", "Unwrap", "String", "ServeHTTP", "Less", "Len", "Swap", "Push", "Pop"}, base)):
			default:
				t.Errorf("%s: %s.%s is exported and no other package uses it", at, pkg, name)
			}
		}
	}
}

// exports are what a package exports: names to positions, the named types of
// constants, and what exported declarations mention.
type exports struct {
	names     map[string]token.Position
	typeOf    map[string]string
	mentioned map[string]bool
	methods   map[string]bool // of exported interfaces
}

func exportsOf(all []source, pkg string) exports {
	e := exports{map[string]token.Position{}, map[string]string{}, map[string]bool{}, map[string]bool{}}
	for _, s := range all {
		if s.pkg != pkg || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				e.function(s, d)
			case *ast.GenDecl:
				e.general(s, d)
			}
		}
	}
	return e
}

func (e *exports) function(s source, d *ast.FuncDecl) {
	name := d.Name.Name
	if !d.Name.IsExported() {
		return
	}
	e.mention(d.Type)
	if d.Recv != nil {
		of := receiver(d.Recv.List[0].Type)
		if !ast.IsExported(of) {
			return // part of an interface, or dead: staticcheck tells
		}
		name = of + "." + name
	}
	e.names[name] = s.fset.Position(d.Pos())
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return fmt.Sprintf("%T", x)
}

func (e *exports) general(s source, d *ast.GenDecl) {
	last := "" // the type of the constants before, which continues where there is none
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				e.names[spec.Name.Name] = s.fset.Position(spec.Pos())
				e.mention(spec.Type)
			}
		case *ast.ValueSpec:
			if spec.Type != nil {
				last = receiver(spec.Type)
			} else if len(spec.Values) > 0 {
				last = ""
			}
			for _, n := range spec.Names {
				if n.IsExported() {
					e.names[n.Name], e.typeOf[n.Name] = s.fset.Position(n.Pos()), last
					e.mention(spec.Type)
					for _, v := range spec.Values {
						e.literal(v)
					}
				}
			}
		}
	}
}

// literal mentions the type of a composite literal that a variable starts with.
func (e *exports) literal(v ast.Expr) {
	if c, ok := v.(*ast.CompositeLit); ok {
		e.mention(c.Type)
	}
}

// mention notes the names in a type, fields that are not exported aside.
func (e *exports) mention(x ast.Node) {
	if x == nil {
		return
	}
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
					e.mention(f.Type)
				}
			}
			return false
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				for _, name := range f.Names {
					e.methods[name.Name] = true
				}
			}
		case *ast.Ident:
			e.mentioned[n.Name] = true
		}
		return true
	})
}

// usesOf lists the names of pkg that other packages and external tests of its own
// use, and all that any other package selects of anything.
func usesOf(all []source, pkg string) (used, selected map[string]bool) {
	used, selected = map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if s.pkg == pkg && !strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		local := ""
		for _, i := range s.file.Imports {
			if strings.Trim(i.Path.Value, `"`) == "ampc/"+pkg {
				local = path.Base(pkg)
				if i.Name != nil {
					local = i.Name.Name
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				selected[x.Sel.Name] = true
				if id, ok := x.X.(*ast.Ident); ok && id.Name == local {
					used[x.Sel.Name] = true
				}
			}
			return true
		})
	}
	return used, selected
}
