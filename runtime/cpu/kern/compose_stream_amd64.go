package kern

import "slices"

// streams reports whether f gets code with streaming stores, by the rule of the static kernels. Bools have none.
func (f *Formula) streams() bool {
	return !f.Rows && len(f.Code) <= streamedOps && !(len(f.Code) == 1 && f.Code[0].Name == unstreamed) &&
		!slices.ContainsFunc(f.Results, func(r FormulaResult) bool { return r.Type == Bools })
}

// stream appends code with streaming stores that computes rounds of a StreamBlock, as the static kernels do: a round computes
// streamVisit elements at each of streamPlaces positions. It returns false if there is no such code.
func (c *composer) stream(seq []lane, out *machineCode) bool {
	if !c.f.streams() || len(c.f.Loads)+len(c.f.Results) > len(bases) {
		return false
	}
	sizes := []int{4, 2}
	if !slices.ContainsFunc(c.f.Results, func(r FormulaResult) bool { return r.Type != F32 }) {
		sizes = append(sizes, 1)
	}
	l, ok := c.plan(seq, sizes...)
	if !ok || l.spills {
		return false
	}
	const per, turnReg = StreamBlock / streamPlaces, argsReg // nothing reads addresses again
	e := newVectors(c, l.many, l.held)
	e.streaming = true
	e.start(out)
	out.Sub(countReg, 1)
	round := out.Here()
	out.Set(turnReg, streamPlaces-1)
	place := out.Here()
	for range streamVisit / (l.unroll * c.set.lanes) {
		if !e.run(out) {
			return false
		}
		out.Add(atReg, int8(l.unroll*c.set.lanes))
	}
	out.AddLong(per - streamVisit)
	out.Sub(turnReg, 1)
	out.Back(place)
	out.AddLong(streamVisit - StreamBlock)
	out.Sub(countReg, 1)
	out.Back(round)
	out.Return()
	return true
}
