package lower

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// lowerCluster lowers a fusion cluster to one step. The passes form only clusters that one kernel
// runs, so lowering never splits one.
func (l *Lowerer) lowerCluster(u *scheduled) error {
	head := slices.IndexFunc(u.nodes, func(n *ir.Node) bool { return n.Def().Elem == nil })
	if head < 0 && overOneShape(u.nodes) {
		l.emitCluster(u.nodes)
		return nil
	}
	if l.lowerParts(u.nodes) || l.lowerPoolLaunch(u.nodes) || l.lowerProductLaunch(u.nodes) || l.lowerNormLaunch(u.nodes) {
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

// compilerFault ends errors about graphs that the passes never produce.
const compilerFault = "a fault of the compiler, unless the clusters were written by hand"

// overOneShape reports whether all nodes are elementwise and have results of one shape.
func overOneShape(nodes []*ir.Node) bool {
	return !slices.ContainsFunc(nodes, func(n *ir.Node) bool { return n.Out[0].Type.Shape != nodes[0].Out[0].Type.Shape })
}

// emitCluster emits one step that runs elementwise nodes over one shape. Values that no other step
// reads stay in registers.
func (l *Lowerer) emitCluster(nodes []*ir.Node) {
	l.now = nodes
	j := l.join(nil, nodes)
	out := l.stores(j, nodes)
	if len(out) > 0 { // otherwise no step reads the results
		l.emit(Step{Kind: KindCluster, In: j.in, Out: out, Cluster: &j.cluster, Node: NodeRef{nodes[len(nodes)-1].Name(), nodes[0].Pos}})
	}
}

// stores adds stores to the cluster for the values of nodes that are read outside of nodes.
func (l *Lowerer) stores(j *joiner, nodes []*ir.Node) (out []BufferID) {
	return l.storesFor(j, nodes, nodes)
}

// storesFor adds stores to the cluster for the values of nodes that are read outside of step.
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

	product *ir.Value // value that the product's kernel has computed; nil: the cluster follows no product
}

// join generates the code of nodes. If product is not nil, it is the value that a product's kernel
// has computed: the code loads it from Buffer None.
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

// read returns the register of v. A value of the cluster is rounded if its dtype is low, and
// wrapped if it is an integer narrower than its register. Any other value is loaded.
func (j *joiner) read(v *ir.Value) ir.Reg {
	if v == j.product {
		j.computed()
	}
	if r, ok := j.regs[v]; ok {
		if d := v.Type.DType; (d.Low() || d.Integer() && d != ir.RegType(d)) && !j.holds(r, d) {
			r = j.code.Round(r, d)
			j.regs[v] = r // a store rounds to the same bits
		}
		return j.code.Conv(r, ir.RegType(v.Type.DType))
	}
	if r, ok := j.loads[v]; ok {
		return r
	}
	r := j.code.Emit(ir.Instr{Op: ir.PIn, Type: ir.RegType(v.Type.DType), Int: int64(len(j.cluster.Loads))})
	for _, a := range j.l.loadsOf(v, j.cluster.Shape) {
		j.cluster.Loads = append(j.cluster.Loads, a)
		j.in = append(j.in, a.Buffer)
	}
	j.loads[v] = r
	return r
}

// computed emits the load of the product's value.
func (j *joiner) computed() {
	if _, ok := j.regs[j.product]; ok {
		return
	}
	j.regs[j.product] = j.code.Emit(ir.Instr{Op: ir.PIn, Type: ir.F32, Int: int64(len(j.cluster.Loads))})
	j.cluster.Loads = append(j.cluster.Loads, Access{Buffer: None, DType: ir.F32, Strides: ir.RowMajor(j.cluster.Shape)})
}

// holds reports whether the value in register r is known to be representable in dtype d.
func (j *joiner) holds(r ir.Reg, d ir.DType) bool {
	switch i := j.code.Ins[r]; i.Op {
	case ir.PRound:
		return i.To == d
	case ir.PIn:
		return j.cluster.Loads[i.Int].DType == d
	}
	return false
}

// broadcastStrides aligns s with the last dimensions of shape; dimensions of size one repeat.
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

// Count is the number of points of an iteration space.
func Count(d []int64) int64 {
	n := int64(1)
	for _, x := range d {
		n *= x
	}
	return n
}
