package kern

// Windows is pooling of planes of In elements (rows, columns) in windows of Kernel elements, Stride apart, of which the
// first begins Pad before the plane. The stride along rows is 1 or 2.
type Windows struct {
	In, Out, Kernel, Stride, Pad [2]int
}

// phase is the size of the part of a padded plane that windows meet with one of their taps: every Stride-th row and column.
func (g *Windows) phase() (rows, row int) {
	reach := func(a int) int {
		return max(g.Out[a]+(g.Kernel[a]-1)/g.Stride[a], (g.In[a]-1+g.Pad[a])/g.Stride[a]+1)
	}
	return reach(0), reach(1)
}

// padded reports whether windows reach beyond the plane along axis a.
func (g *Windows) padded(a int) bool {
	return g.Pad[a] > 0 || (g.Out[a]-1)*g.Stride[a]+g.Kernel[a] > g.In[a]
}

// Scratch is how many floats of memory MaxWindows needs.
func (g *Windows) Scratch() int {
	rows, row := g.phase()
	return rows * row * (g.Stride[0]*g.Stride[1] + 1)
}

// MaxWindows sets y to the largest element of each window of the plane x, the first of equal ones; NaN counts as larger
// than any number.
func (p *Path) MaxWindows(g *Windows, y, x, scratch []float32) {
	if p.maxThree != nil && g.threes() && p.maxThrees(g, y, x, scratch) {
		return
	}
	rows, row := g.phase()
	size := rows * row
	best, phases := scratch[:size], scratch[size:]
	if g.padded(0) || g.padded(1) {
		phases = phases[:size*g.Stride[0]*g.Stride[1]]
		for i := range phases {
			phases[i] = negInf
		}
	}
	for r := range min(g.Stride[0], g.In[0]) {
		at := g.Pad[0] + r
		p.phaseRows(g, phases[at%g.Stride[0]*g.Stride[1]*size+at/g.Stride[0]*row:], x[r*g.In[1]:], ceilDiv(g.In[0]-r, g.Stride[0]))
	}
	n := (g.Out[0]-1)*row + g.Out[1]
	from := phases[:n]
	for tap := 1; tap < g.Kernel[0]*g.Kernel[1]; tap++ {
		i, j := tap/g.Kernel[1], tap%g.Kernel[1]
		p.Binary(Larger, best[:n], from, phases[(i%g.Stride[0]*g.Stride[1]+j%g.Stride[1])*size+i/g.Stride[0]*row+j/g.Stride[1]:])
		from = best[:n]
	}
	for i := range g.Out[0] {
		copy(y[i*g.Out[1]:(i+1)*g.Out[1]], from[i*row:])
	}
}

// threes reports whether windows have 3 x 3 elements and are two apart.
func (g *Windows) threes() bool { return g.Kernel == [2]int{3, 3} && g.Stride == [2]int{2, 2} }

// maxThrees is MaxWindows for threes; it returns false where the plane has a NaN.
func (p *Path) maxThrees(g *Windows, y, x, scratch []float32) bool {
	ld, nan := g.In[1], uint32(0)
	if g.padded(0) || g.padded(1) {
		ld = 2*g.Out[1] + 1
		whole := scratch[:(2*g.Out[0]+1)*ld]
		for i := range whole {
			whole[i] = negInf
		}
		for i := range min(g.In[0], 2*g.Out[0]+1-g.Pad[0]) {
			copy(whole[(g.Pad[0]+i)*ld+g.Pad[1]:(g.Pad[0]+i+1)*ld], x[i*g.In[1]:][:g.In[1]])
		}
		x = whole
	}
	for at := 0; at < g.Out[1]; at += p.vw {
		p.maxThree(g.Out[0], min(p.vw, g.Out[1]-at), &y[at], g.Out[1], &x[2*at], ld, &nan)
	}
	return nan == 0
}

// phaseRows copies n rows of x, Stride apart, to the two phases of their columns, or the one.
func (p *Path) phaseRows(g *Windows, to, x []float32, n int) {
	rows, row := g.phase()
	apart := g.Stride[0] * g.In[1]
	if g.Stride[1] == 1 {
		for i := range n {
			copy(to[i*row+g.Pad[1]:], x[i*apart:][:g.In[1]])
		}
		return
	}
	even, odd := to[g.Pad[1]/2:], to[rows*row+g.Pad[1]/2:]
	if g.Pad[1]%2 > 0 {
		even, odd = odd, to[g.Pad[1]/2+1:]
	}
	p.unzipRows(n, g.In[1], even, odd, row, x, apart)
}
