package cpu

import (
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime/cpu/kern"
)

// end is the elementwise work that a product goes on with, on blocks of what it
// has computed. A nil end is none.
type end struct {
	g    *groupStep
	base int // element of the whole result at which the product's own begins
}

// end compiles what the product of a step goes on with. c is where the product
// itself is stored: its result, one of what it goes on with, or nowhere.
func (e *exec) end(s *lower.Step) (n *end, c kern.Buf) {
	if s.End == nil {
		return nil, e.buf(s.Out[0])
	}
	g, c := e.after(s.End)
	return &end{g: e.group(g, elements(g))}, c
}

// after is what is left to a group that goes on with a product which the
// product's own kernel stores to c as far as it can.
func (e *exec) after(g *lower.Group) (rest *lower.Group, c kern.Buf) {
	left := *g
	if i := e.asComputed(g); i >= 0 {
		c = e.buf(g.Stores[i].Buffer)
		left.Stores = slices.Delete(slices.Clone(g.Stores), i, i+1)
	}
	return &left, c
}

// asComputed is the store of a group that holds a product as it was computed,
// in memory that nothing else in the group reads; -1 where there is none.
func (e *exec) asComputed(g *lower.Group) int {
	return slices.IndexFunc(g.Stores, func(a lower.Access) bool {
		mem := e.mem[a.Buffer]
		return g.IsProduct(a.Reg) && a.DType == ir.F32 && a.Offset == 0 && newWalk(g.Shape, a.Strides, 0).dense && !slices.ContainsFunc(g.Loads, func(l lower.Access) bool {
			return l.Buffer != lower.None && shareBytes(e.mem[l.Buffer], mem)
		})
	})
}

// finisher is n as kern takes it.
func (n *end) finisher() kern.Finisher {
	if n == nil {
		return nil
	}
	return n
}

// begin computes what is the same for all elements.
func (n *end) begin() {
	if n != nil {
		n.g.begin()
	}
}

// from says at which element of the whole result the next product begins.
func (n *end) from(base int) {
	if n != nil {
		n.base = base
	}
}

// Finish implements kern.Finisher.
func (n *end) Finish(worker, at int, c []float32) {
	g, start := n.g, n.base+at
	if f := g.formula; f != nil {
		f.over(worker, start, c)
		return
	}
	l := &g.work[worker]
	l.product, l.at = c, start
	g.span(l, start, len(c))
}
