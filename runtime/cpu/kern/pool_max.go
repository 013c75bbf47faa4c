package kern

// MaxTaps finds, for every window i, the largest of the elements x[cells[t*apart+i]] over the taps t, and the
// first cell that holds it. A NaN counts as larger than any number. There is at least one tap; cells are not checked.
func (p *Path) MaxTaps(best []float32, index []int32, x []float32, cells []int32, apart int) {
	n := len(best)
	if n == 0 {
		return
	}
	taps, whole := (len(cells)-n)/apart+1, 0
	if p.maxTaps != nil && n >= p.lanes {
		whole = n / p.lanes * p.lanes
		p.maxTaps(n/p.lanes, taps, &best[0], &index[:n][0], &x[0], &cells[0], apart)
	}
	for i := whole; i < n; i++ {
		at := cells[i]
		top := x[at]
		for t := 1; t < taps; t++ {
			if v := x[cells[t*apart+i]]; v > top || v != v && top == top {
				top, at = v, cells[t*apart+i]
			}
		}
		best[i], index[i] = top, at
	}
}
