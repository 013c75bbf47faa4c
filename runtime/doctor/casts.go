package doctor

import (
	"cmp"
	"slices"

	"ampc/ir"
)

// source notes the casts of the source for which v has 16 bits.
func (k *keeping) source(v *ir.Value) {
	if v.Def != nil && v.Type.DType.Low() {
		k.casts.AddCasts(v.Def.Why.Casts)
	}
}

// chosen reports whether the policy may have chosen the 16 bits of v, or would
// choose them if the source did not ask for them.
func (x *analysis) chosen(v *ir.Value) bool {
	return v.Def == nil || len(v.Def.Why.Casts) == 0 || !v.Type.DType.Low() || v.Type.DType == x.chosen16
}

// sourceCast reports whether n is a cast to 16 bits that the user wrote.
func sourceCast(n *ir.Node) bool {
	return n.Op == ir.OpCast && len(n.Why.Casts) > 0 && !inserted(n)
}

// placed are the casts by name, with file and line where they are known.
func placed(casts []ir.SourceCast) []string {
	var names []string
	for _, c := range slices.SortedStableFunc(slices.Values(casts), func(a, b ir.SourceCast) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), a.Pos.Line-b.Pos.Line)
	}) {
		names = append(names, c.String())
	}
	return names
}
