package sm

import (
	"errors"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

// Kernels that sum over rows or images leave parts: of the gradients of biases, and of the scales
// and biases of norms. Joining them is little work each, so it waits until a step reads one of the
// sums or the part of the Program ends. One launch then joins all that wait.

// openSum is a sum whose parts exist: y = Σ x over the rows of x.
type openSum struct {
	from *lower.Step
	x, y lower.BufferID
	k    ptx.ColReduce
}

// joinParts adds up the rows of x, which only this sum reads, to y.
func (c *cudaCall) joinParts(k ptx.ColReduce, x, y lower.BufferID) error {
	if k.Op != "sum" || k.Outer > 1 || k.Out != ptx.Float32 || k.In != "" && k.In != ptx.Float32 || k.Scale != 0 && k.Scale != 1 {
		return c.colReduce(k, x, y)
	}
	c.open = append(c.open, openSum{c.s, x, y, k})
	return nil
}

// before emits the open sums if a step with these operands or results needs one of them.
func (c *cudaLowerer) before(ids ...lower.BufferID) error {
	for _, o := range c.open {
		if slices.ContainsFunc(ids, func(x lower.BufferID) bool { return x != lower.None && c.p.Buffers[x].Root == c.p.Buffers[o.y].Root }) {
			return c.close()
		}
	}
	return nil
}

// close emits the open sums.
func (c *cudaLowerer) close() error {
	if len(c.open) == 0 {
		return nil
	}
	list, from := c.open, c.from
	c.open, c.from = nil, list[0].from
	defer func() { c.from = from }()
	if o := list[0]; len(list) == 1 {
		call := &cudaCall{c, o.from, o.from.Kernel.Node}
		return errors.Join(call.colReduce(o.k, o.x, o.y), c.close()) // of parts, if it has split the sum
	}
	return c.joinAll(list)
}

// joinAll emits one launch for several sums.
func (c *cudaLowerer) joinAll(list []openSum) error {
	k := ptx.ColSums{Name: "k"}
	for _, o := range list {
		k.Matrices = append(k.Matrices, ptx.Matrix{Rows: int64(o.k.N), Cols: int64(o.k.Inner)})
	}
	l, err := k.Build(c.fl)
	if err != nil {
		return err
	}
	words := k.Table()
	table := c.temp("table", ir.I64, int64(len(words)))
	c.p.Buffers[table].Arena = lower.ConstArena
	s, err := c.launched("col_sums", l, []lower.BufferID{table})
	if err != nil {
		return err
	}
	s.Runs = nil
	for _, o := range list {
		s.In, s.Out, s.Runs = append(s.In, o.x), append(s.Out, o.y), append(s.Runs, o.from.Runs...)
	}
	s.Launch.Row = []lower.Argument{{Name: "rows"}, {DType: ir.F32, Read: true}, {DType: ir.F32, Write: true}}
	for _, w := range words {
		word := lower.Word{Value: w.Value, Buffer: lower.None}
		if w.Access >= 0 {
			word.Buffer = []lower.BufferID{list[w.Tensor].x, list[w.Tensor].y}[w.Access]
		}
		s.Launch.Table = append(s.Launch.Table, word)
	}
	s.Kind, s.Kernel = lower.KindKernel, &lower.Kernel{Name: "col_sums", Node: &ir.Node{}}
	s.Bytes = c.p.Traffic(&s)
	c.out = append(c.out, s)
	return nil
}
