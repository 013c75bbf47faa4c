package cpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
	"ampc/world"
)

// bindTogether binds the Program of x to an execution context, and once more for each further
// micro-batch that runs together with others. Each has inputs and a work arena of its own. They share
// variables, accumulators among them.
func bindTogether(x *program, c *execContext) (*exec, error) {
	e, err := bind(x, c)
	if err != nil || x.p.Together() == 1 {
		return e, err
	}
	if err := apart(x.p); err != nil {
		e.close()
		return nil, fmt.Errorf("cpu: %s: %w", x.p.Name, err)
	}
	for i := range int(x.p.Together()) - 1 {
		other, err := bind(x, c.ofMicro(i))
		if err != nil {
			e.close()
			return nil, err
		}
		e.beside = append(e.beside, other)
	}
	return e, nil
}

// apart is an error where two steps with a meeting between them use the same variable, and one of them
// writes it: micro-batches would write it in another order than one after the other.
func apart(p *lower.Program) error {
	meetings, first := 0, map[lower.BufferID]int{} // by variable that micro-batches write: the meetings before its first step
	for _, id := range p.WrittenEarly() {
		first[id] = -1
	}
	for i := range p.Parts[lower.Micro] {
		s := &p.Parts[lower.Micro][i]
		if s.Meets() {
			meetings++
		}
		for _, id := range slices.Concat(s.In, s.Out) {
			if id == lower.None {
				continue
			}
			root := p.Buffers[id].Root
			at, written := first[root]
			if written && at >= 0 && at != meetings {
				return fmt.Errorf("step %s uses %s on both sides of a message at which micro-batches meet", s.Node.Name, p.Buffers[root].Name)
			}
			if written {
				first[root] = meetings
			}
		}
	}
	return nil
}

// together runs the micro-batches up to a step at which they meet, one after the other, and then from
// there to the next. So each adds to accumulators after the one before, as micro-batches do that run
// one after the other. The last one is e, in which the update then runs.
func (e *exec) together(feeds []runtime.Feed) error {
	all := append(e.beside[:len(e.beside):len(e.beside)], e)
	if len(feeds) != len(all) {
		return fmt.Errorf("%s: %d micro-batches run together, %d are fed", e.p.Name, len(all), len(feeds))
	}
	for i, x := range all {
		if x != e {
			x.done = e.done
			copy(x.rank, e.rank)
			if err := x.prepare(); err != nil {
				return err
			}
			defer x.releaseFeeds()
		}
		x.take(i, feeds[i])
	}
	steps := e.p.Parts[lower.Micro]
	for from := 0; from < len(steps); {
		to := from
		for to < len(steps) && !steps[to].Meets() {
			to++
		}
		for _, x := range all {
			if err := x.stretch(lower.Micro, from, to); err != nil {
				return err
			}
		}
		if to < len(steps) {
			if err := e.meet(all, &steps[to]); err != nil {
				return err
			}
		}
		from = to + 1
	}
	if e.tracer.Part != nil && !e.tracer.Part(lower.Micro, len(all)-1) {
		return runtime.ErrStopped
	}
	if e.interrupted() {
		return errInterrupted
	}
	return nil
}

// meet adds up the operands of a step over the micro-batches of all ranks, and gives each of them the
// sums. Those of this rank are a subtree of the tree over all.
func (e *exec) meet(all []*exec, s *lower.Step) error {
	n := s.Kernel.Node
	m := &world.Message{Name: n.Name(), Op: world.Sum, DType: ir.F32, Wire: ir.F32, Tree: true}
	for _, id := range s.In {
		parts := make([][]byte, len(all))
		for i, x := range all {
			parts[i] = x.widened(id)
		}
		m.Reduce(parts[0], parts)
		m.In = append(m.In, parts[0])
	}
	m.Out = m.In
	if n.Int("ranks") > 1 {
		if err := e.sendNow(m); err != nil {
			return fmt.Errorf("%s: %s %s: %w", e.p.Name, n.Def().Name, n.Name(), err)
		}
	}
	for _, x := range all {
		for k, id := range s.Out {
			if t := e.p.Buffers[id].Type; t.DType == ir.F32 {
				copy(x.mem[id], m.Out[k])
			} else {
				e.b.Narrow(x.mem[id], t.DType, m.Out[k])
			}
		}
	}
	return nil
}

// widened is a copy of a buffer in f32.
func (e *exec) widened(id lower.BufferID) []byte {
	t := e.p.Buffers[id].Type
	if t.DType == ir.F32 {
		return slices.Clone(e.mem[id])
	}
	to := make([]byte, t.With(ir.F32).Bytes())
	e.b.Widen(to, t.DType, e.mem[id])
	return to
}

// sendNow sends a message and waits for it.
func (e *exec) sendNow(m *world.Message) error {
	w, began := e.of.world, time.Now()
	if w == nil {
		return fmt.Errorf("the step is compiled for several ranks and runs on one: give TrainConfig.Parallel the world of all")
	}
	if err := w.Start(m); err != nil {
		return err
	}
	err := w.Wait(context.Background(), m)
	e.count.Messages++
	e.count.Awaited += time.Since(began)
	return err
}
