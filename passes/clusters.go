package passes

import (
	"slices"

	"ampc/ir"
	"ampc/passes/plan"
)

// clusters states the clusters of the plan, and what their kernels read and write at every port.
func (m *planner) clusters() error {
	m.tensor = make([]plan.TensorID, len(m.want))
	m.plan.Tensors = make([]plan.Tensor, 0, len(m.want))
	c := &clusterer{planner: m, signs: map[*ir.Value]plan.TensorID{}, pooled: map[*ir.Node]bool{}}
	m.g.Together(c.order, c.tensors)
	if err := c.ports(); err != nil {
		return err
	}
	for _, v := range m.g.Return {
		if m.assignable(v) {
			p := plan.Port{Tensor: c.tensor[m.base[v.ID].ID], Part: m.part[v.ID].ID, Bytes: m.bytes(m.part[v.ID])}
			p.Takes, p.Narrowed = m.takes(v, m.fixedAs(m.src[v.ID]))
			c.port(caller, p)
		}
	}
	return nil
}

// caller is the cluster of the values that the caller receives.
const caller = int32(0)

// clusterer adds the ports of clusters to the plan.
type clusterer struct {
	*planner
	fused   []int32      // cluster of the plan, by fusion cluster
	launch  []int32      // by launch
	node    []int32      // by node ID, for nodes in neither
	nodesOf [][]*ir.Node // by launch
	signs   map[*ir.Value]plan.TensorID
	pooled  map[*ir.Node]bool // norms whose ReLUs a max pool computes again
}

// order creates the clusters: the caller's, those of fusion clusters with the last one first, then
// those of launches and single nodes.
func (c *clusterer) order() {
	fused, launch := int32(0), int32(0)
	for _, n := range c.g.Nodes {
		fused, launch = max(fused, n.Why.Cluster), max(launch, n.Why.Launch)
	}
	c.fused, c.launch, c.node = make([]int32, fused+1), make([]int32, launch+1), make([]int32, len(c.sec))
	c.plan.Clusters = make([]plan.Cluster, 1+int(fused), 1+int(fused)+len(c.sec))
	c.plan.Clusters[caller] = plan.Cluster{Name: "results", Outside: true}
	c.nodesOf = make([][]*ir.Node, launch+1)
	for _, n := range c.g.Nodes {
		if l := n.Why.Launch; l > 0 {
			c.nodesOf[l] = append(c.nodesOf[l], n)
		}
		if n.Why.Has(ir.MarkAgain) {
			norm, _ := c.c.Caps.NormOfRelu(n.In[0])
			c.pooled[norm] = true
		}
		one := plan.Cluster{Times: c.times(c.sec[n.ID])}
		if len(n.Out) > 0 {
			one.Name = n.Out[0].Name
		}
		switch k, l := n.Why.Cluster, n.Why.Launch; {
		case c.sharesTensor(n) || l > 0 && c.launch[l] > 0:
		case l > 0:
			c.launch[l] = int32(len(c.plan.Clusters))
			c.plan.Clusters = append(c.plan.Clusters, one)
		case k == 0:
			c.node[n.ID] = int32(len(c.plan.Clusters))
			c.plan.Clusters = append(c.plan.Clusters, one)
		case c.fused[k] == 0:
			c.fused[k] = 1 + fused - k
			c.plan.Clusters[c.fused[k]] = one
		}
	}
	c.room()
}

// portsOf adds the ports of the nodes of p for which has holds: first those that write.
func (c *clusterer) portsOf(p *ir.Part, has func(*ir.Node) bool) error {
	for s, n := range p.Nodes {
		if !has(n) {
			continue
		}
		for _, v := range n.Out {
			if c.base[v.ID] == v && !c.inParts[n.ID] && !c.spreadPool(v) {
				c.written(s, n, v)
			}
		}
	}
	for s, n := range p.Nodes {
		if !has(n) || c.sharesTensor(n) || len(n.Out) > 0 && c.spreadPool(n.Out[0]) {
			continue
		}
		if c.inParts[n.ID] {
			if err := c.expanded(s, n); err != nil {
				return &ir.Error{Pos: n.Pos, Msg: err.Error()}
			}
			continue
		}
		for i, v := range n.In {
			if v != nil && !sameCluster(v, n) {
				c.read(n, i, v)
			}
		}
	}
	return nil
}

