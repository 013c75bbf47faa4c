package sm

import (
	"errors"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/ptx"
)

var rowsKernels = map[ir.Op]cudaKernel{
	ir.OpReduceVar:      {rowStat(false), floatsOnly, 0},
	ir.OpLogSumExp:      {rowStat(true), floatsOnly, 0},
	ir.OpSumTo:          {(*cudaCall).sumTo, floatsOnly, 0},
	ir.OpCumsum:         {(*cudaCall).cumsum, floatsOnly, 0},
	ir.OpCummax:         {cumulative(false), countable, 0},
	ir.OpCummin:         {cumulative(true), countable, 0},
	ir.OpLinearScan:     {(*cudaCall).linearScan, floatsOnly, 0},
	ir.OpArgmax:         {arg(false), countable, 0},
	ir.OpArgmin:         {arg(true), countable, 0},
	ir.OpTopK:           {(*cudaCall).topK, countable, 0},
	ir.OpSoftmax:        {softmax(false), shortLastRows, 0},
	ir.OpLogSoftmax:     {softmax(true), shortLastRows, 0},
	ir.OpSoftmaxGrad:    {softmaxGrad(false), lastRows, 0},
	ir.OpLogSoftmaxGrad: {softmaxGrad(true), lastRows, 0},
	ir.OpEmbedding:      {(*cudaCall).embedding, nil, 1},
	ir.OpEmbeddingGrad:  {(*cudaCall).embeddingGrad, floatData, 1},
	ir.OpGather:         {(*cudaCall).gather, nil, 1},
}

// along views a tensor as outer×n×inner around one axis.
func along(d []int64, axis int) (outer, n, inner int) {
	return int(lower.Count(d[:axis])), int(d[axis]), int(lower.Count(d[axis+1:]))
}

// embedding looks rows up.
func (c *cudaCall) embedding() error {
	table, ids := c.s.In[0], c.s.In[1]
	d := c.dims(table)
	k := ptx.Embedding{Name: "k", Vocab: int(d[0]), Cols: int(d[1]), Tokens: int(c.elements(ids)), IDs: c.elem(ids), In: c.elem(table), Out: c.elem(table)}
	more, err := c.after(&k)
	if err != nil {
		return err
	}
	return c.launch("embedding", k.Forward, append([]lower.BufferID{table, ids}, more...)...)
}

// after gives a kernel over rows the elementwise work on its result, and returns the buffers that
// the work reads and writes: the step's result if there is none.
func (c *cudaCall) after(k *ptx.Embedding) ([]lower.BufferID, error) {
	g := c.s.Epilogue
	if g == nil {
		return c.s.Out, nil
	}
	first := slices.IndexFunc(g.Loads, func(a lower.Access) bool { return a.Buffer == lower.None })
	own := *g
	own.Loads = slices.Concat(g.Loads[first:first+1], g.Loads[:first], g.Loads[first+1:]) // load 0 is the row
	own.Code = slices.Clone(g.Code)
	for r := range own.Code {
		switch in := &own.Code[r]; {
		case in.Op != ir.PIn:
		case in.Int == int64(first):
			in.Int = 0
		case in.Int < int64(first):
			in.Int++
		}
	}
	after, err := c.ptxElementwise(&own)
	k.After = &after
	return slices.Concat(buffersOf(own.Loads[1:]), buffersOf(own.Stores)), err
}

// embeddingGrad sorts the ids, then adds up the rows of each id.
func (c *cudaCall) embeddingGrad() error {
	dy, ids := c.s.In[0], c.s.In[1]
	if err := c.floats(dy); err != nil {
		return err
	}
	d, n := ir.Sizes(c.n.Out[0].Type.Shape), c.elements(ids)
	if n == 0 {
		return c.noRows()
	}
	k := ptx.Embedding{Name: "k", Vocab: int(d[0]), Cols: int(d[1]), Tokens: int(n), IDs: c.elem(ids), In: c.elem(dy), Out: c.elem(c.s.Out[0])}
	order := c.temp("order", ir.I64, int64(k.Ordered()))
	args := []lower.BufferID{c.s.Out[0], dy, order}
	if k.Adds = c.addsInPlace(c.s); !k.Adds {
		more, err := c.after(&k)
		if err != nil {
			return err
		}
		args = append(args[1:], more...)
	}
	return errors.Join(c.early(ids, func() error { return c.launch("embedding_order", k.Order, ids, order) }), c.launch("embedding_grad", k.Backward, args...))
}

