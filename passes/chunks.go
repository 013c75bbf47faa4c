package passes

import (
	"fmt"
	"slices"

	"ampc/ir"
)

// chunks lets a product of which only a cross entropy reads the result, such as the head of a
// language model, run over Config.Chunks blocks of rows. Each block's loss and gradient follow its
// product, in the backward section, so that neither the logits nor their gradient are whole at any
// time, and nothing is computed twice. The gradient of the weight is added up block by block, in
// place. The number of labels, by which the loss is divided, is counted from the labels alone.
//
// The sums of the loss, of the weight's gradient and of the bias's are added block by block, in
// f32: the order of these sums is all that differs. The source of the step, which prove compares
// with, has the blocks.
func chunks(g *ir.Graph, c *Context) error {
	if c.Chunks < 2 || !c.Train {
		c.keep()
		return nil
	}
	found := false
	for _, n := range slices.Clone(g.Body[ir.Forward]) {
		h := headOf(g, n)
		if h == nil {
			continue
		}
		if why := h.refused(c.Chunks); why != "" {
			c.note("%s: the product and its loss run whole: %s", h.product.Out[0], why)
			continue
		}
		if err := h.divide(int64(c.Chunks)); err != nil {
			return err
		}
		found = true
		c.Count("chunked", 1)
	}
	if !found {
		c.note("Chunks: no product is followed by a cross entropy alone")
	}
	return ir.InferUnits(g)
}

// head is a product with rows of logits, its loss and their gradients.
type head struct {
	g             *ir.Graph
	product, loss *ir.Node
	uses          *ir.Uses
	grads         []*headGrad
	late          map[*ir.Node]bool // nodes that depend on the sum of the losses
	block         string            // suffix of names: number of the block
}

// headGrad is the gradient of the logits in one sweep, and what is computed of it.
type headGrad struct {
	n       *ir.Node
	rows    []*ir.Node // products with one row for each row of the logits
	weights []*ir.Node // products that sum over the rows
	biases  []*ir.Node // sums over the rows
	views   []*ir.Node // the gradient in another shape
}

// headOf is the head that ends in loss n, nil where it ends in none.
func headOf(g *ir.Graph, n *ir.Node) *head {
	if n.Op != ir.OpCrossEntropy || n.In[0].Def == nil || n.In[0].Def.Op != ir.OpLinear {
		return nil
	}
	return &head{g: g, product: n.In[0].Def, loss: n, uses: g.Uses(), late: map[*ir.Node]bool{}}
}

// refused finds the nodes of the head, and says why they cannot be divided, "" where they can.
func (h *head) refused(blocks int) string {
	z := h.product.Out[0]
	last := int64(z.Type.Shape.Rank() - 1)
	axis := h.loss.Int("axis")
	switch {
	case h.loss.Operand("weights") != nil:
		return "classes have weights"
	case axis != -1 && axis != last:
		return "its classes are not the last axis"
	case !z.Type.Shape.Static() || !h.product.In[0].Type.Shape.Static():
		return "its sizes are not known"
	case h.rows() < int64(blocks):
		return fmt.Sprintf("it has %d rows", h.rows())
	case h.product.In[1].Def != nil:
		return h.product.In[1].String() + " is computed" // its gradient may have 16 bits
	case slices.Contains(h.g.Return, z):
		return "it is a result"
	}
	for _, u := range h.uses.Of(z) {
		switch {
		case u.Node == h.loss:
		case u.Node.Op == ir.OpCrossEntropyGrad && u.Arg() == 0 && u.Section == ir.Backward:
			d := &headGrad{n: u.Node}
			if other := d.find(h.uses, d.n.Out[0]); other != nil {
				return other.String() + " reads the gradient of the logits"
			}
			for _, n := range d.weights {
				if h.rowsOf(d, n) != reshaped(h.product.In[0]) {
					return n.Out[0].String() + " is no gradient of its weight"
				}
			}
			h.grads = append(h.grads, d)
		default:
			return fmt.Sprintf("%s reads the logits", u.Node.Name())
		}
	}
	if len(h.grads) == 0 {
		return "no gradient flows into it"
	}
	return h.cycle()
}

// rowsOf is what n multiplies the gradient of the logits by.
func (h *head) rowsOf(d *headGrad, n *ir.Node) *ir.Value {
	if x := reshaped(n.In[0]); x != d.n.Out[0] {
		return x
	}
	return reshaped(n.In[1])
}

