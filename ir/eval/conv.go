package eval

import "ampc/ir"

var convFns = map[ir.Op]fn{
	ir.OpConv:          conv,
	ir.OpConvGradX:     convGradX,
	ir.OpConvGradW:     convGradW,
	ir.OpConvTranspose: convTranspose,
}

// image says where elements of a tensor [N,C,*] or [N,*,C] stand. Windows
// always have three spatial dimensions; missing ones have size 1.
type image struct {
	c    int
	in   [3]int
	last bool
}

func (m image) at(n, c int, p [3]int) int { return m.offset(n, c, m.flat(p)) }

// offset is where element i of a channel stands.
func (m image) offset(n, c, i int) int {
	if m.last {
		return (n*m.points()+i)*m.c + c
	}
	return (n*m.c+c)*m.points() + i
}

// flat is the row-major index of a position in an image.
func (m image) flat(p [3]int) int { return (p[0]*m.in[1]+p[1])*m.in[2] + p[2] }

func (m image) points() int { return m.in[0] * m.in[1] * m.in[2] }

// point is position i of a row-major box.
func point(i int, box [3]int) [3]int {
	return [3]int{i / (box[1] * box[2]), i / box[2] % box[1], i % box[2]}
}

func box(v []int64) [3]int {
	b := [3]int{1, 1, 1}
	for i, x := range v {
		b[3-len(v)+i] = int(x)
	}
	return b
}

// window is ir.Window over three dimensions.
type window struct {
	x, y                image
	n, groups           int
	kernel, stride, dil [3]int
	begin               [3]int
}

func windowOf(n *ir.Node) window {
	g := n.Window()
	w := window{n: int(g.N), groups: int(g.Groups), kernel: box(g.Kernel), stride: box(g.Stride), dil: box(g.Dilation)}
	w.x = image{int(g.C), box(g.In), g.Last}
	w.y = image{int(g.O), box(g.Out), g.Last}
	for i, b := range g.Begin {
		w.begin[3-len(g.Begin)+i] = int(b)
	}
	return w
}

// source is the position in x that tap k of the window at y position p reads;
// false where it lies in the padding.
func (w *window) source(p, k [3]int) ([3]int, bool) {
	var at [3]int
	for i := range at {
		at[i] = p[i]*w.stride[i] + k[i]*w.dil[i] - w.begin[i]
		if at[i] < 0 || at[i] >= w.x.in[i] {
			return at, false
		}
	}
	return at, true
}

// sources are the offsets in a channel of x that the taps of every window read, -1 in the padding.
func (w *window) sources(taps int) []int {
	list := make([]int, w.y.points()*taps)
	for i := range list {
		list[i] = -1
		if at, ok := w.source(point(i/taps, w.y.in), point(i%taps, w.kernel)); ok {
			list[i] = w.x.flat(at)
		}
	}
	return list
}

// each calls f with the offsets in x, w and y of every product of the convolution.
func (w *window) each(f func(x, k, y int)) {
	taps := w.kernel[0] * w.kernel[1] * w.kernel[2]
	perC, perO := w.x.c/w.groups, w.y.c/w.groups
	sources, ofX, ofK := w.sources(taps), w.x.points(), taps
	if w.x.last {
		ofX, ofK = 1, 1
	}
	for n := range w.n {
		for o := range w.y.c {
			for i := range w.y.points() {
				y := w.y.offset(n, o, i)
				for t, src := range sources[i*taps : (i+1)*taps] {
					if src < 0 {
						continue
					}
					x, k := w.x.offset(n, o/perO*perC, src), o*perC*taps+t
					if w.x.last {
						k = (o*taps + t) * perC
					}
					for range perC {
						f(x, k, y)
						x, k = x+ofX, k+ofK
					}
				}
			}
		}
	}
}

// addBias adds one number per channel.
func addBias(y *Tensor, b *Tensor, m image) {
	if b == nil {
		return
	}
	for i := range y.F {
		if m.last {
			y.F[i] += b.F[i%m.c]
		} else {
			y.F[i] += b.F[i/m.points()%m.c]
		}
	}
}

func conv(c *call) error {
	w, x, k, y := windowOf(c.Node), c.factor(0), c.factor(1), c.out[0].F
	w.each(func(i, j, o int) { y[o] += x[i] * k[j] })
	addBias(c.out[0], c.operand(2), w.y)
	return nil
}

func convGradX(c *call) error {
	w, dy, k, dx := windowOf(c.Node), c.factor(0), c.factor(1), c.out[0].F
	w.each(func(i, j, o int) { dx[i] += dy[o] * k[j] })
	return nil
}

func convGradW(c *call) error {
	w, x, dy, dw := windowOf(c.Node), c.factor(0), c.factor(1), c.out[0].F
	w.each(func(i, j, o int) { dw[j] += x[i] * dy[o] })
	return nil
}

func convTranspose(c *call) error {
	w, x, k, y := windowOf(c.Node), c.factor(0), c.factor(1), c.out[0].F
	w.each(func(i, j, o int) { y[i] += x[o] * k[j] })
	addBias(c.out[0], c.operand(2), w.x)
	return nil
}