// early runs emit and moves its launch to the beginning of micro, if no launch there makes its
// operand: the second stream then runs it beside the forward pass.
func (c *cudaLowerer) early(operand lower.BufferID, emit func() error) error {
	made := slices.ContainsFunc(c.out, func(s lower.Step) bool { return c.meets(s.Out, c.roots([]lower.BufferID{operand})) })
	before := len(c.out)
	if err := emit(); err != nil || made || c.at != lower.Micro {
		return err
	}
	c.first = append(c.first, c.out[before:]...)
	c.out = c.out[:before]
	return nil
}

// noRows stores sums without terms.
func (c *cudaCall) noRows() error {
	g := c.s.Epilogue
	if g == nil {
		return c.fillZero(c.s.Out[0])
	}
	none := *g
	none.Loads = slices.Clone(g.Loads)
	for i := range none.Loads {
		if none.Loads[i].Buffer == lower.None {
			none.Loads[i].Buffer = c.temp("zero", ir.F32, g.Shape...)
			if err := c.fillZero(none.Loads[i].Buffer); err != nil {
				return err
			}
		}
	}
	return c.cluster(&none)
}

// gather picks slices along an axis.
func (c *cudaCall) gather() error {
	x, ids, y := c.s.In[0], c.s.In[1], c.s.Out[0]
	outer, n, inner := along(c.dims(x), c.n.Axis())
	k := ptx.Gather{Name: "k", Outer: outer, N: n, M: int(c.elements(ids)), Inner: inner, IDs: c.elem(ids), In: c.elem(x), Out: c.elem(y)}
	return c.launch("gather", k.Forward, x, ids, y)
}

// softmax launches over the last axis.
func softmax(log bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x, y := c.s.In[0], c.s.Out[0]
		outer, n, _ := along(c.dims(x), c.n.Axis())
		k := ptx.Softmax{Name: "k", Rows: outer, Cols: n, In: c.elem(x), Out: c.elem(y), Log: log}
		return c.launch("softmax", k.Forward, x, y)
	}
}

// softmaxGrad takes y before dy, as the row does.
func softmaxGrad(log bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		y, dy, dx := c.s.In[0], c.s.In[1], c.s.Out[0]
		outer, n, _ := along(c.dims(y), c.n.Axis())
		k := ptx.Softmax{Name: "k", Rows: outer, Cols: n, In: c.elem(dy), Out: c.elem(y), DX: c.elem(dx), Log: log}
		return c.launch("softmax_grad", k.Backward, dy, y, dx)
	}
}

// lastRows reports whether n is on floats along the last axis, shortLastRows also whether rows fit
// into registers.
func lastRows(n *ir.Node) bool {
	s := n.In[0].Type.Shape
	return s.Static() && n.Axis() == s.Rank()-1 && s.Dim(-1) > 0 && floatsOnly(n)
}

func shortLastRows(n *ir.Node) bool { return lastRows(n) && n.In[0].Type.Shape.Dim(-1) <= ptx.MaxRow }

// numbers reports whether the operands are floats up to f32, or integers.
func numbers(n *ir.Node) bool {
	d := n.In[0].Type.DType
	return floatsOnly(n) || d == ir.I32 || d == ir.I64 || d == ir.U8
}

// floatsOnly reports whether operands and results are f32 or 16-bit floats.
func floatsOnly(n *ir.Node) bool {
	for _, list := range [2][]*ir.Value{n.In, n.Out} {
		for _, v := range list {
			if v != nil && v.Type.DType != ir.F32 && v.Type.DType != ir.F16 && v.Type.DType != ir.BF16 {
				return false
			}
		}
	}
	return true
}

