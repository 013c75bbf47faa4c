package ptxtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ampc/ptx"
)

// generators lists what makes kernels: the exported methods of package ptx that return a launch.
func generators(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil || !m.Name.IsExported() || m.Type.Results == nil {
				continue
			}
			if star, ok := m.Type.Results.List[0].Type.(*ast.StarExpr); ok && star.X.(*ast.Ident).Name == "Launch" {
				names = append(names, m.Recv.List[0].Type.(*ast.Ident).Name+"."+m.Name.Name)
			}
		}
	}
	return names
}

// TestEveryKernelOnOddSizesAndValues: each generator of package ptx has a case for every odd size, and
// its cases between them read NaN, both infinities and subnormals wherever it reads floats.
func TestEveryKernelOnOddSizesAndValues(t *testing.T) {
	seen, lengths, reads := map[string]bool{}, map[string][]int{}, map[string]map[string]bool{}
	for _, c := range Cases() {
		if f := runtime.FuncForPC(reflect.ValueOf(c.Build).Pointer()).Name(); strings.HasSuffix(f, "-fm") && !strings.HasSuffix(f, "."+c.Kernel+"-fm") {
			t.Errorf("%s says it is of %s and calls %s", c.Name, c.Kernel, f)
		}
		seen[c.Kernel] = true
		lengths[c.Kernel] = append(lengths[c.Kernel], c.Size)
		if reads[c.Kernel] == nil {
			reads[c.Kernel] = map[string]bool{}
		}
		noteValues(t, c, reads[c.Kernel])
	}
	for _, name := range generators(t) {
		if !seen[name] {
			t.Errorf("%s has no case", name)
			continue
		}
		for _, n := range sizes {
			if !slices.Contains(lengths[name], n) {
				t.Errorf("%s has no case of size %d", name, n)
			}
		}
		for _, what := range []string{"NaN", "+Inf", "-Inf", "subnormal"} {
			if got := reads[name]; got["float"] && !got[what] {
				t.Errorf("%s is never given a %s", name, what)
			}
		}
		delete(seen, name)
	}
	if len(seen) > 0 {
		t.Errorf("cases of unknown generators: %v", slices.Sorted(maps.Keys(seen)))
	}
}

// noteValues notes which kinds of float the case's inputs hold.
func noteValues(t *testing.T, c Case, kinds map[string]bool) {
	t.Helper()
	l, err := c.Build(ptx.SM80)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	for trial := range max(c.Trials, 1) {
		for i, b := range c.Fill(c.Trial(trial)) {
			if i < len(l.Args) && !l.Args[i].Read || !isFloat(b.DType) {
				continue
			}
			kinds["float"] = true
			for k := range b.Len() {
				switch x := b.At(k); {
				case x != x:
					kinds["NaN"] = true
				case math.IsInf(x, 1):
					kinds["+Inf"] = true
				case math.IsInf(x, -1):
					kinds["-Inf"] = true
				case x != 0 && math.Abs(x) < smallest[b.DType]:
					kinds["subnormal"] = true
				}
			}
		}
	}
}

// smallest is the least normal number of a float type.
var smallest = map[ptx.DType]float64{ptx.Float16: 0x1p-14, ptx.BFloat16: 0x1p-126, ptx.Float32: 0x1p-126, ptx.Float64: 0x1p-1022}
