package cpu

import (
	"context"
	"fmt"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/world"
)

var collectiveKernels = map[string]binder{"all_reduce": bindAllReduce, "all_gather": bindAllGather}

var reductions = map[string]world.Op{"sum": world.Sum, "mean": world.Mean, "max": world.Max}

// bindAllReduce starts the message of the operands. exec.arrive waits for it.
func bindAllReduce(c *call) (func(), error) {
	m := &world.Message{Name: c.Name(), Op: reductions[c.Str("op")], DType: c.in[0].t.DType, Wire: c.DT("msg"), Shift: int(c.Int("shift"))}
	for i, v := range c.in {
		m.In, m.Out = append(m.In, v.mem), append(m.Out, c.out[i].mem)
	}
	return c.sender(m), nil
}

// bindAllGather starts the message of the operand, whose axis is the first one.
func bindAllGather(c *call) (func(), error) {
	m := &world.Message{Name: c.Name(), Op: world.Gather, DType: c.in[0].t.DType, Wire: ir.F32, In: [][]byte{c.in[0].mem}, Out: [][]byte{c.out[0].mem}}
	return c.sender(m), nil
}

// sender starts a message when it is run.
func (c *call) sender(m *world.Message) func() {
	ranks, e := int(c.Int("ranks")), c.exec
	return func() {
		w := e.of.world
		if w == nil || w.Size() != ranks {
			c.fail("the step is compiled for %d ranks and runs on one: give TrainConfig.Parallel the world of all", ranks)
			return
		}
		if err := w.Start(m); err != nil {
			c.fail("%w", err)
			return
		}
		e.flying = append(e.flying, m)
	}
}

// arrive waits for the messages that step i of a part needs, and for those that have
// started where somebody watches. They arrive in the order in which they have started.
func (e *exec) arrive(part lower.Part, i int) error {
	for len(e.flying) > 0 {
		sent := &e.p.Messages[e.landed]
		if sent.Until > i && !e.any() {
			return nil
		}
		e.landed++
		m, began := e.flying[0], time.Now()
		e.flying = e.flying[:copy(e.flying, e.flying[1:])]
		if err := e.of.world.Wait(context.Background(), m); err != nil {
			n := e.p.Parts[part][sent.Step].Kernel.Node
			return fmt.Errorf("%s: %s %s: %w", e.p.Name, n.Def().Name, n.Name(), err)
		}
		e.count.Messages++
		e.count.Awaited += time.Since(began)
	}
	return nil
}

// depart says that a part begins, whose messages are those from now on.
func (e *exec) depart(part lower.Part) {
	for e.landed = 0; e.landed < len(e.p.Messages) && e.p.Messages[e.landed].Part != part; {
		e.landed++
	}
}

// land waits for the messages that a step leaves behind which ends early: the ranks
// count them.
func (e *exec) land() {
	for _, m := range e.flying {
		if e.of.world.Wait(context.Background(), m) != nil {
			break // no later one arrives either
		}
	}
	e.flying = e.flying[:0]
}
