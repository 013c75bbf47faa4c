package lower

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"ampc/ir"
)

// body compares what a step computes with the nodes of the clusters: ops,
// attributes, operands, their order, and the code over results. The values of nodes are derived
// from the rows, those of the step from its description. The inside of a kernel's row is not
// compared.
type body struct {
	exprs
	p       *Program
	nodes   members[*ir.Node]
	tensors grouped[*ir.Value, tensor]
	roots   grouped[BufferID, tensor] // the same tensors
	values  map[*ir.Value]expr        // of nodes, before rounding
	gemm    *ir.Node                  // the product among the nodes, or nil
	head    *ir.Node                  // the other node that is not elementwise, or nil
	beside  *ir.Node                  // the second of two norms in one kernel, or nil
	sum     *ir.Node                  // the sum over rows in the kernel of a norm, or nil
	done    members[Port]             // ports, without dtypes, to which the step stores the right value
	walks   [2][][2]int64             // that are compared
}

// verify compares s with the nodes of its clusters.
func (b *body) verify(s *Step) error {
	p := b.p
	nodes, tensors := p.Planned[s.Runs[0]].nodes, p.Planned[s.Runs[0]].tensors
	for _, k := range s.Runs[1:] {
		nodes, tensors = slices.Concat(nodes, p.Planned[k].nodes), slices.Concat(tensors, p.Planned[k].tensors)
	}
	if slices.ContainsFunc(s.Runs, func(k int32) bool { return p.Planned[k].nodes == nil }) {
		return nil
	}
	b.reset()
	b.values, b.done = emptied(b.values), members[Port]{list: b.done.list[:0]}
	b.gemm, b.head, b.beside, b.sum = nil, nil, nil, nil
	b.nodes = membersOf(nodes)
	b.tensors = groupedBy(tensors, func(t tensor) *ir.Value { return t.value })
	b.roots = groupedBy(tensors, func(t tensor) BufferID { return t.root })
	for _, n := range nodes {
		if s.Kernel != nil && len(s.Kernel.Parts) > 0 {
			break
		}
		if len(nodes) == 2 && slices.ContainsFunc(nodes, func(m *ir.Node) bool { return searched(m) == n }) {
			continue // the other one recomputes its result
		}
		at := &b.head
		if isProduct(n) {
			at = &b.gemm
		}
		if n.Def().Elem != nil {
			continue
		}
		if b.sumsRows(n) {
			at = &b.sum
		}
		if at == &b.head && b.head != nil && b.beside == nil && p.Target.Caps().NormOf(n).Beside && n.Op == b.head.Op {
			at = &b.beside
		}
		if *at != nil {
			return fmt.Errorf("runs both %s and %s", (*at).Def().Name, n.Def().Name)
		}
		*at = n
	}
	if err := errors.Join(s.namesAll(), b.step(s)); err != nil {
		return err
	}
	for _, k := range s.Runs {
		for _, x := range p.Planned[k].Ports {
			if x.Write && !x.Unread && p.moves(x) && !b.done.has(Port{Root: x.Root, At: x.At}) {
				return fmt.Errorf("does not store %s", p.BufferName(x.Root))
			}
		}
	}
	return nil
}

// namesAll checks that a step's operands and results are exactly those that its description names.
func (s *Step) namesAll() error {
	var reads, writes []BufferID
	clusters := s.Clusters()
	if s.Gemm != nil || s.Conv != nil {
		e := s.epilogue()
		for i, id := range s.In {
			if i < 2 || i == e.Bias || i == e.Residual || e.Act.Gradient() && i == e.Aux {
				reads = append(reads, id)
			}
		}
		if clusters = nil; s.Epilogue != nil {
			clusters = []*Cluster{s.Epilogue}
		}
	}
	if clusters == nil {
		return nil
	}
	for _, c := range clusters {
		for i := range c.Loads {
			if id := c.Loads[i].Buffer; id != None {
				reads = append(reads, id)
			}
		}
		for i := range c.Stores {
			writes = append(writes, c.Stores[i].Buffer)
		}
	}
	if err := sameBuffers(s.In, reads); err != nil {
		return fmt.Errorf("its operands: %w", err)
	}
	if len(s.Out) > 0 && (s.Epilogue != nil || s.Kind == KindCluster) {
		if err := sameBuffers(s.Out, writes); err != nil {
			return fmt.Errorf("its results: %w", err)
		}
	}
	return nil
}

func sameBuffers(listed, named []BufferID) error {
	known, shown := membersOf(named), membersOf(listed)
	for _, id := range listed {
		if !known.has(id) {
			return errors.New("one is listed that the description does not name")
		}
	}
	for _, id := range named {
		if !shown.has(id) {
			return errors.New("one is not listed that the description names")
		}
	}
	return nil
}

