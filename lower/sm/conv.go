package sm

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// unfolding is a convolution as one product for each group. Rows are the output positions, columns
// the elements of a filter.
type unfolding struct {
	*cudaLowerer
	w          ir.Window
	rows, cols int64   // cols of one group
	planes     int64   // positions of one image
	channel    []int64 // strides of [image, channel, position] on the output side
	geometry   ptx.Unfold
	low        ir.DType // of the product's operands
}

// conv leaves a convolution to cuDNN, or turns it into im2col and a product, or into a product and
// col2im. Sums stay in f32 until they are stored.
func (c *cudaLowerer) conv() error {
	s, w := c.from, c.from.Conv.Window
	if c.elements(s.Out[0]) == 0 || c.elements(s.In[0]) == 0 {
		return c.fillZero(s.Out[0])
	}
	if c.inGraph(s) {
		return c.dnn()
	}
	u := &unfolding{cudaLowerer: c, w: w, planes: lower.Count(w.Out), low: c.typeOf(s.In[0]).DType}
	if !c.target.multiplies(u.low) {
		u.low = ir.F32
	}
	u.rows, u.cols = w.N*u.planes, w.C/w.Groups*lower.Count(w.Kernel)
	u.channel = []int64{w.O * u.planes, u.planes, 1}
	if w.Last {
		u.channel = []int64{w.O * u.planes, 1, w.O}
	}
	u.geometry = ptx.Unfold{Pool: poolOf(&w)}
	switch s.Conv.Dir {
	case lower.ConvForward:
		return u.forward()
	case lower.ConvGradX:
		return u.gradX()
	}
	return u.gradW()
}

// poolOf converts a window to the geometry of package ptx, with up to three dimensions, the last
// ones.
func poolOf(w *ir.Window) ptx.Pool {
	three := func(d []int64, rest int) (all [3]int) {
		all = [3]int{rest, rest, rest}
		for i, n := range d {
			all[3-len(d)+i] = int(n)
		}
		return all
	}
	return ptx.Pool{Name: "k", N: int(w.N), C: int(w.C), NHWC: w.Last, Size: three(w.In, 1), To: three(w.Out, 1), Kernel: three(w.Kernel, 1),
		Stride: three(w.Stride, 1), Dilation: three(w.Dilation, 1), Begin: three(w.Begin, 0), End: three(w.End, 0)}
}

func (c *cudaLowerer) fillZero(out lower.BufferID) error {
	code := ir.NewCode(nil)
	if c.elements(out) == 0 {
		return nil
	}
	return c.fill(out, code.Ins, code.F(0))
}

// patches is the layout of the windows as rows of a matrix, group by group.
func (u *unfolding) patches() lower.Matrix {
	if u.w.Last && u.w.Groups > 1 { // a matrix for each group: channels are innermost, so a group's would not be contiguous
		return lower.Matrix{LD: u.cols, Strides: []int64{u.rows * u.cols}}
	}
	return lower.Matrix{LD: u.w.Groups * u.cols, Strides: []int64{u.cols}}
}

// filters and strided are the layouts of the filters and of the output side, with a row for each
// position.
func (u *unfolding) filters() lower.Matrix {
	return lower.Matrix{LD: u.cols, Strides: []int64{u.w.O / u.w.Groups * u.cols}}
}

func (u *unfolding) strided() lower.Matrix {
	return lower.Matrix{LD: u.w.O, Strides: []int64{u.w.O / u.w.Groups}}
}

func turned(m lower.Matrix) lower.Matrix { m.T = true; return m }

// product emits out = op(a)·op(b) for every group, in row-major terms.
func (u *unfolding) product(g lower.Gemm, a, b, out lower.BufferID) error {
	g.TF32 = u.from.Conv.TF32
	g.Batch = []int64{u.w.Groups}
	if u.w.Groups == 1 {
		g.Batch, g.A.Strides, g.B.Strides, g.C.Strides = nil, nil, nil, nil
	}
	s := &lower.Step{Kind: lower.KindGemm, In: []lower.BufferID{a, b}, Out: []lower.BufferID{out}, Node: u.from.Node, Gemm: &g, Runs: u.from.Runs}
	s.Bytes = u.p.Traffic(s)
	u.out = append(u.out, *s)
	return nil
}

// unfold writes the windows of x as rows, unless they lie so already.
func (u *unfolding) unfold(x lower.BufferID) (lower.BufferID, error) {
	if u.w.Pointwise() && u.typeOf(x).DType == u.low {
		return x, nil
	}
	cols := u.temp("cols", u.low, u.rows, u.w.Groups*u.cols)
	g := u.geometry
	g.In, g.Out = ptx.DType(u.typeOf(x).DType.String()), ptx.DType(u.low.String())
	k, err := g.Forward(u.fl)
	if err != nil {
		return lower.None, err
	}
	if err := u.launch("im2col", k, x, cols); err != nil || !u.w.Last || u.w.Groups == 1 {
		return cols, err
	}
	apart := u.temp("groups", u.low, u.w.Groups, u.rows, u.cols)
	return apart, u.regroup(cols, apart, true)
}

