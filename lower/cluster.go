package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// lowerCluster lowers a fusion cluster to one step: the passes form no clusters but
// those that a kernel runs, and lowering splits none.
func (l *Lowerer) lowerCluster(u *scheduled) error {
	head := slices.IndexFunc(u.nodes, func(n *ir.Node) bool { return n.Def().Elem == nil })
	if head < 0 && overOneShape(u.nodes) {
		l.emitCluster(u.nodes)
		return nil
	}
	if l.lowerProductLaunch(u.nodes) || l.lowerNormLaunch(u.nodes) {
		return nil
	}
	for i, n := range u.nodes {
		if l.p.Target.Caps().RowsOf(n).Cols > 0 && l.lowerRows(n, others(u.nodes, i)) {
			return nil
		}
	}
	if head >= 0 {
		n, rest := u.nodes[head], others(u.nodes, head)
		if l.lowerProduct(n, rest) || l.p.Target.Caps().NormOf(n) != (ir.NormFusion{}) && l.lowerNorm(n, rest) {
			return nil
		}
	}
	first, last := u.nodes[0], u.nodes[len(u.nodes)-1]
	return &ir.Error{Pos: first.Pos, Msg: fmt.Sprintf("cluster %d, %s to %s: no kernel of %s runs these %d nodes together: %s", first.Why.Cluster, first.Name(), last.Name(), l.p.Target, len(u.nodes), compilerFault)}
}

// compilerFault ends the error for a graph that the passes must not leave.
const compilerFault = "a fault of the compiler, unless the clusters were written by hand"

// overOneShape reports whether elementwise nodes run over one iteration space.
func overOneShape(nodes []*ir.Node) bool {
	return !slices.ContainsFunc(nodes, func(n *ir.Node) bool { return n.Out[0].Type.Shape != nodes[0].Out[0].Type.Shape })
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
	return l.storesFor(j, nodes, nodes)
}

// storesFor adds to the cluster of nodes the stores of what others than step read.
func (l *Lowerer) storesFor(j *joiner, nodes, step []*ir.Node) (out []BufferID) {
	for _, n := range nodes {
		for _, v := range n.Out {
			if !l.stored(v, step) {
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
