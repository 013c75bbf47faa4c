package prove

import (
	"slices"

	"ampc/ir"
)

// shards requires that the step reads sharded variables by gathering their parts alone, as
// they are before the update.
func (r *rankRule) shards() {
	sharded := map[string]*ir.Value{}
	for _, v := range r.p.g.Vars {
		if of := v.PartOf(); of != "" {
			if other := sharded[of]; other != nil {
				r.p.blame(v.String(), "is a part of %%%s, as %s is", of, other)
			}
			sharded[of] = v
		}
	}
	if len(sharded) == 0 {
		return
	}
	for _, n := range r.p.g.Nodes {
		r.p.judged++
		for _, v := range operandsOf(n) {
			if v.Def == nil && sharded[v.Name] != nil {
				r.p.report(n, "reads %s, of which each rank has the part %s", v, sharded[v.Name])
			}
		}
		if !gathersParts(n) {
			continue
		}
		shapes, _ := n.Wholes()
		for i, v := range n.In {
			of := r.partSizes(v)
			switch {
			case of == nil:
				r.p.report(n, "gathers %s, which is no part of a tensor", v)
			case i < len(shapes) && !slices.Equal(of, ir.Sizes(shapes[i])):
				r.p.report(n, "makes a tensor of sizes %v of %s, a part of one of sizes %v", ir.Sizes(shapes[i]), v, of)
			}
		}
	}
}

// partSizes are the sizes of the tensor that v is this rank's part of: a variable that is
// declared so, what reduce_scatter leaves, this rank's range of a value that is agreed on, or what
// is computed of parts and numbers element by element; nil: v is no part.
func (r *rankRule) partSizes(v *ir.Value) []int64 {
	n := v.Def
	if n == nil {
		if v.PartOf() == "" {
			return nil
		}
		sizes, _ := v.Attr.Get("whole").([]int64)
		return sizes
	}
	switch {
	case n.Def().Is(ir.Collective) && n.Flag("flat"):
		return ir.Sizes(n.In[v.Idx].Type.Shape)
	case n.Op == ir.OpReshape || n.Op == ir.OpGather:
		return r.ownRange(v)
	case n.Def().Elem == nil:
		return nil
	}
	var sizes []int64
	for _, x := range operandsOf(n) {
		if !r.isLocal(x) && x.Type.Shape.Elements() == 1 {
			continue
		}
		of := r.partSizes(x)
		if of == nil || x.Type.Shape != v.Type.Shape || sizes != nil && !slices.Equal(sizes, of) {
			return nil
		}
		sizes = of
	}
	return sizes
}

// ownRange are the sizes of an agreed value of which v is this rank's range: the value, flattened
// and filled up behind its end, is a table with a row for each rank, from which v is taken by the
// number of the rank. nil: v is none.
func (r *rankRule) ownRange(v *ir.Value) []int64 {
	n := flattened(v).Def
	if n == nil || n.Op != ir.OpGather || n.Int("axis") != 0 {
		return nil
	}
	table, id := n.In[0].Type.Shape, flattened(n.In[1])
	if id.Def != nil || id.Attr.Get("role") != ir.RoleRank || table.Rank() != 2 || int64(table.Dims()[0]) != r.ranks || table.Dims()[1] != v.Type.Shape.Dims()[v.Type.Shape.Rank()-1] {
		return nil
	}
	x := flattened(n.In[0])
	if p := x.Def; p != nil && p.Op == ir.OpPad && p.In[0].Type.Shape.Rank() == 1 && slices.Equal(p.Ints("lo"), []int64{0}) {
		x = flattened(p.In[0])
	}
	if elements := x.Type.Shape.Elements(); r.isLocal(x) || ir.PartOf(elements, r.ranks) != int64(table.Dims()[1]) {
		return nil
	}
	return ir.Sizes(x.Type.Shape)
}

// flattened is the value of which v is another shape.
func flattened(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Op == ir.OpReshape {
		v = v.Def.In[0]
	}
	return v
}

// partLike reports whether v is a part of a tensor as large as that which variable next is a
// part of.
func (r *rankRule) partLike(v, next *ir.Value) bool {
	if next.PartOf() == "" {
		return false
	}
	of, want := r.partSizes(v), r.partSizes(next)
	return of != nil && slices.Equal(of, want)
}

// ofParts reports whether v differs between ranks only by the parts that each has, whatever
// is computed of them.
func (r *rankRule) ofParts(v *ir.Value) bool {
	if r.partSizes(v) != nil {
		return true
	}
	if v.Def == nil || v.Def.Def().Is(ir.Collective) {
		return false
	}
	parts := false
	for _, x := range operandsOf(v.Def) {
		if r.isLocal(x) {
			if !r.ofParts(x) {
				return false
			}
			parts = true
		}
	}
	return parts
}
