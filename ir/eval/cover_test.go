package eval

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"ampc/internal/golden"
	"ampc/ir"
)

// covered collects the rows that a case checked.
var covered = map[ir.Op]bool{}

// texts holds every case as text, by family and name: testdata/ops, where
// other packages' tests read them.
var texts = map[string]map[string]string{}

// TestMain fails a full run that left a row unchecked, or whose cases differ
// from testdata/ops (-update rewrites them).
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	ran := func(name string) string { return flag.Lookup("test." + name).Value.String() }
	if code == 0 && len(covered) > 0 && ran("run") == "" && ran("skip") == "" {
		code = max(checkCovered(), writeCases())
	}
	os.Exit(code)
}

func checkCovered() (code int) {
	for _, op := range ir.Ops() {
		if !covered[op] && unchecked[op] == "" {
			fmt.Printf("no case checks %s\n", op)
			code = 1
		}
		if covered[op] && unchecked[op] != "" {
			fmt.Printf("%s is checked although the list of exceptions says: %s\n", op, unchecked[op])
			code = 1
		}
	}
	return code
}

func writeCases() (code int) {
	code = write("../../testdata/nonfinite.txt", []byte(handedTable()))
	for family, cases := range texts {
		a := &txtar.Archive{Comment: []byte("# One node of every row and variant: written by the tests of ir/eval under -update.\n")}
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(cases[name])})
		}
		code = max(code, write(filepath.Join("../../testdata/ops", family+".txtar"), txtar.Format(a)))
	}
	return code
}

// write compares a file with what it should hold, and writes it under -update.
func write(path string, want []byte) (code int) {
	if got, _ := os.ReadFile(path); bytes.Equal(got, want) {
		return 0
	}
	if !golden.Updating() {
		fmt.Printf("%s is stale: run go test ./ir/eval -update\n", path)
		return 1
	}
	if err := os.WriteFile(path, want, 0o644); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// unchecked are the rows without a case, and why.
var unchecked = map[ir.Op]string{
	ir.OpForeign: "has no meaning to check",
}

// text reads the case's graph back from its text.
func (k *bench) text(t *testing.T) {
	g := k.b.Graph()
	for _, v := range g.Vars {
		x := k.env[v.Name]
		v.Init = &ir.Init{Func: "data"}
		for i := range x.Len() {
			v.Init.Args = append(v.Init.Args, x.At(i))
		}
	}
	g.Return = k.node.Out
	src := g.String()
	family := k.c.op.Def().Family
	if texts[family] == nil {
		texts[family] = map[string]string{}
	}
	texts[family][strings.ReplaceAll(t.Name()[strings.Index(t.Name(), "/")+1:], " ", "_")] = src
	again, err := ir.Parse("case.ir", []byte(src))
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	if err := ir.Equal(g, again); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	if err := ir.Verify(again, ir.Source); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
}

// types infers the row again with one dimension after the other replaced by a
// symbol, then with unknown dimensions and unknown ranks: a result type may be
// vaguer then but never another one, and with a rank known no gradient or
// expansion may panic.
func (k *bench) types(t *testing.T) {
	for i, x := range k.c.in {
		if x == nil {
			continue
		}
		d := x.Type.Shape.Dims()
		k.vaguer(t, i, ir.Shape{})
		for a := range d {
			for _, with := range []ir.Dim{-1, ir.UnknownDim} {
				e := x.Type.Shape.Dims()
				e[a] = with
				k.vaguer(t, i, ir.MakeShape(e...))
			}
		}
	}
}

// vaguer rebuilds the node with operand i of another shape.
func (k *bench) vaguer(t *testing.T, i int, s ir.Shape) {
	b := ir.NewBuilder("vague")
	b.Graph().Sym("N")
	in := make([]*ir.Value, len(k.c.in))
	for j, x := range k.c.in {
		if x == nil {
			continue
		}
		typ := x.Type
		if j == i {
			typ.Shape = s
		}
		in[j] = b.Declare(ir.Input, operandName(j), typ, nil, nil)
	}
	out := b.Emit(k.c.op, in, k.c.attrs)
	what := fmt.Sprintf("operand %d as %s", i, ir.Type{DType: ir.F32, Shape: s})
	if b.Err() != nil {
		return // a row may ask for more
	}
	for j, v := range out {
		if want := k.node.Out[j].Type; !within(v.Type, want) {
			t.Errorf("%s: result %d is %s, was %s", what, j, v.Type, want)
		}
	}
	if !s.Known() {
		return // passes build no gradient from unknown ranks
	}
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: the gradient panics: %v", what, p)
		}
	}()
	d := make([]*ir.Value, len(out))
	for j, v := range out {
		d[j] = b.Declare(ir.Input, fmt.Sprintf("d%d", j), v.Type, nil, nil)
	}
	switch def := out[0].Def.Def(); {
	case def.Grad != nil:
		def.Grad(b, out[0].Def, d)
	case def.Expand != nil:
		def.Expand(b, out[0].Def)
	}
}

