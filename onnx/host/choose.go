package host

import (
	"cmp"
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
)

// nonZero lists the indices of elements that are not 0, a row for each axis.
func nonZero(c *call) ([]*Value, error) {
	x, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	var at []int64
	for i := range x.Len() {
		if x.At(i) != 0 {
			at = append(at, int64(i))
		}
	}
	d := ir.Sizes(x.Type.Shape)
	out := make([]int64, len(d)*len(at))
	for k, i := range at {
		for a, n := range slices.Backward(d) {
			out[a*len(at)+k] = i % n
			i /= n
		}
	}
	return []*Value{integers(ir.I64, shapeOf(int64(len(d)), int64(len(at))), out)}, nil
}

// compress keeps the slices of an axis for which the condition holds.
func compress(c *call) ([]*Value, error) {
	cond, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	x := c.in[0]
	if x == nil || x.Kind != Tensor {
		return nil, fmt.Errorf("operand 0 is missing or not a tensor")
	}
	a := 0
	if c.n.Attr("axis") == nil {
		x = x.reshaped(shapeOf(x.Type.Shape.Elements()))
	} else if a, err = axis(c.int("axis", 0), x.Type.Shape.Rank()); err != nil {
		return nil, err
	}
	list := []*Value{x.slice(a, 0, 0)}
	for i := range min(cond.Len(), int(x.Type.Shape.Dim(a))) {
		if cond.I[i] != 0 {
			list = append(list, x.slice(a, int64(i), int64(i)+1))
		}
	}
	return one(concat(list, a))
}

// unique finds the different elements, or slices of an axis: sorted, or in the order
// of their first appearance.
func unique(c *call) ([]*Value, error) {
	t, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	x, a := c.in[0], 0
	if c.n.Attr("axis") == nil {
		x = x.reshaped(shapeOf(x.Type.Shape.Elements()))
	} else if a, err = axis(c.int("axis", 0), t.Type.Shape.Rank()); err != nil {
		return nil, err
	}
	outer, n, inner := blocks(x.Type, a)
	inner /= x.Type.DType.Size()
	order := func(i, k int) int { // of slices
		for o := range outer {
			for e := range inner {
				p, q := (o*n+int64(i))*inner+e, (o*n+int64(k))*inner+e
				if d := element(t, int(p), int(q)); d != 0 {
					return d
				}
			}
		}
		return 0
	}
	sorted := make([]int, n)
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, order)
	var first []int // of each group, in order
	group := make([]int, n)
	for k, i := range sorted {
		if k == 0 || order(sorted[k-1], i) != 0 {
			first = append(first, i)
		}
		group[i] = len(first) - 1
	}
	rank := make([]int, len(first)) // where a group comes among the results
	for i := range rank {
		rank[i] = i
	}
	if c.int("sorted", 1) == 0 {
		byFirst := slices.Clone(rank)
		slices.SortFunc(byFirst, func(i, k int) int { return cmp.Compare(first[i], first[k]) })
		for at, i := range byFirst {
			rank[i] = at
		}
	}
	return c.groups(x, a, first, group, rank)
}

// groups are the results of unique: the first slice of each group, its index, the
// group of each slice, and how many are in each.
func (c *call) groups(x *Value, a int, first, group, rank []int) ([]*Value, error) {
	at, counts, inverse := make([]int64, len(first)), make([]int64, len(first)), make([]int64, len(group))
	for g, i := range first {
		at[rank[g]] = int64(i)
	}
	for i, g := range group {
		inverse[i] = int64(rank[g])
		counts[rank[g]]++
	}
	list := []*Value{x.slice(a, 0, 0)}
	for _, i := range at {
		list = append(list, x.slice(a, i, i+1))
	}
	y, err := concat(list, a)
	if err != nil {
		return nil, err
	}
	return []*Value{y, integers(ir.I64, shapeOf(int64(len(at))), at), integers(ir.I64, shapeOf(int64(len(inverse))), inverse), integers(ir.I64, shapeOf(int64(len(counts))), counts)}, nil
}

// element compares two elements.
func element(t *eval.Tensor, i, k int) int {
	if t.I != nil {
		return cmp.Compare(t.I[i], t.I[k])
	}
	return cmp.Compare(t.F[i], t.F[k])
}

// nonMaxSuppression picks boxes by score, leaving out those that overlap a better one.
func nonMaxSuppression(c *call) ([]*Value, error) {
	boxes, err := c.tensor(0)
	if err != nil {
		return nil, err
	}
	scores, err := c.tensor(1)
	if err != nil {
		return nil, err
	}
	most, err := c.integer(2, 0)
	if err != nil {
		return nil, err
	}
	limit, least := 0.0, 0.0
	if c.has(3) {
		if limit, err = c.number(3); err != nil {
			return nil, err
		}
	}
	if c.has(4) {
		if least, err = c.number(4); err != nil {
			return nil, err
		}
	}
	b, s := ir.Sizes(boxes.Type.Shape), ir.Sizes(scores.Type.Shape)
	if len(b) != 3 || len(s) != 3 || b[2] != 4 || b[0] != s[0] || b[1] != s[2] {
		return nil, fmt.Errorf("boxes %s and scores %s do not fit together, want [N,B,4] and [N,C,B]", boxes.Type, scores.Type)
	}
	var out []int64
	for batch := range s[0] {
		at := func(i int64) []float64 { return boxes.F[(batch*b[1]+i)*4:][:4] }
		for class := range s[1] {
			row := scores.F[(batch*s[1]+class)*s[2]:][:s[2]]
			var order, kept []int64
			for i, x := range row {
				if !c.has(4) || x > least {
					order = append(order, int64(i))
				}
			}
			slices.SortStableFunc(order, func(i, k int64) int { return cmp.Compare(row[k], row[i]) })
			for _, i := range order {
				if int64(len(kept)) >= most {
					break
				}
				if !slices.ContainsFunc(kept, func(k int64) bool { return overlap(at(i), at(k), c.int("center_point_box", 0) != 0) > limit }) {
					kept = append(kept, i)
					out = append(out, batch, class, i)
				}
			}
		}
	}
	return []*Value{integers(ir.I64, shapeOf(int64(len(out)/3), 3), out)}, nil
}

// overlap is the area that two boxes share, as a part of the area they cover. Boxes
// are two opposite corners (y, x), or a centre (x, y) with width and height.
func overlap(a, b []float64, centred bool) float64 {
	type span struct{ lo, hi float64 }
	sides := func(x []float64) (u, v span) {
		if centred {
			return span{x[0] - x[2]/2, x[0] + x[2]/2}, span{x[1] - x[3]/2, x[1] + x[3]/2}
		}
		return span{min(x[0], x[2]), max(x[0], x[2])}, span{min(x[1], x[3]), max(x[1], x[3])}
	}
	length := func(s span) float64 { return max(s.hi-s.lo, 0) }
	au, av := sides(a)
	bu, bv := sides(b)
	shared := length(span{max(au.lo, bu.lo), min(au.hi, bu.hi)}) * length(span{max(av.lo, bv.lo), min(av.hi, bv.hi)})
	if shared <= 0 {
		return 0
	}
	return shared / (length(au)*length(av) + length(bu)*length(bv) - shared)
}
