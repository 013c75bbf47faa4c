package lower

import (
	"slices"

	"ampc/ir"
)

// Port is a tensor that a cluster reads or writes, or a part of one from a byte offset on, and the
// dtype in which it does so. Ports follow from the lowered graph alone. A cluster reads the
// operands of its nodes that it does not compute. It writes the results that others read, that the
// graph returns or that variables take.
type Port struct {
	Root  BufferID
	At    int64
	DType ir.DType
	Write bool
	// Unread marks a result without a reader, which kernels store and elementwise work does not,
	// and an operand that the row does not read (ir.Operand.Unread).
	Unread bool
}

// PlannedCluster is a fusion cluster, or a node outside of clusters, with its ports.
type PlannedCluster struct {
	Name  string
	Ports []Port
	// View says that a step exists only where the view is not possible and its elements are copied.
	View bool
	Part Part

	nodes   []*ir.Node // nil: a copy or cast without a node
	tensors []tensor   // by value, the tensors of the ports
}

// tensor is the strided view of a value that a cluster reads or writes.
type tensor struct {
	value   *ir.Value
	root    BufferID
	at      int64   // bytes
	strides []int64 // nil: dense
}

// tensorAt is the strided view of v at port p.
func (l *Lowerer) tensorAt(v *ir.Value, p Port) tensor {
	return tensor{v, p.Root, p.At, l.views.At[v].Strides}
}

// planned records the ports of the schedule nodes of a part, after their steps were emitted.
func (l *Lowerer) planned(nodes []scheduled) {
	count := 0
	for i := range nodes {
		for _, n := range nodes[i].nodes {
			count += len(n.In) + len(n.Out)
		}
	}
	room, tensors := make([]Port, 0, count), make([]tensor, 0, count)
	for i := range nodes {
		c := PlannedCluster{Name: nodes[i].nodes[0].Name(), Part: l.at, nodes: nodes[i].nodes, tensors: tensors[len(tensors):]}
		ports := members[Port]{list: room[len(room):]}
		inside := membersOf(nodes[i].nodes)
		for _, n := range nodes[i].nodes {
			l.portsOf(&ports, n, &inside, &c)
		}
		c.Ports = slices.Clip(ports.list)
		if n := len(room) + len(c.Ports); n <= cap(room) { // else they are elsewhere
			room = room[:n]
		}
		if n := len(tensors) + len(c.tensors); n <= cap(tensors) { // else they are elsewhere
			tensors = tensors[:n]
		}
		l.p.Planned = append(l.p.Planned, c)
	}
}

// portsOf adds the ports of node n of a cluster.
func (l *Lowerer) portsOf(ports *members[Port], n *ir.Node, cluster *members[*ir.Node], c *PlannedCluster) {
	add := func(v *ir.Value, write, unread bool) {
		p := l.port(v, write)
		p.Unread = unread
		c.tensors = append(c.tensors, l.tensorAt(v, p))
		ports.add(p)
	}
	if w := l.spreadOf(n); w != nil && w.Index != nil {
		return // readers have them
	}
	c.View = c.View || n.Def().Is(ir.View) || l.views.Shared[n]
	for i, v := range n.In {
		if v != nil && (v.Def == nil || !cluster.has(v.Def)) {
			if w := l.images[v]; w != nil && w.Index != nil {
				add(w.Outputs, false, false)
				add(w.Index, false, false)
				continue
			}
			if norm := l.again(n, v, cluster.list); norm != nil {
				add(v, false, true)
				for _, x := range norm.In[1:3] {
					if x != nil {
						add(x, false, false)
					}
				}
				continue
			}
			if norm := l.pools[n]; norm != nil && i == 0 {
				add(v, false, true)
				for _, x := range slices.Concat(norm.In[:3], norm.Out[1:3]) {
					if x != nil {
						add(x, false, false)
					}
				}
				continue
			}
			if bits, ok := l.signsOf(n, i, cluster.list); ok {
				add(v, false, true)
				ports.add(Port{Root: bits, DType: ir.U8})
				continue
			}
			add(v, false, n.OperandDef(i).Unread || l.p.Target.Caps().Skips(n, i, l.unread) || l.pooled[n] && (i == 1 || i == 2))
		}
	}
	for _, v := range n.Out {
		switch {
		case l.leaves(v, cluster.has):
			add(v, true, l.unstored(v))
			if bits, ok := l.signs[v]; ok {
				ports.add(Port{Root: bits, DType: ir.U8, Write: true})
			}
		case len(l.uses.Of(v)) == 0:
			add(v, true, true)
		}
	}
}

// again is the norm from whose operand a launch computes v again, which n reads (ir.Caps.Again), or
// nil.
func (l *Lowerer) again(n *ir.Node, v *ir.Value, launch []*ir.Node) *ir.Node {
	if n.Why.Launch == 0 || n.Def().Elem == nil || len(launch) < 2 {
		return nil
	}
	return l.p.Target.Caps().Again(launch, v)
}

// signsOf is the buffer of bits that n, of a launch, reads in place of its operand i, as the plan
// says (ir.Caps.Signs).
func (l *Lowerer) signsOf(n *ir.Node, i int, launch []*ir.Node) (bits BufferID, ok bool) {
	if !n.Why.Has(ir.MarkReadsSigns) || !n.OperandDef(i).Sign || len(launch) < 2 {
		return None, false
	}
	bits, ok = l.signs[n.In[i]]
	return bits, ok
}

// unread reports whether nothing reads v.
func (l *Lowerer) unread(v *ir.Value) bool { return !l.stored(v, nil) }

// port is the port of a cluster at v.
func (l *Lowerer) port(v *ir.Value, write bool) Port {
	p := Port{Root: None, DType: l.storedAs(v).typ.DType, Write: write}
	id := l.buf[v.ID]
	if at, ok := l.views.At[v]; ok {
		id = l.buf[at.Of.ID]
		p.At = at.Offset * v.Type.DType.Size()
	}
	if id != None {
		p.Root = l.p.Buffers[id].Root
		p.At += l.p.Buffers[id].At
	}
	return p
}