// reshaped is the value that v is another shape of.
func reshaped(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Op == ir.OpReshape {
		v = v.Def.In[0]
	}
	return v
}

// rows is the number of rows of logits.
func (h *head) rows() int64 {
	s := h.product.Out[0].Type.Shape
	return s.Elements() / int64(s.Dim(s.Rank()-1))
}

// find lists the readers of the gradient of the logits, v, by kind; it returns one of another kind.
func (d *headGrad) find(uses *ir.Uses, v *ir.Value) *ir.Value {
	for _, u := range uses.Of(v) {
		switch n := u.Node; {
		case n.Op == ir.OpReshape:
			d.views = append(d.views, n)
			if other := d.find(uses, n.Out[0]); other != nil {
				return other
			}
		case n.Op == ir.OpMatmul && u.Arg() == 0 && !n.Flag("ta") && n.In[1].Type.Shape.Rank() == 2:
			d.rows = append(d.rows, n)
		case n.Op == ir.OpMatmul && v.Type.Shape.Rank() == 2 && n.Flag("ta") && !n.Flag("tb"):
			d.weights = append(d.weights, n)
		case n.Op == ir.OpReduceSum && len(n.Ints("axes")) == v.Type.Shape.Rank()-1 && !slices.Contains(n.Ints("axes"), int64(v.Type.Shape.Rank()-1)) && !n.Flag("keep"):
			d.biases = append(d.biases, n)
		default:
			return n.Out[0]
		}
	}
	return nil
}

// cycle finds the nodes that depend on the loss. Gradients that depend on it, as those of a product
// of losses, cannot follow each block.
func (h *head) cycle() string {
	of := map[*ir.Value]bool{h.loss.Out[0]: true}
	first := -1
	for i, n := range h.g.Body[ir.Backward] {
		if slices.ContainsFunc(h.grads, func(d *headGrad) bool { return d.n == n }) {
			first = i
			break
		}
	}
	for s, n := range h.g.Nodes {
		if s == ir.Update || !slices.ContainsFunc(operands(n), func(v *ir.Value) bool { return of[v] }) {
			continue
		}
		if s == ir.Backward && slices.Index(h.g.Body[ir.Backward], n) <= first || slices.ContainsFunc(h.grads, func(d *headGrad) bool { return d.n == n }) {
			return n.Out[0].String() + " depends on the loss, and the gradient may depend on it"
		}
		if s == ir.Forward && n.Out[0].Type.Shape.Rank() > 0 {
			return n.Out[0].String() + " is computed from the loss"
		}
		h.late[n] = s == ir.Forward
		for _, v := range n.Out {
			of[v] = true
		}
	}
	return ""
}

// divide replaces the nodes of the head by blocks.
func (h *head) divide(blocks int64) error {
	b := ir.Edit(h.g)
	count := h.count(b.In(ir.Forward))
	h.counts()
	from := len(h.g.Body[ir.Backward])
	x := h.matrix(b, h.product.In[0])
	labels := b.In(ir.Backward).Reshape(h.loss.In[1], -1)
	sizes := make([]int64, blocks)
	for i := range sizes {
		sizes[i] = h.rows()*(int64(i)+1)/blocks - h.rows()*int64(i)/blocks
	}
	xs, ys := b.In(ir.Backward).Split(x, 0, sizes...), b.In(ir.Backward).Split(labels, 0, sizes...)
	if b.Err() != nil {
		return b.Err()
	}
	to := map[*ir.Value]*ir.Value{h.loss.Out[1]: count}
	parts := map[*ir.Node][]*ir.Value{}
	for i := range sizes {
		h.block = fmt.Sprintf(".%0*d", len(fmt.Sprint(blocks)), i+1) // names are ordered as blocks are: the pass order breaks ties so
		in := slices.Clone(h.product.In)
		in[0] = xs[i]
		z := h.emit(b, h.product, nil, in...)
		l := h.emit(b, h.loss, nil, z, ys[i])
		h.add(b, to, h.loss.Out[0], l, nil)
		for _, d := range h.grads {
			in := slices.Clone(d.n.In)
			in[0], in[1] = z, ys[i]
			dz := h.emit(b, d.n, l.Def, in...)
			dz.GradOf = z
			for _, n := range d.rows {
				part := h.emit(b, n, z.Def, dz, n.In[1])
				parts[n] = append(parts[n], part)
			}
			for _, n := range d.weights {
				in := []*ir.Value{dz, xs[i]}
				if reshaped(n.In[1]) == d.n.Out[0] {
					in = []*ir.Value{xs[i], dz}
				}
				h.add(b, to, n.Out[0], h.emit(b, n, z.Def, in...), h.product.In[1])
			}
			for _, n := range d.biases {
				h.add(b, to, n.Out[0], b.In(ir.Backward).Named(n.Out[0].Name+h.block).ReduceSum(dz, false, 0), h.product.In[2])
			}
		}
		if b.Err() != nil {
			return b.Err()
		}
	}
	for _, d := range h.grads {
		for _, n := range d.rows {
			to[n.Out[0]] = h.joined(b, n.Out[0].Type, parts[n])
		}
	}
	h.place(from, to)
	return b.Err()
}

