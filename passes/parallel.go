package passes

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"ampc/ir"
)

// Parallel configures a step as one of several, the ranks, which run at the same time over the same
// variables, each on its part of the batch. All of them make the same update: gradients, losses and
// counts are summed over the ranks before they are divided by a count or checked. The zero Parallel
// is one rank.
type Parallel struct {
	Ranks   int
	Bucket  int64    // least number of bytes of gradients in a message, except for the last; 0: by the cost model
	Message ir.DType // dtype of gradients in messages; zero: f32
	Shift   int      // gradients in 16-bit messages are multiplied by 2^-Shift; 0: chosen such that sums over the ranks do not overflow unless an operand does
	// SyncNorms makes batch norms normalize by the statistics of all ranks.
	SyncNorms bool
	// Shard divides weights and what their update keeps among the ranks.
	Shard bool
	// Slices is the number of micro-batches of all ranks together in one step. They are summed in
	// one binary tree, so that the result has the same bits for every number of ranks. 0: they are
	// summed in their order.
	Slices int
}

// bucket is the least number of bytes in a message of gradients. Small messages start early and
// leave little to send after the backward pass; large ones lose little to latency. A message in a
// ring waits for 2(k-1) latencies and carries 2(k-1)/k of its bytes over each link. So the share of
// latency is constant if its bytes grow with the number of ranks k: on links of 100 Gb/s and 5 µs
// it is a twentieth. The largest value is 25 MiB, the default of PyTorch's DistributedDataParallel.
func (p Parallel) bucket() int64 {
	if p.Bucket > 0 {
		return p.Bucket
	}
	return min(int64(p.Ranks)*1250<<10, 25<<20)
}

func (p Parallel) several() bool { return p.Ranks > 1 }

func (p Parallel) check() error {
	switch {
	case p.Ranks < 0 || p.Ranks > maxRanks:
		return fmt.Errorf("parallel: %d ranks: want 1 to %d", p.Ranks, maxRanks)
	case p.Bucket < 0:
		return fmt.Errorf("parallel: buckets of %d bytes: want 0 or more", p.Bucket)
	case p.Message != ir.Invalid && p.Message != ir.F32 && !p.Message.Low():
		return fmt.Errorf("parallel: messages in %s: want f32, f16 or bf16", p.Message)
	case p.Shift < 0 || p.Shift > ir.MaxShift:
		return fmt.Errorf("parallel: shift %d: want 0 to %d", p.Shift, ir.MaxShift)
	}
	return p.checkSlices()
}

// checkSlices refuses numbers of slices for which the ranks have no common tree, and settings that
// depend on the number of ranks.
func (p Parallel) checkSlices() error {
	ranks := max(p.Ranks, 1)
	switch {
	case p.Slices == 0:
		return nil
	case p.Slices < 0 || p.Slices > 1<<ir.MaxTree || p.Slices&(p.Slices-1) != 0:
		return fmt.Errorf("parallel: %d slices: want a power of two, at most %d", p.Slices, 1<<ir.MaxTree)
	case ranks&(ranks-1) != 0 || ranks > p.Slices:
		return fmt.Errorf("parallel: %d slices on %d ranks: want a power of two of ranks, at most one for each slice", p.Slices, ranks)
	case p.Message.Low():
		return fmt.Errorf("parallel: slices with messages in %s, which round what the slices of a rank add up to: send f32", p.Message)
	}
	return nil
}

// micro is the number of slices of each rank.
func (p Parallel) micro() int { return p.Slices / max(p.Ranks, 1) }

// parts is the number of parts that the batch has: slices, or what each rank runs at a time.
func (p Parallel) parts() int64 { return int64(max(p.Slices, p.Ranks)) }

// together reports whether the slices of a rank run together, because the norms of each need the
// moments of all.
func (p Parallel) together() bool { return p.SyncNorms && p.Slices > 0 }

// levels is the number of levels of the tree over the slices of one rank.
func (p Parallel) levels() int64 { return int64(max(bits.Len(uint(p.micro()))-1, 1)) }

// accumulates reports whether a step sums micro-batches. With slices it does even if each rank has
// only one, so that the step is the same for every number of ranks.
func (c *Context) accumulates() bool { return c.Micro > 1 || c.Parallel.Slices > 0 }

// maxRanks limits the number of micro-batches of all ranks to what f32 counts exactly.
const maxRanks = 1 << 16

