package passes

import (
	"cmp"
	"iter"
	"slices"

	"ampc/ir"
)

// orderPass puts each section into a topological order with low peak memory: the next node is the
// ready one that frees the most bytes. Values that outlive their section (saved activations,
// gradients, results) count as free, because every order must hold them. Ties go to the smaller
// depth, then to the name, so the order that earlier passes left has no influence. A view comes
// before its first reader. Nodes that write a variable which other nodes of the section read come
// last: the next value may then overwrite the variable, and needs no copy.
func orderPass(g *ir.Graph, c *Context) error {
	o := newOrderer(g)
	if o.repeats {
		o.repeatLate()
	}
	var sections [ir.NumSections]func()
	for s := range ir.NumSections {
		sections[s] = func() { g.Body[s] = o.section(s) }
	}
	g.Together(sections[:]...)
	renumberSteps(g)
	c.keepLinks() // the nodes are the same
	return nil
}

type orderer struct {
	g         *ir.Graph
	sec       []ir.Section // by node ID
	name      []int32      // by node ID: rank of its name
	scheduled []int32      // by node ID: its schedule node; -1 for views
	placed    []bool       // views that are in the order
	schedule  []scheduleNode
	root      []int32    // by value ID: the value whose memory it is or views
	bytes     []int64    // by root that lives in one section only, otherwise 0
	left      []int32    // by root: number of reads that are not ordered yet
	start     []int32    // by value ID: index of its first reader in readers
	readers   []int32    // schedule nodes that read a value of their own section
	sent      []*ir.Node // messages between ranks
	repeats   bool       // some node runs forward a second time
}

// scheduleNode runs as one step: a node, or a cluster.
type scheduleNode struct {
	nodes []*ir.Node
	reads []*ir.Value // values from outside, views looked through, one entry for each operand
	views []*ir.Node  // views between, the viewed ones first
	waits int32       // number of reads of values of this section that are not computed yet
	depth int32
	name  int32 // smallest rank of the names of its nodes
	turn  int32 // entries of the heap with a smaller turn are out of date
	sec   ir.Section
	sends bool // a message, or a cast that one waits for: starts as soon as possible, while later steps run
	above bool // reads the next value of an accumulator (levelsTogether): runs directly after that is written
	last  bool // writes a variable that another schedule node of the section reads
	done  bool
	late  bool // runs directly before its first reader (repeatLate)
}

func newOrderer(g *ir.Graph) *orderer {
	values, nodes := g.Number()
	o := &orderer{
		g: g, sec: make([]ir.Section, nodes), name: make([]int32, nodes), scheduled: make([]int32, nodes), placed: make([]bool, nodes),
		root: make([]int32, values), bytes: make([]int64, values), left: make([]int32, values), start: make([]int32, values+1),
	}
	g.Together(func() { o.rankNames(nodes) }, o.formNodes)
	o.formReads()
	o.messagesInOrder()
	g.Together(func() { o.indexReads(); o.writeLast() }, o.sizes)
	return o
}

func isView(n *ir.Node) bool {
	return n.Def().Is(ir.View) && len(n.In) > 0 && n.In[0] != nil && n.Out[0].Next == nil
}

func (o *orderer) formNodes() {
	clusters, launches, alone := int32(0), int32(0), 0
	for _, n := range o.g.Nodes {
		clusters, launches = max(clusters, n.Why.Cluster), max(launches, n.Why.Launch)
		if n.Why.Cluster == 0 && n.Why.Launch == 0 {
			alone++
		}
	}
	cluster, launch := make([]int32, clusters+1), make([]int32, launches+1) // their schedule nodes in the section, counted from 1
	o.schedule = make([]scheduleNode, 0, int(clusters+launches)+alone)
	single := make([]*ir.Node, len(o.scheduled))
	for _, v := range o.g.Vars {
		o.root[v.ID] = v.ID
	}
	before := ir.Prepare
	for s, n := range o.g.Nodes {
		if s != before { // a launch may have nodes of forward and backward
			clear(cluster)
			clear(launch)
			before = s
		}
		o.sec[n.ID] = s
		if n.Def().Is(ir.Collective) {
			o.sent = append(o.sent, n)
		}
		o.repeats = o.repeats || n.Why.Has(ir.MarkRepeated)
		for _, v := range n.Out {
			o.root[v.ID] = v.ID
		}
		if shares(n) {
			o.scheduled[n.ID] = -1
			for _, v := range n.Out {
				o.root[v.ID] = o.root[n.In[0].ID]
			}
			continue
		}
		alone := int32(0)
		of := &alone
		switch {
		case n.Why.Launch > 0:
			of = &launch[n.Why.Launch]
		case n.Why.Cluster > 0:
			of = &cluster[n.Why.Cluster]
		}
		if *of == 0 {
			u := len(o.schedule)
			o.schedule = append(o.schedule, scheduleNode{sec: s, nodes: single[u : u : u+1]})
			*of = int32(u + 1)
		}
		x := &o.schedule[*of-1]
		x.nodes = append(x.nodes, n)
		o.scheduled[n.ID] = *of - 1
	}
}

