package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// kernel checks a kernel step: its row, attributes, types, operands and results, and the fusion of
// a norm.
func (b *body) kernel(s *Step) error {
	if len(s.Kernel.Parts) > 0 {
		return b.parts(s)
	}
	if len(b.nodes.list) == 1 {
		b.head = b.nodes.list[0]
	}
	if b.beside != nil && len(s.In) > 0 && s.In[0] != None && !b.shows(s.In[0], b.head.In[0]) {
		b.head, b.beside = b.beside, b.head
	}
	k, n := s.Kernel, b.head
	if n == nil || k.Name != n.Def().Name || k.Node.Op != n.Op || !k.Node.Attrs.Equal(n.Attrs) {
		return errors.New("runs another op, or with other attributes, than its node")
	}
	if (k.Fusion.Beside == nil) != (b.beside == nil) || (k.Fusion.Total == nil) != (b.sum == nil) {
		return errors.New("runs a second norm or a sum, or its nodes have one")
	}
	if k.Pool != nil {
		return b.pooled(s)
	}
	if k.Fusion != (NormFusion{}) {
		return b.norm(s)
	}
	if s.Epilogue != nil {
		return b.postOps(s)
	}
	return errors.Join(b.kernelTypes(s), b.operands(s, max(len(n.In), len(s.In))), b.results(s))
}

// postOps checks a kernel with a cluster over its result.
func (b *body) postOps(s *Step) error {
	own := *s
	own.In, own.Out = s.In[:min(len(s.In), len(b.head.In))], nil
	if s.Kernel.Node.Out[0].Type != b.head.Out[0].Type {
		return errors.New("its kernel gets another type for its result")
	}
	if err := errors.Join(b.kernelTypes(&own), b.operands(&own, len(b.head.In))); err != nil {
		return err
	}
	x := b.result(b.head, 0)
	return b.cluster(s.Epilogue, func(*Access) expr { return x })
}

// kernelTypes checks the types in the kernel's description.
func (b *body) kernelTypes(s *Step) error {
	for i, id := range s.In {
		if id != None && (i >= len(s.Kernel.Node.In) || s.Kernel.Node.In[i] == nil || s.Kernel.Node.In[i].Type != b.p.Buffers[id].Type) {
			return fmt.Errorf("its kernel gets another type for operand %d", i)
		}
	}
	for i, id := range s.Out {
		if id != None && (i >= len(s.Kernel.Node.Out) || s.Kernel.Node.Out[i].Type != b.p.Buffers[id].Type) {
			return fmt.Errorf("its kernel gets another type for result %d", i)
		}
	}
	return nil
}

// pooled checks the gradient of a max pool, which may read the pooled image in place of the
// positions.
func (b *body) pooled(s *Step) error {
	n := b.head
	pool := n.PoolOfIndex()
	if pool == nil {
		return errors.New("searches windows again that no pool made")
	}
	w := pool.Window()
	if fmt.Sprint(w) != fmt.Sprint(*s.Kernel.Pool) {
		return errors.New("searches other windows than its pool")
	}
	in := []*ir.Value{n.In[0], n.In[1]}
	if b.nodes.has(pool) {
		in[1] = pool.In[0]
	}
	return errors.Join(b.kernelTypes(s), b.operand(s, 0, in), b.operand(s, 1, in), b.results(s))
}

// norm checks a norm with its fusion.
func (b *body) norm(s *Step) error {
	if s.Kernel.Fusion.Signs > 0 {
		own, err := b.withoutSigns(s)
		if err != nil {
			return err
		}
		s = own
	}
	n, f := b.head, s.Kernel.Fusion
	if err := b.normTypes(s); err != nil {
		return err
	}
	var made []expr
	if f.Prologue != nil {
		made = b.loads(f.Prologue, func(*Access) expr { return -1 })
		if err := b.cluster(f.Prologue, nil); err != nil {
			return err
		}
	}
	for i, v := range n.In {
		switch {
		case v == nil || v.Def == nil || !b.nodes.has(v.Def):
			if f.Sign > 0 && i == b.p.Target.Caps().NormOf(n).Prologue {
				return errors.New("takes an operand through the gradient of a ReLU that is not in its cluster")
			}
			if err := b.operand(s, i, n.In); err != nil {
				return err
			}
		case f.Sign > 0:
			shape := ir.Sizes(v.Type.Shape)
			got := b.apply(ir.OpReluGrad, b.buffer(s.In[i], shape), b.buffer(s.In[f.Sign], shape))
			if got != b.computed(v) {
				return fmt.Errorf("operand %d is not what its nodes compute", i)
			}
		case made != nil:
			if f.Made < 0 || int(f.Made) >= len(made) || b.value(v, ir.Sizes(v.Type.Shape)) != made[f.Made] || s.In[i] != None {
				return fmt.Errorf("operand %d is not what its nodes compute", i)
			}
		default:
			return fmt.Errorf("operand %d is not computed", i)
		}
	}
	if f.Beside != nil {
		if err := b.besideNorm(s); err != nil {
			return err
		}
	}
	return b.normResults(s)
}

// withoutSigns is s without its last result, bits that say where another result is above zero.
func (b *body) withoutSigns(s *Step) (*Step, error) {
	f, own := s.Kernel.Fusion, *s
	last := len(s.Out) - 1
	if f.Signs != last || f.SignsOf != 0 && f.SignsOf != f.Copy || b.p.Buffers[s.Out[last]].Size*8 != b.p.Buffers[s.Out[f.SignsOf]].Type.Shape.Elements() {
		return nil, errors.New("its signs are not those of one of its results")
	}
	b.done.add(Port{Root: b.p.Buffers[s.Out[last]].Root})
	own.Out = s.Out[:last]
	return &own, nil
}