// sum returns the attributes of a sum over the ranks.
func (p Parallel) sum() ir.Attrs {
	a := ir.A("ranks", int64(max(p.Ranks, 1)))
	if p.Slices > 0 {
		return a.With("tree", true)
	}
	return a
}

// attrs returns the attributes of a message of gradients, of which the largest is reach if that is
// known, else 0. A sum over the ranks then overflows only where a gradient exceeds reach, or the largest
// number of the message's dtype if that is more. A check notices it.
func (p Parallel) attrs(reach float64) ir.Attrs {
	a := p.sum()
	if !p.Message.Low() {
		return a
	}
	shift := int64(p.Shift)
	if shift == 0 {
		for float64(int64(1)<<shift) < float64(p.Ranks)*max(1, reach/p.Message.Max()) && shift < ir.MaxShift {
			shift++
		}
	}
	return a.With("msg", p.Message).With("shift", shift)
}

// reach is the largest magnitude that recorded ranges have of some gradients; 0: they have none.
func (a *accumulator) reach(vs []*ir.Value) (most float64) {
	for _, v := range vs {
		if r, ok := a.c.Ranges.Recorded[v.Name]; ok {
			most = max(most, -r.Lo, r.Hi)
		}
	}
	return most
}

// collective emits one message of a step. Messages are numbered, because they must have the same
// order on all ranks, even if the sizes of a rank's batch change the order of other nodes.
func (t *training) collective(b *ir.Builder, attrs ir.Attrs, vs []*ir.Value) []*ir.Value {
	t.messages++
	return b.AllReduce(attrs.With("seq", t.messages), vs...)
}

// scatter is a message of gradients of which each rank gets parts.
func (t *training) scatter(b *ir.Builder, attrs ir.Attrs, vs []*ir.Value) []*ir.Value {
	t.messages++
	return b.ReduceScatter(attrs.With("flat", true).With("seq", t.messages), vs...)
}

// acrossRanks sums over the ranks: gradients in buckets, in the order in which backward computes
// them, then the parts of losses and results.
func (a *accumulator) acrossRanks() {
	if !a.c.Parallel.several() || a.b.Err() != nil {
		return
	}
	if a.c.Parallel.Slices == 0 {
		a.drawBySample()
	}
	for _, s := range a.t.sweeps {
		a.buckets(s)
	}
	a.scalars()
}

// drawBySample makes random rows draw each sample's numbers by its position in the batch of all
// ranks, so that they depend neither on its rank nor on the number of ranks. Numbers of tensors
// that are not as long as the batch, such as noise on weights, are the same on all ranks.
func (a *accumulator) drawBySample() {
	batch := ir.Dim(0)
	for _, v := range a.g.Vars {
		if d := v.Type.Shape.Dims(); v.Kind == ir.Input && v.Attr.Get("role") == nil && len(d) > 0 && batch == 0 {
			batch = d[0]
		}
	}
	type part struct {
		micro    *ir.Value
		elements int64
	}
	keys := map[part]*ir.Value{}
	for s, n := range a.g.Nodes {
		d := n.Out[0].Type.Shape.Dims()
		if !n.Def().Is(ir.Random) || s == ir.Update || batch == 0 || len(d) == 0 || d[0]%batch != 0 {
			continue
		}
		p := part{n.Operand("micro"), n.Out[0].Type.Shape.Elements()}
		if p.elements%4 != 0 {
			a.b.Fail("%s: %s draws %d numbers on each rank, want a multiple of 4: take another batch size", n.Def().Name, n.Name(), p.elements)
			return
		}
		if keys[p] == nil {
			keys[p] = a.drawn(p.micro, p.elements)
			a.c.Count("draws_by_sample", 1)
		}
		for i := range max(len(n.In), len(n.Def().In)) {
			if o := n.OperandDef(i); o.Name == "micro" && o.Named {
				for len(n.In) <= i {
					n.In = append(n.In, nil)
				}
				n.In[i] = keys[p]
			}
		}
	}
}

// slice is the number of the slice that micro-batch index of this rank is. It is an input, as index
// is, so that the nodes that read it are compiled alike for every number of ranks.
func (a *accumulator) slice(index *ir.Value) *ir.Value {
	if a.c.Parallel.Slices == 0 || !a.c.Parallel.several() {
		return index
	}
	return a.b.Declare(ir.Input, private("slice", ""), ir.T(ir.I32), nil, ir.A("role", ir.RoleSlice, "each", int64(a.c.Parallel.micro())))
}