func (b *body) step(s *Step) error {
	switch s.Kind {
	case KindCluster:
		for _, c := range s.Clusters() {
			if err := b.cluster(c, nil); err != nil {
				return err
			}
		}
	case KindGemm, KindConv:
		return b.product(s)
	case KindAttention:
		if b.head == nil || b.head.Op != ir.OpAttention && b.head.Op != ir.OpAttentionGrad || !reflect.DeepEqual(s.Attn, AttentionOf(b.head)) {
			return errors.New("its description is not that of its node")
		}
		return errors.Join(b.operands(s, len(b.head.In)), b.results(s))
	case KindKernel:
		return b.kernel(s)
	case KindCopy, KindFill:
		return b.moved(s)
	}
	return nil
}

// tensor is the strided view of v.
func (b *body) tensor(v *ir.Value) (t tensor, ok bool) {
	list := b.tensors.with(v)
	i := slices.IndexFunc(list, func(t tensor) bool { return t.value == v })
	if i < 0 {
		return tensor{}, false
	}
	return list[i], true
}

// over returns the strides of t over an iteration space whose last dimensions are those of t.
func (t *tensor) over(shape []int64) []int64 {
	strides := broadcastStrides(t.value.Type.Shape, shape)
	for i, st := range t.strides {
		if at := len(shape) - len(t.strides) + i; strides[at] != 0 {
			strides[at] = st
		}
	}
	return strides
}

// value is the computation that a node over shape reads as v.
func (b *body) value(v *ir.Value, shape []int64) expr {
	if v.Def == nil || !b.nodes.has(v.Def) {
		t, ok := b.tensor(v)
		if !ok {
			return b.id(exprKey{kind: ofNothing, op: ir.PIn, of: v})
		}
		return b.element(t.root, t.at, v.Type.DType, shape, t.over(shape))
	}
	return b.convert(b.round(b.computed(v), v.Type.DType), ir.RegType(v.Type.DType))
}

// computed is the computation of v by the nodes, before rounding.
func (b *body) computed(v *ir.Value) expr {
	if e, ok := b.values[v]; ok {
		return e
	}
	n := v.Def
	shape := ir.Sizes(n.Out[0].Type.Shape)
	if n.Def().Elem != nil {
		for i, e := range b.node(n, func(i int) expr { return b.value(n.In[i], shape) }) {
			b.values[n.Out[i]] = e
		}
		return b.values[v]
	}
	e := b.result(n, v.Idx)
	if bias := n.Bias(); bias != nil { // the row adds the bias to the product
		if t, ok := b.tensor(bias); ok {
			shape, strides := b.channelStrides(n)
			e = b.add(e, b.element(t.root, t.at, bias.Type.DType, shape, strides))
		}
	}
	b.values[v] = e
	return e
}

func isProduct(n *ir.Node) bool {
	return n.Def().Is(ir.Convolves) || n.Def().Is(ir.MatrixProduct)
}

// add is the f32 sum of two elements.
func (b *body) add(x, y expr) expr {
	return b.id(exprKey{op: ir.PAdd, typ: ir.F32, a: min(x, y), b: max(x, y)})
}

// channelStrides walks a vector over the columns of product n, or over the channels of a
// convolution.
func (b *body) channelStrides(n *ir.Node) (shape, strides []int64) {
	shape = ir.Sizes(n.Out[0].Type.Shape)
	strides = make([]int64, len(shape))
	axis := len(shape) - 1
	if n.Def().Is(ir.Convolves) && !n.Window().Last {
		axis = 1
	}
	strides[axis] = 1
	return shape, strides
}

// cluster checks the stores of c. computed gives the value of loads from Buffer None.
func (b *body) cluster(c *Cluster, computed func(a *Access) expr) error {
	regs := b.loads(c, computed)
	for i := range c.Stores {
		a := &c.Stores[i]
		if err := b.stored(a.Buffer, a.Offset*a.DType.Size(), a.DType, regs[a.Reg], c.Shape, a.Strides); err != nil {
			return err
		}
	}
	return nil
}

// loads evaluates the code of c and returns its registers.
func (b *body) loads(c *Cluster, computed func(a *Access) expr) []expr {
	return b.run(c.Code, func(i int) expr {
		a := &c.Loads[i]
		if a.Buffer == None {
			return computed(a)
		}
		buffer := &b.p.Buffers[a.Buffer]
		at := buffer.At + a.Offset*a.DType.Size()
		return b.element(buffer.Root, at, a.DType, c.Shape, a.Strides)
	})
}

// stored checks that e, stored to a buffer with the given strides, is what the nodes compute there.
func (b *body) stored(id BufferID, offset int64, d ir.DType, e expr, shape, strides []int64) error {
	buffer := &b.p.Buffers[id]
	at := buffer.At + offset
	for _, t := range b.roots.with(buffer.Root) {
		if v := t.value; t.root == buffer.Root && t.at == at && v.Type.DType == d && v.Def != nil && b.nodes.has(v.Def) {
			b.done.add(Port{Root: t.root, At: t.at})
			want := b.round(b.computed(v), d)
			if b.round(e, d) == want && b.alike(&t, shape, strides) {
				return nil
			}
		}
	}
	return fmt.Errorf("stores in %s what its nodes do not compute", b.p.BufferName(id))
}