// classLogits reports whether n is a class loss of floats whose weights, if any, are f32, with at
// least one class.
func classLogits(n *ir.Node) bool {
	if w := n.Operand("weights"); w != nil && w.Type.DType != ir.F32 {
		return false
	}
	s := n.In[0].Type.Shape
	return s.Static() && (s.Dim(n.Axis()) > 0 || s.Elements() == 0 && n.In[1].Type.Shape.Elements() == 0) && floatsOnly(&ir.Node{In: n.In[:1], Out: n.Out})
}

// rowStat computes one number for each row, from the row in registers if it fits.
func rowStat(logSumExp bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x, y := c.s.In[0], c.s.Out[0]
		if c.elements(x) == 0 {
			return c.reduceNone(y, "max", !logSumExp)
		}
		d := c.dims(x)
		marked := make([]bool, len(d))
		for _, a := range c.n.Axes() {
			marked[a] = true
		}
		outer, n, inner, ok := middle(d, marked)
		if !ok || inner != 1 {
			var err error
			if x, outer, n, err = c.reducedLast(x, d, marked); err != nil {
				return err
			}
		}
		k := ptx.RowStat{Name: "k", Rows: int(outer), Cols: int(n), LogSumExp: logSumExp, In: c.elem(x), Out: c.elem(y)}
		if !logSumExp {
			k.Correction = int(c.n.Int("correction"))
		}
		if n > ptx.MaxRow {
			return c.longRowStat(k, x, y)
		}
		return c.launch("row_stat", k.Build, x, y)
	}
}

// longRowStat is rowStat for rows that do not fit into registers. It reduces them to the mean (or
// the maximum) first, then adds up the squared distances from it (or the exponentials).
func (c *cudaCall) longRowStat(k ptx.RowStat, x, y lower.BufferID) error {
	rows, cols := int64(k.Rows), int64(k.Cols)
	centre, sum, terms := c.temp("centre", ir.F32, rows), c.temp("sum", ir.F32, rows), c.temp("terms", ir.F32, rows, cols)
	first := ptx.RowReduce{Name: "k", Op: "sum", Rows: k.Rows, Cols: k.Cols, In: k.In, Out: ptx.Float32, Scale: 1 / float32(k.Cols)}
	if k.LogSumExp {
		first.Op, first.Scale = "max", 1
	}
	if err := c.launch("row_"+first.Op, first.Build, x, centre); err != nil {
		return err
	}
	code := ir.NewCode(nil)
	v := code.Sub(load(code, 0, c.typeOf(x).DType), load(code, 1, ir.F32))
	if k.LogSumExp {
		v = code.Exp(v)
	} else {
		v = code.Mul(v, v)
	}
	out := c.walk(terms, 0, cols, 1)
	out.Reg = v
	second := ptx.RowReduce{Name: "k", Op: "sum", Rows: k.Rows, Cols: k.Cols, In: ptx.Float32, Out: ptx.Float32}
	if err := errors.Join(c.cluster(&lower.Cluster{Shape: []int64{rows, cols}, Code: code.Ins, Loads: []lower.Access{c.walk(x, 0, cols, 1), c.walk(centre, 0, 1, 0)}, Stores: []lower.Access{out}}),
		c.launch("row_sum", second.Build, terms, sum)); err != nil {
		return err
	}
	last := ir.NewCode(nil)
	total, top := load(last, 0, ir.F32), load(last, 1, ir.F32)
	out = c.walk(y, 0, 1)
	if k.LogSumExp {
		out.Reg = last.Select(last.Finite(top), last.Add(top, last.Log(total)), top)
	} else {
		out.Reg = last.Div(total, last.F(float64(k.Cols-k.Correction)))
	}
	return c.cluster(&lower.Cluster{Shape: []int64{rows}, Code: last.Ins, Loads: []lower.Access{c.walk(sum, 0, 1), c.walk(centre, 0, 1)}, Stores: []lower.Access{out}})
}

