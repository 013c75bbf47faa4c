package eval

import "ampc/ir"

// tables hold the evaluators of the rows that have no elementwise code, by family.
var tables = []map[ir.Op]fn{shapeFns, reduceFns, indexFns, collectiveFns, precisionFns, linearFns, convFns, normFns, attentionFns, cacheFns, poolFns, lossFns, recurrentFns}