// drawn is the number by which this rank draws a tensor with the given number of elements on each
// rank: the micro-batch in the low 32 bits, and above them the counters that earlier ranks use.
func (a *accumulator) drawn(micro *ir.Value, elements int64) *ir.Value {
	b := a.b.In(ir.Forward)
	counters := constantOf(a.b, fmt.Sprintf("counters.%d", elements), ir.I64, float64(elements/4<<32))
	key := b.Mul(b.Cast(a.rank(), ir.I64), counters)
	if micro != nil {
		key = b.Add(key, b.Cast(micro, ir.I64))
	}
	return key
}

// rank is the number of this rank, which the runtime fills in.
func (a *accumulator) rank() *ir.Value {
	if v := roleVar(a.g, ir.RoleRank); v != nil {
		return v
	}
	return a.b.Declare(ir.Input, private("rank", ""), ir.T(ir.I32), nil, ir.A("role", ir.RoleRank))
}

// buckets sends the gradients of one sweep. Those of a single micro-batch are sent during the
// backward pass, sums over several micro-batches after it.
func (a *accumulator) buckets(s *sweep) {
	parts := map[*ir.Value]bool{} // gradients of sharded weights
	order := map[*ir.Value]int{}
	for i, n := range a.g.Body[ir.Backward] {
		for _, v := range n.Out {
			order[v] = i
		}
	}
	var ds []*ir.Value
	names := map[*ir.Value]string{}
	tables := map[*ir.Value]*lookedUp{}
	for i := range s.grads {
		x := &s.grads[i]
		if names[x.d] != "" {
			continue
		}
		names[x.d] = x.p.v.Name
		d := x.d
		if t := a.lookedUp(x); t != nil {
			tables[x.d], d = t, t.dense
		}
		if d != nil {
			names[d], parts[d] = x.p.v.Name, x.p.part != nil
			ds = append(ds, d)
		}
	}
	slices.SortStableFunc(ds, func(x, y *ir.Value) int { return cmp.Compare(order[x], order[y]) })
	sec := ir.Backward
	if a.c.accumulates() {
		sec = ir.Update
	}
	sums := map[*ir.Value]*ir.Value{}
	for _, vs := range a.filled(ds, parts) {
		send := a.t.collective
		if parts[vs[0]] {
			send = a.t.scatter
		}
		for i, v := range send(a.b.In(sec), a.c.Parallel.attrs(a.reach(vs)), vs) {
			sums[vs[i]] = a.b.Rename(v, s.label("sum")+"."+names[vs[i]])
		}
		a.c.Count("buckets", 1)
	}
	for i := range s.grads {
		d := s.grads[i].d
		if t := tables[d]; t != nil && sums[d] == nil {
			sums[d] = a.b.Rename(a.gathered(t, sums[t.dense]), s.label("sum")+"."+names[d])
		}
		s.grads[i].d = sums[d]
	}
}

// filled divides gradients among buckets, in the order in which those are full. The ones that
// are scattered are not in a bucket with others.
func (a *accumulator) filled(ds []*ir.Value, parts map[*ir.Value]bool) [][]*ir.Value {
	least := a.c.Parallel.bucket()
	var open [2][]*ir.Value
	var bytes [2]int64
	var out [][]*ir.Value
	for _, d := range ds {
		k := 0
		if parts[d] {
			k = 1
		}
		open[k] = append(open[k], d)
		bytes[k] += a.g.Elements(d.Type) * d.Type.DType.Size()
		if bytes[k] >= least {
			out, open[k], bytes[k] = append(out, open[k]), nil, 0
		}
	}
	for _, rest := range open {
		if len(rest) > 0 {
			out = append(out, rest)
		}
	}
	return out
}

// lookedUp is a gradient to which lookups contribute: each adds a few rows to a table.
type lookedUp struct {
	dense *ir.Value  // sum of the other contributions, such as that of a head that shares the table; nil: none
	rows  []*ir.Node // gradients of the lookups, in the backward pass
	parts bool       // each rank steps a part of the table
}

// lookedUp finds the lookups that contribute to gradient x. It returns nil if there are none or if
// the rows of all ranks take more bytes than the table. A sum over micro-batches counts as a table.
func (a *accumulator) lookedUp(x *grad) *lookedUp {
	d := x.d
	if a.c.accumulates() || d.Def == nil {
		return nil
	}
	parts := []*ir.Value{d}
	if d.Def.Op == ir.OpAddN {
		parts = d.Def.In
	}
	t := &lookedUp{parts: x.p.part != nil}
	for _, x := range parts {
		switch {
		case x.Def != nil && x.Def.Op == ir.OpEmbeddingGrad && a.shorter(x.Def, t.parts):
			t.rows = append(t.rows, x.Def)
		case t.dense != nil:
			return nil
		default:
			t.dense = x
		}
	}
	if len(t.rows) == 0 || t.parts && t.dense != nil && !a.fewRows(t.rows) {
		return nil
	}
	return t
}

