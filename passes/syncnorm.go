package passes

import (
	"slices"

	"ampc/ir"
)

// synchronize replaces batch norms by norms with the statistics of all ranks: sums and sums of
// squares are added over the ranks, then divided by the number of all elements. Their gradients,
// with those of the sums, follow from the rows. With slices the sums are over all slices, in their tree:
// those of a rank run together.
func (t *training) synchronize(g *ir.Graph, c *Context) error {
	if !c.Parallel.SyncNorms || !c.Parallel.several() && c.Parallel.Slices == 0 {
		return nil
	}
	over := c.Parallel.sum()
	if n := c.Parallel.micro(); n > 1 {
		over = over.With("micro", int64(n))
	}
	b, to := ir.Edit(g), map[*ir.Value]*ir.Value{}
	for _, n := range slices.Clone(g.Body[ir.Forward]) {
		if rows := n.Def().Batch; rows == nil || n.Op != rows.Train {
			continue
		}
		from := len(g.Body[ir.Forward])
		for i, v := range n.In { // an earlier norm's result, or its update of the same statistics
			if w := to[v]; w != nil {
				n.In[i] = w
			}
		}
		made := b.Deriving(n, "").In(ir.Forward).Named(n.Out[0].Name+".ranks").SharedBatchNorm(n, c.Parallel.parts(), func(x *ir.Value) *ir.Value {
			if x == nil {
				return nil
			}
			return t.collective(b.In(ir.Forward).Named("all."+n.Out[0].Name), over, []*ir.Value{x})[0]
		})
		if b.Err() != nil {
			return b.Err()
		}
		for i, v := range n.Out {
			to[v] = made[i]
			if i > 2 && n.In[i].Kind == ir.State {
				t.advanced(n.In[i], made[i])
				to[n.In[i]] = made[i]
			}
		}
		body := g.Body[ir.Forward]
		at := slices.Index(body, n)
		g.Body[ir.Forward] = slices.Concat(body[:at], body[from:], body[at+1:from])
		c.Count("norms_synchronized", 1)
	}
	for v, w := range to {
		if v.IsVar() {
			delete(to, v)
			continue
		}
		v.Name, w.Name = w.Name, v.Name // an evaluation finds values by name
	}
	g.Replace(to)
	return b.Err()
}

// advanced records the next value of a running statistic, which is the same on all ranks.
func (t *training) advanced(state, next *ir.Value) {
	for i := range t.pending {
		if t.pending[i].state == state {
			t.pending[i].next = next
			return
		}
	}
	t.pending = append(t.pending, pendingStat{state: state, next: next, agreed: true})
}

// renumber gives the messages of the backward pass, which are the gradients of messages of the
// forward pass, numbers after those of the forward pass.
func (t *training) renumber(g *ir.Graph) {
	for _, n := range g.Body[ir.Backward] {
		if n.Def().Is(ir.Collective) {
			t.messages++
			n.Attrs = n.Attrs.With("seq", t.messages)
		}
	}
}