// room allocates, for each cluster, all ports that its nodes may have.
func (c *clusterer) room() {
	most, sum := make([]int, len(c.plan.Clusters)), len(c.g.Return)
	most[caller] = sum
	for _, n := range c.g.Nodes {
		if !c.sharesTensor(n) {
			most[c.cluster(n)] += len(n.In) + len(n.Out)
			sum += len(n.In) + len(n.Out)
		}
	}
	all := make([]plan.Port, sum)
	for k, n := range most {
		c.plan.Clusters[k].Ports, all = all[:0:n], all[n:]
	}
}

// cluster is the cluster of n.
func (c *clusterer) cluster(n *ir.Node) int32 {
	switch {
	case n.Why.Launch > 0:
		return c.launch[n.Why.Launch]
	case n.Why.Cluster > 0:
		return c.fused[n.Why.Cluster]
	}
	return c.node[n.ID]
}

func (c *clusterer) port(cluster int32, p plan.Port) {
	k := &c.plan.Clusters[cluster]
	k.Ports = append(k.Ports, p)
}

// tensors adds a tensor for each variable and each result that has its own memory.
func (c *clusterer) tensors() {
	add := func(v *ir.Value, times int64) {
		c.tensor[v.ID] = c.plan.Tensor(plan.Tensor{Stored: c.v[v.ID], Bytes: c.size(v), CopyTimes: times})
	}
	for _, v := range c.g.Vars {
		if v.Kind == ir.Input {
			add(v, c.times(ir.Forward))
		} else {
			add(v, 1)
		}
	}
	for s, n := range c.g.Nodes {
		for _, v := range n.Out {
			if c.base[v.ID] == v {
				add(v, c.times(s))
			}
		}
	}
}

// written adds the port that writes result v of n. The parts of a view have been written already.
func (c *clusterer) written(s ir.Section, n *ir.Node, v *ir.Value) {
	x := c.v[v.ID]
	if shares(n) || !c.leaves(n, v) || c.unread(v) && c.c.Caps.DropsUnread(n, v.Idx) {
		return
	}
	c.split(s, n, v)
	c.splitConv(s, n, v)
	second := c.storesTwice(n) && (v.Idx == 0 || !c.fusesRowEpilogue(n))
	p := plan.Port{Tensor: c.tensor[v.ID], Write: true, Second: second, Always: v.Next != nil,
		// Its kernel stores f32 as well as 16 bits.
		Rounded: c.exact[x] || x != plan.Low && (c.c.Caps.FusesCluster(n) || second && c.chained(n))}
	if n.InPlace() || c.unstored(v) {
		p.Moves = &plan.Moves{}
	}
	c.port(c.cluster(n), p)
}

// read adds the port at which n reads v, its operand i.
func (c *clusterer) read(n *ir.Node, i int, v *ir.Value) {
	k := c.cluster(n)
	if c.spreadPool(v) { // it reads what the gradient of the pool would
		for j, x := range v.Def.In {
			c.port(k, c.readPort(v.Def, j, x))
		}
		return
	}
	if i < 2 && c.summed(n) { // another step computes the sums
		k = c.sums(n)
	}
	p := c.readPort(n, i, v)
	if norm := c.again(n, v); norm != nil {
		p.Moves = &plan.Moves{}
		for j := 1; j <= 2; j++ { // scale and bias
			if x := norm.In[j]; x != nil {
				c.port(k, c.readPort(norm, j, x))
			}
		}
	}
	if n.Why.Has(ir.MarkReadsSigns) && n.OperandDef(i).Sign {
		p.Moves, p.Saved = &plan.Moves{}, false
		c.port(k, c.signsPort(v))
	}
	if i == 0 && n.Why.Has(ir.MarkAgain) {
		p.Moves = &plan.Moves{}
		c.pooledNorm(k, v)
	}
	if (i == 1 || i == 2) && c.pooled[n] { // the scale and bias of a norm that computes statistics only
		p.Moves = &plan.Moves{}
	}
	c.port(k, p)
}

