package sm

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/lower"
)

// gemm keeps a product that cuBLASLt computes in one call. Other products were split before
// (splits). Its operands have one dtype and the layout that cuBLASLt requires.
func (c *cudaLowerer) gemm() error {
	s, g := c.from, c.from.Gemm
	a, b := c.typeOf(s.In[0]).DType, c.typeOf(s.In[1]).DType
	switch {
	case a != b || !multiplied[a] || !c.target.multiplies(a):
		return fmt.Errorf("no product of %s and %s on %s", a, b, c.p.Target)
	case g.K == 0:
		return c.fillZero(s.Out[0])
	}
	if c.misaligned(s) {
		var err error
		if s, err = c.flattened(s); err != nil {
			return err
		}
	}
	p := *s
	p.Bytes = c.p.Traffic(&p)
	c.out = append(c.out, p)
	return nil
}

// multiplied are the dtypes of products for which cuBLASLt is used.
var multiplied = map[ir.DType]bool{ir.F32: true, ir.F16: true, ir.BF16: true}

// multiplies reports whether the device multiplies operands of d: bf16 from sm_80.
func (t Target) multiplies(d ir.DType) bool { return d != ir.BF16 || t.fl.SM >= 80 }

// widens reports whether a product reads operand i of n where it lies, and the device does not
// multiply its dtype d. A convolution is a product then, whose other operand a kernel copies
// (unfolding); cuDNN does not run those of d either.
func (t Target) widens(n *ir.Node, i int, d ir.DType) bool {
	conv := n.Def().Is(ir.Convolves)
	if i > 1 || t.multiplies(d) || !conv && !n.Def().Is(ir.MatrixProduct) {
		return false
	}
	for _, v := range []*ir.Value{n.In[0], n.In[1], n.Out[0]} {
		if v.Type.Shape.Elements() <= 0 {
			return false
		}
	}
	return !conv || !lower.Copies(n, i)
}

// splits reports whether cuBLASLt computes only the f32 sums of a product, and a kernel applies the
// epilogue: where the result is neither f32 nor of the operands' dtype, or the epilogue is more
// than a bias of the result's dtype followed by a ReLU.
func (t Target) splits(p ir.Product) bool {
	stores := p.Out == ir.F32 || p.Out == p.A && p.Out == p.B && t.multiplies(p.A)
	return !stores || p.Bias != ir.Invalid && p.Bias != p.Out || p.Tanh
}

// blasAlign divides the address of every item, in bytes.
const blasAlign = 16

// misaligned reports whether an item of the outer batch levels, each a product of its own, would
// begin at an address that cuBLASLt does not accept.
func (c *cudaLowerer) misaligned(s *lower.Step) bool {
	g := s.Gemm
	for level := range max(len(g.Batch)-1, 0) {
		for i, m := range []*lower.Matrix{&g.A, &g.B, &g.C} {
			size := c.typeOf(append(s.In[:2:2], s.Out[0])[i]).DType.Size()
			if m.Strides[level]*size%blasAlign != 0 {
				return true
			}
		}
	}
	return false
}

// flattened is a batched product with one batch level: repeated operands are copied for each item.
func (c *cudaLowerer) flattened(s *lower.Step) (*lower.Step, error) {
	f, g := *s, *s.Gemm
	f.In, f.Gemm = slices.Clone(s.In), &g
	for i, m := range []*lower.Matrix{&g.A, &g.B} {
		rows, cols := [2]int64{g.ARows(), g.BRows()}[i], m.LD
		shape := append(slices.Clone(g.Batch), rows, cols)
		d := c.typeOf(s.In[i]).DType
		out := c.temp("items", d, shape...)
		if err := c.cluster(&lower.Cluster{Shape: shape, Code: []ir.Instr{{Op: ir.PIn, Type: ir.F32}},
			Loads:  []lower.Access{{Buffer: s.In[i], DType: d, Strides: append(slices.Clone(m.Strides), cols, 1)}},
			Stores: []lower.Access{{Buffer: out, DType: d, Strides: ir.RowMajor(shape)}}}); err != nil {
			return nil, err
		}
		f.In[i] = out
		m.Strides = []int64{rows * cols}
	}
	g.C.Strides = []int64{g.M * g.N}
	g.Batch = []int64{lower.Count(g.Batch)}
	return &f, nil
}