// rowBytes are the bytes of the rows that a lookup sends, with their numbers.
func (a *accumulator) rowBytes(n *ir.Node) int64 {
	return a.g.Elements(n.In[0].Type)*4 + a.g.Elements(n.In[1].Type)*n.In[1].Type.DType.Size()
}

// fewRows reports whether rows are worth a message beside the parts of a table that a head shares.
// Without it the whole table waits for the lookups, and is sent when no step is left to hide it. The
// rows are bytes in addition, also to what f32 without shards sends. They may raise the share of that
// by 0.01: with them a sharded step sends three quarters of it, or half with 16-bit messages.
func (a *accumulator) fewRows(rows []*ir.Node) bool {
	size := func(d ir.DType) float64 {
		if d.Low() {
			return 2
		}
		return 4
	}
	share, sent := (size(a.c.Policy.Low)+size(a.c.Parallel.Message))/8, int64(0)
	for _, n := range rows {
		sent += a.rowBytes(n)
	}
	weights := int64(0)
	for _, p := range a.t.params {
		weights += 4 * a.g.Elements(p.v.Type)
	}
	k := int64(a.c.Parallel.Ranks)
	return float64(k*sent)*(0.99-share) <= 0.01*float64(2*weights)
}

// shorter reports whether gathering the rows of all ranks in a ring moves fewer bytes than summing
// the table, which goes around the ring once if each rank gets a part, otherwise twice.
func (a *accumulator) shorter(n *ir.Node, parts bool) bool {
	k, rounds := int64(a.c.Parallel.Ranks), int64(2)
	if parts {
		rounds = 1
	}
	return n.In[0].Type.Shape.Static() && (k-1)*a.rowBytes(n) < rounds*(k-1)*a.g.Elements(n.Out[0].Type)*4/k
}

