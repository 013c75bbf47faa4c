package kern

import "slices"

// stream appends code with streaming stores that computes rounds of a StreamBlock: a round computes
// streamVisit elements at each of streamPlaces positions. It returns the rounds of a call, 0 if there is no such code.
func (c *composer) stream(seq []lane, out *machineCode) (rounds int) {
	if !c.f.streams() || len(c.f.Loads)+len(c.f.Results) > len(bases) {
		return 0
	}
	sizes := []int{4, 2}
	if !slices.ContainsFunc(c.f.Results, func(r FormulaResult) bool { return r.Type != F32 }) {
		sizes = append(sizes, 1)
	}
	l, ok := c.plan(seq, sizes...)
	if !ok || l.spills {
		return 0
	}
	const per, turnReg = StreamBlock / streamPlaces, argsReg // nothing reads addresses again
	e := newVectors(c, seq, l.unroll, l.held)
	e.streaming = true
	e.start(out)
	out.Sub(countReg, 1)
	round := out.Here()
	out.Set(turnReg, streamPlaces-1)
	place := out.Here()
	for range streamVisit / (l.unroll * c.set.lanes) {
		if !e.run(out) {
			return 0
		}
		out.Add(atReg, int32(l.unroll*c.set.lanes))
	}
	out.Add(atReg, per-streamVisit)
	out.Sub(turnReg, 1)
	out.Back(place)
	out.Add(atReg, streamVisit-StreamBlock)
	out.Sub(countReg, 1)
	out.Back(round)
	out.Return()
	return max(1, perCall(seq, c.set.lanes, l.unroll, mostStreamed)/(streamPlaces*streamVisit))
}