// besideNorm checks the second norm of a kernel: its attributes, operands and results.
func (b *body) besideNorm(s *Step) error {
	n, f := b.beside, s.Kernel.Fusion.Beside
	if f.Node.Op != n.Op || !f.Node.Attrs.Equal(n.Attrs) || len(f.In) != len(n.In) || len(f.Out) != len(n.Out) {
		return errors.New("runs a second norm with other attributes, operands or results than its node")
	}
	c := b.p.Target.Caps().NormOf(n)
	for i, v := range n.In {
		id, at := None, f.In[i]
		if at >= 0 {
			id = s.In[at]
		}
		switch {
		case v == nil && id == None:
		case v != nil && i == c.Operand && c.Operand > 0 && v == b.head.In[i] && id == s.In[i]: // shared with the first norm
		case v == nil || id == None || !b.shows(id, v) || f.Node.In[i] == nil || f.Node.In[i].Type != v.Type:
			return fmt.Errorf("operand %d of its second norm is not that of its node", i)
		}
	}
	for i, v := range n.Out {
		added := i == 0 && c.Operand == 0
		if added != (f.Out[i] < 0) || f.Node.Out[i].Type != v.Type || !added && !b.shows(s.Out[f.Out[i]], v) {
			return fmt.Errorf("result %d of its second norm is not that of its node", i)
		}
	}
	return nil
}

// normTypes checks the types in the kernel's description: those of its buffers or, where the fusion
// replaces buffers, those of its row.
func (b *body) normTypes(s *Step) error {
	n, k, f := b.head, s.Kernel.Node, s.Kernel.Fusion
	gradients := f.Beside != nil && b.p.Target.Caps().NormOf(n).Operand > 0
	if f.Prologue == nil && f.Epilogue == nil && f.Total == nil && !gradients {
		return b.kernelTypes(s)
	}
	for i, v := range n.In {
		if v != nil && (i >= len(k.In) || k.In[i] == nil || k.In[i].Type != v.Type) {
			return fmt.Errorf("its kernel gets another type for operand %d", i)
		}
	}
	for i, v := range n.Out {
		if i >= len(k.Out) || k.Out[i].Type != v.Type {
			return fmt.Errorf("its kernel gets another type for result %d", i)
		}
	}
	return nil
}

// sumsRows reports whether n is a sum that the kernel of a norm among the nodes computes.
func (b *body) sumsRows(n *ir.Node) bool {
	caps := b.p.Target.Caps()
	return slices.ContainsFunc(b.nodes.list, func(m *ir.Node) bool {
		r := caps.RowsOf(m)
		return r.Sums && n.SumsRows(r.Cols)
	})
}

// rowSum checks the sum over rows of one of some registers.
func (b *body) rowSum(s *Step, regs []expr) error {
	t := s.Kernel.Fusion.Total
	if t == nil {
		return nil
	}
	x := b.sum.In[0]
	switch {
	case t.Out < 0 || t.Out >= len(s.Out) || !b.shows(s.Out[t.Out], b.sum.Out[0]):
		return errors.New("its sum over rows is not that of its node")
	case t.Reg < 0 || int(t.Reg) >= len(regs) || regs[t.Reg] != b.round(b.value(x, ir.Sizes(x.Type.Shape)), x.Type.DType):
		return errors.New("adds up the rows of another value than its node")
	}
	return nil
}

// normResults checks the stored results of a norm.
func (b *body) normResults(s *Step) error {
	n, f := b.head, s.Kernel.Fusion
	y := n.Out[0]
	shape := ir.Sizes(y.Type.Shape)
	if f.Epilogue != nil {
		for i, v := range n.Out[1:] { // the first one is in no buffer
			if !b.shows(s.Out[i], v) {
				return fmt.Errorf("result %d is not that of %s", i, n.Name())
			}
		}
		g := *f.Epilogue
		g.Loads = slices.Clone(g.Loads)
		g.Loads[0].Buffer = None
		own := func(a *Access) expr { return b.round(b.result(n, 0), a.DType) }
		return errors.Join(b.cluster(&g, own), b.rowSum(s, b.loads(&g, own)))
	}
	x := b.round(b.result(n, 0), y.Type.DType)
	if err := b.rowSum(s, []expr{x}); err != nil {
		return err
	}
	switch own := f.Beside; {
	case f.Residual > 0:
		x = b.add(x, b.buffer(s.In[f.Residual], shape))
	case own != nil && b.p.Target.Caps().NormOf(n).Operand == 0:
		x = b.add(x, b.round(b.result(b.beside, 0), b.beside.Out[0].Type.DType))
	}
	if f.Relu {
		x = b.apply(ir.OpRelu, x)
	}
	for i, id := range s.Out {
		if i >= len(n.Out) && i != f.Copy && (f.Prologue != nil || f.Beside != nil || f.Total != nil) { // stored by the prologue or by the second norm, or the sum
			continue
		}
		if i > 0 && i != f.Copy {
			if i >= len(n.Out) || !b.shows(id, n.Out[i]) {
				return fmt.Errorf("result %d is not that of %s", i, n.Name())
			}
			continue
		}
		if err := b.stored(id, 0, b.p.dtype(id), x, shape, b.bufferStrides(id, shape)); err != nil {
			return err
		}
	}
	return nil
}