// regroup copies windows with channels last to a separate matrix for each group (apart) or back.
func (u *unfolding) regroup(from, to lower.BufferID, apart bool) error {
	taps, cg := lower.Count(u.w.Kernel), u.w.C/u.w.Groups
	shape := []int64{u.w.Groups, u.rows, taps, cg}
	together, own := []int64{cg, taps * u.w.C, u.w.C, 1}, ir.RowMajor(shape)
	if !apart {
		together, own = own, together
	}
	d := u.typeOf(from).DType
	return u.cluster(&lower.Cluster{Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.F32}},
		Loads:  []lower.Access{{Buffer: from, DType: d, Strides: together}},
		Stores: []lower.Access{{Buffer: to, DType: d, Strides: own}}})
}

// byPosition copies the output side to a matrix with a row for every position.
func (u *unfolding) byPosition(dy lower.BufferID) (lower.BufferID, error) {
	if u.w.Last {
		return dy, nil
	}
	out := u.temp("rows", u.low, u.rows, u.w.O)
	shape := []int64{u.w.N, u.planes, u.w.O}
	return out, u.cluster(&lower.Cluster{Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.F32}},
		Loads:  []lower.Access{{Buffer: dy, DType: u.typeOf(dy).DType, Strides: []int64{u.channel[0], u.channel[2], u.channel[1]}}},
		Stores: []lower.Access{{Buffer: out, DType: u.low, Strides: ir.RowMajor(shape)}}})
}

func (u *unfolding) forward() error {
	s := u.from
	cols, err := u.unfold(s.In[0])
	if err != nil {
		return err
	}
	sum := u.temp("sum", ir.F32, u.rows, u.w.O)
	g := lower.Gemm{M: u.rows, N: u.w.O / u.w.Groups, K: u.cols, A: u.patches(), B: turned(u.filters()), C: u.strided()}
	if err := u.product(g, cols, s.In[1], sum); err != nil {
		return err
	}
	return u.store(sum)
}

// store adds the bias to the sums and copies them to the layout of the result.
func (u *unfolding) store(sum lower.BufferID) error {
	s := u.from
	shape := []int64{u.w.N, u.w.O, u.planes}
	g := &lower.Cluster{Shape: shape, Loads: []lower.Access{{Buffer: sum, DType: ir.F32, Strides: []int64{u.planes * u.w.O, 1, u.w.O}}}}
	code := ir.NewCode(nil)
	y := code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32})
	if e := &s.Conv.Epilogue; e.Bias != 0 {
		b := s.In[e.Bias]
		g.Loads = append(g.Loads, lower.Access{Buffer: b, DType: u.typeOf(b).DType, Strides: []int64{0, 1, 0}})
		y = code.Add(y, code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: 1}))
	}
	g.Code = code.Ins
	g.Stores = []lower.Access{{Buffer: s.Out[0], DType: u.typeOf(s.Out[0]).DType, Strides: u.channel, Reg: y}}
	return u.cluster(g)
}

func (u *unfolding) gradX() error {
	s := u.from
	dy, err := u.byPosition(s.In[0])
	if err != nil {
		return err
	}
	cols := u.temp("dcols", ir.F32, u.rows, u.w.Groups*u.cols)
	g := lower.Gemm{M: u.rows, N: u.cols, K: u.w.O / u.w.Groups, A: u.strided(), B: u.filters(), C: u.patches()}
	if err := u.product(g, dy, s.In[1], cols); err != nil {
		return err
	}
	if u.w.Last && u.w.Groups > 1 {
		apart := cols
		cols = u.temp("dcols", ir.F32, u.rows, u.w.Groups*u.cols)
		if err := u.regroup(apart, cols, false); err != nil {
			return err
		}
	}
	back := u.geometry
	back.In, back.Out = ptx.Float32, ptx.DType(u.typeOf(s.Out[0]).DType.String())
	k, err := back.Backward(u.fl)
	if err != nil {
		return err
	}
	return u.launch("col2im", k, cols, s.Out[0])
}

func (u *unfolding) gradW() error {
	s := u.from
	cols, err := u.unfold(s.In[0])
	if err != nil {
		return err
	}
	dy, err := u.byPosition(s.In[1])
	if err != nil {
		return err
	}
	out := s.Out[0]
	g := lower.Gemm{M: u.w.O / u.w.Groups, N: u.cols, K: u.rows, A: turned(u.strided()), B: u.patches(), C: u.filters()}
	if d := u.typeOf(out).DType; d == ir.F32 || d == u.low {
		return u.product(g, dy, cols, out)
	}
	sum := u.temp("sum", ir.F32, u.w.O, u.cols)
	if err := u.product(g, dy, cols, sum); err != nil {
		return err
	}
	return u.cast(sum, out)
}
