package arch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ampc/internal/trial"
)

// pages hold Go that a user copies. docs/gorgonia.md is not one: its fragments
// are of Gorgonia's programs.
var pages = []string{"README.md", "docs/amp.md", "docs/generation.md", "docs/migration.md", "docs/onnx.md", "docs/policies.md", "docs/training.md", "docs/weights.md"}

// given is what the fragments of the pages speak of without saying so.
const given = `package main

import (
	"context"
	"fmt"
	"log"
	"math"

	"ampc"
)

var (
	_, _, _ = fmt.Sprint, log.Print, math.Sqrt2

	m, ctx = ampc.New("given"), context.Background()

	x, y, loss, loss0, loss1, attn, out ampc.Tensor

	optimizer ampc.Optimizer
	rate      ampc.Schedule
	step      *ampc.Step
	r         *ampc.Result
	batches   []ampc.Feed
	sized     []struct {
		Rows int
		Feed ampc.Feed
	}
	b0, b1, b2, b3 ampc.Feed
	path           string
	pixels         = make([]float32, 64*784)
	labels         = make([]int32, 64)
)

func main() { README_md_0() }
`

var block = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// The Go of the documentation builds in a module of a stranger's, that of the
// index by PyTorch's names included, and the README's program runs there.
func TestDocsBuildOutside(t *testing.T) {
	dir := outside(t)
	trial.WriteFile(t, filepath.Join(dir, "given.go"), given)
	n := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.NewReplacer("docs/", "", ".", "_").Replace(page)
		for i, at := range block.FindAllSubmatchIndex(text, -1) {
			name := fmt.Sprintf("%s_%d", base, i)
			src, err := program(name, string(text[at[2]:at[3]]))
			if err != nil {
				t.Errorf("%s:%d: %v", page, 1+bytes.Count(text[:at[0]], []byte("\n")), err)
				continue
			}
			trial.WriteFile(t, filepath.Join(dir, name+".go"), src)
			n++
		}
	}
	trial.WriteFile(t, filepath.Join(dir, "torch.go"), torchProgram())
	if n < 15 {
		t.Errorf("%d fragments were found, want 15 or more", n)
	}
	if got := goRun(t, dir); !regexp.MustCompile(`loss \d+\.\d+  scale 65536  skipped false`).MatchString(got) {
		t.Errorf("the README's program printed %q", got)
	}
}

// program makes a file of a fragment: declarations, statements, an expression or fields of a TrainConfig.
func program(name, fragment string) (string, error) {
	const head = "package main\n\nimport (\n\"context\"\n\"fmt\"\n\"log\"\n\"math\"\n\"math/rand/v2\"\n\"os\"\n\n\"ampc\"\n\"ampc/data\"\n\"ampc/data/images\"\n\"ampc/fit\"\n\"ampc/generate\"\n\"ampc/optim\"\n\"ampc/pretrained\"\n\"ampc/tokenizer\"\n\"ampc/weights\"\n)\n\nvar _, _, _, _, _, _, _, _, _, _, _, _, _, _, _ = images.Folder, generate.New, rand.IntN, data.Skip, fit.ErrStop, os.Open, context.Background, fmt.Sprint, log.Print, math.Sqrt2, ampc.F32, optim.Lion, weights.Load, pretrained.ReadGPT2, tokenizer.Open\n\n"
	var err error
	for _, form := range []string{"%[2]s\n", "func %[1]s() {\n%[2]s\n}\n", "func %[1]s() {\n_ = %[2]s\n}\n", "func %[1]s() {\n_ = ampc.TrainConfig{\n%[2]s\n}\n}\n"} {
		fset := token.NewFileSet()
		f, wrong := parser.ParseFile(fset, name+".go", head+fmt.Sprintf(form, name, fragment), parser.ParseComments)
		if wrong != nil || loose(f) {
			if strings.HasPrefix(form, "func %[1]s() {\n%[2]s") {
				err = wrong // a fragment is statements more often than not
			}
			continue
		}
		use(f)
		var b bytes.Buffer
		f.Comments = nil
		err := format.Node(&b, fset, f)
		return b.String(), err
	}
	return "", err
}

// loose reports a statement that is an expression and no call.
func loose(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ExprStmt); ok {
			_, call := s.X.(*ast.CallExpr)
			found = found || !call
		}
		return true
	})
	return found
}

// use makes every variable that a fragment defines one that is used.
func use(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		body, ok := n.(*ast.BlockStmt)
		if !ok {
			return true
		}
		var list []ast.Stmt
		for _, s := range body.List {
			list = append(list, s)
			a, ok := s.(*ast.AssignStmt)
			for i := 0; ok && a.Tok == token.DEFINE && i < len(a.Lhs); i++ {
				if id := a.Lhs[i].(*ast.Ident); id.Name != "_" {
					list = append(list, &ast.AssignStmt{Lhs: []ast.Expr{ast.NewIdent("_")}, Tok: token.ASSIGN, Rhs: []ast.Expr{ast.NewIdent(id.Name)}})
				}
			}
		}
		body.List = list
		return true
	})
}
