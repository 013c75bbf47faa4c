package lower

import (
	"slices"

	"ampc/ir"
)

// segment is a run of a cluster's members that becomes one step: elementwise
// members over one shape, or a single node of any other kind.
type segment struct {
	nodes []*ir.Node
	shape ir.Shape // elementwise segments
	elem  bool
}

// lowerCluster lowers the members of a fusible cluster, as few steps as there are
// products, reductions and distinct iteration spaces among them.
func (l *Lowerer) lowerCluster(u *scheduled) error {
	caps := l.p.Target.Caps()
	if i := slices.IndexFunc(u.nodes, caps.FusesCluster); i >= 0 {
		if l.lowerProduct(u.nodes[i], slices.Concat(u.nodes[:i], u.nodes[i+1:])) {
			return nil
		}
	}
	for i, n := range u.nodes {
		if caps.Norms[n.Op] != (ir.NormFusion{}) && l.lowerNorm(n, slices.Concat(u.nodes[:i], u.nodes[i+1:])) {
			return nil
		}
	}
	segs := l.segments(u)
	for i := 0; i < len(segs); i++ {
		s := segs[i]
		if s.elem {
			l.emitCluster(s.nodes)
			continue
		}
		n := s.nodes[0]
		if i+1 < len(segs) && segs[i+1].elem && l.lowerProduct(n, segs[i+1].nodes) {
			i++
			continue
		}
		if l.vanishes(n) {
			continue
		}
		if err := l.p.Target.Rule(n)(l, n); err != nil {
			return err
		}
	}
	return nil
}

// segments distributes members over segments such that operands come from the
// same or an earlier one. An elementwise member joins the first segment of its
// shape that it may follow and that it shares an operand with.
func (l *Lowerer) segments(u *scheduled) []segment {
	var segs []segment
	at := make(map[*ir.Node]int, len(u.nodes))
	reads := []map[*ir.Value]bool{} // per segment
	for _, n := range u.nodes {
		elem, shape := n.Def().Elem != nil, n.Out[0].Type.Shape
		first := 0
		for _, v := range n.In {
			if v == nil || v.Def == nil {
				continue
			}
			if k, ok := at[v.Def]; ok {
				if !elem || !segs[k].elem || segs[k].shape != shape {
					k++
				}
				first = max(first, k)
			}
		}
		k := len(segs)
		for i := first; elem && i < len(segs); i++ {
			if segs[i].elem && segs[i].shape == shape && touches(reads[i], n) {
				k = i
				break
			}
		}
		if k == len(segs) {
			segs = append(segs, segment{elem: elem, shape: shape})
			reads = append(reads, map[*ir.Value]bool{})
		}
		segs[k].nodes = append(segs[k].nodes, n)
		at[n] = k
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
			if v != nil && v.Type.Shape == shape {
				reads[k][v] = true
			}
		}
	}
	return merged(segs)
}

// merged joins neighbours over one shape of which the second reads what the first computes.
func merged(segs []segment) []segment {
	out := segs[:0]
	for _, s := range segs {
		if k := len(out) - 1; k >= 0 && out[k].elem && s.elem && out[k].shape == s.shape && reads(s.nodes, out[k].nodes) {
			out[k].nodes = append(out[k].nodes, s.nodes...)
			continue
		}
		out = append(out, s)
	}
	return out
}

// reads reports whether any of nodes reads a result of one of others.
func reads(nodes, others []*ir.Node) bool {
	for _, n := range nodes {
		for _, v := range n.In {
			if v != nil && v.Def != nil && contains(others, v.Def) {
				return true
			}
		}
	}
	return false
}

func touches(known map[*ir.Value]bool, n *ir.Node) bool {
	for _, v := range n.In {
		if known[v] {
			return true
		}
	}
	return false
}

// emitCluster joins the code of elementwise nodes over one shape into one step.
// Values that only they read stay in registers.
func (l *Lowerer) emitCluster(nodes []*ir.Node) {
	l.now = nodes
	j := l.join(nil, nodes)
	out := l.stores(j, nodes)
	if len(out) > 0 { // else nobody reads what they compute
		l.emit(Step{Kind: KindCluster, In: j.in, Out: out, Cluster: &j.cluster, Node: NodeRef{nodes[len(nodes)-1].Name(), nodes[0].Pos}})
	}
}

