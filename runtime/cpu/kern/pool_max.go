package kern

// MaxTaps finds, for every window i, the largest of the elements x[cells[t*len(best)+i]] over the taps t, and the
// first cell that holds it. A NaN counts as larger than any number. There is at least one tap; cells are not checked.
func (p *Path) MaxTaps(best []float32, index []int32, x []float32, cells []int32) {
	n := len(best)
	if n == 0 {
		return
	}
	taps, whole := len(cells)/n, 0
	if p.maxTaps != nil && n >= p.lanes {
		whole = n / p.lanes * p.lanes
		p.maxTaps(n/p.lanes, taps, &best[0], &index[:n][0], &x[0], &cells[0], n)
	}
	for i := whole; i < n; i++ {
		at := cells[i]
		top := x[at]
		for t := 1; t < taps; t++ {
			if v := x[cells[t*n+i]]; v > top || v != v && top == top {
				top, at = v, cells[t*n+i]
			}
		}
		best[i], index[i] = top, at
	}
}
