package ir

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
)

// TestRowsNeverPanic feeds every row with random types and attributes: a row
// answers with types or one sentence, and its gradient and expansion build
// nodes or fail, whatever they are given.
func TestRowsNeverPanic(t *testing.T) {
	tries := 1000
	if testing.Short() {
		tries = 200
	}
	for _, op := range Ops() {
		if op == OpForeign {
			continue
		}
		r := rand.New(rand.NewPCG(uint64(op), 7))
		built := 0
		for range tries {
			ok, failed := tryRow(t, r, op)
			if failed {
				break
			}
			if ok {
				built++
			}
		}
		if built == 0 {
			t.Logf("%s: no random node was legal", op)
		}
	}
}

func tryRow(t *testing.T, r *rand.Rand, op Op) (built, failed bool) {
	g := &Graph{Name: "f", Syms: []Sym{{Name: "N"}, {Name: "M"}}}
	b := Edit(g)
	var in []*Value
	defer func() {
		if p := recover(); p != nil {
			text := op.String()
			for _, v := range in {
				if v != nil {
					text += " " + v.Type.String()
				}
			}
			t.Errorf("%s: %v\n%s\n%s", text, p, g, debug.Stack())
			failed = true
		}
	}()
	d := op.Def()
	dims := randomDims(r)
	for i, o := range d.In {
		if o.Optional && r.IntN(2) == 0 {
			in = append(in, nil)
			continue
		}
		in = append(in, b.Declare(Input, fmt.Sprint("x", i), randomType(r, o, dims), nil, nil))
	}
	out := b.Emit(op, in, randomAttrs(r, d))
	if b.Err() != nil {
		return false, false
	}
	if err := Verify(g, Source); err != nil && !d.Is(Writer) {
		t.Errorf("%v\n%s", err, g)
		return false, true
	}
	n := out[0].Def
	g.NodeCost(n)
	if d.Bound != nil {
		d.Bound(n)
	}
	if d.Range != nil {
		d.Range(n, make([]Interval, len(n.In)))
	}
	if d.Expand != nil {
		e := Edit(g)
		sameShapes(t, g, "expansion of "+d.Name, e, d.Expand(e, n), out)
	}
	if d.Grad != nil {
		dy := make([]*Value, len(out))
		for i, v := range out {
			if v.Type.DType.Float() && r.IntN(4) > 0 {
				dy[i] = Edit(g).Declare(Input, fmt.Sprint("d", i), v.Type, nil, nil)
			}
		}
		if dy[0] != nil || len(dy) > 1 {
			e := Edit(g)
			sameShapes(t, g, "gradient of "+d.Name, e, d.Grad(e, n, dy), in)
		}
	}
	return true, false
}

// sameShapes holds what an expansion or a gradient built, where it did not
// fail, against the shapes of the results or operands it stands for.
func sameShapes(t *testing.T, g *Graph, what string, b *Builder, got, want []*Value) {
	if b.Err() != nil {
		return
	}
	for i, v := range got {
		if v == nil || i >= len(want) || want[i] == nil {
			continue
		}
		if x, y := v.Type.Shape, want[i].Type.Shape; x.Static() && y.Static() && x != y {
			t.Errorf("%s: %d is %s, want %s\n%s", what, i, v.Type, want[i].Type, g)
		}
	}
}

// randomDims is the shape that most operands of a node share, so that some fit.
func randomDims(r *rand.Rand) []Dim {
	d := make([]Dim, r.IntN(6))
	for i := range d {
		d[i] = randomDim(r)
	}
	return d
}

func randomDim(r *rand.Rand) Dim {
	switch r.IntN(16) {
	case 0:
		return UnknownDim
	case 1:
		return Dim(-1 - r.IntN(2))
	case 2:
		return 0
	case 3:
		return 1 << 30
	}
	return Dim(1 + r.IntN(4))
}

func randomType(r *rand.Rand, o Operand, like []Dim) Type {
	kinds := o.Kinds
	if kinds == 0 {
		kinds = KFloat
	}
	var d DType
	for {
		d = [...]DType{F32, F32, F32, F16, BF16, F64, I32, I64, U8, Bool}[r.IntN(10)]
		if kinds.accepts(d) || r.IntN(50) == 0 {
			break
		}
	}
	shape := append([]Dim(nil), like...)
	switch r.IntN(8) {
	case 0:
		return Type{DType: d}
	case 1:
		shape = nil
	case 2:
		shape = shape[:r.IntN(len(shape)+1)]
	case 3:
		shape = randomDims(r)
	case 4:
		if len(shape) > 0 {
			shape[r.IntN(len(shape))] = randomDim(r)
		}
	case 5:
		if len(shape) > 1 {
			k := r.IntN(len(shape) - 1)
			shape[k], shape[k+1] = shape[k+1], shape[k]
		}
	}
	return T(d, shape...)
}

func randomAttrs(r *rand.Rand, d *Def) Attrs {
	var a Attrs
	for _, x := range d.Attrs {
		if !x.Required && r.IntN(2) == 0 {
			continue
		}
		switch x.Kind {
		case AttrInt:
			a = a.With(x.Name, randomInt(r))
		case AttrFloat:
			a = a.With(x.Name, float64(r.IntN(5)-1)/2)
		case AttrBool:
			a = a.With(x.Name, r.IntN(2) == 0)
		case AttrString:
			words := [...]string{"NHWC", "none", "tanh", "edge", "reflect", "linear", "nearest", "mean", "max", "sum"}
			a = a.With(x.Name, words[r.IntN(len(words))])
		case AttrDType:
			a = a.With(x.Name, F32+DType(r.IntN(int(numDTypes)-1)))
		case AttrInts:
			list := make([]int64, r.IntN(5))
			for i := range list {
				list[i] = randomInt(r)
			}
			a = a.With(x.Name, list)
		case AttrFloats:
			a = a.With(x.Name, []float64{0.5})
		}
	}
	if r.IntN(8) == 0 {
		a = a.With("out", [...]DType{F32, F16, I32, F64}[r.IntN(4)])
	}
	return a
}

func randomInt(r *rand.Rand) int64 {
	switch r.IntN(12) {
	case 0:
		return -1 << 63
	case 1:
		return 1<<63 - 1
	case 2:
		return 1 << 40
	case 3:
		return -int64(r.IntN(6))
	}
	return int64(r.IntN(4))
}
