package kern

// Pool2 is pooling in windows of 2 x 2 elements with stride 2 and without padding, over consecutive planes of H x W
// elements. Element (i, j) of a pooled plane of H/2 x W/2 belongs to the window that starts at (2i, 2j).
type Pool2 struct {
	Planes, H, W int
	Walk         *Windows2 // the worker's memory for the loop bounds; nil: allocated
}

// Of is the number of input and output elements of n planes.
func (g Pool2) Of(n int) (in, out int) { return n * g.H * g.W, n * (g.H / 2) * (g.W / 2) }

// Windows2 are the loop bounds of the kernels for a Pool2: planes; rows of windows in a plane;
// whole vectors in a row, and windows after them; bytes between rows of elements, from the last
// whole vector to the next rows, and then to the next plane; elements of a row, and the rest of two
// rows after the whole vectors.
type Windows2 [9]int

// poolKernels pool windows of one storage type; results are dense.
type poolKernels struct { // g is the first number of a Windows2
	lanes   int
	parts   bool // rows may have any number of windows, not only whole and half vectors
	max     func(g *int, y, x *byte)
	maxAt   func(g *int, y *byte, index *int32, x *byte)
	maxGrad func(g *int, dx, dy, x *byte)
	avg     func(g *int, y, x *byte)
	avgGrad func(g *int, dx, dy *byte)
}

// poolTable has the kernels of each storage type.
type poolTable [numTypes]*poolKernels

func poolTableOf(kernels func(Type) *poolKernels) (table poolTable) {
	for t := range table {
		table[t] = kernels(Type(t))
	}
	return table
}

// Pools2 reports whether the path has kernels for g and elements of type t. If it has kernels for
// any type, it has those for f32.
func (p *Path) Pools2(g Pool2, t Type) bool { return p.poolsOf(g, t) != nil }

// poolsOf finds the kernels of the narrowest vectors that hold a row of windows, else those of the widest.
func (p *Path) poolsOf(g Pool2, t Type) (k *poolKernels) {
	n := g.W / 2
	for _, of := range p.pools {
		if own := of[t]; own.parts || n%(own.lanes/2) == 0 {
			if k = own; n <= k.lanes {
				break
			}
		}
	}
	return k
}

func (k *poolKernels) walk(g Pool2, t Type) *Windows2 {
	n, size := g.W/2, t.Size()
	whole := n / k.lanes
	skipped := 2 * (g.W - whole*k.lanes)
	w := g.Walk
	if w == nil {
		w = new(Windows2)
	}
	*w = Windows2{g.Planes, g.H / 2, whole, n % k.lanes, g.W * size, skipped * size, g.H % 2 * g.W * size, g.W, skipped}
	return w
}

func (g Pool2) empty() bool { _, out := g.Of(g.Planes); return out == 0 }

// MaxPool2 stores the largest element of each window of x in y, of x's type; a NaN counts as larger
// than any number. index, unless it is nil, receives the position in its plane of the first such
// element.
func (p *Path) MaxPool2(g Pool2, y Buf, index []int32, x Buf) {
	if g.empty() {
		return
	}
	k := p.poolsOf(g, x.Type)
	if w := k.walk(g, x.Type); index == nil {
		k.max(&w[0], y.at(0), x.at(0))
	} else {
		k.maxAt(&w[0], y.at(0), &index[0], x.at(0))
	}
}

// MaxPool2Grad sets dx to the gradient of max pooling: dy at the largest element of each window, zero elsewhere. All
// operands have one type.
func (p *Path) MaxPool2Grad(g Pool2, dx, dy, x Buf) {
	if g.clear(dx); !g.empty() {
		k := p.poolsOf(g, x.Type)
		w := k.walk(g, x.Type)
		k.maxGrad(&w[0], dx.at(0), dy.at(0), x.at(0))
	}
}

// AvgPool2 pools the mean of each window.
func (p *Path) AvgPool2(g Pool2, y, x Buf) {
	if !g.empty() {
		k := p.poolsOf(g, x.Type)
		w := k.walk(g, x.Type)
		k.avg(&w[0], y.at(0), x.at(0))
	}
}

// AvgPool2Grad sets dx to the gradient of mean pooling.
func (p *Path) AvgPool2Grad(g Pool2, dx, dy Buf) {
	if g.clear(dx); !g.empty() {
		k := p.poolsOf(g, dx.Type)
		w := k.walk(g, dx.Type)
		k.avgGrad(&w[0], dx.at(0), dy.at(0))
	}
}

// clear sets a gradient to zero if some elements are in no window.
func (g Pool2) clear(dx Buf) {
	if g.H%2 > 0 || g.W%2 > 0 {
		in, _ := g.Of(g.Planes)
		clear(dx.Data[:in*dx.Type.Size()])
	}
}
