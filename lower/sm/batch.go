package sm

import (
	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// batch launches the clusters of a step as one kernel, which reads the addresses of its tensors
// from a table.
func (c *cudaLowerer) batch(s *lower.Step) error {
	b, err := c.ptxBatch(s.Clusters())
	if err != nil {
		return err
	}
	k, err := b.Build(c.fl)
	if err != nil {
		return err
	}
	t, err := c.tabled("batch", &b, k, s.Clusters())
	if err != nil {
		return err
	}
	t.Kind, t.Cluster, t.More = lower.KindCluster, s.Cluster, s.More
	c.out = append(c.out, t)
	return nil
}

// ptxBatch translates clusters with equal code to a ptx.Batch.
func (c *cudaLowerer) ptxBatch(groups []*lower.Cluster) (ptx.Batch, error) {
	g := groups[0]
	pg, err := c.ptxElementwise(g)
	b := ptx.Batch{Elementwise: pg}
	for i := range b.Loads {
		b.Loads[i].Stride = []int64{0}
		if g.Loads[i].Covers(c.p, g.Shape) {
			b.Loads[i].Stride = nil
		}
	}
	for i := range b.Stores {
		b.Stores[i].Stride = nil
	}
	for _, g := range groups {
		b.Sizes = append(b.Sizes, lower.Count(g.Shape))
	}
	return b, err
}

// tabled is the step of a batch's launch. Its arguments are the table, the loads
// that all tensors share, and more arguments of the kernel.
func (c *cudaLowerer) tabled(kind string, b *ptx.Batch, k *ptx.Launch, groups []*lower.Cluster, more ...lower.BufferID) (lower.Step, error) {
	words := b.Table()
	table := c.temp("table", ir.I64, int64(len(words)))
	c.p.Buffers[table].Arena = lower.ConstArena
	args := []lower.BufferID{table}
	for i := range b.Loads {
		if b.Loads[i].Stride != nil {
			args = append(args, groups[0].Loads[i].Buffer)
		}
	}
	s, err := c.launched(kind, k, append(args, more...))
	if err != nil {
		return s, err
	}
	operands, results := setOf(s.In), setOf(s.Out)
	add := func(list *[]lower.BufferID, known map[lower.BufferID]bool, id lower.BufferID) {
		if !known[id] {
			known[id] = true
			*list = append(*list, id)
		}
	}
	for i, list := range [2][]lower.Access{groups[0].Loads, groups[0].Stores} {
		for k := range list {
			if i == 1 || b.Loads[k].Stride == nil {
				s.Launch.Row = append(s.Launch.Row, lower.Argument{DType: list[k].DType, Read: i == 0, Write: i == 1})
			}
		}
	}
	for _, w := range words {
		word := lower.Word{Value: w.Value, Buffer: lower.None}
		if w.Access >= 0 {
			g := groups[w.Tensor]
			if store := w.Access - len(g.Loads); store >= 0 {
				word.Buffer = g.Stores[store].Buffer
				add(&s.Out, results, word.Buffer)
			} else {
				word.Buffer = g.Loads[w.Access].Buffer
				add(&s.In, operands, word.Buffer)
			}
		}
		s.Launch.Table = append(s.Launch.Table, word)
	}
	s.Bytes = c.p.Traffic(&s)
	return s, nil
}

// sums adds up values of one code over whole tensors, in one launch and a second
// one that adds up its parts. The result is f32[len(values)]. build makes the
// cluster for one tensor.
func (c *cudaCall) sums(tensors []lower.BufferID, build func(x lower.BufferID) *lower.Cluster, values ...ir.Reg) (lower.BufferID, error) {
	var groups []*lower.Cluster
	for _, x := range tensors {
		groups = append(groups, build(x))
	}
	b, err := c.ptxBatch(groups)
	if err != nil {
		return lower.None, err
	}
	regs := make([]int, len(values))
	for i, v := range values {
		regs[i] = int(v)
	}
	k, err := b.Sum(c.fl, regs...)
	if err != nil {
		return lower.None, err
	}
	parts := c.temp("parts", ir.F32, int64(len(values)), int64(b.Blocks()))
	s, err := c.tabled("sums", &b, k, groups, parts)
	if err != nil {
		return lower.None, err
	}
	s.Kind, s.Kernel = lower.KindKernel, &lower.Kernel{Name: "sums", Node: c.n}
	c.out = append(c.out, s)
	if b.Blocks() == 1 {
		return parts, nil
	}
	total := c.temp("total", ir.F32, int64(len(values)))
	r := ptx.RowReduce{Name: "k", Op: "sum", Rows: len(values), Cols: b.Blocks(), In: ptx.Float32, Out: ptx.Float32}
	return total, c.launch("row_sum", r.Build, parts, total)
}

// byDType sorts tensors with elements by dtype, because a launch processes tensors
// of one dtype. Scalars are separate.
func (c *cudaCall) byDType(tensors []lower.BufferID) (many map[ir.DType][]lower.BufferID, order []ir.DType, single []lower.BufferID) {
	many = map[ir.DType][]lower.BufferID{}
	for _, x := range tensors {
		d := c.typeOf(x).DType
		switch c.elements(x) {
		case 0:
		case 1:
			single = append(single, x)
		default:
			if many[d] == nil {
				order = append(order, d)
			}
			many[d] = append(many[d], x)
		}
	}
	return many, order, single
}

func setOf(list []lower.BufferID) map[lower.BufferID]bool {
	set := make(map[lower.BufferID]bool, len(list))
	for _, id := range list {
		set[id] = true
	}
	return set
}