// formReads names the schedule nodes, sorts their members and lists what they read.
func (o *orderer) formReads() {
	half := len(o.schedule) / 2
	o.g.Together(func() { o.readsOf(half, len(o.schedule)) }, func() { o.readsOf(0, half) })
}

// readsOf does so for the schedule nodes from first to before end.
func (o *orderer) readsOf(first, end int) {
	most := 0
	for _, u := range o.schedule[first:end] {
		for _, n := range u.nodes {
			most += len(n.In) + len(n.Captured)
		}
	}
	list := make([]*ir.Value, 0, most) // all reads, one schedule node after the other
	for i := first; i < end; i++ {
		u := &o.schedule[i]
		u.nodes = o.sorted(u)
		u.name = o.name[u.nodes[0].ID]
		u.reads = list[len(list):]
		for _, n := range u.nodes {
			u.name = min(u.name, o.name[n.ID])
			for v := range eachOperand(n) {
				if v.Def == nil || o.scheduled[v.Def.ID] != int32(i) {
					o.read(u, v)
				}
			}
		}
		if used := len(list) + len(u.reads); used <= cap(list) { // a view of several values counts as one
			list = list[:used]
		}
		u.reads = slices.Clip(u.reads)
	}
}

// writeLast marks the schedule nodes that write variables which other schedule nodes of their
// section read.
func (o *orderer) writeLast() {
	writer := make([]int32, len(o.root)) // by root of the variable: the node that writes it, counted from 1
	for i := range o.schedule {
		for _, n := range o.schedule[i].nodes {
			for _, v := range n.Out {
				if v.Next != nil {
					writer[o.root[v.Next.ID]] = int32(i + 1)
				}
			}
		}
	}
	for i := range o.schedule {
		for _, v := range o.schedule[i].reads {
			if w := writer[o.root[v.ID]] - 1; w >= 0 && w != int32(i) && o.schedule[w].sec == o.schedule[i].sec {
				o.schedule[w].last = true
			}
		}
	}
}

// messagesInOrder makes each message between ranks wait for the previous one.
func (o *orderer) messagesInOrder() {
	var last [ir.NumSections]*ir.Node
	together := false
	slices.SortStableFunc(o.sent, func(a, b *ir.Node) int { return cmp.Compare(a.Int("seq"), b.Int("seq")) })
	for _, n := range o.sent {
		u := &o.schedule[o.scheduled[n.ID]]
		u.sends = true
		together = together || n.Together() > 1
		o.castsFirst(n)
		if before := last[u.sec]; before != nil {
			u.reads = append(u.reads, before.Out[0])
		}
		last[u.sec] = n
	}
	if together {
		o.levelsTogether()
	}
}

// levelsTogether orders what reads the next value of an accumulator, as a level of a tree over
// micro-batches reads that of the level below, directly after it is written. Where micro-batches meet at
// messages, no message is then between the two: the next micro-batch, which runs up to the same message,
// overwrites the accumulator.
func (o *orderer) levelsTogether() {
	for i := range o.schedule {
		u := &o.schedule[i]
		u.above = u.sec < ir.Update && slices.ContainsFunc(u.reads, func(v *ir.Value) bool { return v.Next != nil })
	}
}

// castsFirst makes the casts of the parts of weights that n gathers run as soon as possible, too.
func (o *orderer) castsFirst(n *ir.Node) {
	for _, v := range n.In {
		if n.Attrs.Get("shapes") == nil || v.Def == nil || v.Def.Op != ir.OpCast || o.scheduled[v.Def.ID] < 0 {
			continue
		}
		w := &o.schedule[o.scheduled[v.Def.ID]]
		w.sends = len(w.nodes) == 1
	}
}

// read adds v to the reads of u, through views of u's section.
func (o *orderer) read(u *scheduleNode, v *ir.Value) {
	if v.Def == nil || !shares(v.Def) || o.sec[v.Def.ID] != u.sec {
		u.reads = append(u.reads, v)
		return
	}
	for w := range eachOperand(v.Def) {
		o.read(u, w)
	}
	u.views = append(u.views, v.Def)
}

// here reports whether v is computed in the section of schedule node u.
func (o *orderer) here(v *ir.Value, u *scheduleNode) bool {
	return v.Def != nil && o.sec[v.Def.ID] == u.sec
}

