package ranges

import "ampc/ir"

// Stored returns the interval of v in its stored dtype.
func (r *Result) Stored(v *ir.Value) ir.Interval { return stored(r.in[v.ID], v.Type.DType) }