// sumTo sums over the elements that broadcasting has repeated.
func (c *cudaCall) sumTo() error {
	x, y := c.dims(c.s.In[0]), c.dims(c.s.Out[0])
	marked := make([]bool, len(x))
	off := len(x) - len(y)
	for i := range x {
		marked[i] = i < off || y[i-off] == 1 && x[i] != 1
	}
	return c.reduce("sum", c.s.In[0], c.s.Out[0], marked, 0, false)
}

// cumsum launches sums along an axis.
func (c *cudaCall) cumsum() error {
	x, y := c.s.In[0], c.s.Out[0]
	outer, n, inner := along(c.dims(x), c.n.Axis())
	k := ptx.Scan{Name: "k", Outer: outer, N: n, Inner: inner, Exclusive: c.n.Flag("exclusive"), Reverse: c.n.Flag("reverse"), In: c.elem(x), Out: c.elem(y)}
	return c.launch("scan", k.Build, x, y)
}

// cumulative launches cumulative maxima or minima along an axis.
func cumulative(least bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x := c.s.In[0]
		outer, n, inner := along(c.dims(x), c.n.Axis())
		k := ptx.CumMax{Name: "k", Outer: outer, N: n, Inner: inner, In: c.elem(x), Min: least}
		return c.launch("cummax", k.Build, x, c.s.Out[0], c.s.Out[1])
	}
}

// linearScan launches a scan along an axis.
func (c *cudaCall) linearScan() error {
	x, a, y := c.s.In[0], c.s.In[1], c.s.Out[0]
	outer, n, inner := along(c.dims(x), c.n.Axis())
	k := ptx.LinearScan{Name: "k", Outer: outer, N: n, Inner: inner, Reverse: c.n.Flag("reverse"), In: c.elem(x), Factor: c.elem(a), Out: c.elem(y)}
	return c.launch("linear_scan", k.Build, x, a, y)
}

// arg finds the first index of the largest or smallest element along an axis.
func arg(least bool) func(c *cudaCall) error {
	return func(c *cudaCall) error {
		x, rows, cols, err := c.rowsAlong(c.s.In[0])
		if err != nil {
			return err
		}
		k := ptx.ArgMax{Name: "k", Rows: rows, Cols: cols, In: c.elem(x), Min: least}
		return c.launch("argmax", k.Build, x, c.s.Out[0])
	}
}

// rowsAlong is x with the node's axis last: x itself, or a copy.
func (c *cudaCall) rowsAlong(x lower.BufferID) (moved lower.BufferID, rows, cols int, err error) {
	d := c.dims(x)
	outer, n, inner := along(d, c.n.Axis())
	if inner == 1 {
		return x, outer, n, nil
	}
	marked := make([]bool, len(d))
	marked[c.n.Axis()] = true
	moved, _, _, err = c.reducedLast(x, d, marked)
	return moved, outer * inner, n, err
}

// topK works on rows; results along another axis are copied into place.
func (c *cudaCall) topK() error {
	x, rows, cols, err := c.rowsAlong(c.s.In[0])
	if err != nil {
		return err
	}
	y, index := c.s.Out[0], c.s.Out[1]
	outer, n, inner := along(c.dims(y), c.n.Axis())
	k := ptx.TopK{Name: "k", Rows: rows, Cols: cols, K: n, In: c.elem(x), Smallest: c.n.Flag("smallest")}
	if inner == 1 {
		return c.launch("topk", k.Build, x, y, index)
	}
	shape := []int64{int64(outer), int64(inner), int64(n)}
	values, at := c.temp("values", c.typeOf(y).DType, shape...), c.temp("indices", c.typeOf(index).DType, shape...)
	if err := c.launch("topk", k.Build, x, values, at); err != nil {
		return err
	}
	return errors.Join(c.copyBetween(c.walk(values, 0, ir.RowMajor(shape)...), c.walk(y, 0, classesMiddle(shape)...), shape),
		c.copyBetween(c.walk(at, 0, ir.RowMajor(shape)...), c.walk(index, 0, classesMiddle(shape)...), shape))
}

// countable reports whether the operand has an order in at most 32 bits for floats and 64 for
// integers: it is not f64.
func countable(n *ir.Node) bool { return n.In[0].Type.DType != ir.F64 }
