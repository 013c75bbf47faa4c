package kern

// Convolutions of volumes with three taps along the depth: the transforms of winograd.go along all three dimensions,
// F(2x2x2,3x3x3). A cube of 4 x 4 x 4 pixels and 64 products give eight results, which take 96 where slices count as channels
// and 216 by the definition. The depth is transformed first, on pixels and taps, and last, on products: there are four
// transformed slices, sets of winoPoints points each, which the transforms of images then turn to points.

// cubeSets is the number of sets of points of cubes.
const cubeSets = 4

// cubeFlip are the sets of taps read backwards.
var cubeFlip = [cubeSets]int{3, 1, 2, 0}

// winoCubes is the smallest number of cubes for which the depth is transformed as well: with fewer
// cubes, transforming the weights would take longer than the products.
const winoCubes = 64

// usesCubes reports whether the depth is transformed as well, for a result, or a gradient, of that
// size.
func (m *Machine) usesCubes(c *Conv, n int, size [3]int) bool {
	return c.Kernel[0] == 3 && size[0] > 1 && n*ceilDiv(size[0], 2)*ceilDiv(size[1], 2)*ceilDiv(size[2], 2) >= m.winoLeast.cubes
}

// startCubes prepares the task for cubes. Taps that read slices backwards read them forwards from
// the last one.
func (t *winoTask) startCubes(turned bool) {
	t.images, t.sets, t.deep = ceilDiv(t.slices[1], 2), cubeSets, 1
	if turned {
		t.first, t.sign = t.first-2, 1
	}
}

// flipped is the set of weights that meets a set of the image.
func (t *winoTask) flipped(set int) int {
	if t.cubes && t.flip {
		return cubeFlip[set]
	}
	return set
}

// winoDepth transforms four contiguous slices d of n floats, with room for a fifth, to d0-d2,
// d1+d2, d2-d1 and d3-d1: the last set is added, not subtracted.
func (p *Path) winoDepth(d []float32, n int) {
	d0, d1, d2, d3, sum := d[:n], d[n:2*n], d[2*n:3*n], d[3*n:4*n], d[4*n:5*n]
	p.Binary(Sub, d0, d0, d2)
	p.Binary(Sub, d3, d3, d1)
	p.Binary(Add, sum, d1, d2)
	p.Binary(Sub, d2, d2, d1)
	copy(d1, sum)
}

// winoDepthTaps transforms three contiguous slices g of n floats, with room for two more, to g0,
// (g0+g2+g1)/2, (g0+g2-g1)/2 and g2.
func (p *Path) winoDepthTaps(g []float32, n int) {
	g0, g1, g2, last, sum := g[:n], g[n:2*n], g[2*n:3*n], g[3*n:4*n], g[4*n:5*n]
	p.Binary(Add, sum, g0, g2)
	copy(last, g2)
	p.Binary(Sub, g2, sum, g1)
	p.Binary(Add, g1, sum, g1)
	p.axpb(2*n, &g1[0], &g1[0], 0.5, 0)
}

// winoDepthTwo transforms two contiguous slices g of n floats, with room for two more, to g0,
// g0+g1, g0-g1 and g1.
func (p *Path) winoDepthTwo(g []float32, n int) {
	g0, g1, less, last := g[:n], g[n:2*n], g[2*n:3*n], g[3*n:4*n]
	copy(last, g1)
	p.Binary(Sub, less, g0, g1)
	p.Binary(Add, g1, g0, g1)
}

// winoDepthSums transforms four contiguous sets of sums m of n floats to three slices of taps:
// m0+a, b, a+m3 with a = (m1+m2)/2 and b = (m1-m2)/2.
func (p *Path) winoDepthSums(m []float32, n int) {
	m0, m1, m2, m3 := m[:n], m[n:2*n], m[2*n:3*n], m[3*n:4*n]
	p.axpb(2*n, &m1[0], &m1[0], 0.5, 0)
	p.Binary(Add, m0, m0, m1)
	p.Binary(Add, m0, m0, m2)
	p.Binary(Add, m3, m3, m1)
	p.Binary(Add, m3, m3, m2)
	p.Binary(Sub, m1, m1, m2)
	copy(m2, m3)
}

// multiplyCubes computes the products of a panel of h rows of weights with n cubes, for both slices
// of the result, which are contiguous: y0 = (m1+m2) + m0 and y1 = (m1-m2) + m3.
func (t *winoTask) multiplyCubes(x *winoWorker, panel, h, n, ldm, point int) {
	t.multiply(x, panel, 1, 0, h, n, ldm, point, 0)
	t.multiply(x, panel, 2, 1, h, n, ldm, point, 0)
	for k := range winoPoints {
		a, b := x.prod.s[k*point:][:h*ldm], x.prod.s[(winoPoints+k)*point:][:h*ldm]
		sum := x.tile.get(h * ldm)
		t.m.Binary(Add, sum, a, b)
		t.m.Binary(Sub, b, a, b)
		copy(a, sum)
	}
	t.multiply(x, panel, 0, 0, h, n, ldm, point, 1)
	t.multiply(x, panel, 3, 1, h, n, ldm, point, 1)
}
