package kern

import (
	goflag "flag"
	"math"
	"testing"
)

var large = goflag.Int("large", 20, "products and convolutions of large random sizes that TestLargeProducts and TestLargeConvs try")
var largeFrom = goflag.Uint64("large-from", 1, "seed of the first of them")

// onLargeCases calls f with dice for each of the large cases on every path of vectors; plain Go would take minutes.
func onLargeCases(t *testing.T, f func(t *testing.T, p *Path, d dice)) {
	for i := range uint64(rounds(*large)) {
		for _, p := range Paths() {
			if p.lanes == 1 {
				continue
			}
			if f(t, p, newDice(*largeFrom+i)); t.Failed() {
				t.Fatalf("%s, -large-from %d", p.Name(), *largeFrom+i)
			}
		}
	}
}

// extent is a size up to most; small ones are as likely as large ones.
func (d dice) extent(most int) int {
	return int(math.Exp2(d.Float64() * math.Log2(float64(most)+0.99)))
}

// TestLargeProducts: a large product has the bits of the products of its parts, each of which packs and divides in
// another way, and some of its elements are held against float64.
func TestLargeProducts(t *testing.T) {
	onLargeCases(t, func(t *testing.T, p *Path, d dice) {
		gc := gemmCase{m: d.extent(4500), n: d.extent(4500), outer: 1, inner: 1 + d.IntN(5)/4, ta: d.IntN(2) == 0, tb: d.IntN(2) == 0,
			a: d.typ(), c: d.typ(), tf32: d.IntN(8) == 0, pad: d.IntN(3) / 2 * d.IntN(70)}
		gc.b = []Type{gc.a, d.typ()}[d.IntN(3)/2]
		gc.k = d.extent(min(6000, 1<<29/(gc.m*gc.n*gc.inner)+1))
		m := New(p, 1+d.IntN(3))
		defer m.Close()
		g := checkGemm(t, m, d, gc, func(g *Gemm) {
			if d.IntN(2) == 0 {
				g.Epilogue = gc.epilogue(d)
				g.Accumulate = false
				g.Act = []Act{NoAct, ActRelu}[d.IntN(2)] // TestSmooth has the errors of others
			}
		})
		if !t.Failed() {
			checkParts(t, m, d, &g, gc)
		}
	})
}

// checkParts compares g, of a machine, with blocks of rows and columns of it that are multiplied alone.
func checkParts(t *testing.T, m *Machine, d dice, g *Gemm, gc gemmCase) {
	t.Helper()
	from := func(mat Mat, i, j int) Mat {
		if mat.T {
			i, j = j, i
		}
		mat.Buf = mat.From(i*mat.LD + j)
		return mat
	}
	for i := 0; i < g.M; {
		rows := min(g.M-i, 1+d.extent(500))
		for j := 0; j < g.N; {
			cols := min(g.N-j, 1+d.IntN(1000))
			part := *g
			part.M, part.N = rows, cols
			part.A, part.B = from(g.A, i, 0), from(g.B, 0, j)
			part.C = Mat{Buf: zeros(gc.c, gc.inner*rows*cols), LD: cols, Stride: [2]int{0, rows * cols}}
			if !g.Bias.absent() {
				part.Bias = g.Bias.From(j)
			}
			if !g.RowBias.absent() {
				part.RowBias = g.RowBias.From(i)
			}
			if !g.Residual.absent() {
				part.Residual = from(g.Residual, i, j)
			}
			m.Gemm(&part)
			comparePart(t, g, &part, gc, i, j)
			j += cols
		}
		i += rows
	}
}

// comparePart compares the block of g from row i0, column j0 with its part.
func comparePart(t *testing.T, g, part *Gemm, gc gemmCase, i0, j0 int) {
	t.Helper()
	for item := range gc.inner {
		for i := range part.M {
			for j := range part.N {
				got, want := float32(g.C.elem(item, gc.inner, i0+i, j0+j)), float32(part.C.elem(item, gc.inner, i, j))
				if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
					t.Fatalf("%v: item %d, element %d, %d is %g, and %g in the product of a part of %d x %d", gc, item, i0+i, j0+j, got, want, part.M, part.N)
				}
			}
		}
	}
}

// largeConv is a convolution of random sizes whose results have f32.
func largeConv(d dice) *Conv {
	c := &Conv{N: d.extent(40), Groups: 1, In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}}
	if d.IntN(5) == 0 {
		c.Groups = d.extent(64)
	}
	c.C, c.K = c.Groups*d.extent(600/c.Groups), c.Groups*d.extent(600/c.Groups)
	kernel, stride, dims := 1+d.IntN(5), 1, 1+d.IntN(9)/3 // most are images
	if dims = min(dims, 2); d.IntN(6) == 0 {
		dims = 3
	}
	if d.IntN(2) == 0 {
		kernel = 3
	}
	if d.IntN(3) == 0 {
		stride = 2
	}
	for a := 3 - dims; a < 3; a++ {
		c.Kernel[a], c.Stride[a], c.Pad[a] = kernel, stride, d.IntN(kernel/2+1)
		if d.IntN(8) == 0 {
			c.Dilation[a] = 2
		}
		c.In[a] = (kernel-1)*c.Dilation[a] + d.extent([]int{0, 2000, 80, 20}[dims])
		c.Out[a] = (c.In[a]+2*c.Pad[a]-(kernel-1)*c.Dilation[a]-1)/stride + 1
	}
	for c.N > 1 && c.N*c.K*c.C/c.Groups*volume(c.Kernel)*volume(c.Out) > 1<<28 {
		c.N = (c.N + 1) / 2
	}
	return c
}