// pooledNorm adds the ports at which cluster k, a max pool, reads what its image v is computed from.
func (c *clusterer) pooledNorm(k int32, v *ir.Value) {
	norm, _ := c.c.Caps.NormOfRelu(v)
	for j, x := range norm.In[:3] {
		if x != nil {
			c.port(k, c.readPort(norm, j, x))
		}
	}
	for _, x := range norm.Out[1:3] {
		c.port(k, plan.Port{Tensor: c.tensor[x.ID], Part: x.ID, Bytes: c.size(x), Takes: plan.AsStored})
	}
}

// unstored reports whether v is the result of a ReLU that all readers compute again.
func (c *clusterer) unstored(v *ir.Value) bool {
	if len(c.pooled) == 0 {
		return false
	}
	norm, _ := c.c.Caps.NormOfRelu(v)
	return c.pooled[norm]
}

// signsPort is the port at which a cluster reads the signs of v as bits. The first one adds the port
// at which the cluster of v writes them.
func (c *clusterer) signsPort(v *ir.Value) plan.Port {
	p := plan.Port{Bytes: c.g.Elements(v.Type) / 8, Takes: plan.AsStored}
	id, ok := c.signs[v]
	if p.Tensor = id; !ok {
		p.Tensor = c.plan.Tensor(plan.Tensor{Stored: plan.AsStored, Bytes: p.Bytes, CopyTimes: 1})
		c.signs[v] = p.Tensor
		w := p
		w.Write = true
		c.port(c.cluster(v.Def), w)
	}
	return p
}

// again is the norm from whose operand the launch of n computes v again (ir.Caps.Again), or nil.
func (c *clusterer) again(n *ir.Node, v *ir.Value) *ir.Node {
	if n.Why.Launch == 0 || n.Def().Elem == nil || c.inParts[n.ID] {
		return nil
	}
	return c.c.Caps.Again(c.nodesOf[n.Why.Launch], v)
}

// summed reports whether n is a product whose second step runs in a norm's kernel.
func (c *clusterer) summed(n *ir.Node) bool {
	return n.Why.Launch > 0 && c.c.Caps.StoresOnce(n) && !c.launched[n]
}

// sums is the cluster of the first step of product n, whose second step runs in a launch.
func (c *clusterer) sums(n *ir.Node) int32 {
	if c.node[n.ID] == 0 {
		c.node[n.ID] = int32(len(c.plan.Clusters))
		c.plan.Clusters = append(c.plan.Clusters, plan.Cluster{Name: n.Out[0].Name, Times: c.times(c.sec[n.ID])})
	}
	return c.node[n.ID]
}

func (c *clusterer) readPort(n *ir.Node, i int, v *ir.Value) plan.Port {
	b, part := c.base[v.ID], c.part[v.ID]
	p := plan.Port{Tensor: c.tensor[b.ID], Part: part.ID, Bytes: c.size(part), Takes: plan.AsStored}
	if c.assignable(v) {
		p.Takes, p.Narrowed = c.takes(v, c.reads(n, i, v))
		if c.form[v.ID] == narrowed && p.Takes == plan.Low && c.loaded(n, v) {
			p.Takes = plan.AsStored
		}
		p.Register = b.Def != nil && n.Why.Launch > 0 && b.Def.Why.Launch == n.Why.Launch
		p.Saved = b.Def != nil && c.sec[n.ID] == ir.Backward && c.sec[b.Def.ID] == ir.Forward
	}
	if c.widens(n, i, p.Takes) {
		p.Moves = c.widening(n, i, p.Bytes)
	}
	if n.OperandDef(i).Unread || n.InPlace() || c.c.Caps.Skips(n, i, c.unread) { // the tensor is stored for it all the same
		p.Moves = &plan.Moves{}
	}
	return p
}