// indexReads lists the readers of each value in its own section.
func (o *orderer) indexReads() {
	each := func(f func(v *ir.Value, i int32)) {
		for i := range o.schedule {
			u := &o.schedule[i]
			for _, v := range u.reads {
				if o.here(v, u) {
					f(v, int32(i))
				}
			}
		}
	}
	each(func(v *ir.Value, _ int32) { o.start[v.ID+1]++ })
	for i := 1; i < len(o.start); i++ {
		o.start[i] += o.start[i-1]
	}
	o.readers = make([]int32, o.start[len(o.start)-1])
	at := slices.Clone(o.start)
	each(func(v *ir.Value, i int32) {
		o.readers[at[v.ID]] = i
		at[v.ID]++
	})
}

// readersOf lists the schedule nodes of v's section that read it, once per operand.
func (o *orderer) readersOf(v *ir.Value) []int32 { return o.readers[o.start[v.ID]:o.start[v.ID+1]] }

// sizes sets the bytes of values that are stored and that live in one section only.
func (o *orderer) sizes() {
	const escapes = -1
	size := make([]int64, len(o.root)) // 0: interior of a cluster, unless a node outside reads it
	for _, v := range o.g.Return {
		size[o.root[v.ID]] = escapes
	}
	for s, n := range o.g.Nodes {
		for v := range eachOperand(n) {
			if v.Def == nil || o.sec[v.Def.ID] != s {
				size[o.root[v.ID]] = escapes
			}
		}
		for _, v := range n.Out {
			if v.Next != nil {
				size[o.root[v.ID]] = escapes
			}
		}
	}
	for i := range o.schedule {
		for _, v := range o.schedule[i].reads {
			r := o.root[v.ID]
			o.left[r]++
			if size[r] == 0 {
				size[r] = o.g.Elements(v.Type) * v.Type.DType.Size()
			}
		}
	}
	for r, n := range size {
		o.bytes[r] = max(n, 0)
	}
}

// operands lists the operands of n with captured values and without absent ones.
func operands(n *ir.Node) []*ir.Value {
	if len(n.Captured) == 0 && !slices.Contains(n.In, nil) {
		return n.In
	}
	return slices.Collect(eachOperand(n))
}

// eachOperand walks the same values.
func eachOperand(n *ir.Node) iter.Seq[*ir.Value] {
	return func(yield func(*ir.Value) bool) {
		for _, v := range n.In {
			if v != nil && !yield(v) {
				return
			}
		}
		for _, v := range n.Captured {
			if v != nil && !yield(v) {
				return
			}
		}
	}
}

// section orders the schedule nodes of one section.
func (o *orderer) section(s ir.Section) []*ir.Node {
	h := &readyHeap{}
	out := make([]*ir.Node, 0, len(o.g.Body[s]))
	for i := range o.schedule {
		u := &o.schedule[i]
		if u.sec != s {
			continue
		}
		for _, v := range u.reads {
			if o.here(v, u) && !o.late(v) {
				u.waits++
			}
		}
		if u.waits == 0 && !u.late {
			o.push(h, int32(i))
		}
	}
	for len(h.list) > 0 {
		e := h.pop()
		u := &o.schedule[e.node]
		if u.done || u.turn != e.turn {
			continue
		}
		out = o.place(out, h, u)
	}
	out = o.restLate(out, h, s)
	return append(out, o.restViews(s)...)
}

// place appends u to the order, after the late schedule nodes that it reads.
func (o *orderer) place(out []*ir.Node, h *readyHeap, u *scheduleNode) []*ir.Node {
	u.done = true
	for _, v := range u.reads {
		if o.late(v) && o.here(v, u) {
			if w := &o.schedule[o.scheduled[v.Def.ID]]; !w.done {
				out = o.place(out, h, w)
			}
		}
	}
	for _, n := range u.views {
		out = o.view(out, n)
	}
	out = append(out, u.nodes...)
	o.run(h, u)
	return out
}

// view appends a view that the next schedule node reads, unless it is in the order.
func (o *orderer) view(out []*ir.Node, n *ir.Node) []*ir.Node {
	if o.placed[n.ID] {
		return out
	}
	o.placed[n.ID] = true
	return append(out, n)
}

