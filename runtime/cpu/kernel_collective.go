package cpu

import (
	"context"
	"fmt"
	"time"

	"ampc/ir"
	"ampc/lower"
	"ampc/world"
)

var collectiveKernels = map[ir.Op]binder{ir.OpAllReduce: bindAllReduce, ir.OpAllGather: bindAllGather, ir.OpReduceScatter: bindReduceScatter}

var reductions = map[string]world.Op{"sum": world.Sum, "mean": world.Mean, "max": world.Max}

// bindAllReduce starts the message of the operands. exec.awaitMessages waits for it.
func bindAllReduce(c *call) (func(), error) {
	m := c.reduction()
	for i, v := range c.in {
		m.In, m.Out = append(m.In, v.mem), append(m.Out, c.out[i].mem)
	}
	return c.sender(m), nil
}

func (c *call) reduction() *world.Message {
	return &world.Message{Name: c.Name(), Op: reductions[c.Str("op")], DType: c.in[0].t.DType, Wire: c.DT("msg"), Shift: int(c.Int("shift")), Tree: c.Flag("tree")}
}

// bindReduceScatter starts the message of the operands, of which this rank gets ranges. An
// operand that the ranks do not divide is sent from a copy with zeros behind it.
func bindReduceScatter(c *call) (func(), error) {
	m := c.reduction()
	m.Scatter = true
	ranks, whole := int(c.Int("ranks")), true
	for i, v := range c.in {
		in := v.mem
		if n := len(c.out[i].mem) * ranks; len(in) < n {
			in, whole = make([]byte, n), false
		}
		m.In, m.Out = append(m.In, in), append(m.Out, c.out[i].mem)
	}
	send := c.sender(m)
	if whole {
		return send, nil
	}
	return func() {
		for i, v := range c.in {
			if len(v.mem) < len(m.In[i]) {
				copy(m.In[i], v.mem)
			}
		}
		send()
	}, nil
}

// bindAllGather starts the message of the operands, which are gathered one after the other.
// What a bucket of several dtypes holds travels as bytes.
func bindAllGather(c *call) (func(), error) {
	m := &world.Message{Name: c.Name(), Op: world.Gather, DType: c.in[0].t.DType, Wire: ir.F32}
	for i, v := range c.in {
		if v.t.DType != m.DType {
			m.DType = ir.U8
		}
		m.In, m.Out = append(m.In, v.mem), append(m.Out, c.out[i].mem)
	}
	return c.sender(m), nil
}

// sender returns a function that starts a message.
func (c *call) sender(m *world.Message) func() {
	ranks, e := int(c.Int("ranks")), c.exec
	if ranks == 1 { // and one micro-batch: it has the sum
		return func() {
			for i := range m.In {
				copy(m.Out[i], m.In[i])
			}
		}
	}
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
		e.inFlight = append(e.inFlight, m)
	}
}

// awaitMessages waits for the messages that step i of a part needs. With an observer attached it
// waits for all that have started. Messages finish in the order in which they start.
func (e *exec) awaitMessages(part lower.Part, i int) error {
	for len(e.inFlight) > 0 {
		sent := &e.p.Messages[e.nextMessage]
		if sent.Until > i && !e.any() {
			return nil
		}
		e.nextMessage++
		m, began := e.inFlight[0], time.Now()
		e.inFlight = e.inFlight[:copy(e.inFlight, e.inFlight[1:])]
		if err := e.of.world.Wait(context.Background(), m); err != nil {
			n := e.p.Parts[part][sent.Step].Kernel.Node
			return fmt.Errorf("%s: %s %s: %w", e.p.Name, n.Def().Name, n.Name(), err)
		}
		e.count.Messages++
		e.count.Awaited += time.Since(began)
	}
	return nil
}

// beginMessages makes the first message of a part the next to finish.
func (e *exec) beginMessages(part lower.Part) {
	for e.nextMessage = 0; e.nextMessage < len(e.p.Messages) && e.p.Messages[e.nextMessage].Part != part; {
		e.nextMessage++
	}
}

// drainMessages waits for the messages that an interrupted step has started, because all ranks
// count messages.
func (e *exec) drainMessages() {
	for _, m := range e.inFlight {
		if e.of.world.Wait(context.Background(), m) != nil {
			break // later messages fail, too
		}
	}
	e.inFlight = e.inFlight[:0]
}