// gathered is the gradient of a table over all ranks, or this rank's part of it. Every rank receives
// the rows of all ranks and adds them, in the order of ranks, to the sum of the other contributions.
func (a *accumulator) gathered(t *lookedUp, sum *ir.Value) *ir.Value {
	b := a.b.In(ir.Backward)
	var parts []*ir.Value
	if sum != nil {
		parts = append(parts, sum)
	}
	for _, n := range t.rows {
		dy, ids := a.all(b, n.In[0]), a.all(b, n.In[1])
		if a.b.Err() != nil {
			return nil
		}
		table := b.EmitNode(&ir.Node{Op: n.Op, In: []*ir.Value{dy, ids}, Attrs: n.Attrs, Of: n.Of, Pos: n.Pos, Pin: n.Pin}, nil)[0]
		if t.parts && table != nil {
			table = a.ownPart(b, table)
		}
		parts = append(parts, table)
		a.c.Count("lookups_gathered", 1)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return b.AddN(parts...)
}

// ownPart is this rank's part of v, which is equal on all ranks, as reduce_scatter would leave it.
func (a *accumulator) ownPart(b *ir.Builder, v *ir.Value) *ir.Value {
	k, elements := int64(a.c.Parallel.Ranks), v.Type.Shape.Elements()
	n := ir.PartOf(elements, k)
	flat := b.Reshape(v, elements)
	if fill := n*k - elements; fill > 0 {
		flat = b.Pad(flat, []int64{0}, []int64{fill}, 0)
	}
	own := b.Gather(b.Reshape(flat, k, n), b.Reshape(a.rank(), 1), 0)
	return b.Reshape(own, n)
}

// all gathers v of all ranks along its first axis.
func (a *accumulator) all(b *ir.Builder, v *ir.Value) *ir.Value {
	a.t.messages++
	attrs := ir.A("ranks", int64(a.c.Parallel.Ranks), "axis", int64(0), "seq", a.t.messages)
	return b.Named("all."+v.Name).Emit(ir.OpAllGather, []*ir.Value{v}, attrs)[0]
}

// scalars sums the parts of losses, counts and results over the ranks, and combines what ranks
// found out about their micro-batches.
func (a *accumulator) scalars() {
	var list []*ir.Value // as summed over the micro-batches
	add := func(name string, v *ir.Value) {
		if sum := a.sum(name, v, ""); !slices.Contains(list, sum) {
			list = append(list, sum)
		}
	}
	for _, s := range a.t.sweeps {
		for _, l := range s.terms {
			if l.count == nil {
				add(sized(l.value), l.value)
				continue
			}
			add(private("acc", l.sum.Name), l.sum)
			add(private("acc", l.count.Name), l.count)
		}
	}
	for _, v := range a.asked() {
		add(sized(v), v)
	}
	found := a.found()
	for _, f := range found {
		list = append(list, *f)
	}
	all := a.send(list)
	for v, sum := range a.sums {
		if all[sum] != nil {
			a.sums[v] = all[sum]
		}
	}
	for _, f := range found {
		*f = all[*f]
	}
}

// asked lists the results other than losses that are means or sums over micro-batches.
func (a *accumulator) asked() []*ir.Value {
	var vs []*ir.Value
	for i, o := range a.c.Outputs {
		if o.Kind != OfValue || o.Reduce != Mean && o.Reduce != Sum {
			continue
		}
		v := a.g.Return[a.t.outputs[i]]
		loss := slices.ContainsFunc(a.t.losses, func(l *loss) bool { return l.value == v })
		if !v.IsVar() && v.Type.DType.Float() && (!loss || o.Reduce == Sum) {
			vs = append(vs, v)
		}
	}
	return vs
}

// found lists the number of micro-batches that count, and the flags about those that do not.
func (a *accumulator) found() []**ir.Value {
	var at []**ir.Value
	if a.t.micro != nil {
		at = append(at, &a.t.micro.kept)
	}
	for _, s := range a.t.sweeps {
		if s.lost != nil {
			at = append(at, &s.lost)
		}
	}
	for _, s := range a.t.inner {
		if s.over != nil {
			at = append(at, &s.over)
		}
	}
	return at
}

// send sends values in the update, those of one dtype in one message. It returns their sums over
// the ranks, and for flags whether any rank has set them.
func (a *accumulator) send(vs []*ir.Value) map[*ir.Value]*ir.Value {
	byType := func(x, y *ir.Value) int { return cmp.Compare(x.Type.DType, y.Type.DType) }
	slices.SortStableFunc(vs, byType)
	all := map[*ir.Value]*ir.Value{}
	for len(vs) > 0 && a.b.Err() == nil {
		n := 1
		for n < len(vs) && byType(vs[0], vs[n]) == 0 {
			n++
		}
		attrs := a.c.Parallel.sum()
		if vs[0].Type.DType == ir.Bool {
			attrs = ir.A("ranks", int64(a.c.Parallel.Ranks), "op", "max")
		}
		for i, v := range a.t.collective(a.b.In(ir.Update), attrs, vs[:n]) {
			all[vs[i]] = a.b.Rename(v, "sum."+vs[i].Name)
		}
		vs = vs[n:]
	}
	return all
}

// statisticsAcrossRanks averages the running statistics over the ranks, where they may differ.
func (a *accumulator) statisticsAcrossRanks() {
	var own []*pendingStat
	var vs []*ir.Value
	for i := range a.t.pending {
		if p := &a.t.pending[i]; !p.agreed || a.c.accumulates() && !a.c.Parallel.together() {
			own, vs = append(own, p), append(vs, p.next)
		}
	}
	if !a.c.Parallel.several() || len(vs) == 0 || a.b.Err() != nil {
		return
	}
	for i, v := range a.t.collective(a.b.In(ir.Update), ir.A("ranks", int64(a.c.Parallel.Ranks), "op", "mean"), vs) {
		own[i].next = a.b.Rename(v, "mean."+own[i].state.Name)
	}
}

// agree combines the checks of all ranks, so that all ranks take or skip a step, and change a
// scale, together.
func (s *scaling) agree() {
	if s.c.NoSkip || !s.c.Parallel.several() || s.b.Err() != nil {
		return
	}
	var own []**ir.Value
	for _, sw := range s.t.sweeps {
		own = append(own, &sw.foundInf, &sw.forward)
	}
	for _, i := range s.t.inner {
		if i.over == nil { // with several micro-batches the ranks have combined it already
			i.over = i.found(s.at)
			own = append(own, &i.over)
		}
	}
	flags := make([]*ir.Value, len(own))
	for i, f := range own {
		flags[i] = *f
	}
	for i, v := range s.t.collective(s.b.In(ir.Update), ir.A("ranks", int64(s.c.Parallel.Ranks), "op", "max"), flags) {
		*own[i] = s.b.Rename(v, "any."+flags[i].Name)
	}
}