// filled is c with random operands, and often with an epilogue.
func (c *Conv) filled(d dice) *Conv {
	typ := d.typ()
	c.X, c.W, c.Y = d.buf(typ, c.N*c.C*volume(c.In)), d.buf(typ, c.K*c.C/c.Groups*volume(c.Kernel)), d.buf(typ, c.N*c.K*volume(c.Out))
	c.ChannelsLast = d.IntN(2) == 0
	if c.ChannelsLast {
		c.Weights = OXI
	}
	if d.IntN(2) == 0 {
		c.Bias, c.Act = d.buf(d.typ(), c.K), []Act{NoAct, ActRelu}[d.IntN(2)]
	}
	if d.IntN(3) == 0 {
		c.Residual.Buf, c.Last = d.buf(d.typ(), c.Y.Len()), []Act{NoAct, ActRelu}[d.IntN(2)]
	}
	return c
}

// turned is c with channels last instead of first, or the reverse, and weights in the other order.
func (c *Conv) turned() *Conv {
	o := *c
	o.ChannelsLast, o.Weights = !c.ChannelsLast, OXI-c.Weights
	o.X, o.W, o.Y = zeros(c.X.Type, c.X.Len()), zeros(c.W.Type, c.W.Len()), zeros(c.Y.Type, c.Y.Len())
	if !c.Residual.absent() {
		o.Residual.Buf = zeros(c.Residual.Type, c.Residual.Len())
	}
	c.pairs(&o, func(from, to *Buf, i, j int) {
		if to.set(j, from.get(i)); from == &c.Y && !c.Residual.absent() {
			o.Residual.set(j, c.Residual.get(i))
		}
	})
	return &o
}

// pairs calls f for each element of x, w and y of c and that of o, which is turned.
func (c *Conv) pairs(o *Conv, f func(from, to *Buf, i, j int)) {
	for n := range c.N {
		for ch := range c.C {
			for p := range volume(c.In) {
				f(&c.X, &o.X, c.image(n, ch, p, c.C, volume(c.In)), o.image(n, ch, p, c.C, volume(c.In)))
			}
		}
		for ch := range c.K {
			for p := range volume(c.Out) {
				f(&c.Y, &o.Y, c.image(n, ch, p, c.K, volume(c.Out)), o.image(n, ch, p, c.K, volume(c.Out)))
			}
		}
	}
	so, si, sx := c.weightStrides()
	to, ti, tx := o.weightStrides()
	for k := range c.K {
		for ch := range c.C / c.Groups {
			for t := range volume(c.Kernel) {
				f(&c.W, &o.W, k*so+ch*si+t*sx, k*to+ch*ti+t*tx)
			}
		}
	}
}

// TestLargeConvs: a large convolution and its gradients are those by the definition on another path, with the images turned.
func TestLargeConvs(t *testing.T) {
	paths := Paths()
	onLargeCases(t, func(t *testing.T, p *Path, d dice) {
		c := largeConv(d).filled(d)
		one, two := New(p, 1+d.IntN(3)), New(paths[(d.IntN(len(paths)-1)+1)%len(paths)], 1)
		defer one.Close()
		defer two.Close()
		o := c.turned()
		o.Direct = true
		got, want := one.allOf(c), two.allOf(o)
		rms := [3]float64{got.X.rms(), got.W.rms(), got.Y.rms()}
		got.pairs(want, func(from, to *Buf, i, j int) {
			scale := rms[0]
			switch from {
			case &got.W:
				scale = rms[1]
			case &got.Y:
				scale = rms[2]
			}
			if a, b := float64(from.get(i)), float64(to.get(j)); !(math.Abs(a-b) <= 2e-3*scale) && !t.Failed() {
				t.Errorf("%v on %s and %s: element %d of x %t, w %t, y %t is %g and %g; rms %g", c, p.Name(), two.Name(), i, from == &got.X, from == &got.W, from == &got.Y, a, b, scale)
			}
		})
	})
}

// allOf is c and both gradients, in f32.
func (m *Machine) allOf(c *Conv) *Conv {
	fwd, dx, dw := *c, *c, *c
	dx.Epilogue, dw.Epilogue = Epilogue{}, Epilogue{}
	fwd.Y, dx.X, dw.W = zeros(F32, c.Y.Len()), zeros(F32, c.X.Len()), zeros(F32, c.W.Len())
	m.Conv(&fwd)
	m.ConvInputGrad(&dx)
	m.ConvWeightGrad(&dw)
	all := *c
	all.Y, all.X, all.W = fwd.Y, dx.X, dw.W
	return &all
}

func (b Buf) rms() float64 {
	sum := 0.0
	for _, v := range b.f32() {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(b.Len()))
}
