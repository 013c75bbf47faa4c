package host

import (
	"runtime"
	"sync"
	"sync/atomic"

	"ampc/ir"
	rt "ampc/runtime"
)

// A batch of large items runs item by item: what one layer writes is still in the caches when the
// next one reads it, and workers run items at the same time instead of waiting for each other after
// every layer. The choice depends on sizes alone, so results do not depend on the number of workers.

// perItem returns the graph that runs for each item of a batch, and the number of items: g and 1
// where the batch runs whole. One item at a time is faster if its values take more than the caches
// of a processor, which would not hold those of a batch, and more than the weights, which are read
// again for each item.
func (s *Session) perItem(g *ir.Graph) (*ir.Graph, int64) {
	least := s.o.Backend.Target().Caps().ItemBytes
	if least == 0 {
		return g, 1
	}
	one, items := g.OneItem()
	if one == nil {
		return g, 1
	}
	values, weights := int64(0), int64(0)
	for _, n := range one.Body[ir.Forward] {
		if d := n.Def(); d.Elem != nil || d.Is(ir.View) { // stored with what computes its operand
			continue
		}
		for _, v := range n.Out {
			values += v.Type.Bytes()
		}
	}
	for _, v := range one.Vars {
		if v.Kind != ir.Input {
			weights += v.Type.Bytes()
		}
	}
	if values < max(least, weights) {
		return g, 1
	}
	return one, items
}

// whole is the type of a batch of items of type t.
func (p *program) whole(t ir.Type) ir.Type {
	if p.items > 1 {
		d := t.Shape.Dims()
		d[0] = ir.Dim(p.items)
		t.Shape = ir.MakeShape(d...)
	}
	return t
}

// ofItem is what feeds item i of p.
func (p *program) ofItem(f rt.Feed, i int64) rt.Feed {
	own := rt.Feed{}
	for _, v := range p.code.Vars {
		if x, ok := f[v.Name]; ok {
			n := v.Type.Bytes()
			own[v.Name] = rt.Tensor{Type: v.Type, Data: x.Data[i*n : (i+1)*n]}
		}
	}
	return own
}

// runItems runs p for every item, some of them at the same time, and returns the results of all.
func (p *program) runItems(f rt.Feed, step func(rt.Feed) (rt.Future, error)) ([][]byte, error) {
	out := make([][]byte, len(p.code.Outputs))
	for i, o := range p.code.Outputs {
		out[i] = make([]byte, p.items*o.Type.Bytes())
	}
	var next atomic.Int64
	var failed sync.Once
	var first error
	work := func() {
		for i := next.Add(1) - 1; i < p.items; i = next.Add(1) - 1 {
			if err := p.runItem(i, f, out, step); err != nil {
				failed.Do(func() { first = err })
				next.Store(p.items)
			}
		}
	}
	var others sync.WaitGroup
	for range p.besides() {
		others.Go(work)
	}
	work()
	others.Wait()
	return out, first
}

// besides is the number of items that may run at the same time as one. Those that the backend has no
// workers for wait.
func (p *program) besides() int64 {
	if c, ok := p.exec.(rt.Concurrent); !ok || !c.Concurrent() {
		return 0
	}
	return min(p.items, int64(runtime.GOMAXPROCS(0))) - 1
}

// runItem runs p for item i and reads its results to out.
func (p *program) runItem(i int64, f rt.Feed, out [][]byte, step func(rt.Feed) (rt.Future, error)) error {
	future, err := step(p.ofItem(f, i))
	if err != nil {
		return err
	}
	for k, o := range p.code.Outputs {
		n := o.Type.Bytes()
		if err := future.Read(k, out[k][i*n:(i+1)*n]); err != nil {
			return err
		}
	}
	return nil
}
