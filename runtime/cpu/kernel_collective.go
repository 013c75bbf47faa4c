package cpu

import (
	"context"

	"ampc/world"
)

var collectiveKernels = map[string]binder{"all_reduce": bindAllReduce}

var reductions = map[string]world.Op{"sum": world.Sum, "mean": world.Mean, "max": world.Max}

// bindAllReduce sends the operands as one message and waits for what becomes of it.
func bindAllReduce(c *call) (func(), error) {
	m := &world.Message{Name: c.Name(), Op: reductions[c.Str("op")], DType: c.in[0].t.DType, Wire: c.DT("msg"), Shift: int(c.Int("shift"))}
	for i, v := range c.in {
		m.In, m.Out = append(m.In, v.mem), append(m.Out, c.out[i].mem)
	}
	ranks := int(c.Int("ranks"))
	return func() {
		w := c.world()
		if w == nil || w.Size() != ranks {
			c.fail("the step is compiled for %d ranks and runs on one: give TrainConfig.Parallel the world of all", ranks)
			return
		}
		if err := w.Start(m); err != nil {
			c.fail("%w", err)
		} else if err := w.Wait(context.Background(), m); err != nil {
			c.fail("%w", err)
		}
	}, nil
}
