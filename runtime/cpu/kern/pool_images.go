package kern

// Windows is pooling of planes of In elements (rows, columns) in windows of Kernel elements, Stride apart, of which the
// first begins Pad before the plane. The stride along rows is 1 or 2.
type Windows struct {
	In, Out, Kernel, Stride, Pad [2]int
}

// phase is the size of the part of a padded plane that one tap of the windows reads: every
// Stride-th row and column.
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

// Rows is the pooling of rows [r0,r1) of the results, and the first row of the plane that their windows reach.
func (g *Windows) Rows(r0, r1 int) (part Windows, first int) {
	part, first = *g, r0*g.Stride[0]-g.Pad[0]
	end := (r1-1)*g.Stride[0] - g.Pad[0] + g.Kernel[0]
	part.Pad[0] = max(0, -first)
	first = min(max(0, first), g.In[0])
	part.In[0], part.Out[0] = max(0, min(end, g.In[0])-first), r1-r0
	return part, first
}

// Scratch is how many floats of memory MaxWindows needs.
func (g *Windows) Scratch() int {
	rows, row := g.phase()
	return rows * row * (g.Stride[0]*g.Stride[1] + 1)
}

// MaxWindowsOf is MaxWindows for a plane of another type; it needs as much memory for the plane and its result in f32.
func (p *Path) MaxWindowsOf(g *Windows, y, x Buf, wideY, wideX, scratch []float32) {
	if p.maxThreeBF16 != nil && x.Type == BF16 && y.Type == BF16 && g.threes() && p.maxThrees(g, y, x) {
		return
	}
	p.Load(wideX, x)
	p.MaxWindows(g, wideY, wideX, scratch)
	p.Store(y, wideY)
}

// MaxWindows sets y to the largest element of each window of the plane x, the first of equal ones; NaN counts as larger
// than any number.
func (p *Path) MaxWindows(g *Windows, y, x, scratch []float32) {
	if p.maxThree != nil && g.threes() && p.maxThrees(g, Floats(y), Floats(x)) {
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

// threes reports whether windows have 3 x 3 elements and stride 2.
func (g *Windows) threes() bool { return g.Kernel == [2]int{3, 3} && g.Stride == [2]int{2, 2} }

// maxThrees is MaxWindows for threes of f32 or bf16; it returns false where the plane has a NaN.
func (p *Path) maxThrees(g *Windows, y, x Buf) bool {
	nan := uint32(0)
	r0, r1 := g.inside(0)
	c0, c1 := g.inside(1)
	if r0 >= r1 || c0 >= c1 {
		r0, r1 = 0, 0
	}
	for at := c0; at < c1 && r0 < r1; at += p.vw {
		from := (2*r0-g.Pad[0])*g.In[1] + 2*at - g.Pad[1]
		n, to, of := min(p.vw, c1-at), y.at(r0*g.Out[1]+at), x.at(from)
		if x.Type == BF16 {
			p.maxThreeBF16(r1-r0, n, to, g.Out[1], of, g.In[1], &nan)
		} else {
			p.maxThree(r1-r0, n, (*float32)(ptr(to)), g.Out[1], (*float32)(ptr(of)), g.In[1], &nan)
		}
	}
	whole := nan == 0
	if r0 == 0 && r1 == g.Out[0] && c0 == 0 && c1 == g.Out[1] {
		return whole
	}
	for i := range g.Out[0] {
		if i < r0 || i >= r1 {
			whole = g.edgeThrees(y, x, i, 0, g.Out[1]) && whole
		} else {
			whole = g.edgeThrees(y, x, i, 0, c0) && g.edgeThrees(y, x, i, c1, g.Out[1]) && whole
		}
	}
	return whole
}

// inside returns the range along an axis of the threes that do not reach beyond the plane.
func (g *Windows) inside(a int) (from, to int) {
	return ceilDiv(g.Pad[a], 2), min(g.Out[a], (g.In[a]-1+g.Pad[a])/2)
}

// edgeThrees pools windows [from,to) of row i, which may extend beyond the plane; it returns false
// at a NaN.
func (g *Windows) edgeThrees(y, x Buf, i, from, to int) bool {
	r0, r1 := max(0, 2*i-g.Pad[0]), min(g.In[0], 2*i-g.Pad[0]+3)
	for j := from; j < to; j++ {
		c0, c1 := max(0, 2*j-g.Pad[1]), min(g.In[1], 2*j-g.Pad[1]+3)
		best := negInf
		for r := r0; r < r1; r++ {
			for c := c0; c < c1; c++ {
				v := x.get(r*g.In[1] + c)
				if v != v {
					return false
				}
				if v > best {
					best = v
				}
			}
		}
		y.set(i*g.Out[1]+j, best)
	}
	return true
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