// size is the number of bytes of v in 16 bits, or in its own dtype if that is fixed.
func (m *planner) size(v *ir.Value) int64 {
	switch {
	case m.taps(v):
		return m.g.Elements(v.Type)
	case !m.assignable(v):
		return m.g.Elements(v.Type) * v.Type.DType.Size()
	}
	return m.bytes(v)
}

// spread reports whether v is images that no step stores (ir.Caps.Spreads).
func (m *planner) spread(v *ir.Value) bool {
	return v.Def != nil && v.Idx == 0 && v.Def.Why.Has(ir.MarkSpread)
}

// spreadPool reports whether v is such images, of the gradient of a max pool. Those who read them read
// the gradient of the pooled images, and taps.
func (m *planner) spreadPool(v *ir.Value) bool { return m.spread(v) && !v.Def.Def().Is(ir.Convolves) }

// taps reports whether only the number of its tap is stored, in a byte, of each position in v.
func (m *planner) taps(v *ir.Value) bool {
	uses := m.uses.Of(v)
	return len(uses) == 1 && uses[0].Arg() == 1 && len(uses[0].Node.Out) > 0 && m.spreadPool(uses[0].Node.Out[0])
}

// stepOf identifies the step that runs n: of its launch, otherwise of its cluster, otherwise of n
// alone.
func stepOf(n *ir.Node) int64 {
	switch {
	case n.Why.Launch > 0:
		return -int64(n.Why.Launch) << 32
	case n.Why.Cluster > 0:
		return -int64(n.Why.Cluster)
	}
	return int64(n.ID)
}

// sameStep reports whether the step that computes v also runs n.
func sameStep(v *ir.Value, n *ir.Node) bool { return v.Def != nil && stepOf(v.Def) == stepOf(n) }

// sameCluster reports whether n reads v as a register.
func sameCluster(v *ir.Value, n *ir.Node) bool {
	return v.Def != nil && n.Why.Cluster > 0 && v.Def.Why.Cluster == n.Why.Cluster
}

// times is how often a section runs per step. The slices of all ranks count, so that the plan is
// the same for every number of ranks.
func (m *planner) times(s ir.Section) int64 {
	if s == ir.Forward || s == ir.Backward {
		return int64(max(m.c.Micro, m.c.Parallel.Slices, 1))
	}
	return 1
}

// bytes is the size of v in 16 bits. Of images of which only the outputs of windows are stored, it is
// that of the outputs.
func (m *planner) bytes(v *ir.Value) int64 {
	if m.spread(v) && !m.spreadPool(v) {
		w := v.Def.Window()
		n := 2 * w.N * w.C
		for _, k := range w.Out {
			n *= k
		}
		return n
	}
	return 2 * m.g.Elements(v.Type)
}

// reads is the dtype that n requires of v, its operand i.
func (m *planner) reads(n *ir.Node, i int, v *ir.Value) plan.Choice {
	d := m.requiredDType(n, i)
	switch {
	case d == ir.F32 && m.p.converts(n): // the cast converts both dtypes
		return plan.AsStored
	case d == m.low && d != ir.F32 && m.loaded(n, v):
		return plan.AsStored
	case d != ir.Invalid:
		return m.fixedAs(d)
	case m.readsCast(n, i):
		return m.fixedAs(m.low)
	case m.c.Caps.Loads(n, i):
		return plan.AsStored
	case !m.node[n.ID].free() || !m.assignable(n.Out[0]):
		if v.Def != nil && m.formCast(v.Def) { // what the cast made: the kernel converts nothing
			return m.fixedAs(m.src[v.ID])
		}
		return plan.AsStored
	case m.rounds[n]:
		return m.seen[n.Out[0].ID]
	}
	return m.v[n.Out[0].ID]
}