// within reports whether a vague type leaves room for the exact one.
func within(vague, exact ir.Type) bool {
	if vague.DType != exact.DType {
		return false
	}
	if !vague.Shape.Known() {
		return true
	}
	v, e := vague.Shape.Dims(), exact.Shape.Dims()
	if len(v) != len(e) {
		return false
	}
	for i := range v {
		if v[i] >= 0 && v[i] != e[i] {
			return false
		}
	}
	return true
}

// symbolic builds the row's gradients and expansion with every size of one
// kind a symbol, binds it, and compares with those built from the sizes.
func (k *bench) symbolic(t *testing.T) {
	sizes := map[ir.Dim]bool{}
	for _, x := range k.c.in {
		if x != nil {
			for _, d := range x.Type.Shape.Dims() {
				sizes[d] = d > 1
			}
		}
	}
	for size, ok := range sizes {
		if !ok {
			continue
		}
		for _, derive := range []func(*ir.Builder, *ir.Node) []*ir.Value{gradients, expansion} {
			g, d := k.derived(size, derive)
			if g == nil {
				continue // the row asks for the size
			}
			if err := g.Bind(map[string]int64{"N": int64(size)}); err != nil {
				t.Errorf("N = %d: %v", size, err)
				continue
			}
			plain, want := k.derived(0, derive)
			k.same(t, size, [2]*ir.Graph{g, plain}, [2][]*ir.Value{d, want})
		}
	}
}

// gradients builds a row's gradients for made-up gradients of its results.
func gradients(b *ir.Builder, n *ir.Node) []*ir.Value {
	if n.Def().Grad == nil {
		return nil
	}
	d := make([]*ir.Value, len(n.Out))
	for i, v := range n.Out {
		if v.Type.DType.Float() {
			d[i] = b.Affine(v, 0.5, 0.25)
		}
	}
	return n.Def().Grad(b, n, d)
}

func expansion(b *ir.Builder, n *ir.Node) []*ir.Value {
	if n.Def().Expand == nil {
		return nil
	}
	return n.Def().Expand(b, n)
}

// derived is a graph of the node and what is derived from it, with the symbol N
// for every size equal to n; nil where that cannot be built.
func (k *bench) derived(n ir.Dim, derive func(*ir.Builder, *ir.Node) []*ir.Value) (*ir.Graph, []*ir.Value) {
	b := ir.NewBuilder("grads")
	b.Graph().Sym("N")
	in := make([]*ir.Value, len(k.c.in))
	for i, x := range k.c.in {
		if x == nil {
			continue
		}
		d := x.Type.Shape.Dims()
		for a := range d {
			if d[a] == n {
				d[a] = -1
			}
		}
		in[i] = b.Declare(ir.Input, operandName(i), ir.T(x.Type.DType, d...), nil, nil)
	}
	out := b.Emit(k.c.op, in, k.c.attrs)
	if b.Err() != nil {
		return nil, nil
	}
	d := derive(b, out[0].Def)
	if b.Err() != nil || d == nil {
		return nil, nil
	}
	return b.Graph(), d
}

// same evaluates both graphs and compares the values derived.
func (k *bench) same(t *testing.T, size ir.Dim, graphs [2]*ir.Graph, derived [2][]*ir.Value) {
	env := map[string]*Tensor{}
	for i, x := range k.c.in {
		if x != nil {
			env[operandName(i)] = x
		}
	}
	var r [2]*Result
	for i, g := range graphs {
		var err error
		if r[i], err = Run(g, env, Options{Float64: true}); err != nil {
			t.Errorf("N = %d: %v\n%s", size, err, g)
			return
		}
	}
	for i, v := range derived[1] {
		if v == nil {
			continue
		}
		x, y := r[0].Value(derived[0][i]), r[1].Value(v)
		for e := range y.Len() {
			if x == nil || x.Type.Shape != y.Type.Shape || math.Abs(x.At(e)-y.At(e)) > 1e-6*(1+math.Abs(y.At(e))) {
				t.Errorf("N = %d: value %d differs from that of sizes\n%s", size, i, graphs[0])
				break
			}
		}
	}
}