// alike reports whether a walk goes over the elements of t in their order.
func (b *body) alike(t *tensor, shape, strides []int64) bool {
	own := ir.Sizes(t.value.Type.Shape)
	b.walks[0] = collapsed(b.walks[0][:0], shape, strides)
	b.walks[1] = collapsed(b.walks[1][:0], own, t.over(own))
	return slices.Equal(b.walks[0], b.walks[1])
}

// product checks a matrix product or convolution with its epilogues.
func (b *body) product(s *Step) error {
	n := b.gemm
	if n == nil {
		return errors.New("no node of its cluster is a product")
	}
	if err := errors.Join(b.describes(s, n), b.operand(s, 0, n.In), b.operand(s, 1, n.In)); err != nil {
		return err
	}
	e, x := s.epilogue(), b.result(n, 0)
	shape := ir.Sizes(n.Out[0].Type.Shape)
	if e.Bias > 0 {
		buffer := &b.p.Buffers[s.In[e.Bias]]
		shape, strides := b.channelStrides(n)
		x = b.add(x, b.element(buffer.Root, buffer.At, buffer.Type.DType, shape, strides))
	}
	if e.Act != NoAct {
		var err error
		if x, err = b.activation(s, x, shape); err != nil {
			return err
		}
	}
	if e.BiasGrad > 0 {
		if err := b.biasGrad(s); err != nil {
			return err
		}
	}
	if e.Residual > 0 {
		x = b.add(x, b.buffer(s.In[e.Residual], shape))
	}
	if s.Epilogue != nil {
		return b.cluster(s.Epilogue, func(*Access) expr { return x })
	}
	id := s.Out[0]
	return b.stored(id, 0, b.p.dtype(id), x, shape, b.bufferStrides(id, shape))
}

// buffer is an element of a buffer in the buffer's own view.
func (b *body) buffer(id BufferID, shape []int64) expr {
	buffer := &b.p.Buffers[id]
	return b.element(buffer.Root, buffer.At, buffer.Type.DType, shape, b.bufferStrides(id, shape))
}

func (b *body) bufferStrides(id BufferID, shape []int64) []int64 {
	if st := b.p.Buffers[id].Strides; st != nil {
		return st
	}
	return ir.RowMajor(shape)
}

// describes checks that the description of s, except for its epilogue, is that of node n.
func (b *body) describes(s *Step, n *ir.Node) error {
	same := false
	if n.Def().Is(ir.MatrixProduct) {
		if s.Gemm != nil {
			g := *ProductOf(n)
			g.Epilogue = s.Gemm.Epilogue
			same = reflect.DeepEqual(normalGemm(g), normalGemm(*s.Gemm))
		}
	} else if s.Conv != nil {
		c := *convOf(n)
		c.Epilogue = s.Conv.Epilogue
		same = reflect.DeepEqual(c, *s.Conv)
	}
	if !same {
		return fmt.Errorf("its description is not that of %s", n.Name())
	}
	return nil
}

// normalGemm replaces empty lists by nil, so that equal descriptions compare equal.
func normalGemm(g Gemm) Gemm {
	for _, l := range []*[]int64{&g.Batch, &g.A.Strides, &g.B.Strides, &g.C.Strides} {
		if len(*l) == 0 {
			*l = nil
		}
	}
	return g
}

// operands checks that the first n operands of s are those of its node, in their order.
func (b *body) operands(s *Step, n int) error {
	for i := range n {
		if err := b.operand(s, i, b.head.In); err != nil {
			return err
		}
	}
	return nil
}

func (b *body) operand(s *Step, i int, in []*ir.Value) error {
	var v *ir.Value
	if i < len(in) {
		v = in[i]
	}
	id := None
	if i < len(s.In) {
		id = s.In[i]
	}
	if id == None && (v == nil || b.head.OperandDef(i).Unread) {
		return nil
	}
	if v == nil || id == None || !b.shows(id, v) {
		return fmt.Errorf("operand %d is not that of its node", i)
	}
	return nil
}

// shows reports whether buffer id is the view of v.
func (b *body) shows(id BufferID, v *ir.Value) bool {
	buffer := &b.p.Buffers[id]
	for _, t := range b.tensors.with(v) {
		if t.value == v && t.root == buffer.Root && t.at == buffer.At && buffer.Type == v.Type && (t.strides == nil || slices.Equal(t.strides, buffer.Strides)) {
			b.done.add(Port{Root: t.root, At: t.at})
			return true
		}
	}
	return false
}

// results checks that the results of s are those of its node, in their order.
func (b *body) results(s *Step) error {
	for i, id := range s.Out {
		if id != None && (i >= len(b.head.Out) || !b.shows(id, b.head.Out[i])) {
			return fmt.Errorf("result %d is not that of %s", i, b.head.Name())
		}
	}
	return nil
}