// loaded reports whether n's cluster rounds v itself when it loads v's tensor, or a form of it that
// a cast written by hand makes: no other node may read that in 16 bits.
func (m *planner) loaded(n *ir.Node, v *ir.Value) bool {
	z := m.base[v.ID]
	if n.Why.Cluster == 0 || n.Def().Elem == nil || m.chained(n) || n.Out[0].Type.Shape != z.Type.Shape || m.viewed(v) {
		return false
	}
	if z.Def == nil && z.Kind != ir.Input || z.Def != nil && (m.storesTwice(z.Def) || m.sec[z.Def.ID] != m.sec[n.ID]) || !m.lowOnlyIn(n, z) {
		return false
	}
	m.loads[load{n.Why.Cluster, z}] = true
	return true
}

// lowOnlyIn reports whether only nodes of by's cluster may read v in 16 bits.
func (m *planner) lowOnlyIn(by *ir.Node, v *ir.Value) bool {
	for _, u := range m.uses.Of(v) {
		switch n := u.Node; {
		case n.Why.Cluster == by.Why.Cluster && n.Def().Elem != nil:
		case m.formCast(n):
			x := n.Out[0]
			if m.sec[n.ID] != m.sec[by.ID] || m.out[x.ID] && (m.form[x.ID] == narrowed || m.form[x.ID] == rewidened) || !m.lowOnlyIn(by, x) {
				return false
			}
		case shares(n) || m.requiredDType(n, u.Arg()) == m.low || m.movesLow(n) || m.follows(n, u.Arg()) || m.form[v.ID] != asStored:
			return false
		}
	}
	return true
}

// storesTwice reports whether n's kernel can store a result in two dtypes.
func (m *planner) storesTwice(n *ir.Node) bool {
	if m.sec[n.ID] == ir.Prepare { // a store skips the casts of variables one by one
		return false
	}
	return m.p.fuses(n) && !m.storesOnce(n) || m.c.Caps.FusesCluster(n) || m.fusesRowEpilogue(n)
}

// fusesRowEpilogue reports whether n's kernel runs elementwise work on its first result.
func (m *planner) fusesRowEpilogue(n *ir.Node) bool {
	return !m.inParts[n.ID] && m.c.Caps.RowsOf(n).Epilogue
}

// storesOnce reports whether n is in the cluster of a product whose kernel stores one result.
func (m *planner) storesOnce(n *ir.Node) bool {
	return n.Why.Cluster > 0 && slices.ContainsFunc(m.member[n.Why.Cluster], m.c.Caps.StoresOnce)
}

// chained reports whether n is in a cluster whose kernel supports only a fixed epilogue or
// prologue.
func (m *planner) chained(n *ir.Node) bool {
	return n.Why.Cluster > 0 && slices.ContainsFunc(m.member[n.Why.Cluster], m.c.Caps.Chains)
}

// clusterMembers lists the nodes of each cluster. Cluster 0 has none.
func clusterMembers(g *ir.Graph) [][]*ir.Node {
	count, sum := make([]int, 1), 0
	for _, n := range g.Nodes {
		if k := int(n.Why.Cluster); k > 0 {
			count = append(count, make([]int, max(k+1-len(count), 0))...)
			count[k]++
			sum++
		}
	}
	list, all := make([][]*ir.Node, len(count)), make([]*ir.Node, sum)
	for k, n := range count {
		list[k], all = all[:0:n], all[n:]
	}
	for _, n := range g.Nodes {
		if k := n.Why.Cluster; k > 0 {
			list[k] = append(list[k], n)
		}
	}
	return list
}

// compared reports whether a question asks how n's result relates to an operand of n, as the gradient
// of a maximum does. A rounded maximum would equal none of the elements that it was chosen from.
func (m *planner) compared(n *ir.Node) bool {
	return slices.ContainsFunc(m.uses.Of(n.Out[0]), func(u ir.Use) bool {
		return u.Node.Out[0].Type.DType == ir.Bool && u.Node.Def().Elem != nil && slices.ContainsFunc(u.Node.In, func(v *ir.Value) bool {
			return v != n.Out[0] && slices.Contains(n.In, v)
		})
	})
}
