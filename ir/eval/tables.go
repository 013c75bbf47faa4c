package eval

import (
	"maps"

	"ampc/ir"
)

// evaluators are those of the rows that have no elementwise code. Each family has a table of its own.
var evaluators = func() map[ir.Op]fn {
	all := map[ir.Op]fn{}
	for _, family := range []map[ir.Op]fn{shapeFns, reduceFns, indexFns, collectiveFns, precisionFns, linearFns, convFns, normFns, attentionFns, cacheFns, poolFns, lossFns, recurrentFns} {
		maps.Copy(all, family)
	}
	return all
}()
