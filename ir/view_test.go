package ir

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// elements lists where the elements of p lie, in their order.
func (p StridedView) elements() []int64 {
	at := []int64{p.Offset}
	for i, n := range p.Shape {
		next := make([]int64, 0, len(at)*int(n))
		for _, x := range at {
			for k := range n {
				next = append(next, x+k*p.Strides[i])
			}
		}
		at = next
	}
	return at
}

// drawView moves a dense tensor about: transposes, slices, reshapes that strides can say.
func drawView(r *rand.Rand, b *Builder, v *Value) (StridedView, []int64) {
	p := Whole(v)
	at := p.elements()
	for range r.IntN(7) {
		d := v.Type.Shape.Dims()
		var next *Value
		switch r.IntN(4) {
		case 0:
			perm := make([]int64, len(d))
			for i, k := range r.Perm(len(d)) {
				perm[i] = int64(k)
			}
			next = b.Transpose(v, perm...)
		case 1, 3:
			axis := r.IntN(len(d))
			from := r.IntN(int(d[axis]))
			to := from + 1 + r.IntN(int(d[axis])-from)
			next = b.SliceStep(v, []int64{int64(axis)}, []int64{int64(from)}, []int64{int64(to)}, []int64{1 + int64(r.IntN(2))})
		case 2:
			next = b.Reshape(v, reshapes(r, v.Type.Shape.Elements())...)
		}
		q, ok := p.Through(next.Def, 0)
		if !ok {
			continue
		}
		at = moveElements(next.Def, at)
		v, p = next, q
	}
	return p, at
}

// reshapes draws a shape of n elements.
func reshapes(r *rand.Rand, n int64) []int64 {
	shape := []int64{1}
	for _, f := range []int64{2, 3, 5} {
		for n%f == 0 {
			if r.IntN(2) == 0 {
				shape = append(shape, f)
			} else {
				shape[len(shape)-1] *= f
			}
			n /= f
		}
	}
	return append(shape, n)
}

// moveElements does to a list of elements what n does to its operand.
func moveElements(n *Node, at []int64) []int64 {
	if n.Op == OpReshape {
		return at
	}
	in := Whole(n.In[0])
	q, _ := in.Through(n, 0)
	out := []int64{}
	for _, i := range q.elements() {
		out = append(out, at[i])
	}
	return out
}

// Where moved elements lie is where moving them one by one finds them; the way
// back leads to where they were; keys tell sets of elements apart, and places
// meet where they have an element in common.
func TestStridedViews(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	keys := map[string]string{}
	met, apart := 0, 0
	for i := range 3000 {
		b := NewBuilder("places")
		v := b.Declare(Input, "x", T(F32, 2, 6, 10), nil, nil)
		p, at := drawView(r, b, v)
		if b.Err() != nil {
			t.Fatal(b.Err())
		}
		if !slices.Equal(p.elements(), at) {
			t.Fatalf("%d: %+v is %v, want %v", i, p, p.elements(), at)
		}
		sorted := slices.Sorted(slices.Values(at))
		set := fmt.Sprint(sorted)
		if known, ok := keys[p.Key()]; ok && known != set {
			t.Fatalf("key %s of %s and %s", p.Key(), known, set)
		}
		keys[p.Key()] = set
		q, other := drawView(r, b, v)
		common := slices.ContainsFunc(other, func(x int64) bool { _, ok := slices.BinarySearch(sorted, x); return ok })
		if p.Meets(q) != common {
			t.Fatalf("%+v and %+v meet: %v, want %v", p, q, p.Meets(q), common)
		}
		if common {
			met++
		} else {
			apart++
		}
	}
	if met < 300 || apart < 300 {
		t.Errorf("%d places meet, %d do not", met, apart)
	}
}

// What goes through a transpose, a view or a concatenation goes back.
func TestStridedViewsBack(t *testing.T) {
	b := NewBuilder("back")
	x := b.Declare(Input, "x", T(F32, 2, 3, 8), nil, nil)
	y := b.Declare(Input, "y", T(F32, 2, 3, 4), nil, nil)
	turned := b.Transpose(b.Reshape(x, 2, 3, 2, 4), 0, 2, 1, 3)
	both := b.Concat(-1, x, y)
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	p := Whole(both)
	for i, want := range []StridedView{{both, 0, []int64{2, 3, 8}, []int64{36, 12, 1}}, {both, 8, []int64{2, 3, 4}, []int64{36, 12, 1}}} {
		q, ok := p.back(both.Def, i)
		if !ok || fmt.Sprint(q.elements()) != fmt.Sprint(want.elements()) {
			t.Errorf("operand %d of concat at %+v, want %+v", i, q, want)
		}
	}
	q, ok := Whole(turned).back(turned.Def, 0)
	if ok {
		q, ok = q.back(turned.Def.In[0].Def, 0)
	}
	if ok { // rows of x are cut in two, which lie apart in turned
		t.Errorf("x lies in its transpose at %+v", q)
	}
	if _, ok := p.back(b.Slice(both, []int64{0}, []int64{0}, []int64{1}).Def, 0); ok {
		t.Error("a whole tensor lies in a slice of it")
	}
}
