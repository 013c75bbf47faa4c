package arch_test

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	maxFileLines = 600
	maxFuncLines = 100
)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// Files stay short enough to read at one sitting, functions on two screens.
func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		src, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if generated.Match(src) {
			continue
		}
		if n := strings.Count(string(src), "\n"); n >= maxFileLines && !s.test {
			t.Errorf("%s has %d lines, the limit is %d", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFuncLines && !s.test {
				t.Errorf("%s: %s has %d lines, the limit is %d", s.path, f.Name.Name, n, maxFuncLines)
			}
			if f.Name.Name == "init" && f.Recv == nil && s.pkg != "ir" && !s.test {
				t.Errorf("%s: init outside ir", s.path)
			}
		}
	}
}