// restViews appends the views of a section that only other sections read, by name.
func (o *orderer) restViews(s ir.Section) []*ir.Node {
	var left, out []*ir.Node
	for _, n := range o.g.Body[s] {
		if shares(n) && !o.placed[n.ID] {
			left = append(left, n)
		}
	}
	slices.SortFunc(left, func(a, b *ir.Node) int { return int(o.name[a.ID] - o.name[b.ID]) })
	var place func(n *ir.Node)
	place = func(n *ir.Node) {
		if o.sec[n.ID] != s || o.placed[n.ID] {
			return
		}
		o.placed[n.ID] = true
		for v := range eachOperand(n) {
			if v.Def != nil && shares(v.Def) {
				place(v.Def)
			}
		}
		out = append(out, n)
	}
	for _, n := range left {
		place(n)
	}
	return out
}

// sorted lists the members of a cluster by depth within it, then by name.
func (o *orderer) sorted(u *scheduleNode) []*ir.Node {
	if len(u.nodes) == 1 {
		return u.nodes
	}
	depth := make(map[*ir.Node]int, len(u.nodes))
	for _, n := range u.nodes { // the list is in topological order
		for v := range eachOperand(n) {
			if v.Def != nil && o.scheduled[v.Def.ID] == o.scheduled[n.ID] {
				depth[n] = max(depth[n], depth[v.Def]+1)
			}
		}
	}
	slices.SortFunc(u.nodes, func(a, b *ir.Node) int {
		if d := depth[a] - depth[b]; d != 0 {
			return d
		}
		return int(o.name[a.ID] - o.name[b.ID])
	})
	return u.nodes
}

// push puts a ready schedule node on the heap with its current cost: the bytes of its results minus
// the bytes that no other node has still to read.
func (o *orderer) push(h *readyHeap, i int32) {
	u := &o.schedule[i]
	cost := int64(0)
	for _, n := range u.nodes {
		for _, v := range n.Out {
			if o.root[v.ID] == v.ID {
				cost += o.bytes[v.ID]
			}
		}
	}
	for k, v := range u.reads {
		r := o.root[v.ID]
		if o.bytes[r] == 0 || o.left[r] > int32(len(u.reads)) || slices.Contains(u.reads[:k], v) {
			continue
		}
		mine := int32(0)
		for _, w := range u.reads {
			if o.root[w.ID] == r {
				mine++
			}
		}
		if o.left[r] == mine {
			cost -= o.bytes[r]
		}
	}
	u.turn++
	h.push(ready{u.above, u.sends, u.last, cost, u.depth, u.name, i, u.turn})
}

// run updates the state after u: its readers may become ready, and the last readers of its operands
// become cheaper.
func (o *orderer) run(h *readyHeap, u *scheduleNode) {
	for _, v := range u.reads {
		r := o.root[v.ID]
		if o.bytes[r] == 0 { // another section may read it, too
			continue
		}
		if o.left[r]--; o.left[r] == 1 {
			o.recost(h, v)
		}
	}
	for _, n := range u.nodes {
		for _, v := range n.Out {
			if u.late { // no node waits for it
				break
			}
			for _, i := range o.readersOf(v) {
				w := &o.schedule[i]
				w.depth = max(w.depth, u.depth+1)
				if w.waits--; w.waits == 0 {
					o.push(h, i)
				}
			}
		}
	}
}

// recost pushes the ready readers of v again, because its last reader now frees it.
func (o *orderer) recost(h *readyHeap, v *ir.Value) {
	readers := o.readersOf(v)
	if len(readers) > maxRecost {
		return
	}
	for _, i := range readers {
		if w := &o.schedule[i]; w.waits == 0 && !w.done && !w.late {
			o.push(h, i)
		}
	}
}

// maxRecost limits this to values with few readers, so that the cost is not quadratic.
const maxRecost = 64

// ready is a schedule node whose operands are computed.
type ready struct {
	above, sends, last bool
	cost               int64
	depth, name        int32
	node, turn         int32
}

func (a ready) less(b ready) bool {
	switch {
	case a.above != b.above:
		return a.above
	case a.sends != b.sends:
		return a.sends
	case a.last != b.last:
		return b.last
	case a.cost != b.cost:
		return a.cost < b.cost
	case a.depth != b.depth:
		return a.depth < b.depth
	}
	return a.name < b.name
}

// readyHeap is a binary min-heap.
type readyHeap struct{ list []ready }

func (h *readyHeap) push(r ready) {
	h.list = append(h.list, r)
	for i := len(h.list) - 1; i > 0; {
		p := (i - 1) / 2
		if !h.list[i].less(h.list[p]) {
			return
		}
		h.list[i], h.list[p] = h.list[p], h.list[i]
		i = p
	}
}

func (h *readyHeap) pop() ready {
	top, last := h.list[0], len(h.list)-1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && h.list[c+1].less(h.list[c]) {
			c++
		}
		if !h.list[c].less(h.list[i]) {
			return top
		}
		h.list[i], h.list[c] = h.list[c], h.list[i]
		i = c
	}
}