// joined are all rows of the parts, as type t.
func (h *head) joined(b *ir.Builder, t ir.Type, parts []*ir.Value) *ir.Value {
	all := b.In(ir.Backward).Concat(0, parts...)
	if all == nil || all.Type == t {
		return all
	}
	return b.In(ir.Backward).Reshape(all, ir.Sizes(t.Shape)...)
}

// count is the number of labels that count.
func (h *head) count(b *ir.Builder) *ir.Value {
	labels, ignore := h.loss.In[1], h.loss.Int("ignore")
	none := constantOf(b, fmt.Sprintf("ignored.%d.%s", ignore, labels.Type.DType), labels.Type.DType, float64(ignore))
	axes := make([]int64, labels.Type.Shape.Rank())
	for i := range axes {
		axes[i] = int64(i)
	}
	return b.Named(h.loss.Out[1].Name).ReduceSum(b.Cast(b.Ne(labels, none), ir.F32), false, axes...)
}

// counts moves the nodes of count, which are the last of forward, to where the loss is.
func (h *head) counts() {
	body := h.g.Body[ir.Forward]
	at := slices.Index(body, h.loss)
	from := len(body) - 3
	h.g.Body[ir.Forward] = slices.Concat(body[:at], body[from:], body[at:from])
}

// matrix is v with its rows along one axis.
func (h *head) matrix(b *ir.Builder, v *ir.Value) *ir.Value {
	s := v.Type.Shape
	if s.Rank() == 2 {
		return v
	}
	return b.In(ir.Backward).Reshape(v, -1, int64(s.Dim(s.Rank()-1)))
}

// emit runs n on other operands, as part of the gradient of node of.
func (h *head) emit(b *ir.Builder, n, of *ir.Node, in ...*ir.Value) *ir.Value {
	attrs := n.Attrs
	if n.HasAttr("axis") {
		attrs = attrs.With("axis", int64(-1))
	}
	return b.In(ir.Backward).Named(n.Out[0].Name+h.block).EmitNode(&ir.Node{Op: n.Op, In: in, Attrs: attrs, Of: of, Pos: n.Pos, Pin: n.Pin}, nil)[0]
}

// add adds a block's part to what stands for the sum over all rows. Both are stored as the gradient
// of value of is.
func (h *head) add(b *ir.Builder, to map[*ir.Value]*ir.Value, sum, part, of *ir.Value) {
	if b.Err() != nil {
		return
	}
	part.GradOf = of
	if to[sum] != nil {
		part = b.In(ir.Backward).Named(sum.Name+".sum"+h.block).Add(to[sum], part)
		part.GradOf = of
	}
	to[sum] = part
}

// place puts the blocks, and behind them what forward computes of the loss, where the gradient of
// the logits was, and removes what they stand for.
func (h *head) place(from int, to map[*ir.Value]*ir.Value) {
	gone := map[*ir.Node]bool{h.product: true, h.loss: true}
	for _, d := range h.grads {
		gone[d.n] = true
		for _, n := range slices.Concat(d.rows, d.weights, d.biases, d.views) {
			gone[n] = true
		}
	}
	var late []*ir.Node
	for _, n := range h.g.Body[ir.Forward] {
		if h.late[n] {
			late = append(late, n)
		}
	}
	body := h.g.Body[ir.Backward]
	at := slices.IndexFunc(body, func(n *ir.Node) bool { return gone[n] })
	h.g.Body[ir.Backward] = slices.Concat(body[:at], body[from:], late, body[at:from])
	h.g.Replace(to)
	h.g.Filter(func(s ir.Section, n *ir.Node) bool { return !gone[n] && !(s == ir.Forward && h.late[n]) })
	for old, v := range to {
		v.Name = old.Name
		if v.GradOf == nil {
			v.GradOf = old.GradOf
		}
	}
}
