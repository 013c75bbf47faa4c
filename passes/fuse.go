package passes

import "ampc/ir"

// fuse completes the clusters that become steps. A cast of a cluster's result becomes one more
// store of the cluster. A cast that only one cluster reads becomes one of its loads. Both save one
// write or read of a value, and round where the cast did. An elementwise node outside of clusters
// forms one with its casts.
func fuse(g *ir.Graph, c *Context) error {
	f := &fuser{uses: c.uses(g), c: c, sec: make([]ir.Section, g.NumNodes())}
	for s, n := range g.Nodes {
		f.sec[n.ID] = s
		f.last, f.launches = max(f.last, n.Why.Cluster), max(f.launches, n.Why.Launch)
		if n.Why.Cluster > 0 {
			f.formed = append(f.formed, make([]formed, max(int(f.last)+1-len(f.formed), 0))...)
			k := &f.formed[n.Why.Cluster]
			k.launch = n.Why.Launch
			k.once = k.once || c.Caps.StoresOnce(n)
			k.chain = k.chain || c.Caps.Chains(n)
		}
	}
	for _, n := range g.Select(func(s ir.Section, n *ir.Node) bool {
		return n.Op == ir.OpCast && n.Out[0].Next == nil && n.Why.Cluster == 0 && s != ir.Prepare && !c.Policy.converts(n)
	}).Nodes {
		f.join(n)
	}
	c.Count("clusters_left", renumberSteps(g))
	c.keep()
	return nil
}

type fuser struct {
	c        *Context
	uses     *ir.Uses
	sec      []ir.Section // by node ID
	last     int32        // highest cluster number in use
	launches int32        // highest launch number in use
	formed   []formed     // by number: the clusters that the pass found
}

// formed is a cluster that was there before the pass.
type formed struct {
	launch int32
	once   bool // its kernel stores one dtype of a result
	chain  bool // its kernel loads tensors in their stored dtypes
}

// cluster is the cluster with a number, zero for one that the pass has made.
func (f *fuser) cluster(k int32) formed {
	if int(k) < len(f.formed) {
		return f.formed[k]
	}
	return formed{}
}

// join adds cast n to the cluster of its operand, or to the cluster of all its readers.
func (f *fuser) join(n *ir.Node) {
	p := n.In[0].Def
	widens := n.Out[0].Type.DType == ir.F32 && f.cluster(f.clusterOf(p)).chain // a fixed epilogue has rounded this
	if p != nil && f.sec[p.ID] == f.sec[n.ID] && storesCasts(n.In[0], f.c) && !f.cluster(p.Why.Cluster).once && !widens {
		switch {
		case f.c.Caps.RowsOf(p).Epilogue && p.Why.Launch == 0:
			f.launches++
			p.Why.Launch = f.launches
		case !f.c.Caps.RowsOf(p).Epilogue && p.Why.Cluster == 0:
			f.last++
			p.Why.Cluster = f.last
		}
		n.Why.Cluster, n.Why.Launch = p.Why.Cluster, p.Why.Launch
		f.c.Count("casts_stored", 1)
		return
	}
	if q := f.onlyCluster(n); q > 0 && f.c.Policy.Algorithm != "mincut" && !f.cluster(q).chain {
		n.Why.Cluster, n.Why.Launch = q, f.cluster(q).launch
		f.c.Count("casts_loaded", 1)
	}
}

// clusterOf is p's cluster, 0 if p is nil.
func (f *fuser) clusterOf(p *ir.Node) int32 {
	if p == nil {
		return 0
	}
	return p.Why.Cluster
}

// storesCasts reports whether a cast of v may be one more store of the step that computes v: an
// elementwise node, a product whose kernel has post-ops (not under an eager policy, where products
// are steps of their own), a norm over rows, or the cast through which other clusters read v.
func storesCasts(v *ir.Value, c *Context) bool {
	p := v.Def
	return c.Policy.fuses(p) || c.Caps.FusesCluster(p) && !c.Policy.Eager || p.Op == ir.OpCast && (p.Why.Cluster > 0 || p.Why.Launch > 0) ||
		v.Idx == 0 && c.Caps.RowsOf(p).Epilogue && (c.Caps.Expander == nil || !c.Caps.Expander.Expands(p))
}

// onlyCluster returns the cluster of all readers of n. It is 0 if there is no such cluster, or it
// has another shape or is in another section.
func (f *fuser) onlyCluster(n *ir.Node) int32 {
	cluster := int32(0)
	for _, u := range f.uses.Of(n.Out[0]) {
		r := u.Node
		if r.Why.Cluster == 0 || r.Def().Elem == nil || cluster != 0 && r.Why.Cluster != cluster || f.sec[r.ID] != f.sec[n.ID] || r.Out[0].Type.Shape != n.Out[0].Type.Shape {
			return 0
		}
		cluster = r.Why.Cluster
	}
	return cluster
}

// renumberClusters numbers clusters consecutively by first member in list order, and removes
// clusters with a single member.
func renumberClusters(g *ir.Graph) int {
	return renumber(g, func(n *ir.Node) *int32 { return &n.Why.Cluster })
}

// renumberLaunches does the same with launches.
func renumberLaunches(g *ir.Graph) int {
	return renumber(g, func(n *ir.Node) *int32 { return &n.Why.Launch })
}

// renumberSteps renumbers clusters and launches, and returns the number of clusters.
func renumberSteps(g *ir.Graph) (clusters int) {
	g.Together(func() { renumberLaunches(g) }, func() { clusters = renumberClusters(g) })
	return clusters
}

func renumber(g *ir.Graph, number func(*ir.Node) *int32) int {
	size := make([]int32, 1)
	for _, n := range g.Nodes {
		k := *number(n)
		size = append(size, make([]int32, max(int(k)+1-len(size), 0))...)
		size[k]++
	}
	if len(size) == 1 {
		return 0
	}
	id, count := make([]int32, len(size)), int32(0)
	for _, n := range g.Nodes {
		at := number(n)
		old := *at
		if old == 0 || size[old] < 2 {
			*at = 0
			continue
		}
		if id[old] == 0 {
			count++
			id[old] = count
		}
		*at = id[old]
	}
	return int(count)
}