// stores adds to the cluster of nodes the stores of what others read.
func (l *Lowerer) stores(j *joiner, nodes []*ir.Node) (out []BufferID) {
	for _, n := range nodes {
		for _, v := range n.Out {
			if !l.stored(v, nodes) {
				continue
			}
			a := l.storesTo(v, j.cluster.Shape)
			a.Reg = j.regs[v]
			out = append(out, a.Buffer)
			j.cluster.Stores = append(j.cluster.Stores, a)
		}
	}
	return out
}

// stored reports whether anybody but nodes reads v.
func (l *Lowerer) stored(v *ir.Value, nodes []*ir.Node) bool {
	if v.Next != nil || l.returned[v.ID] {
		return true
	}
	for _, u := range l.uses.Of(v) {
		if !contains(nodes, u.Node) {
			return true
		}
	}
	return false
}

func contains(nodes []*ir.Node, n *ir.Node) bool {
	for _, m := range nodes {
		if m == n {
			return true
		}
	}
	return false
}

// joiner builds the code of a cluster.
type joiner struct {
	l       *Lowerer
	cluster Cluster
	in      []BufferID
	code    *ir.Code
	node    *ir.Node // whose code is being emitted
	regs    map[*ir.Value]ir.Reg
	loads   map[*ir.Value]ir.Reg

	product *ir.Value // nil, or what a product's kernel has computed
}

// join makes the code of nodes. Value product, unless nil, is what a product's
// kernel has computed: a load of no buffer.
func (l *Lowerer) join(product *ir.Value, nodes []*ir.Node) *joiner {
	shape := nodes[0].Out[0].Type.Shape
	j := &joiner{l: l, regs: map[*ir.Value]ir.Reg{}, loads: map[*ir.Value]ir.Reg{}}
	j.cluster.Shape = ir.Sizes(shape)
	j.code = ir.NewCode(func(i int) ir.Reg { return j.read(j.node.In[i]) })
	j.product = product
	for _, n := range nodes {
		j.node = n
		for i, r := range n.Def().Elem(j.code, n) {
			j.regs[n.Out[i]] = r
		}
	}
	j.cluster.Code = j.code.Ins
	return j
}

// read is the register of v: its member's, rounded if it is of a low dtype, wrapped if it is of
// an integer narrower than its register, or a load.
func (j *joiner) read(v *ir.Value) ir.Reg {
	if v == j.product {
		j.computed()
	}
	if r, ok := j.regs[v]; ok {
		if d := v.Type.DType; (d.Low() || d.Integer() && d != ir.RegType(d)) && !j.holds(r, d) {
			r = j.code.Round(r, d)
			j.regs[v] = r // storing it rounds to the same bits
		}
		return j.code.Conv(r, ir.RegType(v.Type.DType))
	}
	if r, ok := j.loads[v]; ok {
		return r
	}
	a := j.l.access(v, j.cluster.Shape)
	r := j.code.Emit(ir.Instr{Op: ir.PIn, Type: ir.RegType(v.Type.DType), Int: int64(len(j.cluster.Loads))})
	j.cluster.Loads = append(j.cluster.Loads, a)
	j.in = append(j.in, a.Buffer)
	j.loads[v] = r
	return r
}

// computed loads the product.
func (j *joiner) computed() {
	if _, ok := j.regs[j.product]; ok {
		return
	}
	j.regs[j.product] = j.code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: int64(len(j.cluster.Loads))})
	j.cluster.Loads = append(j.cluster.Loads, Access{Buffer: None, DType: ir.F32, Strides: ir.RowMajor(j.cluster.Shape)})
}

// holds reports whether register r is known to hold a value of dtype d.
func (j *joiner) holds(r ir.Reg, d ir.DType) bool {
	switch i := j.code.Ins[r]; i.Op {
	case ir.PRound:
		return i.To == d
	case ir.PIn:
		return j.cluster.Loads[i.Int].DType == d
	}
	return false
}

// broadcastStrides aligns s with the end of shape; dimensions of size one repeat.
func broadcastStrides(s ir.Shape, shape []int64) []int64 {
	own := ir.Sizes(s)
	dense := ir.RowMajor(own)
	st := make([]int64, len(shape))
	off := len(shape) - len(own)
	for i, n := range own {
		if n != 1 || shape[off+i] == 1 {
			st[off+i] = dense[i]
		}
	}
	return st
}

// Count is how many points a shape has.
func Count(d []int64) int64 {
	n := int64(1)
	for _, x := range d {
		n *= x
	}
	return n
}
